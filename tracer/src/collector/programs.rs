//! Loads the BPF object, attaches what the level needs, and hands out its maps.
#![allow(unsafe_code)] // `aya::Pod` is an unsafe marker trait.

use super::clock;
use super::drain::Rings;
use super::lanes::{self, Lanes};
use super::percpu::{self, PLACES};
use super::permission::not_permitted;
use super::sampling::{self, Sampling};
use crate::error::Error;
use crate::loading::{patiently, reason};
use crate::options::{Level, Options};
use crate::stacks::Followed;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, Iter, PerfEvent, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use std::io::{self, Read};
use std::os::fd::AsFd;

/// The committed object; `cargo xtask bpf` rebuilds it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/causal.bpf.o");

/// Programs and their tracepoints that no recording can do without.
const CORE: &[(&str, &str)] = &[
    ("on_switch", "sched_switch"),
    ("on_waking", "sched_waking"),
    ("on_wakeup_new", "sched_wakeup_new"),
    ("on_fork", "sched_process_fork"),
    ("on_exec", "sched_process_exec"),
    ("on_exit", "sched_process_exit"),
];
/// Programs a recording is poorer without; a kernel may lack their tracepoints.
const EXTRA: &[(&str, &str, &str)] = &[
    ("on_rename", "task_rename", "threads keep the names they had when first seen"),
    ("on_signal", "signal_generate", "signals are not recorded"),
    ("on_softirq_raise", "softirq_raise", "packets from devices look like packets from threads"),
    // Exits before entries: an interrupt that is under way now must not be seen to begin and never end.
    ("on_irq_exit", "irq_handler_exit", "wakers in interrupts look like threads"),
    ("on_irq_entry", "irq_handler_entry", "wakers in interrupts look like threads"),
    ("on_timer_exit", "timer_expire_exit", "timers look like threads"),
    ("on_timer_entry", "timer_expire_entry", "timers look like threads"),
    ("on_timer_setup", "hrtimer_setup", "who armed a timer is not recorded"),
    ("on_itimer", "itimer_state", "who armed an interval timer is not recorded"),
    ("on_queue_work", "workqueue_queue_work", "for whom kernel workers act is not recorded"),
    ("on_disk_complete", "block_rq_complete", "who asked for what a disk delivers is not recorded"),
    ("on_disk_start", "block_io_start", "who asked for what a disk delivers is known for some queues only"),
    ("on_disk_issue", "block_rq_issue", "who asked for what a disk delivers is known for some queues only"),
];
/// What else follows in what interrupt a CPU is, where it cannot be asked.
const FOLLOW: &[(&str, &str, &str)] = &[
    ("on_softirq_exit", "softirq_exit", "wakers in soft interrupts look like threads"),
    ("on_softirq_entry", "softirq_entry", "wakers in soft interrupts look like threads"),
    ("on_hrtimer_exit", "hrtimer_expire_exit", "timers look like threads"),
    ("on_hrtimer_entry", "hrtimer_expire_entry", "timers look like threads"),
];
/// Where it can: messages of a thread that never waits are sent by timers.
const OVERDUE: &[(&str, &str, &str)] = &[(
    "on_hrtimer_entry",
    "hrtimer_expire_entry",
    "messages of a thread that is never switched out are recorded late",
)];
/// Tracepoints that had another name in earlier kernels.
const RENAMED: &[(&str, &str)] = &[("hrtimer_setup", "hrtimer_init")];
const RECEIVE: &str = "on_receive";
const MESSAGES: &[(&str, &str, &str)] = &[
    ("on_send", "sock_send_length", "bytes sent over sockets are not recorded"),
    (RECEIVE, "sock_recv_length", "bytes received over sockets are not recorded"),
];
/// Attached only while unix datagrams are received.
const DATAGRAMS: (&str, &str) = ("on_datagram", "skb_copy_datagram_iovec");
const SYSCALLS: [(&str, &str); 2] = [("on_sys_enter", "sys_enter"), ("on_sys_exit", "sys_exit")];

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

