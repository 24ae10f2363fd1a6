use super::*;

#[test]
fn ids_of_containers_are_told_from_those_of_the_machine() {
    let p = |ns_pid, container: &str| Process {
        pid: 812,
        ns_pid,
        container: container.into(),
        ..Process::default()
    };
    assert_eq!(ids(&p(0, "")), "812");
    assert_eq!(ids(&p(812, "")), "812");
    assert_eq!(ids(&p(1, "")), "812, 1 in its pid namespace");
    assert_eq!(ids(&p(1, "3f2a9b1c4d5e")), "812, 1 in container 3f2a9b1c4d5e");
    assert_eq!(ids(&p(812, "web")), "812 in container web");
}

#[test]
fn functions_of_the_language_tell_less_than_those_of_the_program() {
    let frame = |function: &str| Named {
        function: function.into(),
        module: "srv".into(),
        symbolised: true,
        python: None,
    };
    let sleeps = "void std::this_thread::sleep_for<long, std::ratio<1l, 1l> >(long)";
    for library in [sleeps, "__glibcxx_rwlock_wrlock", "__cxa_guard_acquire", "syscall.openat"] {
        let told = |names: &[&str]| {
            let frames: Vec<Named> = names.iter().map(|n| frame(n)).collect();
            telling(&frames).map(|f| f.function.clone())
        };
        assert_eq!(told(&[library, "report()"]).as_deref(), Some("report()"));
        assert_eq!(told(&[library]).as_deref(), Some(library));
        assert_eq!(told(&["stdlog(int)", "main"]).as_deref(), Some("stdlog(int)"));
    }
}

#[test]
fn spans_have_units() {
    assert_eq!(span(7), "7 ns");
    assert_eq!(span(40_000), "40 µs");
    assert_eq!(span(5_200_000), "5.2 ms");
    assert_eq!(span(212_000_000), "212 ms");
    assert_eq!(span(4_020_000_000), "4.02 s");
    assert_eq!(span(13_000_000_000), "13.0 s");
    // Where rounding carries over into the next unit, and into one digit more.
    assert_eq!(span(16_900), "17 µs");
    assert_eq!(span(999_499), "999 µs");
    assert_eq!(span(999_999), "1.0 ms");
    assert_eq!(span(9_949_999), "9.9 ms");
    assert_eq!(span(9_950_000), "10 ms");
    assert_eq!(span(999_499_999), "999 ms");
    assert_eq!(span(999_500_000), "1.00 s");
    assert_eq!(span(9_994_999_999), "9.99 s");
    assert_eq!(span(9_995_000_000), "10.0 s");
    assert_eq!(percent(98, 100), "98 %");
    assert_eq!(percent(1, 0), "0 %");
}

#[test]
fn a_process_is_named_by_the_program_it_ran_then() {
    use pg_event::{Cmdline, Process, ProcessId, Thread};
    let line = |time, text: &str| Cmdline { time, text: text.into() };
    let mut c = Catalog::default();
    c.threads.push(Thread { tid: 7, process: ProcessId(0), ..Thread::default() });
    c.processes.push(Process {
        pid: 7,
        name: "cat".into(),
        cmdlines: vec![line(0, "/bin/bash run.sh"), line(50, "cat")],
        ..Process::default()
    });
    assert_eq!(who_at(&c, ThreadId(0), 10), "bash (pid 7)");
    assert_eq!(who(&c, ThreadId(0)), "cat (pid 7)");
    // A title that the program gave itself is no other program.
    c.processes[0].name = "postgres".into();
    c.processes[0].cmdlines[1].text = "postgres: idle".into();
    assert_eq!(process_at(&c, ThreadId(0), 10), "postgres");
}

#[test]
fn command_lines_keep_what_tells_apart() {
    assert_eq!(short_command("redis-cli -s /tmp/a.b/c.d/r.sock get k", 60), "redis-cli -s …/r.sock get k");
    assert_eq!(short_command("/usr/bin/python3 /tmp/x/p.py", 60), "python3 …/p.py");
    assert_eq!(short_command("curl -s http://127.0.0.7:80/a/b", 60), "curl -s http://127.0.0.7:80/a/b");
    let long = short_command(&format!("cli eval {} 0", "x ".repeat(80)), 30);
    assert!(long.starts_with("cli eval") && long.ends_with("x 0") && long.chars().count() == 30, "{long}");
    assert_eq!(short_label("unix:/tmp/a/b/r.sock"), "unix:…/r.sock");
    assert_eq!(short_label("/tmp/a/lock"), "/tmp/a/lock");
}

#[test]
fn kinds_are_said_once() {
    assert_eq!(on_what(Some("unix"), Some("unix:/run/k")), "unix:/run/k");
    assert_eq!(on_what(Some("poll"), Some("tcp 127.0.0.1:1->127.0.0.1:2")), "tcp 127.0.0.1:1->127.0.0.1:2");
    assert_eq!(on_what(Some("child"), Some("any child")), "any child");
    assert_eq!(on_what(Some("file-lock"), Some("/tmp/l")), "file-lock /tmp/l");
    assert_eq!(on_what(Some("sleep"), None), "sleep");
}

#[test]
fn of_python_programs_the_python_functions_tell() {
    let frames = [
        "clock_nanosleep (libc.so.6)",
        "time_sleep (python3.11)",
        "wait (python3.11/threading.py:320)",
        "Job.run (jobs.py:12)",
        "_PyEval_Vector (python3.11)",
        "main (jobs.py:40)",
        "Py_BytesMain (python3.11)",
    ];
    assert_eq!(own_frames(&frames), ["Job.run (jobs.py:12)", "main (jobs.py:40)"]);
    assert_eq!(own_frames(&frames[..3]), ["wait (python3.11/threading.py:320)"]);
    assert_eq!(own_frames(&frames[..2]), ["time_sleep (python3.11)"]);
    let named: Vec<Named> = frames
        .iter()
        .map(|f| {
            let (function, module) = f.trim_end_matches(')').split_once(" (").unwrap();
            let (module, line) = module.split_once(':').map_or((module, None), |(m, l)| (m, l.parse().ok()));
            Named { function: function.into(), module: module.into(), symbolised: true, python: line }
        })
        .collect();
    let own = |n: usize| own_named(&named[..n]).map(|f| f.function.as_str()).collect::<Vec<_>>();
    assert_eq!((own(7), own(3), own(2)), (vec!["Job.run", "main"], vec!["wait"], vec!["time_sleep"]));
    assert_eq!(telling(&named).map(ToString::to_string).as_deref(), Some("Job.run (jobs.py:12)"));
}

#[test]
fn text_from_outside_is_made_harmless() {
    assert_eq!(clean("a\x1b[31mb", 20), "a?[31mb");
    assert_eq!(clean("abcdef", 4), "abc…");
}
