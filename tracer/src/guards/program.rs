//! Loads the programs of the guards and attaches them.

use super::layout::{
    Candidates, ContextKey, Control, LEARNERS, LOOPS, Loop, Shape, ShapeKey, THREADS, Unit, Usage,
};
use super::multi;
use super::records::Record;
use super::rings::Rings;
use super::slots::Mapped;
use super::windows::Lights;
use crate::collector::sampling::{self, Sampling};
use crate::error::Error;
use crate::loading::{patiently, reason};
use crate::readable::wait_readable;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, RingBuf, Stack};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, PerfEvent};
use aya::{Btf, Ebpf, EbpfLoader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The committed object; `cargo xtask bpf` rebuilds it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/guard.bpf.o");

/// Programs and their tracepoints.
const TRACEPOINTS: [(&str, &str); 4] = [
    ("on_switch", "sched_switch"),
    ("on_fork", "sched_process_fork"),
    ("on_exec", "sched_process_exec"),
    ("on_exit", "sched_process_exit"),
];
/// As well, of messages: receiving last, so that nothing is taken for answered that was not.
const MESSAGES: [(&str, &str); 2] = [("on_request", "sock_recv_length"), ("on_answer", "sock_send_length")];

/// The loaded programs; dropping it detaches everything.
pub struct Program {
    ebpf: Ebpf,
    pub control: Array<MapData, Control>,
    pub targets: HashMap<MapData, u32, u32>,
    pub slots: HashMap<MapData, u32, u32>,
    pub units: Array<MapData, Unit>,
    pub loops: Array<MapData, Loop>,
    pub contexts: HashMap<MapData, ContextKey, Candidates>,
    pub calls: Array<MapData, u64>,
    pub shapes: HashMap<MapData, ShapeKey, Shape>,
    /// Threads whose frames of Python are read, by [`Followed::words`].
    pub pythons: HashMap<MapData, u32, [u64; 3]>,
    pub mapped: Mapped,
    pub rings: Rings,
    /// Whether probes are set.
    pub lights: Lights,
    /// Kept for its memory.
    #[allow(dead_code)]
    sight: Map,
    usages: PerCpuArray<MapData, Usage>,
    ring: RingBuf<MapData>,
    lost: Array<MapData, u64>,
    /// For probes: behind the loop's own wait call, and at the entry of functions. `None` on kernels without
    /// [`multi`].
    pub probes: Option<Arc<[multi::Program; 2]>>,
    /// For probes of given units: where they begin, where they end, and behind calls that are units.
    pub given: Option<[multi::Program; 3]>,
    /// Slots for threads that come under guard.
    pub spare: Stack<MapData, u32>,
    /// Kept for as long as samples are to be taken.
    #[allow(dead_code)]
    sampling: Option<Sampling>,
    /// The programs of messages are loaded.
    messages: bool,
    /// And attached.
    heard: Vec<BtfTracePointLinkId>,
    /// Sentences about what this kernel does not offer.
    pub notes: Vec<String>,
}

fn refused(e: impl std::error::Error) -> Error {
    Error::Refused { what: "the programs of the guards".into(), reason: reason(&e) }
}

fn fd_of(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(m)
        | Map::HashMap(m)
        | Map::LruHashMap(m)
        | Map::RingBuf(m)
        | Map::PerCpuArray(m)
        | Map::Stack(m) => Some(m.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}

impl Program {
    /// Load the programs, with room for what is learnt of units if that is wanted. Nothing is attached yet.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn load(learning: bool) -> Result<Self, Error> {
        let btf = Btf::from_sys_fs().map_err(|_| Error::NoBtf)?;
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .map_max_entries("learnt", if learning { LEARNERS as u32 } else { 1 })
            .load(OBJECT)
            .map_err(refused)?;
        let mut notes = Vec::new();
        // Their descriptors must be told before the maps are taken.
        let names = [
            "control",
            "targets",
            "slots",
            "units",
            "loops",
            "contexts",
            "calls",
            "asked",
            "asking",
            "told",
            "lost",
            "learnt",
            "scratches",
            "spare",
            "shapes",
            "pythons",
            "sight",
            "usages",
            "here",
        ];
        let fds = names.into_iter().filter_map(|n| Some((n, fd_of(ebpf.map(n)?)?))).collect();
        let names = ["on_turn", "on_context", "on_begin", "on_end", "on_return"];
        let (probes, given) = match multi::Program::load(OBJECT, names, &fds, &btf) {
            Ok([turn, context, begin, end, returned]) => {
                (Some(Arc::new([turn, context])), Some([begin, end, returned]))
            }
            Err(e) => {
                notes.push(format!("guards without probes in functions (they need Linux 6.6): {e}"));
                (None, None)
            }
        };
        let mut take = |name: &str| {
            ebpf.take_map(name)
                .ok_or_else(|| Error::Failed(format!("the map {name} of the guards is missing")))
        };
        let control = Array::try_from(take("control")?).map_err(refused)?;
        let targets = HashMap::try_from(take("targets")?).map_err(refused)?;
        let slots = HashMap::try_from(take("slots")?).map_err(refused)?;
        let units = take("units")?;
        let mapped = Mapped::of(fd_of(&units).unwrap_or(-1))?;
        let units = Array::try_from(units).map_err(refused)?;
        let loops = take("loops")?;
        let rings = Rings::of(fd_of(&loops).unwrap_or(-1))?;
        let loops = Array::try_from(loops).map_err(refused)?;
        let contexts = HashMap::try_from(take("contexts")?).map_err(refused)?;
        let calls = Array::try_from(take("calls")?).map_err(refused)?;
        let sight = take("sight")?;
        let lights = Lights::of(fd_of(&sight).unwrap_or(-1))?;
        let usages = PerCpuArray::try_from(take("usages")?).map_err(refused)?;
        let shapes = HashMap::try_from(take("shapes")?).map_err(refused)?;
        let pythons = HashMap::try_from(take("pythons")?).map_err(refused)?;
        let spare = Stack::try_from(take("spare")?).map_err(refused)?;
        let ring = RingBuf::try_from(take("told")?).map_err(refused)?;
        let lost = Array::try_from(take("lost")?).map_err(refused)?;
        debug_assert!(units.len() as usize == THREADS && loops.len() as usize == LOOPS);
        let mut all = Self {
            ebpf,
            control,
            targets,
            slots,
            units,
            loops,
            contexts,
            calls,
            shapes,
            pythons,
            mapped,
            rings,
            lights,
            sight,
            usages,
            ring,
            lost,
            probes,
            given,
            spare,
            sampling: None,
            messages: false,
            heard: Vec::new(),
            notes,
        };
        for (name, tracepoint) in TRACEPOINTS {
            let program: &mut BtfTracePoint = all.program(name)?;
            patiently(|| program.load(tracepoint, &btf)).map_err(refused)?;
        }
        for (name, tracepoint) in MESSAGES {
            let program: &mut BtfTracePoint = all.program(name)?;
            if let Err(e) = patiently(|| program.load(tracepoint, &btf)) {
                all.notes.push(format!(
                    "requests of a connection that come before the program waits for them are one unit (to tell them apart \
                     needs Linux 6.3): {}",
                    reason(&e)
                ));
                break;
            }
            all.messages = tracepoint == MESSAGES[1].1;
        }
        let sample: &mut PerfEvent = all.program("on_sample")?;
        patiently(|| sample.load()).map_err(refused)?;
        Ok(all)
    }

    fn program<'a, T>(&'a mut self, name: &str) -> Result<&'a mut T, Error>
    where
        &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
    {
        let missing = || Error::Failed(format!("the program {name} is missing"));
        self.ebpf.program_mut(name).ok_or_else(missing)?.try_into().map_err(refused)
    }

    /// Attach what sees switches, with `messages` what sees those, and `hz` samples a second on each CPU.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn attach(&mut self, hz: u32, messages: bool) -> Result<(), Error> {
        // Births and ends first: no thread must come in between.
        for (name, _) in TRACEPOINTS.into_iter().rev() {
            let program: &mut BtfTracePoint = self.program(name)?;
            program.attach().map_err(refused)?;
        }
        if messages {
            self.hear(true)?;
        }
        if hz > 0 {
            let sample: &mut PerfEvent = self.program("on_sample")?;
            let fd: OwnedFd = sample.fd().map_err(refused)?.as_fd().try_clone_to_owned().map_err(refused)?;
            self.sampling = Some(sampling::start(fd.as_fd(), hz)?);
        }
        Ok(())
    }

    /// Attach what sees messages, or detach it; nothing happens where the kernel does not offer it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn hear(&mut self, messages: bool) -> Result<(), Error> {
        if !self.messages || messages != self.heard.is_empty() {
            return Ok(());
        }
        let mut links = std::mem::take(&mut self.heard).into_iter();
        for (name, _) in MESSAGES.into_iter().rev() {
            let program: &mut BtfTracePoint = self.program(name)?;
            if let Some(link) = links.next() {
                program.detach(link).map_err(refused)?;
            } else {
                let link = program.attach().map_err(refused)?;
                self.heard.push(link);
            }
        }
        Ok(())
    }

    /// Messages are seen.
    pub fn hears(&self) -> bool {
        self.heard.len() == MESSAGES.len()
    }

    /// Sleep until there is something in the ring, or for so long.
    pub fn wait(&self, most: Duration) {
        wait_readable(self.ring.as_fd(), most);
    }

    /// The next record.
    pub fn next(&mut self) -> Option<Record> {
        loop {
            let item = self.ring.next()?;
            if let Some(record) = Record::parse(&item) {
                return Some(record);
            }
        }
    }

    /// CPU time of guarded threads, what probes took of it, and units that nobody saw.
    pub fn used(&self) -> Usage {
        let all = self.usages.get(&0, 0);
        all.iter().flat_map(|a| a.iter()).fold(Usage::default(), |a, b| Usage {
            cpu: a.cpu + b.cpu,
            lit: a.lit + b.lit,
            probed: a.probed + b.probed,
            in_time: a.in_time + b.in_time,
            unsure: a.unsure + b.unsure,
        })
    }

    /// Records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.get(&0, 0).unwrap_or(0)
    }
}
