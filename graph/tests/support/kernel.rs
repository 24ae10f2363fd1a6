//! From the kernel events of a test vector to its graph (rules 1 to 7 of the format's description).

use super::vectors::{EdgeSpec, IntervalSpec, Point, WorkerSpec};
use serde::Deserialize;
use std::collections::HashMap;

/// One event of a record.
#[derive(Deserialize, Debug)]
pub struct EventSpec {
    time: u64,
    cpu: u64,
    name: String,
    #[serde(default)]
    fields: toml::Table,
}

/// The record of one host.
pub struct Trace<'a> {
    pub host: &'a str,
    pub events: &'a [EventSpec],
}

const NET_RX: i64 = 3;
const TIMER: i64 = 1;

struct Worker {
    spec: WorkerSpec,
    state: &'static str,
    since: u64,
    name: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Irq,
    SoftIrq(i64),
    Receiving,
    Timer,
}

#[derive(Default)]
struct Cpu {
    current: Option<usize>,
    open: Vec<Open>,
    /// A message that came in here and has woken nobody yet: index into `received`.
    fresh: Option<usize>,
}

/// A message's end: its number, host, and point.
struct End {
    message: i64,
    host: usize,
    worker: usize,
    time: u64,
}

#[derive(Default)]
struct Builder {
    workers: Vec<Worker>,
    edges: Vec<EdgeSpec>,
    sent: Vec<End>,
    received: Vec<End>,
}

impl Builder {
    /// Close what a worker did until now and let it go on in `state`.
    fn change(
        &mut self,
        w: usize,
        time: u64,
        as_state: Option<&'static str>,
        label: Option<String>,
        state: &'static str,
    ) {
        let x = &mut self.workers[w];
        if x.since < time {
            x.spec.intervals.push(IntervalSpec {
                start: x.since,
                end: time,
                state: as_state.unwrap_or(x.state).into(),
                label,
            });
        }
        (x.since, x.state) = (time, state);
    }

    /// Cut what a worker is doing.
    fn cut(&mut self, w: usize, time: u64) {
        let state = self.workers[w].state;
        self.change(w, time, None, None, state);
    }

    fn point(&self, worker: usize, time: u64) -> Point {
        Point { worker: self.workers[worker].spec.id.clone(), time }
    }
}

fn begin(b: &mut Builder, id: String, time: u64, state: &'static str) -> usize {
    let spec = WorkerSpec { id, intervals: Vec::new(), moments: Vec::new() };
    b.workers.push(Worker { spec, state, since: time, name: String::new() });
    b.workers.len() - 1
}

fn number(e: &EventSpec, key: &str) -> Result<i64, String> {
    let v = e.fields.get(key).and_then(toml::Value::as_integer);
    v.ok_or_else(|| format!("{} at {} lacks `{key}`", e.name, e.time))
}

fn text(e: &EventSpec, key: &str) -> String {
    e.fields.get(key).and_then(toml::Value::as_str).unwrap_or_default().into()
}

