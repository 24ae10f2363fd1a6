//! The loaded programs: what they are told while they run, and what they count. Dropping them detaches everything.
#![allow(unsafe_code)] // `aya::Pod` is an unsafe marker trait.

mod load;
mod pass;
mod refused;

use super::burst::AT_ONCE;
use super::drain::Rings;
use super::percpu;
use super::sampling::Sampling;
use crate::error::Error;
use crate::options::Options;
use crate::stacks::Followed;
use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::BtfTracePoint;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::{Btf, Ebpf};
use load::program;
pub use pass::Pass;
use refused::refused;

/// Of [`MESSAGES`], the one without which it is not known what was received.
const RECEIVE: &str = "on_receive";
/// Programs, their tracepoints, and what is missing without them: for as long as messages are recorded.
const MESSAGES: &[(&str, &str, &str)] = &[
    ("on_send", "sock_send_length", "bytes sent over sockets are not recorded"),
    (RECEIVE, "sock_recv_length", "bytes received over sockets are not recorded"),
];
/// Attached only while unix datagrams are received.
const DATAGRAMS: (&str, &str) = ("on_datagram", "skb_copy_datagram_iovec");
/// Attached at the level `syscalls`, and in bursts.
const SYSCALLS: [(&str, &str); 2] = [("on_sys_enter", "sys_enter"), ("on_sys_exit", "sys_exit")];

/// `struct control` in `bpf/state.h`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Control {
    focus_generation: u32,
    pass: u32,
    realtime_offset: u64,
    burst: u32,
    all_calls: u32,
    burst_of: u32,
    bursting: [u32; AT_ONCE],
    pad: u32,
}
// SAFETY: plain numbers without padding, laid out as in C.
unsafe impl aya::Pod for Control {}

/// Numbers of `enum count` in `bpf/state.h`.
const LOST: [u32; 3] = [0, 1, 2];
const LEFT: u32 = 3;
const UNREPORTED: u32 = 4;
const HEARD: u32 = 5;
const FOUND: u32 = 6;
const PASSED: u32 = 7;

/// The loaded and attached programs; dropping it detaches everything.
pub struct Programs {
    ebpf: Ebpf,
    control: Array<MapData, Control>,
    state: Control,
    focus: HashMap<MapData, u32, u32>,
    counts: PerCpuArray<MapData, u64>,
    calls: Option<[BtfTracePointLinkId; 2]>,
    /// Of [`MESSAGES`], while they are attached.
    messages: Vec<(&'static str, BtfTracePointLinkId)>,
    datagrams: Option<BtfTracePointLinkId>,
    /// The kernel took the program for datagrams.
    datagrams_loaded: bool,
    /// CPUs are asked in what interrupt they are (`bpf/context.h`).
    asked: bool,
    /// What is received over sockets is recorded.
    pub receptions: bool,
    /// `struct python` in `bpf/python_frames.h` by thread, as words.
    pythons: HashMap<MapData, u32, [u64; 3]>,
    rings: Option<Rings>,
    /// Kept for as long as samples are to be taken.
    #[allow(dead_code)] // Held, and never looked at.
    sampling: Option<Sampling>,
    /// Sentences about what this kernel does not offer.
    pub notes: Vec<String>,
}

/// `enum burst_of` of `bpf/state.h`.
const OF_THREADS: u32 = 1;
const OF_CHILDREN: u32 = 2;

impl Programs {
    /// Load everything and attach it.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::NoBtf`], [`Error::Refused`].
    pub fn start(options: &Options, own_pid: u32) -> Result<Self, Error> {
        let btf = Btf::from_sys_fs().map_err(|_| Error::NoBtf)?;
        let places = if options.follow_interrupts { None } else { percpu::places() };
        let mut this = Self::load(options, own_pid, &btf, places)?;
        if this.asked && !this.finds()? {
            tracing::warn!("the kernel's variables of each CPU are not where its type information has them");
            drop(this);
            this = Self::load(options, own_pid, &btf, None)?;
        }
        this.attach(options, &btf)?;
        Ok(this)
    }

    /// Are the kernel's variables of this CPU where they are thought to be?
    fn finds(&mut self) -> Result<bool, Error> {
        self.pass(Pass::Find)?;
        Ok(self.count(FOUND) > 0)
    }

    /// Attach the programs that see every system call.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn attach_calls(&mut self) -> Result<(), Error> {
        if self.calls.is_some() {
            return Ok(());
        }
        let mut links = Vec::new();
        for (name, _) in SYSCALLS {
            let p: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
            links.push(p.attach().map_err(|e| refused(name, &e))?);
        }
        self.calls = links.try_into().ok();
        Ok(())
    }

