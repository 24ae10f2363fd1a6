//! Wake-ups by kernel workers: for whom do they act?

#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{fact, pause, tid};
use crate::{allowed, options, recorded};
use pg_event::{Kind, ObjectKind};
use pg_tracer::Level;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const LINES: usize = 10;

/// One thread writes lines to a terminal, another one reads them from the master: a kernel worker carries them.
pub fn terminal() {
    let (mut master, mut slave) = (0, 0);
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: openpty fills in both descriptors; it may be given nothing else.
    let (mut master, mut slave) = unsafe {
        let opened = libc::openpty(
            &raw mut master,
            &raw mut slave,
            none.cast(),
            none.cast_const().cast(),
            none.cast_const().cast(),
        );
        assert_eq!(opened, 0);
        (File::from(OwnedFd::from_raw_fd(master)), File::from(OwnedFd::from_raw_fd(slave)))
    };
    assert!(master.as_raw_fd() > 2 && slave.as_raw_fd() > 2);
    let writer = std::thread::spawn(move || {
        fact("other", tid());
        for _ in 0..LINES {
            pause();
            slave.write_all(b"line\n").unwrap();
        }
        pause();
    });
    fact("self", tid());
    let mut taken = 0;
    while taken < LINES {
        let mut buffer = [0; 100];
        let n = master.read(&mut buffer).unwrap();
        taken += buffer[..n].split(|b| *b == b'\n').count() - 1;
    }
    writer.join().unwrap();
}

#[test]
fn a_kernel_worker_tells_for_whom_it_acts() {
    let test = "a_kernel_worker_tells_for_whom_it_acts";
    if !allowed(test) {
        return;
    }
    recorded("terminal", &options(Level::Messages), |r| {
        let writer = r.thread("other");
        let waits = r.waits("self", "read");
        let by_worker: Vec<_> = waits
            .iter()
            .filter(|(_, w)| {
                r.catalog.thread(w.waker).is_some_and(|t| t.kernel && t.name.starts_with("kworker"))
            })
            .collect();
        if by_worker.is_empty() {
            println!("skipped: {test}: this kernel delivers what is written to a terminal without a worker");
            return;
        }
        let (mut known, mut flushed) = (0, 0);
        for (_, w) in &by_worker {
            let work = r.events.iter().find_map(|e| match e.kind {
                Kind::Work(work) if e.thread == w.waker && e.time == w.woken => Some(work),
                _ => None,
            });
            let Some(work) = work else { continue };
            let o = r.object(work.object);
            if o.name == "wq_barrier_func" {
                // The reader waited for the worker to be done with what it has (`flush_work`).
                flushed += 1;
                continue;
            }
            assert_eq!((o.kind, o.name.as_str()), (ObjectKind::Work, "flush_to_ldisc"));
            assert_eq!(work.requester, writer);
            assert!(w.start < work.queued && work.queued <= w.woken, "{work:?} {w:?}");
            known += 1;
        }
        let all = by_worker.len();
        assert!(
            all >= LINES / 2 && known > 0 && known + flushed >= all - 1,
            "{known} and {flushed} of {all}"
        );
    });
}
