//! Passes over threads: of all of them, or of single ones (`bpf/pass.h`).
#![allow(unsafe_code)] // Parts of a union of the kernel's interface.

use super::Programs;
use super::load::program;
use super::refused::refused;
use crate::error::Error;
use crate::sys_bpf;
use aya::programs::Iter;
use aya_obj::generated::{bpf_attach_type, bpf_cmd};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};

const PROGRAM: &str = "on_task";

/// What a pass over all threads does (`enum pass` in `bpf/state.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Take note of threads that are blocked already.
    Seed = 1,
    /// Report waits that have become long.
    Long = 2,
    /// Report waits that go on.
    Flush = 3,
    /// Send the messages that blocked threads were left with.
    Uses = 4,
    /// Find out whether CPUs can be asked in what interrupt they are.
    Find = 5,
}

/// `union bpf_iter_link_info` for tasks, and nothing set in what is behind it.
#[repr(C)]
struct Of {
    tid: u32,
    none: [u32; 3],
}

impl Programs {
    /// Run a pass over all threads.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn pass(&mut self, what: Pass) -> Result<(), Error> {
        self.state.pass = what as u32;
        self.write_control()?;
        let iter: &mut Iter = program(&mut self.ebpf, PROGRAM)?;
        let link = iter.attach().map_err(|e| refused(PROGRAM, &e))?;
        let link = iter.take_link(link).map_err(|e| refused(PROGRAM, &e))?;
        let file = link.into_file().map_err(|e| refused(PROGRAM, &e))?;
        run(file).map_err(|e| refused(PROGRAM, &e))
    }

    /// A pass over the threads `tids` only, in the initial pid namespace (Linux 6.1). One that has ended is left out.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` where it has no such passes.
    pub fn pass_over(&mut self, what: Pass, tids: &[u32]) -> Result<(), Error> {
        self.state.pass = what as u32;
        self.write_control()?;
        let iter: &mut Iter = program(&mut self.ebpf, PROGRAM)?;
        let program = iter.fd().map_err(|e| refused(PROGRAM, &e))?.as_fd().as_raw_fd() as u32;
        for &tid in tids {
            match one(program, tid) {
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                done => done.map_err(|e| refused(PROGRAM, &e))?,
            }
        }
        Ok(())
    }
}

fn one(program: u32, tid: u32) -> io::Result<()> {
    let of = Of { tid, none: [0; 3] };
    let mut attr = sys_bpf::empty();
    // SAFETY: this command's part of the union, and within it that of this kind of link.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.prog_fd = program;
    link.attach_type = bpf_attach_type::BPF_TRACE_ITER as u32;
    // SAFETY: as above.
    let info = unsafe { &mut link.__bindgen_anon_3.__bindgen_anon_1 };
    info.iter_info = std::ptr::from_ref(&of) as u64;
    info.iter_info_len = size_of::<Of>() as u32;
    let link = sys_bpf::open(bpf_cmd::BPF_LINK_CREATE, &mut attr)?;
    let mut attr = sys_bpf::empty();
    // SAFETY: this command's part of the union.
    unsafe { &mut attr.iter_create }.link_fd = link.as_raw_fd() as u32;
    run(sys_bpf::open(bpf_cmd::BPF_ITER_CREATE, &mut attr)?.into())
}

/// The programs run while their output is read, of which there is none.
fn run(mut iterator: File) -> io::Result<()> {
    let mut sink = [0; 4096];
    loop {
        match iterator.read(&mut sink) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(e) => return Err(e),
        }
    }
}
