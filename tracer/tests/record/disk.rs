//! Waits for a disk that an interrupt ends: by whose request?

#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{fact, pause, tid};
use crate::{allowed, both_ways, recorded};
use pg_event::{Context, Kind, ObjectKind};
use pg_tracer::Level;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const CHUNK: usize = 1 << 20;

/// Reads what is not in the page cache: what it asked for itself, and what another thread had asked for.
pub fn read() {
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pg-disk-{}", std::process::id()));
    let mut file =
        std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&vec![7; 64 * CHUNK]).unwrap();
    file.sync_all().unwrap();
    let fd = file.as_raw_fd();
    let forget = || {
        // SAFETY: advice on an open file.
        assert_eq!(unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    };
    fact("self", tid());
    fact("begun", 1);
    let mut buffer = vec![0; CHUNK];
    for i in 0..64 {
        if i % 16 == 0 {
            forget();
        }
        file.read_exact_at(&mut buffer, i * CHUNK as u64).unwrap();
    }
    pause();
    forget();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn who_waits_for_a_disk_learns_whose_request_it_was() {
    let test = "who_waits_for_a_disk_learns_whose_request_it_was";
    if !allowed(test) {
        return;
    }
    for options in both_ways(Level::Messages) {
        recorded("disk", &options, |r| {
            let thread = r.thread("self");
            let waits = r.waits("self", "pread64");
            if waits.is_empty() {
                println!(
                    "skipped: {test}: reading a file never waits here (is {} in memory?)",
                    env!("CARGO_TARGET_TMPDIR")
                );
                return;
            }
            let interrupted = |c: Context| matches!(c, Context::HardIrq | Context::SoftIrq);
            let by_disk: Vec<_> = waits.iter().filter(|(_, w)| interrupted(w.waker_context)).collect();
            if by_disk.is_empty() {
                println!("skipped: {test}: no interrupt ended a wait (the disk is not a real one)");
                return;
            }
            let mut known = 0;
            for (_, w) in &by_disk {
                if let Some(o) = r.catalog.object(w.waker_object) {
                    assert_eq!(o.kind, ObjectKind::BlockDevice);
                    assert!(o.name.starts_with("/dev/"), "{o:?}");
                    assert_eq!(w.waker, thread, "nobody else reads this file");
                    known += 1;
                }
            }
            let read: u64 = r
                .events
                .iter()
                .filter(|e| e.thread == thread)
                .filter_map(|e| if let Kind::Ipc(u) = e.kind { Some(u) } else { None })
                .filter(|u| r.object(u.object).kind == ObjectKind::BlockDevice)
                .map(|u| u.bytes)
                .sum();
            assert!(read >= 32 * CHUNK as u64, "of 64 MB read the recording has {read} bytes");
            assert!(known * 10 >= by_disk.len() * 9, "{known} of {} requests are known", by_disk.len());
        });
    }
}