/// `struct control` in `bpf/state.h`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Control {
    focus_generation: u32,
    pass: u32,
    realtime_offset: u64,
    burst: u32,
    all_calls: u32,
}
// SAFETY: plain numbers without padding, laid out as in C.
unsafe impl aya::Pod for Control {}

/// Numbers of `enum count` in `bpf/state.h`.
const LOST: [u32; 3] = [0, 1, 2];
const LEFT: u32 = 3;
const UNREPORTED: u32 = 4;
const HEARD: u32 = 5;
const FOUND: u32 = 6;

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
    bursting: HashMap<MapData, u32, u32>,
    /// `struct python` in `bpf/python.h` by thread, as words.
    pythons: HashMap<MapData, u32, [u64; 3]>,
    rings: Option<Rings>,
    /// Kept for as long as samples are to be taken.
    #[allow(dead_code)]
    sampling: Option<Sampling>,
    /// Sentences about what this kernel does not offer.
    pub notes: Vec<String>,
}

fn ring_size(wanted: u32) -> u32 {
    wanted.clamp(1 << 16, 1 << 30).next_power_of_two()
}

fn refused(what: &str, e: &(dyn std::error::Error + 'static)) -> Error {
    if let Some(last) = verdict_of_verifier(e) {
        // EACCES here is the verifier's, not one of missing rights.
        return Error::Refused { what: what.into(), reason: last };
    }
    let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(e) = inner {
        if let Some(io) = e.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::PermissionDenied
        {
            return not_permitted(&format!("the right to load BPF programs ({what})"));
        }
        inner = e.source();
    }
    Error::Refused { what: what.into(), reason: reason(e) }
}

/// What the verifier said last before its statistics: that is what is wrong. Its whole log can be megabytes
/// and goes to the log file. Without rights it says nothing.
fn verdict_of_verifier(e: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut inner = Some(e);
    while let Some(e) = inner {
        if let Some(ProgramError::LoadError { io_error, verifier_log }) = e.downcast_ref::<ProgramError>() {
            let log = verifier_log.to_string();
            let told = |l: &&str| {
                !l.is_empty()
                    && !["processed ", "verification time", "stack depth "].iter().any(|s| l.starts_with(s))
            };
            let last = log.lines().map(str::trim).rfind(told)?;
            tracing::debug!("verifier: {log}");
            return Some(format!("its verifier says: {last} ({io_error})"));
        }
        inner = e.source();
    }
    None
}

/// Values of the map `bursting` (`enum burst_of` of `bpf/state.h`).
const OF_THREAD: u32 = 1;
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

    fn load(
        options: &Options,
        own_pid: u32,
        btf: &Btf,
        places: Option<[u32; PLACES]>,
    ) -> Result<Self, Error> {
        let asked = u32::from(places.is_some());
        let messages = u32::from(options.level >= Level::Messages);
        let (kernel_stacks, user_stacks) = (u32::from(options.kernel_stacks), u32::from(options.user_stacks));
        let jiffy = clock::jiffy();
        let cpus = aya::util::nr_cpus()
            .map_err(|(what, e)| Error::Failed(format!("cannot tell how many CPUs there are: {what}: {e}")))?
            as u32;
        let lane_blocks = lanes::blocks(options.ring_bytes, cpus);
        let mut ebpf = EbpfLoader::new()
            .btf(Some(btf))
            .allow_unsupported_maps()
            .override_global("own_tgid", &own_pid, true)
            .override_global("messages", &messages, true)
            .override_global("kernel_stacks", &kernel_stacks, true)
            .override_global("user_stacks", &user_stacks, true)
            .override_global("kernel_stack_ns", &options.kernel_stack_threshold_ns, true)
            .override_global("long_wait_ns", &options.long_wait_ns, true)
            .override_global("jiffy_ns", &jiffy, true)
            .override_global("lane_blocks", &lane_blocks, true)
            .override_global("asked", &asked, true)
            .override_global("places", &places.unwrap_or_default(), true)
            .map_max_entries("lanes", cpus)
            .map_max_entries("blocks", cpus * lane_blocks)
            .map_max_entries("events", ring_size(options.ring_bytes / 2))
            .map_max_entries("stacks", ring_size(options.stack_ring_bytes))
            .map_max_entries("samples", ring_size(options.stack_ring_bytes / 2))
            .load(OBJECT)
            .map_err(|e| refused("the BPF object", &e))?;
        let control = take(&mut ebpf, "control")?;
        let mut this = Self {
            control,
            state: Control::default(),
            focus: take(&mut ebpf, "focus")?,
            bursting: take(&mut ebpf, "bursting")?,
            pythons: take(&mut ebpf, "pythons")?,
            counts: take(&mut ebpf, "counts")?,
            calls: None,
            messages: Vec::new(),
            datagrams: None,
            asked: places.is_some(),
            receptions: false,
            datagrams_loaded: false,
            rings: Some(Rings {
                lanes: Lanes::map(
                    mapped(&mut ebpf, "lanes")?,
                    mapped(&mut ebpf, "blocks")?,
                    cpus,
                    lane_blocks,
                )?,
                held: None,
                events: take(&mut ebpf, "events")?,
                stacks: take(&mut ebpf, "stacks")?,
                samples: take(&mut ebpf, "samples")?,
                room: [options.ring_bytes / 2, options.stack_ring_bytes, options.stack_ring_bytes / 2]
                    .map(|n| ring_size(n) as usize),
            }),
            sampling: None,
            notes: Vec::new(),
            ebpf,
        };
        this.set_realtime_offset(clock::realtime_offset());
        let iter: &mut Iter = program(&mut this.ebpf, "on_task")?;
        patiently(|| iter.load("task", btf)).map_err(|e| refused("on_task", &e))?;
        Ok(this)
    }

    /// Are the kernel's variables of this CPU where they are thought to be?
    fn finds(&mut self) -> Result<bool, Error> {
        self.pass(Pass::Find)?;
        Ok(self.count(FOUND) > 0)
    }

    fn attach(&mut self, options: &Options, btf: &Btf) -> Result<(), Error> {
        // What is optional first: whatever of it wakes the core finds it not yet there.
        let messages = if options.level >= Level::Messages { MESSAGES } else { &[] };
        let interrupts = match self.asked {
            true if options.level >= Level::Messages => OVERDUE,
            true => &[],
            false => FOLLOW,
        };
        for (name, tracepoint, loss) in EXTRA.iter().chain(interrupts).chain(messages) {
            let earlier = RENAMED.iter().find(|r| r.0 == *tracepoint);
            let attached = attach(&mut self.ebpf, name, tracepoint, btf).or_else(|e| match earlier {
                Some((_, earlier)) => attach(&mut self.ebpf, name, earlier, btf),
                None => Err(e),
            });
            if let Ok(link) = attached {
                if MESSAGES.iter().any(|m| m.0 == *name) {
                    self.messages.push((name, link));
                }
            } else if let Err(e) = attached {
                tracing::warn!(name, "{}", refused(name, &e));
                let note = format!("this kernel does not offer {tracepoint}: {loss}");
                self.notes.push(note);
            }
        }
        self.receptions = self.messages.iter().any(|m| m.0 == RECEIVE);
        for (name, tracepoint) in CORE {
            attach(&mut self.ebpf, name, tracepoint, btf).map_err(|e| refused(name, &e))?;
        }
        if options.level >= Level::Messages {
            let (name, tracepoint) = DATAGRAMS;
            let p: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
            match patiently(|| p.load(tracepoint, btf)) {
                Ok(()) => self.datagrams_loaded = true,
                Err(e) => {
                    tracing::warn!(name, "{}", refused(name, &e));
                    let note = format!(
                        "this kernel does not offer {tracepoint}: datagrams do not name their sender"
                    );
                    self.notes.push(note);
                }
            }
        }
        for (name, tracepoint) in SYSCALLS {
            let p: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
            patiently(|| p.load(tracepoint, btf)).map_err(|e| refused(name, &e))?;
        }
        if options.level == Level::Syscalls {
            self.state.all_calls = 1;
            self.write_control()?;
            self.attach_calls()?;
        }
        if options.sample_hz > 0 {
            let p: &mut PerfEvent = program(&mut self.ebpf, "on_sample")?;
            patiently(|| p.load()).map_err(|e| refused("on_sample", &e))?;
            let fd = p.fd().map_err(|e| refused("on_sample", &e))?;
            match sampling::start(fd.as_fd(), options.sample_hz) {
                Ok(s) => self.sampling = Some(s),
                Err(e) => self.notes.push(format!("no on-CPU samples: {e}")),
            }
        }
        Ok(())
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

    /// Record the system calls of some threads from now on; or of the children of processes (`children`).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn begin_burst(&mut self, tids: &[u32], children: bool) -> Result<(), Error> {
        for tid in tids {
            self.bursting
                .insert(tid, if children { OF_CHILDREN } else { OF_THREAD }, 0)
                .map_err(|e| refused("the map of threads in a burst", &e))?;
        }
        self.state.burst = 1;
        self.write_control()?;
        self.attach_calls()
    }

    /// ... and no longer: no system call costs anything after this.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn end_burst(&mut self, tids: &[u32]) -> Result<(), Error> {
        self.state.burst = 0;
        self.write_control()?;
        for tid in tids {
            let _ = self.bursting.remove(tid);
        }
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

    /// Run a pass over all threads.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn pass(&mut self, what: Pass) -> Result<(), Error> {
        self.state.pass = what as u32;
        self.write_control()?;
        let iter: &mut Iter = program(&mut self.ebpf, "on_task")?;
        let link = iter.attach().map_err(|e| refused("on_task", &e))?;
        let link = iter.take_link(link).map_err(|e| refused("on_task", &e))?;
        let mut file = link.into_file().map_err(|e| refused("on_task", &e))?;
        let mut sink = [0; 4096];
        loop {
            match file.read(&mut sink) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(e) => return Err(refused("on_task", &e)),
            }
        }
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

