//! Hardware breakpoints: perf events of type breakpoint, one for each thread and flag. They are file descriptors:
//! whatever becomes of the recorder, the kernel takes them away with it.
#![allow(unsafe_code)] // perf_event_open(2) and its ioctls have no safe wrapper.

use super::rate::Watched;
use perf_event_open_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use sys::bindings::{HW_BREAKPOINT_RW, HW_BREAKPOINT_W, perf_event_attr};

/// A flag watched in one thread, and in those it creates.
#[derive(Debug)]
pub struct Breakpoint {
    fd: OwnedFd,
    address: u64,
    len: u8,
}

fn attributes(address: u64, len: u8, watched: Watched) -> perf_event_attr {
    let mut attr = perf_event_attr {
        size: size_of::<perf_event_attr>() as u32,
        type_: sys::bindings::PERF_TYPE_BREAKPOINT,
        bp_type: if watched == Watched::All { HW_BREAKPOINT_RW } else { HW_BREAKPOINT_W },
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_3.bp_addr = address;
    attr.__bindgen_anon_4.bp_len = u64::from(len);
    // Later threads of the process, too; not its children, whose memory is their own.
    attr.set_inherit(1);
    attr.set_inherit_thread(1);
    // A new program has other things at this address.
    attr.set_remove_on_exec(1);
    attr.set_exclude_hv(1);
    attr
}

impl Breakpoint {
    /// Watch `len` bytes at an address of a thread; `program` is run at each access.
    ///
    /// # Errors
    /// `ENOSPC` when the processor has no breakpoint left, `ESRCH` when the thread has ended.
    pub fn set(tid: u32, address: u64, len: u8, program: BorrowedFd) -> io::Result<Self> {
        let mut attr = attributes(address, len, Watched::All);
        // SAFETY: `attr` is a valid attribute block of the size it names.
        let fd = unsafe {
            let flags = sys::bindings::PERF_FLAG_FD_CLOEXEC.into();
            sys::perf_event_open(&raw mut attr, tid as i32, -1, -1, flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: both descriptors are open; the ioctl takes a number.
        if unsafe { sys::ioctls::SET_BPF(fd.as_raw_fd(), program.as_raw_fd() as u32) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd, address, len })
    }

    /// Watch something else from now on, in this thread and those it created.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn change(&self, watched: Watched) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the descriptor is open; the attribute block is valid and of the size it names.
        let done = unsafe {
            if watched == Watched::Nothing {
                sys::ioctls::DISABLE(fd, 0)
            } else {
                let mut attr = attributes(self.address, self.len, watched);
                let changed = sys::ioctls::MODIFY_ATTRIBUTES(fd, &raw mut attr);
                if changed < 0 { changed } else { sys::ioctls::ENABLE(fd, 0) }
            }
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