/// The graph of one or several hosts recorded together.
pub fn graph(traces: &[Trace<'_>]) -> Result<(Vec<WorkerSpec>, Vec<EdgeSpec>), String> {
    let mut b = Builder::default();
    for (n, t) in traces.iter().enumerate() {
        one_host(&mut b, n, t)?;
    }
    messages(&mut b);
    Ok((b.workers.into_iter().map(|w| w.spec).collect(), b.edges))
}

fn one_host(b: &mut Builder, host: usize, t: &Trace<'_>) -> Result<(), String> {
    let mut threads: HashMap<i64, usize> = HashMap::new();
    let mut kernel: HashMap<u64, usize> = HashMap::new();
    let mut cpus: HashMap<u64, Cpu> = HashMap::new();
    for e in t.events {
        let time = e.time;
        let id = |tid: i64| format!("{}:{tid}", t.host);
        let cpu = cpus.entry(e.cpu).or_default();
        match e.name.as_str() {
            "sched_switch" => {
                let (prev, next) = (number(e, "prev_tid")?, number(e, "next_tid")?);
                let state = if number(e, "prev_state")? == 0 { "preempted" } else { "blocked" };
                // The idle task of a CPU is no worker.
                if prev != 0 {
                    let w = *threads.entry(prev).or_insert_with(|| begin(b, id(prev), time, state));
                    b.change(w, time, None, None, state);
                    b.workers[w].name = text(e, "prev_comm");
                }
                cpu.current = None;
                if next != 0 {
                    let w = *threads.entry(next).or_insert_with(|| begin(b, id(next), time, "running"));
                    b.change(w, time, None, None, "running");
                    b.workers[w].name = text(e, "next_comm");
                    cpu.current = Some(w);
                }
            }
            "sched_wakeup" | "sched_wakeup_new" => {
                let tid = number(e, "tid")?;
                if tid == 0 {
                    continue;
                }
                let new = !threads.contains_key(&tid);
                let w = *threads.entry(tid).or_insert_with(|| begin(b, id(tid), time, "preempted"));
                if !new && b.workers[w].state != "blocked" {
                    continue;
                }
                match cpu.open.last().copied() {
                    None => {
                        b.change(w, time, None, None, "preempted");
                        if let Some(waker) = cpu.current.filter(|c| *c != w) {
                            b.cut(waker, time);
                            let (from, to) = (b.point(waker, time), b.point(w, time));
                            b.edges.push(EdgeSpec { from, to, kind: "default".into() });
                        }
                    }
                    Some(open) => {
                        let (state, label) = match open {
                            Open::SoftIrq(NET_RX) => (Some("network"), None),
                            Open::Receiving => {
                                // A thread receives only where no interrupt is open around it.
                                let thread = cpu.open.iter().all(|o| *o == Open::Receiving);
                                let name = cpu.current.filter(|_| thread).map(|c| b.workers[c].name.clone());
                                (Some("network"), name)
                            }
                            Open::SoftIrq(TIMER) | Open::Timer => (Some("timer"), None),
                            _ => (None, None),
                        };
                        b.change(w, time, state, label, "preempted");
                        if let Some(m) = cpu.fresh.take() {
                            (b.received[m].worker, b.received[m].time) = (w, time);
                        }
                    }
                }
            }
            "irq_handler_entry" => cpu.open.push(Open::Irq),
            "softirq_entry" => {
                let vec = number(e, "vec")?;
                cpu.open.push(Open::SoftIrq(vec));
                if vec == NET_RX {
                    let name = format!("{}:kernel/{}", t.host, e.cpu);
                    let w = *kernel.entry(e.cpu).or_insert_with(|| begin(b, name, time, "running"));
                    b.workers[w].since = time;
                }
            }
            "hrtimer_expire_entry" => cpu.open.push(Open::Timer),
            "netif_receive_skb_internal_entry" | "netif_receive_skb_entry" => cpu.open.push(Open::Receiving),
            "irq_handler_exit" => close(cpu, |o| o == Open::Irq),
            "softirq_exit" => close(cpu, |o| matches!(o, Open::SoftIrq(_))),
            "hrtimer_expire_exit" => close(cpu, |o| o == Open::Timer),
            "netif_receive_skb_internal_return"
            | "netif_receive_skb_internal_exit"
            | "netif_receive_skb_exit" => {
                close(cpu, |o| o == Open::Receiving);
            }
            "packet_sent" => {
                if let Some(w) = cpu.current {
                    b.cut(w, time);
                    b.sent.push(End { message: number(e, "msgid")?, host, worker: w, time });
                }
            }
            "packet_received" => {
                let interrupt = cpu.open.iter().any(|o| *o != Open::Receiving);
                let w = if interrupt {
                    let name = format!("{}:kernel/{}", t.host, e.cpu);
                    Some(*kernel.entry(e.cpu).or_insert_with(|| begin(b, name, time, "running")))
                } else {
                    cpu.current
                };
                if let Some(w) = w {
                    b.cut(w, time);
                    b.received.push(End { message: number(e, "msgid")?, host, worker: w, time });
                    cpu.fresh = (!cpu.open.is_empty()).then(|| b.received.len() - 1);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn close(cpu: &mut Cpu, which: impl Fn(Open) -> bool) {
    if let Some(i) = cpu.open.iter().rposition(|o| which(*o)) {
        cpu.open.remove(i);
    }
    if cpu.open.is_empty() {
        cpu.fresh = None;
    }
}

/// A message that left one host and came to another is an edge.
fn messages(b: &mut Builder) {
    let mut taken = vec![false; b.sent.len()];
    let mut edges = Vec::new();
    for r in &b.received {
        let fits = |(i, s): &(usize, &End)| {
            !taken[*i] && s.message == r.message && s.host != r.host && s.time <= r.time
        };
        if let Some((i, s)) = b.sent.iter().enumerate().find(fits) {
            taken[i] = true;
            let (from, to) = (b.point(s.worker, s.time), b.point(r.worker, r.time));
            // The later message is what a point was reached by.
            edges.retain(|e: &EdgeSpec| e.to != to);
            edges.push(EdgeSpec { from, to, kind: "network".into() });
        }
    }
    b.edges.retain(|e| !edges.iter().any(|n: &EdgeSpec| n.to == e.to));
    b.edges.append(&mut edges);
}
