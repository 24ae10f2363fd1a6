//! Sleeping until a ring calls: the programs wake the recorder for the few records that cannot wait.
#![allow(unsafe_code)] // epoll(7) and eventfd(2) have no safe wrapper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Ends one sleep of an [`Alarm`] early, from another thread.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Ring: the sleep under way, or else the next one, ends at once.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open, and eight bytes are read from a valid number. A counter that is
        // full already wakes as well.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// Something to sleep on.
#[derive(Debug)]
pub struct Alarm {
    epoll: OwnedFd,
    bell: Bell,
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Alarm {
    /// An alarm that only its bell and the time end.
    ///
    /// # Errors
    /// The kernel's refusal: too many open files.
    pub fn new() -> io::Result<Self> {
        // SAFETY: both calls take numbers only.
        let (epoll, event) = unsafe {
            (
                libc::epoll_create1(libc::EPOLL_CLOEXEC),
                libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK),
            )
        };
        let (epoll, event) = (owned(epoll), owned(event));
        let this = Self { epoll: epoll?, bell: Bell(Arc::new(event?)) };
        this.hear(this.bell.0.as_fd())?;
        Ok(this)
    }

    /// Wake when something happens to this descriptor from now on: not when it could be read all along,
    /// as a ring that fills quietly can.
    ///
    /// # Errors
    /// The kernel's refusal: no such thing can be waited for.
    pub fn hear(&self, what: BorrowedFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: both descriptors are open, `event` is valid.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, what.as_raw_fd(), &raw mut event)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// What ends a sleep.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Sleep for this long, or until called.
    pub fn sleep(&self, time: Duration) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let ms = time.as_millis().clamp(1, 60_000) as libc::c_int;
        // SAFETY: room for as many events as is said.
        unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as libc::c_int, ms)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bell_ends_a_sleep_once() {
        let alarm = Alarm::new().unwrap();
        let bell = alarm.bell();
        // Made readable when it was added: an edge of its own on some kernels.
        alarm.sleep(Duration::from_millis(1));
        let ringer = std::thread::spawn(move || bell.ring());
        // A bell that is not heard makes this test hang.
        alarm.sleep(Duration::from_secs(60));
        ringer.join().unwrap();
        // Heard is heard: the next sleep ends by time.
        alarm.sleep(Duration::from_millis(1));
    }
}
