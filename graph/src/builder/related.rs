//! Does what the waker acted on fit what the wakee waited for?

use pg_event::{Catalog, Object, ObjectId, ObjectKind};

/// How two objects of a wake-up fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// The same thing, or the two ends of one channel.
    Same,
    /// Cannot be told.
    Open,
    /// Provably different things.
    Differs,
}

/// Objects of these kinds stand for others, so nothing can be proved from them.
fn stands_for_others(k: ObjectKind) -> bool {
    matches!(
        k,
        ObjectKind::Unknown
            | ObjectKind::Epoll
            | ObjectKind::IoUring
            | ObjectKind::Anon
            | ObjectKind::Inotify
            | ObjectKind::SignalFd
            | ObjectKind::CharDevice
            | ObjectKind::Socket
    )
}

fn pair(a: &Object, b: &Object) -> Fit {
    if a.kind == b.kind && (a.is_other_end_of(b) || (a.id == b.id && a.peer == b.peer)) {
        return Fit::Same;
    }
    let datagram = |k| matches!(k, ObjectKind::Udp | ObjectKind::UnixDatagram);
    if a.kind == b.kind && datagram(a.kind) {
        // A socket without a connection has one end only, and that may be any address of the machine.
        let takes = |a: &Object, b: &Object| {
            a.peer == 0
                && b.peer != 0
                && (b.peer == a.id || (a.kind == ObjectKind::Udp && b.peer & 0xffff == a.id))
        };
        if takes(a, b) || takes(b, a) {
            return Fit::Same;
        }
        if a.peer == 0 || b.peer == 0 {
            return if a.peer == b.peer { Fit::Open } else { Fit::Differs };
        }
    }
    if stands_for_others(a.kind) || stands_for_others(b.kind) {
        return Fit::Open;
    }
    match (a.kind, b.kind) {
        // One word can be mapped at two addresses when it is shared between address spaces.
        (ObjectKind::Futex, ObjectKind::Futex) if a.peer != b.peer => Fit::Open,
        // A listening socket is woken by the connection that arrives on it.
        (ObjectKind::Tcp, ObjectKind::Tcp) if (a.peer == 0) != (b.peer == 0) => {
            let (listener, other) = if a.peer == 0 { (a, b) } else { (b, a) };
            let port = |e: u64| e & 0xffff;
            if port(listener.id) == port(other.peer) { Fit::Same } else { Fit::Differs }
        }
        (ObjectKind::UnixStream, ObjectKind::UnixStream) if a.peer == 0 || b.peer == 0 => Fit::Open,
        // A write to a file, a lock on it and a notice of it are one thing to many.
        (x, y) if x == y || (x.is_channel() && y.is_channel()) => Fit::Differs,
        (ObjectKind::Futex, y) | (y, ObjectKind::Futex) if y.is_channel() => Fit::Differs,
        _ => Fit::Open,
    }
}

/// How `waker` (the object of the waker's call) fits `wakee` (what was waited for; maybe a set).
pub(crate) fn fit(wakee: ObjectId, waker: ObjectId, catalog: &Catalog) -> Fit {
    if wakee.is_some() && wakee == waker {
        return Fit::Same;
    }
    let (Some(a), Some(b)) = (catalog.object(wakee), catalog.object(waker)) else { return Fit::Open };
    if a.kind != ObjectKind::Set {
        return pair(a, b);
    }
    let mut all = if a.members.is_empty() { Fit::Open } else { Fit::Differs };
    for m in &a.members {
        if *m == waker {
            return Fit::Same;
        }
        match catalog.object(*m).map_or(Fit::Open, |m| pair(m, b)) {
            Fit::Same => return Fit::Same,
            Fit::Open => all = Fit::Open,
            Fit::Differs => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_members_and_strangers() {
        let object = |kind, id, peer, members: &[u32]| Object {
            members: members.iter().map(|m| ObjectId(*m)).collect(),
            ..Object::new(kind, id, peer)
        };
        let objects = vec![
            object(ObjectKind::Tcp, 1, 2, &[]),
            object(ObjectKind::Tcp, 2, 1, &[]),
            object(ObjectKind::Pipe, 7, 7, &[]),
            object(ObjectKind::Set, 9, 0, &[0, 2]),
            object(ObjectKind::Set, 10, 0, &[0, 5]),
            object(ObjectKind::Epoll, 11, 0, &[]),
            object(ObjectKind::Futex, 12, 1, &[]),
            object(ObjectKind::Futex, 13, 1, &[]),
            object(ObjectKind::Futex, 14, 2, &[]),
        ];
        let c = Catalog { objects, ..Catalog::default() };
        for (wakee, waker, expected) in [
            (0, 1, Fit::Same),
            (0, 2, Fit::Differs),
            (3, 1, Fit::Same),
            (3, 2, Fit::Same),
            (3, 6, Fit::Differs),
            (4, 2, Fit::Open),
            (5, 1, Fit::Open),
            (6, 6, Fit::Same),
            (6, 7, Fit::Differs),
            (6, 8, Fit::Open),
            (6, 2, Fit::Differs),
            (99, 1, Fit::Open),
        ] {
            assert_eq!(fit(ObjectId(wakee), ObjectId(waker), &c), expected, "{wakee} {waker}");
        }
    }
}