fn take<T: TryFrom<aya::maps::Map, Error = aya::maps::MapError>>(
    ebpf: &mut Ebpf,
    name: &str,
) -> Result<T, Error> {
    let map =
        ebpf.take_map(name).ok_or_else(|| Error::Failed(format!("the BPF object has no map {name}")))?;
    T::try_from(map).map_err(|e| refused(name, &e))
}

/// A map as it is, to be mapped into memory.
fn mapped(ebpf: &mut Ebpf, name: &str) -> Result<MapData, Error> {
    match ebpf.take_map(name) {
        Some(Map::Array(data)) => Ok(data),
        _ => Err(Error::Failed(format!("the BPF object has no array {name}"))),
    }
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, Error>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let p = ebpf
        .program_mut(name)
        .ok_or_else(|| Error::Failed(format!("the BPF object has no program {name}")))?;
    p.try_into().map_err(|e| refused(name, &e))
}

fn attach(
    ebpf: &mut Ebpf,
    name: &str,
    tracepoint: &str,
    btf: &Btf,
) -> Result<BtfTracePointLinkId, ProgramError> {
    let p: &mut BtfTracePoint =
        ebpf.program_mut(name).ok_or(ProgramError::UnexpectedProgramType).and_then(TryInto::try_into)?;
    patiently(|| p.load(tracepoint, btf))?;
    p.attach()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_error(log: &str) -> ProgramError {
        ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(libc::EACCES),
            verifier_log: aya_obj::VerifierLog::new(log.into()),
        }
    }

    #[test]
    fn the_verifiers_refusal_is_not_taken_for_missing_rights() {
        let log = "0: (b7) r0 = 0\nR1 type=scalar expected=fp, pkt\nverification time 12 usec\n\
            processed 7 insns (limit 1000000) max_states_per_insn 0\nstack depth 8+128\n\n";
        let e = refused("on_switch", &load_error(log));
        let text = e.to_string();
        assert!(
            matches!(e, Error::Refused { .. }) && text.contains("R1 type=scalar expected=fp, pkt"),
            "{text}"
        );
        assert!(!text.contains("processed") && !text.contains("sudo"), "{text}");
        assert!(matches!(refused("on_switch", &load_error("")), Error::NotPermitted { .. }));
    }
}
