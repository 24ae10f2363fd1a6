//! `payd`: takes orders from a unix socket, books them by three workers, and rebuilds its index now and then.

use super::ledger::Ledger;
use super::{Plan, hash_rows, set_process_name, spawn};
use std::collections::VecDeque;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the index is rebuilt, and how long that normally takes.
const TICK: Duration = Duration::from_millis(250);
const REBUILD: Duration = Duration::from_millis(12);
/// Work on the CPU for one order, outside the ledger.
const CHECK_CARD: Duration = Duration::from_millis(8);

/// Orders on their way from the socket to a worker.
#[derive(Default)]
struct Jobs {
    queue: Mutex<VecDeque<u64>>,
    filled: Condvar,
}

impl Jobs {
    fn put(&self, order: u64) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        self.filled.notify_one();
    }

    #[inline(never)]
    fn take(&self) -> u64 {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(order) = queue.pop_front() {
                return order;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Serves one client until it closes the connection; the process ends with it.
pub(super) fn run(plan: Plan, socket: &str) -> Result<(), String> {
    set_process_name("payd");
    let listener = UnixListener::bind(socket).map_err(|e| format!("cannot listen on {socket}: {e}"))?;
    println!("ready");
    let (client, _) = listener.accept().map_err(|e| format!("nobody connected to {socket}: {e}"))?;
    // The name stays with the socket; the file is not needed again, and nobody can leave it behind.
    let _ = std::fs::remove_file(socket);

    let ledger = Arc::new(Ledger::new());
    let jobs = Arc::new(Jobs::default());
    for n in 1..=3 {
        let (ledger, jobs) = (Arc::clone(&ledger), Arc::clone(&jobs));
        let client = client.try_clone().map_err(|e| format!("cannot share the connection: {e}"))?;
        spawn(&format!("pay-{n}"), move || work(&ledger, &jobs, client))?;
    }
    spawn("tick", move || tick(&ledger, plan))?;
    serve(&jobs, client)
}

/// The main thread: reads orders and queues them.
#[inline(never)]
fn serve(jobs: &Jobs, client: UnixStream) -> Result<(), String> {
    for line in BufReader::new(client).lines() {
        let line = line.map_err(|e| format!("the shop's connection broke: {e}"))?;
        let order = line.trim().parse().map_err(|_| format!("`{line}` is no order"))?;
        jobs.put(order);
    }
    Ok(())
}

/// A worker: checks the card, books the order, answers the shop.
#[inline(never)]
fn work(ledger: &Ledger, jobs: &Jobs, mut client: UnixStream) {
    loop {
        let order = jobs.take();
        check_card(order);
        let booked = ledger.add(order);
        if client.write_all(format!("paid {booked}\n").as_bytes()).is_err() {
            return;
        }
    }
}

#[inline(never)]
fn check_card(order: u64) {
    let mut digits = [order; 16];
    black_box(hash_rows(&mut digits, CHECK_CARD));
}

/// The thread `tick`: a short rebuild every quarter second, and once a long one.
#[inline(never)]
fn tick(ledger: &Ledger, plan: Plan) {
    let start = Instant::now();
    let mut slow_to_come = true;
    loop {
        std::thread::sleep(TICK.min(plan.before / 4));
        let slow = slow_to_come && start.elapsed() >= plan.before;
        slow_to_come &= !slow;
        ledger.rebuild_index(if slow { plan.hang } else { REBUILD.min(plan.hang / 20) });
    }
}
