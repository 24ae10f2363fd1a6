//! The user who called sudo: whom the recorded command runs as.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

/// The calling user cannot be told from what sudo left in the environment. Running the command as root
/// instead would be a surprise.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// A variable that is not a number, or not a user.
    #[error("{variable}={value:?} does not name the calling user; unset it to run the command as root")]
    Unclear {
        /// `SUDO_UID`, `SUDO_GID`, `PKEXEC_UID` or `DOAS_USER`.
        variable: &'static str,
        /// What it holds.
        value: OsString,
    },
}

/// A user to run a command as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
    /// Login name, if there is one.
    pub name: Option<OsString>,
    /// Home directory, if there is one.
    pub home: Option<OsString>,
    /// Login shell, if there is one.
    pub shell: Option<OsString>,
}

/// What the user database has about a user.
struct Entry {
    uid: u32,
    gid: u32,
    name: OsString,
    home: OsString,
    shell: OsString,
}

impl Caller {
    /// Whom sudo (or pkexec, or doas) was called by; `None` when by nobody, or by root.
    ///
    /// # Errors
    /// A variable does not name a user.
    pub fn from_env(env: &[(OsString, OsString)]) -> Result<Option<Self>, CallerError> {
        let get = |name: &str| env.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        let number = |variable: &'static str, value: &OsStr| {
            value
                .to_str()
                .and_then(|v| v.parse::<u32>().ok())
                .filter(|&n| n != u32::MAX)
                .ok_or(CallerError::Unclear { variable, value: value.to_owned() })
        };
        let (uid, gid, name) = if let Some(value) = get("SUDO_UID") {
            let gid = get("SUDO_GID").map(|g| number("SUDO_GID", &g)).transpose()?;
            (number("SUDO_UID", &value)?, gid, get("SUDO_USER"))
        } else if let Some(value) = get("PKEXEC_UID") {
            (number("PKEXEC_UID", &value)?, None, None)
        } else if let Some(value) = get("DOAS_USER") {
            let entry = lookup_name(&value)
                .ok_or(CallerError::Unclear { variable: "DOAS_USER", value: value.clone() })?;
            (entry.uid, None, Some(value))
        } else {
            return Ok(None);
        };
        if uid == 0 {
            return Ok(None);
        }
        let entry = lookup_uid(uid);
        // A user id shared by several names: believe sudo, when the name it gives is that user's.
        let entry = match &name {
            Some(n) => lookup_name(n).filter(|e| e.uid == uid).or(entry),
            None => entry,
        };
        let gid = gid.or(entry.as_ref().map(|e| e.gid)).unwrap_or(uid);
        let groups = entry.as_ref().map_or_else(|| vec![gid], |e| groups_of(&e.name, gid));
        let (name, home, shell) = match entry {
            Some(e) => (Some(e.name), Some(e.home), Some(e.shell)),
            None => (name, None, None),
        };
        Ok(Some(Self { uid, gid, groups, name, home, shell }))
    }

    /// Make an environment that sudo made for root the user's again.
    pub fn adjust(&self, env: &mut Vec<(OsString, OsString)>) {
        const GONE: [&str; 8] = [
            "SUDO_UID",
            "SUDO_GID",
            "SUDO_USER",
            "SUDO_COMMAND",
            "SUDO_HOME",
            "PKEXEC_UID",
            "DOAS_USER",
            "MAIL",
        ];
        env.retain(|(k, _)| !GONE.iter().any(|g| k == g));
        let mut set = |key: &str, value: &OsStr| {
            env.retain(|(k, _)| k != key);
            env.push((key.into(), value.to_owned()));
        };
        if let Some(name) = &self.name {
            set("USER", name);
            set("LOGNAME", name);
        }
        if let Some(home) = &self.home {
            set("HOME", home);
        }
        if let Some(shell) = self.shell.as_ref().filter(|s| !s.is_empty()) {
            set("SHELL", shell);
        }
        // Desktop programs and user services are found through it; sudo drops it.
        let runtime = format!("/run/user/{}", self.uid);
        if std::fs::metadata(&runtime).is_ok_and(|m| m.uid() == self.uid) {
            set("XDG_RUNTIME_DIR", OsStr::new(&runtime));
        }
    }

    /// Turn this process into that user, for good. Only system calls; `false` with errno set.
    pub(super) fn become_it(&self) -> bool {
        // SAFETY: the group list is valid memory; the calls change this process only.
        unsafe {
            // The raw call: glibc's wrapper would make every thread do it, with locks that a forked
            // child must not touch.
            libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) == 0
                && libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid) == 0
                && libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid) == 0
        }
    }
}

fn lookup_uid(uid: u32) -> Option<Entry> {
    // SAFETY: see `entry`.
    entry(|pwd, buffer, size, found| unsafe { libc::getpwuid_r(uid, pwd, buffer, size, found) })
}

fn lookup_name(name: &OsStr) -> Option<Entry> {
    let name = CString::new(name.as_bytes()).ok()?;
    // SAFETY: see `entry`; the name is a valid C string.
    entry(|pwd, buffer, size, found| unsafe { libc::getpwnam_r(name.as_ptr(), pwd, buffer, size, found) })
}

fn entry(
    ask: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> i32,
) -> Option<Entry> {
    let mut buffer = vec![0u8; 4096];
    loop {
        // SAFETY: an all-zero passwd is a valid place for the result.
        let mut pwd: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let error = ask(&raw mut pwd, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut found);
        if error == libc::ERANGE && buffer.len() < 1 << 20 {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if error != 0 || found.is_null() {
            return None;
        }
        let text = |p: *const libc::c_char| {
            if p.is_null() {
                return OsString::new();
            }
            // SAFETY: on success the strings lie NUL-terminated in `buffer`.
            OsString::from_vec(unsafe { CStr::from_ptr(p) }.to_bytes().to_vec())
        };
        return Some(Entry {
            uid: pwd.pw_uid,
            gid: pwd.pw_gid,
            name: text(pwd.pw_name),
            home: text(pwd.pw_dir),
            shell: text(pwd.pw_shell),
        });
    }
}

fn groups_of(name: &OsStr, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name.as_bytes()) else { return vec![gid] };
    let mut groups = vec![0u32; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `count` says how much room there is.
        let done = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if done >= 0 {
            groups.truncate(count);
            return groups;
        }
        if count <= groups.len() || count > 1 << 16 {
            return vec![gid];
        }
        groups.resize(count, 0);
    }
}
