//! Where the kernel keeps what tells in what interrupt a CPU is: variables of which each CPU has its own, by the
//! kernel's type information (BTF, `Documentation/bpf/btf.rst`). `bpf/context.h` reads them.

/// How many places there are.
pub const PLACES: usize = 11;
/// The section of variables that each CPU has of its own.
const SECTION: &str = ".data..percpu";
/// More than any kernel's type information has.
const MOST_BYTES: u64 = 64 << 20;
/// How often a type may name another one.
const MOST_STEPS: usize = 16;
/// Members looked at for one name, those of structures within without a name of their own counted, and how deep these
/// lie.
const MOST_MEMBERS: usize = 10_000;
const MOST_DEPTH: usize = 4;
/// Soft interrupts, and clocks of high-resolution timers (`VECTORS` and `CLOCKS` in `bpf/context.h`).
const VECTORS: u32 = 10;
const CLOCKS: u32 = 8;

/// The places, by their numbers in `bpf/context.h` (`enum variable`). `None`: this kernel has one of them not, or
/// otherwise than the programs expect.
pub fn places() -> Option<[u32; PLACES]> {
    use std::io::Read;
    let mut btf = Vec::new();
    std::fs::File::open("/sys/kernel/btf/vmlinux").ok()?.take(MOST_BYTES).read_to_end(&mut btf).ok()?;
    find(&btf)
}

fn find(btf: &[u8]) -> Option<[u32; PLACES]> {
    let types = Types::new(btf)?;
    let hot = |variable, member| match types.variable(variable) {
        Some(v) => Some(v),
        None => types.variable("pcpu_hot")?.member(&types, member),
    };
    let current = hot("current_task", "current_task")?;
    let task = current.pointed(&types)?;
    // There soft interrupts are threads, and are not counted in the preempt count.
    if task.member(&types, "softirq_disable_cnt").is_some() {
        return None;
    }
    let queue = task.member(&types, "se")?.member(&types, "cfs_rq")?.pointed(&types)?;
    let run_queue = types.variable("runqueues")?;
    let same = queue.member(&types, "rq")?.pointed(&types)?;
    if same.ty != types.resolved(run_queue.ty)? || run_queue.member(&types, "cpu")?.size(&types)? != 4 {
        return None;
    }
    let preempt_count = hot("__preempt_count", "preempt_count")?;
    let pending = types
        .variable("irq_stat")
        .and_then(|v| v.member(&types, "__softirq_pending"))
        .or_else(|| hot("__softirq_pending", "softirq_pending"))?;
    let served = types.variable("kstat")?.member(&types, "softirqs")?;
    let (count, vectors) = served.element(&types)?;
    let net = types.variable("softnet_data")?;
    let in_net_rx = net.member(&types, "in_net_rx_action")?;
    let backlog = net.member(&types, "backlog")?;
    let (backlog_list, backlog_state) =
        (backlog.member(&types, "poll_list")?, backlog.member(&types, "state")?);
    let ksoftirqd = types.variable("ksoftirqd")?;
    let (clock, clocks) = types.variable("hrtimer_bases")?.member(&types, "clock_base")?.element(&types)?;
    let running = clock.member(&types, "running")?;
    running.pointed(&types)?;
    ksoftirqd.pointed(&types)?;
    let sizes = [preempt_count, count, in_net_rx, backlog_state].map(|p| p.size(&types));
    if sizes != [4, 4, 1, 8].map(Some) || (vectors, clocks) != (VECTORS, CLOCKS) {
        return None;
    }
    let step = clock.size(&types)?;
    let before = [run_queue, current, preempt_count, pending, served, in_net_rx, running];
    let after = [backlog_list, backlog_state, ksoftirqd];
    let places: Vec<u32> =
        before.iter().map(|p| p.at).chain([step]).chain(after.iter().map(|p| p.at)).collect();
    places.try_into().ok()
}

const INT: u8 = 1;
const POINTER: u8 = 2;
const ARRAY: u8 = 3;
const STRUCT: u8 = 4;
const UNION: u8 = 5;
const VARIABLE: u8 = 14;
const SECTION_OF_DATA: u8 = 15;
/// Kinds that only name another type: typedef, volatile, const, restrict, type tag.
const NAMES: [u8; 5] = [8, 9, 10, 11, 18];

/// Something in a CPU's section, or in a type: where, and of what type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    at: u32,
    ty: u32,
}

