//! How true the edges are, on simulated machines whose truth is known:
//!
//! ```text
//! cargo run --release -p pg-graph --features sim --example precision -- [SECONDS]
//! ```
//!
//! A row for each kind of machine. `waits` were ended by somebody; `recall` of them have the edge from him. `wrong` edges
//! end a wait and come from another one; a `hand-off` of a mutex is mutual exclusion. `flags`: writes that were read.
//! `answers` met their requests in one turn of a server, `over` those of others: over-connections. `strong` is what is
//! left of each that a diagnosis would follow without a question.

use pg_event::ObjectKind;
use pg_graph::sim::{Asking, Figures, Serves, Setup, Town};

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(5u64);
    let (us, ms) = (1_000, 1_000_000);
    let town = |make: &dyn Fn(&mut Town)| {
        let mut t = Town::default();
        make(&mut t);
        t.stranger(3 * ms, 2 * ms);
        t.scripts()
    };
    let machines = [
        ("server in turn", town(&|t| t.server(5, 300 * us, Serves::InTurn))),
        ("event loop", town(&|t| t.server(5, 300 * us, Serves::Loop))),
        ("waits for all", town(&|t| t.server(5, 300 * us, Serves::Batch))),
        ("batches in one call", town(&|t| t.server(5, 300 * us, Serves::Together))),
        ("mutual exclusion", town(&|t| t.mutex(5, 400 * us))),
        ("conditions", town(&|t| t.conditions(200 * us))),
        ("flags, sleeping", town(&|t| t.flags(500 * us, Asking::Sleep(ms)))),
        ("flags, yielding", town(&|t| t.flags(500 * us, Asking::Yield(200 * us)))),
        ("flags, spinning", town(&|t| t.flags(500 * us, Asking::Spin(200 * us)))),
        (
            "all together",
            town(&|t| {
                t.server(4, 200 * us, Serves::InTurn);
                t.server(4, 200 * us, Serves::Loop);
                t.server(4, 200 * us, Serves::Together);
                t.mutex(3, 300 * us);
                t.conditions(100 * us);
                t.flags(300 * us, Asking::Sleep(ms));
            }),
        ),
    ];
    println!("{:<20} {}", "machine", Figures::HEAD);
    for (name, scripts) in machines {
        let channels = vec![ObjectKind::UnixStream, ObjectKind::Pipe];
        let setup = Setup { cpus: 3, channels, ..Setup::default() };
        println!("{name:<20} {}", Figures::of(setup, scripts, seconds * 1_000 * ms));
    }
}
