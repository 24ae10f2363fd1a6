//! Objects by identity: one row each, named as soon as a name is known.

use super::hash::FastMap;
use super::raw::{K_NONE, Name, RawObject};
use super::semaphores::linked_name;
use super::unanswered::Unanswered;
use super::words::{self, Words};
use crate::procfs::lossy;
use pg_event::{CatalogDelta, Object, ObjectId, ObjectKind};
use std::collections::HashSet;
use std::net::Ipv6Addr;

/// Objects that are kept besides those used meanwhile: each time so many have come it is looked which of the others
/// nobody used since the last look.
const ROOM: usize = 1 << 16;
/// Longest name kept.
const MAX_NAME: usize = 4096;

/// All objects of a recording.
pub struct Objects {
    ids: FastMap<RawObject, ObjectId>,
    /// Looked up lately, each at a place that few others share: most are found here.
    latest: Vec<(RawObject, ObjectId)>,
    rows: FastMap<ObjectId, Row>,
    /// Ids given so far: they are never given twice.
    given: u32,
    changed: Vec<ObjectId>,
    words: Words,
    /// Counts looks at who leaves; how many rows there may be until the next one.
    looks: u32,
    room: usize,
    /// What connections owed when the recording began: told of those that are seen.
    unanswered: Unanswered,
}

struct Row {
    object: Object,
    dirty: bool,
    /// The look after which it was used last.
    used: u32,
}

/// Places of [`Objects::latest`].
const LATEST: usize = 1024;

impl Default for Objects {
    fn default() -> Self {
        let nobody = RawObject { kind: K_NONE, id: 0, peer: 0 };
        Self {
            ids: FastMap::default(),
            latest: vec![(nobody, ObjectId::NONE); LATEST],
            rows: FastMap::default(),
            given: 0,
            changed: Vec::new(),
            words: Words::default(),
            looks: 0,
            room: ROOM,
            unanswered: Unanswered::new(),
        }
    }
}

