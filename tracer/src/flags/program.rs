//! The BPF object that is run at each access to a flag: an object of its own, so that a kernel that refuses it
//! can still record everything else.

use super::FlagError;
use super::hit::Hit;
use crate::loading::{patiently, reason};
use crate::readable::wait_readable;
use aya::maps::{Array, MapData, RingBuf};
use aya::programs::PerfEvent;
use aya::{Btf, Ebpf, EbpfLoader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The committed object; `cargo xtask bpf` rebuilds it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/flags.bpf.o");

/// The loaded program.
pub struct Program {
    _ebpf: Ebpf,
    fd: OwnedFd,
    lost: Array<MapData, u64>,
}

/// What it sends.
pub struct Ring(RingBuf<MapData>);

fn refused(e: impl std::error::Error) -> FlagError {
    FlagError::Refused { what: "load the program for data flags".into(), reason: reason(&e) }
}

impl Program {
    /// Load it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn load() -> Result<(Self, Ring), FlagError> {
        let missing =
            |what: &str| FlagError::Refused { what: format!("load {what}"), reason: "it is missing".into() };
        let btf = Btf::from_sys_fs().map_err(refused)?;
        let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(refused)?;
        let ring = ebpf.take_map("hits").ok_or_else(|| missing("the ring of hits"))?;
        let ring = RingBuf::try_from(ring).map_err(refused)?;
        let lost = ebpf.take_map("lost").ok_or_else(|| missing("the counter"))?;
        let lost = Array::try_from(lost).map_err(refused)?;
        let program = ebpf.program_mut("on_flag").ok_or_else(|| missing("on_flag"))?;
        let program: &mut PerfEvent = program.try_into().map_err(refused)?;
        patiently(|| program.load()).map_err(refused)?;
        let fd = program.fd().map_err(refused)?.as_fd().try_clone_to_owned().map_err(refused)?;
        Ok((Self { _ebpf: ebpf, fd, lost }, Ring(ring)))
    }

    /// To attach to perf events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Accesses for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.get(&0, 0).unwrap_or(0)
    }
}

impl Ring {
    /// Sleep until there is something in it, or for so long.
    pub fn wait(&self, most: Duration) {
        wait_readable(self.0.as_fd(), most);
    }

    /// What is in it, up to `most`.
    pub fn take(&mut self, most: usize) -> Vec<Hit> {
        let mut out = Vec::new();
        while out.len() < most {
            let Some(item) = self.0.next() else { break };
            out.extend(Hit::parse(&item));
        }
        out
    }
}
