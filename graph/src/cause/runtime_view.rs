//! Tasks that a runtime schedules by itself, on threads that wait for whatever comes: who of them waits for whom only the
//! runtime knows, and how to ask it.

use crate::diagnose::{FindingKind, Outcome};
use pg_event::Catalog;

/// What is on the stack of a thread that has no task to execute, and how to ask; `{}`: the process' id.
const RUNTIMES: [(&[&str], &str); 6] = [
    (
        crate::class::GO_OWN,
        "which goroutine waits for which only Go's runtime knows: `kill -QUIT {}` has it print the stacks of all and ends the program; where the program serves net/http/pprof, /debug/pprof/goroutine?debug=2 tells without, and so does a debugger (`dlv attach {}`, goroutines)",
    ),
    (
        &["(beam.smp)"],
        "which Erlang process waits for which only its runtime knows: `i().` in a shell that is connected to it (`erl -remsh`) lists all, `erlang:process_info(P, current_stacktrace)` tells where one waits",
    ),
    (
        &["_run_once (python3."],
        "which task waits for what only asyncio knows: Python 3.14 and later show it from outside (`python3 -m asyncio pstree {}`), earlier ones from within (`asyncio.all_tasks()` and `Task.print_stack()`, which aiomonitor offers on a port)",
    ),
    (
        &["uv_run (node)", "uv__io_poll (node)"],
        "which callback or promise is waited for only Node.js knows: `kill -USR1 {}` has it listen for a debugger on 127.0.0.1:9229 (`node inspect -p {}`, chrome://inspect)",
    ),
    (
        &["(libjvm.so)"],
        "which thread has which lock of the program Java knows: `jstack {}` prints the stacks of all threads with their locks, and the deadlocks among these (`kill -QUIT {}` has the program do so itself)",
    ),
    (
        &["aeMain (redis-server)"],
        "a client may wait for what another one is to send (BLPOP, XREAD, WAIT, SUBSCRIBE): `redis-cli client list` tells the command that each is in",
    ),
];

/// How to ask the runtime, where the way back ended in one that had nothing to execute.
pub(super) fn note(o: &Outcome, c: &Catalog) -> Option<String> {
    let idles = |k| {
        use FindingKind::{Closed, Here, Idle, Sleeping, Unanswered};
        matches!(k, Idle | Unanswered | Here | Sleeping | Closed)
    };
    o.findings.iter().filter(|f| idles(f.kind)).find_map(|f| {
        let n = o.nodes.get(f.node)?;
        let on = |names: &[&str]| n.stack.iter().any(|frame| names.iter().any(|name| frame.contains(name)));
        let (_, text) = RUNTIMES.iter().find(|r| on(r.0))?;
        Some(text.replace("{}", &c.process_of(n.thread)?.pid.to_string()))
    })
}