/// One type: `struct btf_type`, and what follows it.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u8,
    /// The members' offsets have the sizes of bit fields in them.
    bits: bool,
    /// Its size in bytes, or the type it names.
    size: u32,
    rest: &'a [u8],
}

struct Types<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

fn word(bytes: &[u8], n: usize) -> Option<u32> {
    let at = n.checked_mul(4)?;
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl<'a> Types<'a> {
    fn new(btf: &'a [u8]) -> Option<Self> {
        if btf.get(..3)? != [0x9f, 0xeb, 1] {
            return None;
        }
        let body = btf.get(word(btf, 1)? as usize..)?;
        let part = |n: usize| body.get(word(btf, n)? as usize..)?.get(..word(btf, n + 1)? as usize);
        let (mut left, strings) = (part(2)?, part(4)?);
        let mut types = Vec::with_capacity(left.len() / 24);
        while !left.is_empty() {
            let (name, info, size) = (word(left, 0)?, word(left, 1)?, word(left, 2)?);
            let (kind, n) = ((info >> 24 & 31) as u8, (info & 0xffff) as usize);
            let more = match kind {
                INT | VARIABLE | 17 => 4,
                ARRAY => 12,
                STRUCT | UNION | SECTION_OF_DATA | 19 => 12 * n,
                6 | 13 => 8 * n,
                POINTER | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
            let (this, others) = left.split_at_checked(12 + more)?;
            types.push(Type { name, kind, bits: info >> 31 != 0, size, rest: &this[12..] });
            left = others;
        }
        Some(Self { types, strings })
    }

    /// Types count from 1.
    fn get(&self, ty: u32) -> Option<Type<'a>> {
        self.types.get((ty as usize).checked_sub(1)?).copied()
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let text = self.strings.get(name as usize..);
        text.and_then(|t| t.strip_prefix(wanted.as_bytes())).is_some_and(|t| t.first() == Some(&0))
    }

    /// What a type is that may only name another one.
    fn resolved(&self, mut ty: u32) -> Option<u32> {
        for _ in 0..MOST_STEPS {
            let t = self.get(ty)?;
            if !NAMES.contains(&t.kind) {
                return Some(ty);
            }
            ty = t.size;
        }
        None
    }

    /// The variable of that name that each CPU has; `None` also if there are two of them.
    fn variable(&self, name: &str) -> Option<Part> {
        let sections =
            self.types.iter().filter(|t| t.kind == SECTION_OF_DATA && self.is_named(t.name, SECTION));
        let mut found = sections.flat_map(|t| t.rest.chunks_exact(12)).filter_map(|entry| {
            let variable = self.get(word(entry, 0)?)?;
            let named = variable.kind == VARIABLE && self.is_named(variable.name, name);
            named.then_some(Part { at: word(entry, 1)?, ty: variable.size })
        });
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    fn member(&self, ty: u32, name: &str, depth: usize, left: &mut usize) -> Option<Part> {
        let t = self.get(self.resolved(ty)?)?;
        if !matches!(t.kind, STRUCT | UNION) || depth == 0 {
            return None;
        }
        t.rest.chunks_exact(12).find_map(|member| {
            *left = left.checked_sub(1)?;
            let (own, ty, at) = (word(member, 0)?, word(member, 1)?, word(member, 2)?);
            let bits = if t.bits { at & 0xff_ffff } else { at };
            let is_field_of_bits = (t.bits && at >> 24 != 0) || bits % 8 != 0;
            if is_field_of_bits {
                None
            } else if self.is_named(own, name) {
                Some(Part { at: bits / 8, ty })
            } else if self.is_named(own, "") {
                let inner = self.member(ty, name, depth - 1, left)?;
                Some(Part { at: inner.at.checked_add(bits / 8)?, ..inner })
            } else {
                None
            }
        })
    }
}

impl Part {
    /// A member of the structure that lies here.
    fn member(self, types: &Types<'_>, name: &str) -> Option<Self> {
        let member = types.member(self.ty, name, MOST_DEPTH, &mut { MOST_MEMBERS })?;
        Some(Self { at: self.at.checked_add(member.at)?, ..member })
    }

    /// What the pointer points to that lies here.
    fn pointed(self, types: &Types<'_>) -> Option<Self> {
        let pointer = types.get(types.resolved(self.ty)?)?;
        (pointer.kind == POINTER).then_some(())?;
        Some(Self { at: 0, ty: types.resolved(pointer.size)? })
    }

    /// The first element of the array that lies here, and how many there are.
    fn element(self, types: &Types<'_>) -> Option<(Self, u32)> {
        let array = types.get(types.resolved(self.ty)?)?;
        (array.kind == ARRAY).then_some(())?;
        Some((Self { at: self.at, ty: word(array.rest, 0)? }, word(array.rest, 2)?))
    }

    /// Bytes of a number or structure.
    fn size(self, types: &Types<'_>) -> Option<u32> {
        let t = types.get(types.resolved(self.ty)?)?;
        matches!(t.kind, INT | STRUCT | UNION).then_some(t.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information as it is built up; types count from 1.
    #[derive(Clone, Default)]
    struct Made {
        types: Vec<u8>,
        count: u32,
        strings: Vec<u8>,
    }

    impl Made {
        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if name.is_empty() {
                return 0;
            }
            let at = self.strings.len() as u32;
            self.strings.extend(name.bytes().chain([0]));
            at
        }

        fn add(&mut self, name: &str, kind: u8, n: usize, size: u32, rest: &[u32]) -> u32 {
            let name = self.name(name);
            for w in [name, u32::from(kind) << 24 | n as u32, size].iter().chain(rest) {
                self.types.extend(w.to_le_bytes());
            }
            self.count += 1;
            self.count
        }

        /// A structure of members: name, type, byte.
        fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
            let rest: Vec<u32> =
                members.iter().flat_map(|(name, ty, at)| [self.name(name), *ty, at * 8]).collect();
            self.add(name, STRUCT, members.len(), size, &rest)
        }

        fn array(&mut self, of: u32, n: u32) -> u32 {
            self.add("", ARRAY, 0, 0, &[of, 1, n])
        }

        /// The section, of variables: name, type, place.
        fn section(&mut self, variables: &[(&str, u32, u32)]) {
            let rest: Vec<u32> = variables
                .iter()
                .flat_map(|(name, ty, at)| [self.add(name, VARIABLE, 0, *ty, &[1]), *at, 8])
                .collect();
            self.add(SECTION, SECTION_OF_DATA, variables.len(), 1 << 20, &rest);
        }

        fn bytes(&self) -> Vec<u8> {
            let mut out = vec![0x9f, 0xeb, 1, 0];
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            for w in [24, 0, types, types, strings] {
                out.extend(u32::to_le_bytes(w));
            }
            out.extend(self.types.iter().chain(&self.strings));
            out
        }
    }

    /// A kernel: with variables of their own or in `pcpu_hot`, and with what is said of it.
    fn kernel(hot: bool, net_rx: &str, extra_of_task: &[&str], twice: &[&str]) -> Made {
        let mut m = Made::default();
        let int = m.add("int", INT, 0, 4, &[32]);
        let byte = m.add("bool", INT, 0, 1, &[8]);
        let queue = m.structure("rq", 3000, &[("nr", int, 0), ("cpu", int, 2000)]);
        let to_queue = m.add("", POINTER, 0, queue, &[]);
        let fair = m.structure("cfs_rq", 500, &[("rq", to_queue, 300)]);
        let to_fair = m.add("", POINTER, 0, fair, &[]);
        let entity = m.structure("sched_entity", 200, &[("cfs_rq", to_fair, 160)]);
        let mut members = vec![("se", entity, 64)];
        members.extend(extra_of_task.iter().map(|name| (*name, int, 600)));
        let task = m.structure("task_struct", 4000, &members);
        let fixed = m.add("", 10, 0, task, &[]);
        let current = m.add("", POINTER, 0, fixed, &[]);
        let counts = m.array(int, VECTORS);
        let stat = m.structure("kernel_stat", 48, &[("irqs_sum", int, 0), ("softirqs", counts, 8)]);
        let long = m.add("long unsigned int", INT, 0, 8, &[64]);
        let napi = m.structure("napi_struct", 400, &[("poll_list", current, 0), ("state", long, 16)]);
        let net = m.structure("softnet_data", 960, &[(net_rx, byte, 60), ("backlog", napi, 128)]);
        let clock = m.structure("hrtimer_clock_base", 64, &[("running", current, 24)]);
        let clocks = m.array(clock, CLOCKS);
        let timers = m.structure("hrtimer_cpu_base", 640, &[("clock_base", clocks, 64)]);
        let inner = m.structure(
            "",
            32,
            &[("current_task", current, 0), ("preempt_count", int, 8), ("other", int, 12)],
        );
        let outer = m.structure("pcpu_hot", 64, &[("", inner, 16), ("softirq_pending", byte, 60)]);
        let volatile = m.add("", 9, 0, int, &[]);
        let mut all = vec![
            ("runqueues", queue, 0x1000),
            ("kstat", stat, 0x2000),
            ("softnet_data", net, 0x3000),
            ("hrtimer_bases", timers, 0x4000),
            ("ksoftirqd", current, 0x6000),
        ];
        all.extend(twice.iter().map(|name| (*name, int, 0x5000)));
        if hot {
            all.push(("pcpu_hot", outer, 0x100));
        } else {
            let own = [("__preempt_count", 0x30), ("__softirq_pending", 0x38)];
            all.extend(own.map(|(name, at)| (name, volatile, at)));
            all.push(("current_task", current, 0x18));
        }
        m.section(&all);
        m
    }

    #[test]
    fn each_place_is_found() {
        let places = find(&kernel(false, "in_net_rx_action", &[], &[]).bytes());
        assert_eq!(
            places,
            Some([0x1000, 0x18, 0x30, 0x38, 0x2008, 0x303c, 0x4058, 64, 0x3080, 0x3090, 0x6000])
        );
        // Linux 6.2 to 6.14: within a structure, there without a name.
        let places = find(&kernel(true, "in_net_rx_action", &[], &[]).bytes());
        assert_eq!(
            places,
            Some([0x1000, 0x110, 0x118, 0x13c, 0x2008, 0x303c, 0x4058, 64, 0x3080, 0x3090, 0x6000])
        );
    }

    #[test]
    fn a_kernel_that_lacks_one_is_not_asked() {
        let none = |m: Made| assert_eq!(find(&m.bytes()), None);
        none(kernel(false, "in_napi_threaded_poll", &[], &[]));
        none(kernel(true, "in_net_rx_action", &["softirq_disable_cnt"], &[]));
        none(kernel(false, "in_net_rx_action", &[], &["kstat"]));
        none(kernel(false, "in_net_rx_action", &[], &["ksoftirqd"]));
        none(kernel(false, "in_net_rx_action", &[], &["__preempt_count"]));
        none(Made::default());
    }

    #[test]
    fn damaged_type_information_names_no_place() {
        let whole = kernel(true, "in_net_rx_action", &[], &[]).bytes();
        for n in 0..whole.len() {
            assert_eq!(find(&whole[..n]), None, "cut at {n}");
        }
        // Whatever is in it, nothing is read beyond it and nothing goes on for ever.
        for at in 0..whole.len() {
            for value in [0, 1, 0x0b, 0x7f, 0xff] {
                let mut broken = whole.clone();
                broken[at] = value;
                let _ = find(&broken);
            }
        }
        let mut turns = Made::default();
        turns.add("round", 8, 0, 1, &[]);
        let within = turns.structure("", 8, &[]);
        turns.section(&[("current_task", 1, 0), ("pcpu_hot", within, 0)]);
        assert_eq!(find(&turns.bytes()), None);
        // A structure that has itself as a member without a name, very often.
        let mut within = Made::default();
        let name = within.structure("", 8, &vec![("", 1, 0); 60_000]);
        within.section(&[("pcpu_hot", name, 0)]);
        assert_eq!(find(&within.bytes()), None);
    }

    #[test]
    fn the_places_of_this_kernel_are_within_its_section() {
        let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            println!(
                "skipped: the_places_of_this_kernel_are_within_its_section: there is no /sys/kernel/btf"
            );
            return;
        };
        let types = Types::new(&btf).expect("the kernel's own");
        let Some(places) = find(&btf) else {
            let asked = types.variable("softnet_data").and_then(|v| v.member(&types, "in_net_rx_action"));
            assert!(asked.is_none(), "this kernel marks when it receives packets: what else is missing?");
            println!("skipped: the_places_of_this_kernel_are_within_its_section: it has not all of them");
            return;
        };
        let section =
            types.types.iter().find(|t| t.kind == SECTION_OF_DATA && types.is_named(t.name, SECTION));
        let size = section.expect("found above").size;
        assert!(places.iter().all(|p| *p < size), "{places:x?} of {size:x}");
    }
}
