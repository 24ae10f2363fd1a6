//! Which programs there are, and how they are loaded and attached.

use super::refused::refused;
use super::{Control, DATAGRAMS, MESSAGES, Programs, RECEIVE, SYSCALLS};
use crate::clock;
use crate::collector::drain::Rings;
use crate::collector::lanes::{self, Lanes};
use crate::collector::percpu::PLACES;
use crate::collector::sampling;
use crate::error::Error;
use crate::loading::patiently;
use crate::options::{Level, Options};
use aya::maps::{Map, MapData};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, Iter, PerfEvent, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use crossbeam_channel::unbounded;
use std::collections::HashMap;
use std::os::fd::AsFd;

/// The committed object; `cargo xtask bpf` rebuilds it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/causal.bpf.o");

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
    ("on_softirq_raise", "softirq_raise", "packets from devices look like packets from threads"),
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
/// What takes samples of threads on their CPUs.
const SAMPLE: &str = "on_sample";
/// Tracepoints that had another name in earlier kernels.
const RENAMED: &[(&str, &str)] = &[("hrtimer_setup", "hrtimer_init")];

impl Programs {
    /// Load the object. `places`: where the kernel's variables of each CPU are; `None`: programs follow instead.
    ///
    /// # Errors
    /// As [`Programs::start`].
    pub(super) fn load(
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

    /// Attach what the level needs, the core last.
    ///
    /// # Errors
    /// The kernel's refusal of what no recording can do without.
    pub(super) fn attach(&mut self, options: &Options, btf: &Btf) -> Result<(), Error> {
        let messages = if options.level >= Level::Messages { MESSAGES } else { &[] };
        let interrupts = match self.asked {
            true if options.level >= Level::Messages => OVERDUE,
            true => &[],
            false => FOLLOW,
        };
        let optional = || EXTRA.iter().chain(interrupts).chain(messages);
        let datagrams = (options.level >= Level::Messages).then_some(DATAGRAMS);
        let sample = (options.sample_hz > 0).then_some((SAMPLE, ""));
        // What takes longest to check first.
        let wanted = CORE.iter().chain(&SYSCALLS).copied().chain(sample).chain(datagrams);
        let mut refusals = check_all(
            &mut self.ebpf,
            wanted.chain(optional().map(|&(name, tracepoint, _)| (name, tracepoint))),
            btf,
        );
        // What is optional first: whatever of it wakes the core finds it not yet there.
        for (name, tracepoint, loss) in optional() {
            match refusals.remove(name).map_or_else(|| attach(&mut self.ebpf, name), Err) {
                Ok(link) if MESSAGES.iter().any(|m| m.0 == *name) => self.messages.push((name, link)),
                Ok(_) => {}
                Err(e) => self.not_offered(name, tracepoint, loss, &e),
            }
        }
        self.receptions = self.messages.iter().any(|m| m.0 == RECEIVE);
        for (name, _) in CORE {
            refusals
                .remove(name)
                .map_or_else(|| attach(&mut self.ebpf, name), Err)
                .map_err(|e| refused(name, &e))?;
        }
        if let Some((name, tracepoint)) = datagrams {
            match refusals.remove(name) {
                None => self.datagrams_loaded = true,
                Some(e) => self.not_offered(name, tracepoint, "datagrams do not name their sender", &e),
            }
        }
        if let Some((name, e)) = SYSCALLS.iter().find_map(|(name, _)| refusals.remove_entry(name)) {
            return Err(refused(name, &e));
        }
        if options.level == Level::Syscalls {
            self.state.all_calls = 1;
            self.write_control()?;
            self.attach_calls()?;
        }
        if let Some((name, _)) = sample {
            if let Some(e) = refusals.remove(name) {
                return Err(refused(name, &e));
            }
            let p: &mut PerfEvent = program(&mut self.ebpf, name)?;
            let fd = p.fd().map_err(|e| refused(name, &e))?;
            match sampling::start(fd.as_fd(), options.sample_hz) {
                Ok(s) => self.sampling = Some(s),
                Err(e) => self.notes.push(format!("no on-CPU samples: {e}")),
            }
        }
        Ok(())
    }

    /// Note what the recording is poorer for.
    fn not_offered(&mut self, name: &str, tracepoint: &str, loss: &str, e: &ProgramError) {
        tracing::warn!(name, "{}", refused(name, e));
        self.notes.push(format!("this kernel does not offer {tracepoint}: {loss}"));
    }
}

/// Have the kernel check programs (name and tracepoint of each), on as many threads as there are CPUs, four at most: that is
/// most of what a recorder takes to start. What it refused, by name.
fn check_all(
    ebpf: &mut Ebpf,
    wanted: impl Iterator<Item = (&'static str, &'static str)>,
    btf: &Btf,
) -> HashMap<&'static str, ProgramError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let mut refusals = HashMap::new();
    let mut programs: HashMap<&str, &mut Program> = ebpf.programs_mut().collect();
    let (queue, todo) = unbounded();
    for (name, tracepoint) in wanted {
        match programs.remove(name) {
            Some(program) => queue.send((name, tracepoint, program)).expect("its other end is here"),
            None => drop(refusals.insert(name, ProgramError::UnexpectedProgramType)),
        }
    }
    drop(queue);
    let checked = std::thread::scope(|s| {
        let work = || {
            todo.iter()
                .filter_map(|(name, tracepoint, program)| {
                    Some((name, check(program, tracepoint, btf).err()?))
                })
                .collect::<Vec<_>>()
        };
        let others: Vec<_> = (1..threads).map(|_| s.spawn(work)).collect();
        let mut all = work();
        all.extend(others.into_iter().flat_map(|t| t.join().expect("a thread that checks programs")));
        all
    });
    refusals.extend(checked);
    refusals
}

/// Have the kernel check one program; of a tracepoint that an earlier kernel has by another name, by that.
fn check(program: &mut Program, tracepoint: &str, btf: &Btf) -> Result<(), ProgramError> {
    match program {
        Program::BtfTracePoint(p) => {
            let earlier = RENAMED.iter().find(|r| r.0 == tracepoint);
            patiently(|| p.load(tracepoint, btf)).or_else(|e| match earlier {
                Some((_, earlier)) => patiently(|| p.load(earlier, btf)),
                None => Err(e),
            })
        }
        Program::PerfEvent(p) => patiently(|| p.load()),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

fn ring_size(wanted: u32) -> u32 {
    wanted.clamp(1 << 16, 1 << 30).next_power_of_two()
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

/// A program of the object.
pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, Error>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let p = ebpf
        .program_mut(name)
        .ok_or_else(|| Error::Failed(format!("the BPF object has no program {name}")))?;
    p.try_into().map_err(|e| refused(name, &e))
}

fn attach(ebpf: &mut Ebpf, name: &str) -> Result<BtfTracePointLinkId, ProgramError> {
    let p: &mut BtfTracePoint =
        ebpf.program_mut(name).ok_or(ProgramError::UnexpectedProgramType).and_then(TryInto::try_into)?;
    p.attach()
}
