//! Objects by identity: one row each, named as soon as a name is known.

use super::hash::FastMap;
use super::raw::{K_NONE, Name, RawObject};
use super::words::Words;
use crate::procfs::lossy;
use pg_event::{CatalogDelta, Object, ObjectId, ObjectKind};
use std::net::Ipv6Addr;

/// More objects than this get no row: memory stays bounded whatever a target does.
const MAX_OBJECTS: usize = 8 << 20;
/// Longest name kept.
const MAX_NAME: usize = 4096;

/// All objects of a recording.
pub struct Objects {
    ids: FastMap<RawObject, ObjectId>,
    /// Looked up lately, each at a place that few others share: most are found here.
    latest: Vec<(RawObject, ObjectId)>,
    rows: Vec<Object>,
    dirty: Vec<bool>,
    changed: Vec<ObjectId>,
    words: Words,
}

/// Places of [`Objects::latest`].
const LATEST: usize = 1024;

impl Default for Objects {
    fn default() -> Self {
        let nobody = RawObject { kind: K_NONE, id: 0, peer: 0 };
        Self {
            ids: FastMap::default(),
            latest: vec![(nobody, ObjectId::NONE); LATEST],
            rows: Vec::new(),
            dirty: Vec::new(),
            changed: Vec::new(),
            words: Words::default(),
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
            return id;
        }
        if self.rows.len() >= MAX_OBJECTS {
            return ObjectId::NONE;
        }
        let id = ObjectId(self.rows.len() as u32);
        self.ids.insert(raw, id);
        // Both ends of a pseudo-terminal are known by the slave's number (major 136).
        let number = raw.id & !(1 << 63);
        let name = if raw.kind == ObjectKind::Tty as u8 && number & 0xfff00 == 136 << 8 {
            let n = (number & 0xff) | (number >> 12 & !0xff);
            format!("/dev/pts/{n}{}", if raw.id >> 63 == 1 { " (master)" } else { "" })
        } else {
            String::new()
        };
        self.rows.push(Object {
            kind: ObjectKind::from_u8(raw.kind),
            id: raw.id,
            peer: raw.peer,
            name,
            members: Vec::new(),
        });
        self.dirty.push(true);
        self.changed.push(id);
        id
    }

    /// The row of an object.
    pub fn row(&self, id: ObjectId) -> Option<&Object> {
        self.rows.get(id.index())
    }

    /// Take a name.
    pub fn name(&mut self, raw: RawObject, name: &Name) {
        let id = self.id(raw);
        let Some(row) = self.rows.get(id.index()) else { return };
        if row.kind == ObjectKind::Tty && !row.name.is_empty() {
            return;
        }
        let text = show(name, raw);
        if row.name != text {
            self.touch(id).name = text;
        }
    }

    /// The object's id, and its name: made at first sight.
    pub fn called(&mut self, raw: RawObject, name: &str) -> ObjectId {
        let id = self.id(raw);
        if self.rows.get(id.index()).is_some_and(|r| r.name != name) {
            name.clone_into(&mut self.touch(id).name);
        }
        id
    }

    /// Take the members of a set or an epoll instance.
    pub fn members(&mut self, raw: RawObject, members: &[RawObject]) {
        let id = self.id(raw);
        let members: Vec<ObjectId> = members.iter().map(|m| self.id(*m)).collect();
        let Some(row) = self.rows.get(id.index()) else { return };
        if row.members != members {
            self.touch(id).members = members;
        }
    }

    fn touch(&mut self, id: ObjectId) -> &mut Object {
        if !self.dirty[id.index()] {
            self.dirty[id.index()] = true;
            self.changed.push(id);
        }
        &mut self.rows[id.index()]
    }

    /// New and changed rows since the last call.
    pub fn drain(&mut self) -> CatalogDelta {
        let mut out = CatalogDelta::default();
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        for id in changed {
            self.dirty[id.index()] = false;
            out.objects.push((id, self.rows[id.index()].clone()));
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
        Name::Unix(bytes) => {
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
        o.name(unix, &Name::Unix(b"\0hidden".to_vec()));
        let six = raw(ObjectKind::Tcp, (1 << 63) + 80, (1 << 63) + 4711);
        o.name(six, &Name::Inet6(Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::LOCALHOST.octets()));
        let names: Vec<String> = o.drain().objects.into_iter().map(|(_, r)| r.name).collect();
        assert_eq!(names, ["/etc/passwd", "@hidden", "[::1]:80->[::1]:4711"]);
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
}