impl Objects {
    /// The object's id; made at first sight.
    pub fn id(&mut self, raw: RawObject) -> ObjectId {
        if raw.kind == K_NONE {
            return ObjectId::NONE;
        }
        if Words::open(raw) {
            let (found, path) = self.words.find(raw);
            return match path {
                Some(path) => self.called(found, &path),
                None => self.id(found),
            };
        }
        let mix = (raw.id ^ raw.peer.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let place = mix as usize % LATEST;
        let (last, id) = self.latest[place];
        if last == raw {
            return id;
        }
        if let Some(&id) = self.ids.get(&raw) {
            self.latest[place] = (raw, id);
            if let Some(row) = self.rows.get_mut(&id) {
                row.used = self.looks;
            }
            return id;
        }
        let id = ObjectId(self.given);
        self.given += 1;
        self.ids.insert(raw, id);
        // Both ends of a pseudo-terminal are known by the slave's number (major 136).
        let number = raw.id & !(1 << 63);
        let name = if raw.kind == ObjectKind::Tty as u8 && number & 0xfff00 == 136 << 8 {
            let n = (number & 0xff) | (number >> 12 & !0xff);
            format!("/dev/pts/{n}{}", if raw.id >> 63 == 1 { " (master)" } else { "" })
        } else {
            String::new()
        };
        let kind = ObjectKind::from_u8(raw.kind);
        let unanswered = self.unanswered.remove(&(kind, raw.id, raw.peer));
        let object =
            Object { name, unanswered: unanswered.unwrap_or(0), ..Object::new(kind, raw.id, raw.peer) };
        self.rows.insert(id, Row { object, dirty: true, used: self.looks });
        self.changed.push(id);
        id
    }

    /// These connections were owed an answer when the recording began.
    pub fn set_unanswered(&mut self, unanswered: Unanswered) {
        self.unanswered = unanswered;
    }

    /// Is it time for [`Self::let_go`]?
    pub fn is_crowded(&self) -> bool {
        self.rows.len() >= self.room
    }

    /// How many objects there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Let those leave that were not used since the last such look, but for `used` and the members of sets that
    /// stay. They have been given out; seen again, they get new ids.
    pub fn let_go(&mut self, used: &HashSet<ObjectId>) -> Vec<ObjectId> {
        let now = self.looks;
        let stays = |id: &ObjectId, row: &Row| row.used == now || row.dirty || used.contains(id);
        let members: HashSet<ObjectId> = self
            .rows
            .iter()
            .filter(|(id, row)| stays(id, row))
            .flat_map(|(_, row)| row.object.members.iter().copied())
            .collect();
        let mut out = Vec::new();
        self.rows.retain(|id, row| {
            let stays = stays(id, row) || members.contains(id);
            if !stays {
                out.push(*id);
            }
            stays
        });
        let rows = &self.rows;
        self.ids.retain(|_, id| rows.contains_key(id));
        self.rows.shrink_to_fit();
        self.ids.shrink_to_fit();
        // Whatever is used from here on is to be noticed once more.
        self.latest.fill((RawObject { kind: K_NONE, id: 0, peer: 0 }, ObjectId::NONE));
        self.looks += 1;
        self.room = self.rows.len() + ROOM;
        out
    }

    /// The row of an object.
    pub fn row(&self, id: ObjectId) -> Option<&Object> {
        self.rows.get(&id).map(|r| &r.object)
    }

    /// Take a name.
    pub fn name(&mut self, raw: RawObject, name: &Name) {
        let id = self.id(raw);
        let Some(row) = self.row(id) else { return };
        if row.kind == ObjectKind::Tty && !row.name.is_empty() {
            return;
        }
        let mut text = show(name, raw);
        if let Some(linked) = linked_name(&text, raw.peer) {
            text = linked;
        }
        let connected = matches!(name, Name::Unix(_, true));
        if (&row.name, row.connected) != (&text, connected)
            && let Some(row) = self.touch(id)
        {
            row.name = text;
            row.connected = connected;
        }
    }

    /// A name that was found otherwise, for an object that has none.
    pub fn name_if_none(&mut self, id: ObjectId, name: String) {
        if let Some(row) = self.touch(id).filter(|o| o.name.is_empty()) {
            row.name = name;
        }
    }

    /// The object's id, and its name: made at first sight.
    pub fn called(&mut self, raw: RawObject, name: &str) -> ObjectId {
        let id = self.id(raw);
        if self.row(id).is_some_and(|r| r.name != name)
            && let Some(row) = self.touch(id)
        {
            name.clone_into(&mut row.name);
        }
        id
    }

    /// The file that somebody has mapped: its device (major, minor) and inode, and its path.
    pub fn mapped(&mut self, (device, inode): ((u32, u32), u64), path: &str) -> ObjectId {
        let peer = words::device(device);
        self.called(RawObject { kind: ObjectKind::File as u8, id: inode, peer }, path)
    }

    /// Take the members of a set or an epoll instance.
    pub fn members(&mut self, raw: RawObject, members: &[RawObject]) {
        let id = self.id(raw);
        let members: Vec<ObjectId> = members.iter().map(|m| self.id(*m)).collect();
        if self.row(id).is_some_and(|r| r.members != members)
            && let Some(row) = self.touch(id)
        {
            row.members = members;
        }
    }

    fn touch(&mut self, id: ObjectId) -> Option<&mut Object> {
        let row = self.rows.get_mut(&id)?;
        if !row.dirty {
            row.dirty = true;
            self.changed.push(id);
        }
        Some(&mut row.object)
    }

    /// New and changed rows since the last call.
    pub fn drain(&mut self) -> CatalogDelta {
        let mut out = CatalogDelta::default();
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        for id in changed {
            let Some(row) = self.rows.get_mut(&id) else { continue };
            row.dirty = false;
            out.objects.push((id, row.object.clone()));
        }
        out
    }
}

fn show(name: &Name, raw: RawObject) -> String {
    match name {
        Name::Path(parts, complete) => {
            let mut path = Vec::new();
            if !complete {
                path.extend_from_slice("…".as_bytes());
            }
            for part in parts.iter().rev() {
                path.push(b'/');
                path.extend_from_slice(part);
            }
            if path.is_empty() {
                path.push(b'/');
            }
            lossy(&path, MAX_NAME)
        }
        Name::Unix(bytes, _) => {
            if let Some((0, rest)) = bytes.split_first() {
                return format!("@{}", lossy(rest, MAX_NAME));
            }
            let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
            lossy(&bytes[..end], MAX_NAME)
        }
        Name::Inet6(local, remote) => {
            let end = |a: &[u8; 16], key: u64| format!("[{}]:{}", Ipv6Addr::from(*a), key & 0xffff);
            if raw.peer == 0 {
                end(local, raw.id)
            } else {
                format!("{}->{}", end(local, raw.id), end(remote, raw.peer))
            }
        }
        Name::Text(bytes) => lossy(bytes, MAX_NAME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: ObjectKind, id: u64, peer: u64) -> RawObject {
        RawObject { kind: kind as u8, id, peer }
    }

    #[test]
    fn equal_objects_are_one_row() {
        let mut o = Objects::default();
        let a = o.id(raw(ObjectKind::Pipe, 7, 7));
        assert_eq!(o.id(raw(ObjectKind::Pipe, 7, 7)), a);
        assert_ne!(o.id(raw(ObjectKind::File, 7, 7)), a);
        assert_eq!(o.id(RawObject { kind: K_NONE, id: 1, peer: 1 }), ObjectId::NONE);
        assert_eq!(o.drain().objects.len(), 2);
        assert!(o.drain().is_empty());
    }

    #[test]
    fn names_are_built_from_what_the_kernel_tells() {
        let mut o = Objects::default();
        let file = raw(ObjectKind::File, 1, 2);
        let parts = [&b"passwd"[..], b"etc"].map(<[u8]>::to_vec).to_vec();
        o.name(file, &Name::Path(parts, true));
        let unix = raw(ObjectKind::UnixStream, 3, 4);
        o.name(unix, &Name::Unix(b"\0hidden".to_vec(), true));
        let six = raw(ObjectKind::Tcp, (1 << 63) + 80, (1 << 63) + 4711);
        o.name(six, &Name::Inet6(Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::LOCALHOST.octets()));
        let rows: Vec<Object> = o.drain().objects.into_iter().map(|(_, r)| r).collect();
        let names: Vec<&str> = rows.iter().map(|r| &*r.name).collect();
        assert_eq!(names, ["/etc/passwd", "@hidden", "[::1]:80->[::1]:4711"]);
        let connected: Vec<bool> = rows.iter().map(|r| r.connected).collect();
        assert_eq!(connected, [false, true, false]);
    }

    #[test]
    fn an_epoll_instance_learns_its_members() {
        let mut o = Objects::default();
        let epoll = raw(ObjectKind::Epoll, 9, 0);
        o.members(epoll, &[raw(ObjectKind::Pipe, 1, 1)]);
        o.drain();
        o.members(epoll, &[raw(ObjectKind::Pipe, 1, 1)]);
        assert!(o.drain().is_empty());
        o.members(epoll, &[raw(ObjectKind::Pipe, 1, 1), raw(ObjectKind::Pipe, 2, 2)]);
        let delta = o.drain();
        assert_eq!(
            delta.objects.iter().find(|(_, r)| r.kind == ObjectKind::Epoll).unwrap().1.members.len(),
            2
        );
    }

    #[test]
    fn objects_that_nobody_used_for_long_leave() {
        let mut o = Objects::default();
        let often = o.id(raw(ObjectKind::Pipe, 1, 1));
        let member = raw(ObjectKind::Pipe, 2, 2);
        o.members(raw(ObjectKind::Epoll, 3, 0), &[member]);
        let member = o.id(member);
        let waited_for = o.id(raw(ObjectKind::Futex, 4, 7));
        let mut left = HashSet::new();
        for n in 0..10 * ROOM as u64 {
            o.id(raw(ObjectKind::File, 100 + n, 1));
            if n % 100 == 0 {
                assert_eq!(o.id(raw(ObjectKind::Pipe, 1, 1)), often);
                o.id(raw(ObjectKind::Epoll, 3, 0));
            }
            if o.is_crowded() {
                assert!(!o.drain().objects.is_empty());
                left.extend(o.let_go(&HashSet::from([waited_for])));
            }
            assert!(o.count() <= 3 * ROOM, "{}", o.count());
        }
        assert!(left.len() > 7 * ROOM);
        assert!([often, member, waited_for].iter().all(|id| !left.contains(id) && o.row(*id).is_some()));
        // What comes back is an object of its own.
        let back = o.id(raw(ObjectKind::File, 100, 1));
        assert!(back.index() > 10 * ROOM && !left.contains(&back));
    }
}
