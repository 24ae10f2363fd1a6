//! Where a unit begins or ends, as a person writes it.

use pg_event::{Sysno, syscall_number};
use std::fmt;
use std::str::FromStr;

/// Longest text that is taken.
const MAX: usize = 4096;

/// What kind of file a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdKind {
    /// A socket.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// A plain file.
    File,
    /// A terminal or another character device.
    Device,
}

impl FdKind {
    const ALL: [(Self, &str, u8); 4] = [
        (Self::Socket, "socket", 0o14),
        (Self::Pipe, "pipe", 0o1),
        (Self::File, "file", 0o10),
        (Self::Device, "device", 0o2),
    ];

    /// The upper four bits of its inode's mode (stat(2)).
    pub fn bits(self) -> u8 {
        Self::ALL.iter().find(|k| k.0 == self).map_or(0, |k| k.2)
    }

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|k| k.0 == self).map_or("", |k| k.1)
    }
}

/// Where a unit begins or ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GivenPoint {
    /// `name`, `module:name`: where a function is entered.
    Function {
        /// File name of its module, or a part of that before `.so`; `None`: the program, else its libraries.
        module: Option<String>,
        /// Its name.
        name: String,
    },
    /// `module+0xOFFSET`: the function that begins at this address, as the module's file counts.
    Address {
        /// See [`Self::Function`].
        module: String,
        /// The address.
        address: u64,
    },
    /// `usdt:PROVIDER:NAME`, `usdt:MODULE:PROVIDER:NAME`: a static probe (`sys/sdt.h`).
    Usdt {
        /// See [`Self::Function`].
        module: Option<String>,
        /// Who defines it.
        provider: String,
        /// Its name.
        name: String,
    },
    /// `syscall:NAME`, `syscall:NAME(fd=socket)`: a unit begins when the call returns more than 0, and ends when it
    /// is made.
    Syscall {
        /// Which.
        call: Sysno,
        /// Only for descriptors of this kind.
        kind: Option<FdKind>,
    },
}

/// What was typed is no such place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// Nothing of the forms.
    #[error(
        "{0:?} is no place where a unit begins or ends: FUNCTION, MODULE:FUNCTION, MODULE+0xOFFSET, \
         usdt:PROVIDER:NAME or syscall:NAME is expected"
    )]
    Form(String),
    /// There is no such call.
    #[error("there is no system call {0:?}")]
    Call(String),
    /// There is no such kind.
    #[error("{0:?} is no kind of a file: fd=socket, fd=pipe, fd=file or fd=device is expected")]
    Kind(String),
}

impl GivenPoint {
    /// Does only what lies before and behind it make a unit? A call of a function has an end of its own.
    pub fn needs_end(&self) -> bool {
        matches!(self, Self::Usdt { .. } | Self::Syscall { .. })
    }
}

impl FromStr for GivenPoint {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let form = || SpecError::Form(text.chars().take(200).collect());
        let plain = |part: &str| !part.is_empty() && !part.chars().any(char::is_control);
        if text.len() > MAX || !plain(text) {
            return Err(form());
        }
        if let Some(rest) = text.strip_prefix("usdt:") {
            let parts: Vec<&str> = rest.split(':').collect();
            let (module, provider, name) = match parts.as_slice() {
                [provider, name] => (None, *provider, *name),
                [module, provider, name] => (Some(*module).filter(|m| !m.is_empty()), *provider, *name),
                _ => return Err(form()),
            };
            if !plain(provider) || !plain(name) {
                return Err(form());
            }
            // As dtrace shows them; the files have underscores.
            let name = name.replace('-', "__");
            return Ok(Self::Usdt { module: module.map(Into::into), provider: provider.into(), name });
        }
        if let Some(rest) = text.strip_prefix("syscall:") {
            let (name, kind) = match rest.split_once('(') {
                None => (rest, None),
                Some((name, inner)) => {
                    let kind =
                        inner.strip_suffix(')').and_then(|k| k.strip_prefix("fd=")).ok_or_else(form)?;
                    let known = FdKind::ALL.iter().find(|k| k.1 == kind);
                    (name, Some(known.ok_or_else(|| SpecError::Kind(kind.into()))?.0))
                }
            };
            let call = syscall_number(name).ok_or_else(|| SpecError::Call(name.into()))?;
            return Ok(Self::Syscall { call, kind });
        }
        if let Some((module, address)) = text.rsplit_once("+0x") {
            let address = u64::from_str_radix(address, 16).map_err(|_| form())?;
            return if plain(module) {
                Ok(Self::Address { module: module.into(), address })
            } else {
                Err(form())
            };
        }
        // `a::b` is a name; `m:a::b` has a module.
        let single =
            |&(at, _): &(usize, &str)| !text[at + 1..].starts_with(':') && !text[..at].ends_with(':');
        let (module, name) = match text.match_indices(':').find(single) {
            Some((at, _)) => (Some(&text[..at]), &text[at + 1..]),
            None => (None, text),
        };
        if !plain(name) || module.is_some_and(|m| !plain(m)) {
            return Err(form());
        }
        Ok(Self::Function { module: module.map(Into::into), name: name.into() })
    }
}

