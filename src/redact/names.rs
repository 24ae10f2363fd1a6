//! Made-up names: the same original always gets the same one.

use pg_event::{Object, ObjectKind, endpoint_v4};
use std::collections::{HashMap, HashSet};

/// Hands out made-up names and takes user and host names out of the names that are kept.
#[derive(Default)]
pub(super) struct Names {
    /// Keep the kernel's release and build.
    pub(super) keep_kernel: bool,
    /// Words to be replaced wherever they stand, with what.
    words: Vec<(String, String)>,
    users: HashMap<String, String>,
    strings: HashMap<String, String>,
    numbers: HashMap<u32, u32>,
    endpoints: HashMap<u64, u64>,
    addresses: HashMap<u32, u32>,
    pub(super) kept_endpoints: HashSet<u64>,
    pub(super) kept_strings: HashSet<String>,
}

impl Names {
    /// Replace `word` wherever it stands by itself. Too short words would hit by chance.
    pub(super) fn hide_word(&mut self, word: &str, by: &str) {
        if word.len() >= 3 && word != "root" {
            self.words.push((word.to_owned(), by.to_owned()));
        }
    }

    /// A kept string without user and host names.
    pub(super) fn scrub(&mut self, text: &str) -> String {
        let mut out = self.homes(text);
        for (word, by) in &self.words {
            out = replace_word(&out, word, by);
        }
        out
    }

    /// `/home/NAME` with another name.
    fn homes(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(i) = rest.find("/home/") {
            let (before, after) = rest.split_at(i + 6);
            out.push_str(before);
            let end = after
                .find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))
                .unwrap_or(after.len());
            let (name, behind) = after.split_at(end);
            if !name.is_empty() {
                let next = self.users.len() + 1;
                out.push_str(self.users.entry(name.to_owned()).or_insert_with(|| format!("user-{next}")));
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }

    /// A made-up name for a path, or whatever an object is called by.
    pub(super) fn made_up(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let next = self.strings.len() + 1;
        let path = text.starts_with('/');
        self.strings
            .entry(text.to_owned())
            .or_insert_with(|| if path { format!("/redacted/{next}") } else { format!("redacted-{next}") })
            .clone()
    }

    /// A made-up user id; root stays.
    pub(super) fn uid(&mut self, uid: u32) -> u32 {
        if uid == 0 {
            return 0;
        }
        let next = 1000 + self.numbers.len() as u32;
        *self.numbers.entry(uid).or_insert(next)
    }

    /// The key of an endpoint: both ends of a connection get the same.
    fn endpoint(&mut self, key: u64) -> u64 {
        if key == 0 || self.kept_endpoints.contains(&key) {
            return key;
        }
        let next = self.endpoints.len() as u64 + 1;
        if let Some(known) = self.endpoints.get(&key) {
            return *known;
        }
        let port = 10_000 + (next % 50_000) as u16;
        let new = if key >> 63 == 1 {
            1 << 63 | next << 16 | u64::from(port)
        } else {
            let address = (key >> 16) as u32;
            endpoint_v4(self.address(address), port)
        };
        self.endpoints.insert(key, new);
        new
    }

    /// Loopback and "any" say nothing about anybody; others come from the range for benchmarks (RFC 2544).
    fn address(&mut self, address: u32) -> u32 {
        if address == 0 || address >> 24 == 127 {
            return address;
        }
        let next = self.addresses.len() as u32 + 1;
        *self.addresses.entry(address).or_insert((198 << 24 | 18 << 16) + next % (1 << 17))
    }

    /// An object of somebody who is not named.
    pub(super) fn object(&mut self, object: &Object) -> Object {
        let mut out = object.clone();
        if matches!(object.kind, ObjectKind::Tcp | ObjectKind::Udp) {
            out.id = self.endpoint(object.id);
            out.peer = self.endpoint(object.peer);
            if (out.id, out.peer) != (object.id, object.peer) {
                // The text holds the addresses; without it they are shown from the numbers.
                out.name.clear();
                return out;
            }
        }
        out.name = if self.kept_strings.contains(&object.name) {
            self.scrub(&object.name)
        } else {
            self.made_up(&object.name)
        };
        out
    }
}

/// Replace `word` where it is not part of a longer word.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(i) = rest.find(word) {
        let (before, after) = (&rest[..i], &rest[i + word.len()..]);
        let in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let whole = !in_word(before.chars().next_back().or(out.chars().next_back()))
            && !in_word(after.chars().next());
        out.push_str(before);
        out.push_str(if whole { by } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_hosts_are_taken_out_of_kept_strings() {
        let mut n = Names::default();
        n.hide_word("alice", "user");
        n.hide_word("db7", "host");
        assert_eq!(n.scrub("/home/alice/x --as alice@db7 malice"), "/home/user-1/x --as user@host malice");
        assert_eq!(n.scrub("/home/bob/y /home/alice/z"), "/home/user-2/y /home/user-1/z");
        assert_eq!(n.scrub("/home/"), "/home/");
    }

    #[test]
    fn both_ends_of_a_connection_stay_together() {
        let name = "10.1.2.3:4->10.9.9.9:80";
        let tcp = |id, peer| Object { name: name.into(), ..Object::new(ObjectKind::Tcp, id, peer) };
        let (a, b) = (endpoint_v4(0x0a01_0203, 4), endpoint_v4(0x0a09_0909, 80));
        let mut n = Names::default();
        let (x, y) = (n.object(&tcp(a, b)), n.object(&tcp(b, a)));
        assert!(x.is_other_end_of(&y));
        assert!(!x.label().contains("10.") || x.label().contains("198.18."), "{}", x.label());
        n.kept_endpoints = [b].into();
        let z = n.object(&tcp(a, b));
        assert_eq!((z.id, z.peer), (x.id, b));
    }
}
