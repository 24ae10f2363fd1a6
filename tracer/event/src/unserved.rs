//! Connections that were not served: bytes wait in them, and their owner does not receive; or they wait themselves, and
//! who listens does not accept.

use crate::{Ns, ObjectId};
use serde::{Deserialize, Serialize};

/// What `Event::thread` did not receive between `since` and `until`: it is who received from this connection last,
/// else the first thread of the process that has it open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Unserved {
    /// The connection, its owner's end.
    pub object: ObjectId,
    /// When the first of the bytes was seen to wait, or when something was received last.
    pub since: Ns,
    /// Up to when nothing was received.
    pub until: Ns,
    /// Bytes that waited in the end; of a socket that listens (its object has no peer), connections.
    pub bytes: u64,
    /// It still was not served when this was written. A later event with the same object and `since` replaces it.
    pub open: bool,
    /// The bytes came while it was looked at. Else they had been there before: what nobody cares for, as far as is
    /// known.
    pub arrived: bool,
    /// Whose events wait.
    pub display: Display,
}

/// The display server at the other end of a connection: what waits are the events of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Display {
    /// None.
    #[default]
    None = 0,
    /// An X server.
    X11 = 1,
    /// A Wayland compositor.
    Wayland = 2,
}

impl Display {
    /// By number; unknown numbers are [`Display::None`].
    pub fn from_u8(n: u8) -> Self {
        match n {
            1 => Self::X11,
            2 => Self::Wayland,
            _ => Self::None,
        }
    }

    /// By the name of the server's socket, as `/proc/net/unix` has it: `/tmp/.X11-unix/X0` (also abstract),
    /// `/run/user/1000/wayland-0`.
    pub fn of_socket(name: &str) -> Self {
        let path = name.strip_prefix('@').unwrap_or(name);
        let (folder, last) = path.rsplit_once('/').unwrap_or(("", path));
        let numbered = |prefix: &str| {
            last.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        if folder.ends_with(".X11-unix") && numbered("X") {
            Self::X11
        } else if numbered("wayland-") {
            Self::Wayland
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Display;

    #[test]
    fn display_servers_are_known_by_their_sockets() {
        let of = Display::of_socket;
        assert_eq!(of("/tmp/.X11-unix/X0"), Display::X11);
        assert_eq!(of("@/tmp/.X11-unix/X99"), Display::X11);
        assert_eq!(of("/run/user/1000/wayland-0"), Display::Wayland);
        assert_eq!(of("/tmp/mine/wayland-1"), Display::Wayland);
        for other in [
            "",
            "@",
            "/tmp/.X11-unix/",
            "/tmp/.X11-unix/Xorg",
            "/tmp/X0",
            "/run/wayland-",
            "/run/user/1000/bus",
        ] {
            assert_eq!(of(other), Display::None, "{other}");
        }
    }
}
