//! The command to record: started suspended, so that recording is on before its first instruction.
//!
//! It stays in the recorder's process group, so that Ctrl-C on the terminal reaches it as it would
//! without a recorder ([`Interrupts`] says what the recorder does then), runs as the user who called
//! sudo, and goes away when the recorder dies before it was resumed.
#![allow(unsafe_code)] // fork, exec and credentials between them cannot be had from std.

mod caller;
mod interrupts;

pub use caller::{Caller, CallerError};
pub use interrupts::Interrupts;

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No program was named.
    #[error("no command given after `--`")]
    Empty,
    /// An argument or variable holds a NUL byte, which exec(2) cannot pass on.
    #[error("{0:?} holds a NUL byte")]
    Nul(OsString),
    /// Whom to run it as is unclear.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// fork(2) or pipe(2) failed.
    #[error("cannot start {program:?}: {source}")]
    Spawn {
        /// The command's first word.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// The process was there, but the program could not be run in it.
    #[error("cannot run {program:?}: {source}")]
    Exec {
        /// The command's first word.
        program: OsString,
        /// What exec(2), or changing to the calling user, said.
        source: io::Error,
    },
    /// The suspended process was killed before it was resumed.
    #[error("{0:?} was killed before it began")]
    Killed(OsString),
}

impl CommandError {
    /// What a shell would exit with: 127 for a program not found, 126 for one that cannot be run.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec { .. } => 126,
            _ => 2,
        }
    }
}

/// A command that was started, first suspended.
#[derive(Debug)]
pub struct Command {
    program: OsString,
    pid: u32,
    /// The recorder's end of the handshake; dropped without a word, the child exits.
    gate: Option<std::fs::File>,
    /// What went wrong at exec, if anything.
    failure: std::fs::File,
    status: Option<ExitStatus>,
}

/// Everything the child needs, made before fork(2): after it only system calls are allowed.
struct Prepared {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    caller: Option<Caller>,
}

impl Command {
    /// Start `argv` suspended, with this process's environment.
    ///
    /// # Errors
    /// See [`Self::spawn_with`].
    pub fn spawn(argv: &[OsString]) -> Result<Self, CommandError> {
        Self::spawn_with(argv, std::env::vars_os().collect())
    }

    /// Start `argv` suspended, with the given environment (which also says who called sudo).
    ///
    /// # Errors
    /// [`CommandError::Empty`], [`CommandError::Nul`], [`CommandError::Caller`], [`CommandError::Spawn`].
    pub fn spawn_with(argv: &[OsString], env: Vec<(OsString, OsString)>) -> Result<Self, CommandError> {
        let program = argv.first().ok_or(CommandError::Empty)?.clone();
        let failed = |source| CommandError::Spawn { program: program.clone(), source };
        let prepared = prepare(argv, env)?;
        let pointers = Pointers::of(&prepared);
        let (gate_out, gate_in) = pipe().map_err(failed)?;
        let (failure_out, failure_in) = pipe().map_err(failed)?;
        // SAFETY: the child calls nothing but system calls on memory made before, and never returns.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => {
                child(&prepared, &pointers, gate_out.as_raw_fd(), gate_in.as_raw_fd(), failure_in.as_raw_fd())
            }
            _ => Ok(Self {
                program,
                pid: pid as u32,
                gate: Some(gate_in.into()),
                failure: failure_out.into(),
                status: None,
            }),
        }
    }

    /// Its process id, the same before and after [`Self::resume`].
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its first word.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// Let it run its program. Returns once that has begun, or says why it could not.
    ///
    /// # Errors
    /// [`CommandError::Exec`]: the program could not be executed; [`CommandError::Killed`]: the process ended before.
    pub fn resume(&mut self) -> Result<(), CommandError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        if gate.write_all(b"!").is_err() {
            let _ = self.wait();
            return Err(CommandError::Killed(self.program.clone()));
        }
        drop(gate);
        let mut errno = [0; 4];
        if self.failure.read_exact(&mut errno).is_err() {
            // The pipe closed as the program began, or as the process was killed: wait() will tell.
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        let _ = self.wait();
        Err(CommandError::Exec { program: self.program.clone(), source })
    }

    /// Wait for its end.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.poll(0)? {
                return Ok(status);
            }
        }
    }

    /// Its end, if it has ended.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.poll(libc::WNOHANG)
    }

    /// Ask it to end (SIGTERM), if it has not.
    pub fn terminate(&mut self) {
        if self.status.is_none() {
            // SAFETY: kill(2) has no memory to misuse; the pid is an unreaped child of this process.
            unsafe { libc::kill(self.pid as i32, libc::SIGTERM) };
        }
    }

    fn poll(&mut self, flags: i32) -> io::Result<Option<ExitStatus>> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result; the pid is an unreaped child of this process.
        match unsafe { libc::waitpid(self.pid as i32, &raw mut status, flags) } {
            -1 => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(None),
                e => Err(e),
            },
            0 => Ok(None),
            _ => {
                self.status = Some(ExitStatus::from_raw(status));
                Ok(self.status)
            }
        }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        // A command never resumed exits on its closed gate and must not stay behind as a zombie.
        if self.gate.take().is_some() {
            let _ = self.wait();
        }
    }
}