impl fmt::Display for GivenPoint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Function { module: None, name } => f.write_str(name),
            Self::Function { module: Some(m), name } => write!(f, "{m}:{name}"),
            Self::Address { module, address } => write!(f, "{module}+{address:#x}"),
            Self::Usdt { module: None, provider, name } => write!(f, "usdt:{provider}:{name}"),
            Self::Usdt { module: Some(m), provider, name } => write!(f, "usdt:{m}:{provider}:{name}"),
            Self::Syscall { call, kind } => {
                write!(f, "syscall:{}", call.name().unwrap_or_default())?;
                kind.map_or(Ok(()), |k| write!(f, "(fd={})", k.word()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> GivenPoint {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn as_people_write_them() {
        let function = |module: Option<&str>, name: &str| GivenPoint::Function {
            module: module.map(Into::into),
            name: name.into(),
        };
        assert_eq!(read("exec_simple_query"), function(None, "exec_simple_query"));
        assert_eq!(read("libc:fsync"), function(Some("libc"), "fsync"));
        assert_eq!(read("a::B::c"), function(None, "a::B::c"));
        assert_eq!(read("app:a::B::c(int, x::y)"), function(Some("app"), "a::B::c(int, x::y)"));
        assert_eq!(
            read("redis-server+0x64e50"),
            GivenPoint::Address { module: "redis-server".into(), address: 0x64e50 }
        );
        let usdt = |module: Option<&str>, provider: &str, name: &str| GivenPoint::Usdt {
            module: module.map(Into::into),
            provider: provider.into(),
            name: name.into(),
        };
        assert_eq!(read("usdt:postgresql:query-start"), usdt(None, "postgresql", "query__start"));
        assert_eq!(
            read("usdt:/usr/bin/python3:python:audit"),
            usdt(Some("/usr/bin/python3"), "python", "audit")
        );
        let call = syscall_number("recvfrom").unwrap();
        assert_eq!(read("syscall:recvfrom"), GivenPoint::Syscall { call, kind: None });
        assert_eq!(
            read("syscall:recvfrom(fd=socket)"),
            GivenPoint::Syscall { call, kind: Some(FdKind::Socket) }
        );
        for wrong in [
            "",
            ":",
            "a:",
            ":b",
            "usdt:",
            "usdt:x",
            "usdt::y",
            "syscall:",
            "syscall:nap",
            "syscall:read(fd=9",
            "+0x9",
            "app+0xzz",
            "a\x1b[2Jb",
            "syscall:read(fd=dog)",
        ] {
            assert!(wrong.parse::<GivenPoint>().is_err(), "{wrong:?}");
        }
    }

    proptest! {
        /// What is printed is read again as the same.
        #[test]
        fn printed_and_read(text in "[a-z:+(=)0x]{0,20}|usdt:[a-z:-]{1,9}|syscall:(read|futex)(\\(fd=(pipe|file)\\))?|.{0,9}") {
            if let Ok(point) = text.parse::<GivenPoint>() {
                prop_assert_eq!(point.to_string().parse::<GivenPoint>(), Ok(point));
            }
        }
    }
}