    /// Record messages from now on, or no longer.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn hear(&mut self, wanted: bool) -> Result<(), Error> {
        if wanted {
            for (name, ..) in MESSAGES.iter().filter(|m| m.0 != RECEIVE || self.receptions) {
                let p: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
                // One that was refused at the start is not loaded.
                if p.fd().is_ok() && self.messages.iter().all(|m| m.0 != *name) {
                    self.messages.push((name, p.attach().map_err(|e| refused(name, &e))?));
                }
            }
        } else {
            for (name, link) in self.messages.drain(..) {
                let p: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
                p.detach(link).map_err(|e| refused(name, &e))?;
            }
        }
        Ok(())
    }

    /// Messages recorded so far.
    pub fn heard(&self) -> u64 {
        self.count(HEARD)
    }

    /// System calls that passed the programs of [`SYSCALLS`] so far, whosever.
    pub fn passed(&self) -> u64 {
        self.count(PASSED)
    }

    /// Have unix datagrams that are received name their sender, or no longer: what is received over streams
    /// passes the same place.
    pub fn name_senders(&mut self, wanted: bool) {
        if !self.datagrams_loaded || wanted == self.datagrams.is_some() {
            return;
        }
        let name = DATAGRAMS.0;
        let Ok(p) = program::<BtfTracePoint>(&mut self.ebpf, name) else { return };
        if wanted {
            match p.attach() {
                Ok(link) => self.datagrams = Some(link),
                Err(e) => {
                    self.datagrams_loaded = false;
                    self.notes.push(format!("datagrams received do not name their sender: {e}"));
                }
            }
        } else if let Some(link) = self.datagrams.take()
            && let Err(e) = p.detach(link)
        {
            tracing::warn!("{name}: {e}");
        }
    }

    /// Record the system calls of some threads from now on, [`AT_ONCE`] at most; or of the children of processes (`children`).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn begin_burst(&mut self, tids: &[u32], children: bool) -> Result<(), Error> {
        self.state.burst += 1;
        self.state.burst_of = if children { OF_CHILDREN } else { OF_THREADS };
        self.state.bursting = std::array::from_fn(|i| tids.get(i).copied().unwrap_or(0));
        self.write_control()?;
        self.attach_calls()
    }

    /// ... and no longer: no system call costs anything after this.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn end_burst(&mut self) -> Result<(), Error> {
        self.state.bursting = [0; AT_ONCE];
        self.write_control()?;
        for ((name, _), link) in SYSCALLS.iter().zip(self.calls.take().into_iter().flatten()) {
            let p: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
            p.detach(link).map_err(|e| refused(name, &e))?;
        }
        Ok(())
    }

    /// The rings, once.
    pub fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }

    fn write_control(&mut self) -> Result<(), Error> {
        self.control.set(0, self.state, 0).map_err(|e| refused("the control map", &e))
    }

    /// Tell the programs how real time relates to the monotonic clock.
    pub fn set_realtime_offset(&mut self, offset: u64) {
        self.state.realtime_offset = offset;
        let _ = self.write_control();
    }

    /// Make processes the focus, or take them out of it.
    pub fn set_focus(&mut self, add: &[u32], remove: &[u32]) {
        for pid in add {
            let _ = self.focus.insert(pid, 1, 0);
        }
        for pid in remove {
            let _ = self.focus.remove(pid);
        }
        if !add.is_empty() {
            self.state.focus_generation += 1;
            let _ = self.write_control();
        }
    }

    /// Have the samples of a thread bring its Python frames; `None`: no longer.
    pub fn follow_python(&mut self, tgid: u32, tid: u32, python: Option<Followed>) {
        // A map that is full forgets those it has not seen for longest; one that was not there is as good.
        let _ = match python {
            Some(f) => self.pythons.insert(tid, f.words(tgid), 0),
            None => self.pythons.remove(&tid),
        };
    }

    /// Records lost so far: events, stacks, samples.
    pub fn lost(&self) -> [u64; 3] {
        LOST.map(|i| self.count(i))
    }

    /// How often a thread was blocked with messages that could not be sent yet.
    pub fn left(&self) -> u64 {
        self.count(LEFT)
    }

    /// Switches that the kernel did not report: the thread that left was not the one that had come.
    pub fn unreported(&self) -> u64 {
        self.count(UNREPORTED)
    }

    fn count(&self, which: u32) -> u64 {
        self.counts.get(&which, 0).map_or(0, |v| v.iter().sum())
    }
}