/// The exit code to pass on: the command's own, or 128 + signal as shells report a killed one.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn c_string(text: &OsStr) -> Result<CString, CommandError> {
    CString::new(text.as_bytes()).map_err(|_| CommandError::Nul(text.to_owned()))
}

fn prepare(argv: &[OsString], mut env: Vec<(OsString, OsString)>) -> Result<Prepared, CommandError> {
    // SAFETY: geteuid cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let caller = if root { Caller::from_env(&env)? } else { None };
    if let Some(caller) = &caller {
        caller.adjust(&mut env);
    }
    let program = argv.first().ok_or(CommandError::Empty)?;
    let mut candidates = Vec::new();
    if program.as_bytes().contains(&b'/') {
        candidates.push(c_string(program)?);
    } else {
        let path = env.iter().find(|(k, _)| k == "PATH").map_or(OsStr::new("/bin:/usr/bin"), |(_, v)| v);
        for dir in path.as_bytes().split(|&b| b == b':') {
            let mut file = if dir.is_empty() { b".".to_vec() } else { dir.to_vec() };
            file.push(b'/');
            file.extend(program.as_bytes());
            candidates.push(c_string(&OsString::from_vec(file))?);
        }
    }
    let argv = argv.iter().map(|a| c_string(a)).collect::<Result<_, _>>()?;
    let env = env
        .into_iter()
        .map(|(mut k, v)| {
            k.push("=");
            k.push(v);
            c_string(&k)
        })
        .collect::<Result<_, _>>()?;
    Ok(Prepared { candidates, argv, env, caller })
}

/// NULL-terminated arrays of pointers into a [`Prepared`], as exec(2) wants them.
struct Pointers {
    argv: Vec<*const libc::c_char>,
    /// `sh CANDIDATE ARG...` for a script without `#!`, for each candidate.
    scripts: Vec<Vec<*const libc::c_char>>,
    env: Vec<*const libc::c_char>,
}

impl Pointers {
    fn of(p: &Prepared) -> Self {
        let list = |v: &[CString]| -> Vec<*const libc::c_char> {
            v.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let argv = list(&p.argv);
        let scripts = p
            .candidates
            .iter()
            .map(|file| [c"sh".as_ptr(), file.as_ptr()].iter().chain(argv.iter().skip(1)).copied().collect())
            .collect();
        Self { argv, scripts, env: list(&p.env) }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: room for two descriptors, both owned by nobody else afterwards.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The child, from fork to exec. Only async-signal-safe calls: other threads of the recorder may have
/// held any lock at the fork.
fn child(p: &Prepared, pointers: &Pointers, gate: RawFd, own_gate: RawFd, failure: RawFd) -> ! {
    // SAFETY: system calls on valid descriptors and on memory prepared before the fork.
    unsafe {
        // With its own copy of the writing end open it would never see the recorder die.
        libc::close(own_gate);
        restore_signals();
        let mut byte = 0u8;
        loop {
            match libc::read(gate, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(127),
            }
        }
        if p.caller.as_ref().is_none_or(Caller::become_it) {
            let mut denied = false;
            for (file, script) in p.candidates.iter().zip(&pointers.scripts) {
                libc::execve(file.as_ptr(), pointers.argv.as_ptr(), pointers.env.as_ptr());
                match *libc::__errno_location() {
                    libc::ENOEXEC => {
                        libc::execve(c"/bin/sh".as_ptr(), script.as_ptr(), pointers.env.as_ptr());
                        break;
                    }
                    libc::EACCES => denied = true,
                    libc::ENOENT | libc::ENOTDIR => {}
                    _ => break,
                }
            }
            if denied && *libc::__errno_location() == libc::ENOENT {
                *libc::__errno_location() = libc::EACCES;
            }
        }
        let errno = (*libc::__errno_location()).to_ne_bytes();
        libc::write(failure, errno.as_ptr().cast(), errno.len());
        libc::_exit(127)
    }
}

/// Signals as a program expects them at its start: nothing blocked, no handler of the recorder (which
/// would run in the child until exec), SIGPIPE not ignored (Rust ignores it). What else is ignored was
/// ignored for the recorder too (nohup) and stays so.
unsafe fn restore_signals() {
    // SAFETY: plain system calls on locals.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        for signal in 1..=64 {
            let mut now: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut now) != 0 {
                continue;
            }
            let handled = now.sa_sigaction != libc::SIG_DFL && now.sa_sigaction != libc::SIG_IGN;
            if handled || signal == libc::SIGPIPE {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            }
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
