use super::*;
use proptest::prelude::*;

#[test]
fn stat_of_hostile_names() {
    let tail = " S 1 10 11 34816 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 4242 1000 2000 18446744073709551615";
    for name in ["sh", "a b", "x) R 9 9 (y", ")", "(", "", "\u{1b}[31m", "\n) Z"] {
        let line = format!("77 ({name}){tail}");
        let stat = parse_stat(line.as_bytes()).expect(name);
        assert_eq!(stat.pid, 77);
        assert_eq!(stat.comm, name.as_bytes());
        assert_eq!((stat.state, stat.ppid, stat.session, stat.tty), (b'S', 1, 11, 34816));
        assert_eq!((stat.threads, stat.start_ticks, stat.kernel), (3, 4242, false));
    }
    assert_eq!(parse_stat(b""), None);
    assert_eq!(parse_stat(b"1 )(x) S"), None);
    assert_eq!(parse_stat(b"1 (x) S 1 2"), None);
}

#[test]
fn stat_of_kernel_threads_and_negative_numbers() {
    let line = b"12 (kworker/0:1-events) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 15 0 0";
    let stat = parse_stat(line).expect("stat");
    assert!(stat.kernel);
    let negative = b"12 (x) S -1 0 -1 0 -1 0 0 0 0 0 0 0 0 0 20 0 -5 0 15 0 0";
    let stat = parse_stat(negative).expect("stat");
    assert_eq!((stat.ppid, stat.session, stat.threads), (0, 0, 0));
}

#[test]
fn stat_of_real_time_and_nice_threads() {
    let stat = |nice: &str, end: &str| {
        let line = format!(
            "7 (x) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 {nice} 1 0 15 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {end}"
        );
        let s = parse_stat(line.as_bytes()).expect("stat");
        (s.nice, s.cpu, s.priority, s.policy)
    };
    assert_eq!(stat("-5", "1 0 0"), (-5, 1, 0, 0));
    assert_eq!(stat("0", "3 50 1"), (0, 3, 50, 1));
    assert_eq!(stat("400", "3 -50 999"), (0, 3, 0, 0));
}

#[test]
fn status_of_a_nested_namespace() {
    let text = b"Name:\tx\\nTgid:\t1\nState:\tS (sleeping)\nTgid:\t500\nPid:\t501\nPPid:\t4\nTracerPid:\t9\n\
        Uid:\t1000\t0\t0\t0\nCoreDumping:\t1\nNSpid:\t501\t12\t3\nSigBlk:\t0000000000010000\nSigCgt:\t0000000000016007\n\
        Cpus_allowed:\t00000103\nCpus_allowed_list:\t0-1,8\n";
    let status = parse_status(text).expect("status");
    let want = Status {
        tgid: 500,
        pid: 501,
        ppid: 4,
        tracer: 9,
        uid: 0,
        ns_pids: vec![501, 12, 3],
        state: b'S',
        blocked_signals: 0x10000,
        caught_signals: 0x16007,
        core_dumping: true,
        cpus: "0-1,8".into(),
    };
    assert_eq!(status, want);
    assert_eq!(parse_status(b"Tgid: 1\n"), None);
}

#[test]
fn a_family_is_who_descends() {
    // 1 has 2 and 5, 2 has 3, 3 has 4; numbers may name each other in a circle while processes come and go.
    let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (7, 8), (8, 7)].into();
    assert_eq!(descendants(&[2], &parents), [2, 3, 4]);
    assert_eq!(descendants(&[4, 5, 99], &parents), [4, 5, 99]);
    assert_eq!(descendants(&[7], &parents), [7, 8]);
    assert!(descendants(&[], &parents).is_empty());
    let mut child = std::process::Command::new("sleep").arg("9").spawn().expect("sleep");
    let family = family(&[std::process::id()]);
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(family.contains(&child.id()) && family.contains(&std::process::id()));
}

#[test]
fn cgroup_lines_with_colons() {
    let lines = parse_cgroup(b"4:cpu,cpuacct:/a:b\n0::/x\nnonsense\n:x:/y\n");
    assert_eq!(lines.len(), 2);
    assert_eq!((lines[0].controllers.as_str(), lines[0].path.as_str()), ("cpu,cpuacct", "/a:b"));
    assert_eq!((lines[1].controllers.as_str(), lines[1].path.as_str()), ("", "/x"));
}

#[test]
fn fd_links() {
    assert_eq!(parse_fd_link(b"pipe:[12]"), FdLink::Pipe(12));
    assert_eq!(parse_fd_link(b"socket:[9]"), FdLink::Socket(9));
    assert_eq!(parse_fd_link(b"anon_inode:[eventpoll]"), FdLink::Anon("eventpoll".into()));
    assert_eq!(parse_fd_link(b"anon_inode:inotify"), FdLink::Anon("inotify".into()));
    assert_eq!(parse_fd_link(b"/tmp/pipe:[12]"), FdLink::Path("/tmp/pipe:[12]".into()));
    assert_eq!(parse_fd_link(b"pipe:[x]"), FdLink::Path("pipe:[x]".into()));
}

#[test]
fn fdinfo_of_each_kind() {
    let epoll = b"pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1036\n\
        tfd:        5 events:       19 data:                5  pos:0 ino:61af sdev:9\n\
        tfd:       17 events:       19 data:               17  pos:0 ino:61af sdev:9\n";
    let info = parse_fdinfo(epoll).expect("fdinfo");
    assert_eq!((info.mode, info.inode), (AccessMode::Both, Some(1036)));
    assert_eq!(info.epoll_targets, vec![5, 17]);
    let pty = parse_fdinfo(b"pos:\t0\nflags:\t0100002\ntty-index:\t7\n").expect("fdinfo");
    assert_eq!(pty.tty_index, Some(7));
    let pidfd = parse_fdinfo(b"flags:\t02000002\nPid:\t4711\nNSpid:\t4711\n").expect("fdinfo");
    assert_eq!(pidfd.pidfd, Some(4711));
    let gone = parse_fdinfo(b"flags:\t02000002\nPid:\t-1\n").expect("fdinfo");
    assert_eq!(gone.pidfd, None);
    let locked = parse_fdinfo(b"flags:\t0100001\nlock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n");
    let locked = locked.expect("fdinfo");
    assert_eq!((locked.mode, locked.locked_inodes), (AccessMode::Write, vec![11691]));
    let fanotify = |mask: &str| {
        let text = format!(
            "flags:\t02\nfanotify flags:5 event-flags:8000\nfanotify ino:4f969 sdev:800013 mflags:0 mask:{mask} ignored_mask:0 \n"
        );
        parse_fdinfo(text.as_bytes()).expect("fdinfo").permits
    };
    assert!(fanotify("10000") && fanotify("20008") && !fanotify("3b"), "told of, or asked");
    assert_eq!(parse_fdinfo(b"pos: 0\n"), None);
}

#[test]
fn locks_held_and_waited_for() {
    let text = b"1: POSIX  ADVISORY  WRITE 568 08:01:1234 10 19\n\
        2: FLOCK  ADVISORY  WRITE 600 00:2d:42 0 EOF\n\
        2: -> FLOCK  ADVISORY  READ  601 00:2d:42 0 EOF\n\
        3: OFDLCK ADVISORY  READ  -1 08:01:77 0 0\n\
        4: LEASE  ACTIVE    READ  5 08:01:78 0 EOF\n\
        5: WHAT ADVISORY READ 5 08:01:78 0 EOF\n6: FLOCK\n";
    let locks = parse_locks(text);
    assert_eq!(locks.len(), 5);
    assert_eq!((locks[0].kind, locks[0].pid, locks[0].end), (LockKind::Posix, Some(568), 19));
    assert_eq!((locks[1].device, locks[1].inode, locks[1].end), ((0, 0x2d), 42, u64::MAX));
    assert!(locks[2].blocked && !locks[2].write && locks[2].number == 2);
    assert_eq!((locks[3].kind, locks[3].pid), (LockKind::Ofd, None));
    assert!(locks[1].overlaps(&locks[2]));
    let other = FileLock { start: 20, ..locks[0].clone() };
    assert!(!locks[0].overlaps(&other));
}

#[test]
fn inet_tables() {
    let text = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1116 1 x\n\
        \x20  1: 0100007F:1F90 0100007F:D431 01 00000000:00000005 00:00000000 00000000     0        0 0 1 x\n";
    let sockets = parse_inet(text);
    assert_eq!(sockets.len(), 2);
    assert_eq!(sockets[0].local, "127.0.0.1:8080".parse().expect("address"));
    assert_eq!((sockets[0].state, sockets[0].inode), (TCP_LISTEN, 1116));
    assert_eq!(sockets[1].remote, "127.0.0.1:54321".parse().expect("address"));
    let six = b"   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 9 1";
    assert_eq!(parse_inet(six)[0].local, "[::1]:80".parse().expect("address"));
}

#[test]
fn unix_tables_with_odd_paths() {
    let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
        00000000c44e0399: 00000003 00000000 00000000 0001 03   578\n\
        00000000fb6920bf: 00000002 00000000 00010000 0001 01 12345 /run/a b/\xff x\n\
        00000000fb6920bf: 00000002 00000000 00000000 0002 01     0 @abstract\n";
    let sockets = parse_unix(text);
    assert_eq!(sockets.len(), 3);
    assert_eq!((sockets[0].inode, sockets[0].path.as_str(), sockets[0].listening), (578, "", false));
    assert_eq!((sockets[1].path.as_str(), sockets[1].listening), ("/run/a b/\u{fffd} x", true));
    assert_eq!((sockets[2].kind, sockets[2].inode, sockets[2].path.as_str()), (2, 0, "@abstract"));
}

#[test]
fn names_are_cut_at_characters() {
    assert_eq!(lossy("aé".as_bytes(), 2), "a");
    assert_eq!(lossy("aé".as_bytes(), 3), "aé");
    assert_eq!(lossy("日本".as_bytes(), 5), "日");
    assert_eq!(lossy(b"\x80\x80\x80\x80", 2), "\u{fffd}\u{fffd}");
}

#[test]
fn command_lines_without_their_padding() {
    assert_eq!(join_argv(b"sh\0-c\0echo  x\0"), "sh -c echo  x");
    assert_eq!(
        join_argv(b"postgres: u db [local] SELECT waiting\0\0\0\0   \0"),
        "postgres: u db [local] SELECT waiting"
    );
    assert_eq!(join_argv(b"a\0\0b\0"), "a  b");
    assert_eq!(join_argv(b"\0\0"), "");
    assert_eq!(join_argv(&[b'x'; 10_000]).len(), MAX_CMDLINE);
}

#[test]
fn this_process_is_there() {
    let me = std::process::id();
    let stat = read_stat(me).expect("stat");
    assert_eq!(stat.pid, me);
    assert!(!stat.kernel && stat.threads >= 1);
    let status = read_status(me).expect("status");
    assert_eq!((status.tgid, status.ppid), (me, stat.ppid));
    assert_eq!(status.ns_pids.first(), Some(&me));
    assert!(processes().contains(&me));
    assert!(threads_of(me).contains(&me));
    assert!(!read_cgroup(me).is_empty());
    assert!(read_exe(me).is_some_and(|e| e.contains("pg_tracer")));
    assert!(read_stat(u32::MAX).is_none() && read_thread_stat(u32::MAX).is_none());
    let own = std::thread::Builder::new().name("own".into()).spawn(|| {
        let tid = std::fs::read_link("/proc/thread-self").unwrap();
        read_thread_stat(tid.file_name().unwrap().to_str().unwrap().parse().unwrap())
    });
    let own = own.unwrap().join().unwrap().expect("stat of a thread");
    assert!(own.pid != me && own.comm == b"own" && own.ppid == stat.ppid, "{own:?}");
}

proptest! {
    #[test]
    fn parsers_take_anything(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse_stat(&bytes);
        let _ = parse_status(&bytes);
        let _ = parse_cgroup(&bytes);
        let _ = parse_fd_link(&bytes);
        let _ = parse_fdinfo(&bytes);
        let _ = parse_locks(&bytes);
        let _ = parse_inet(&bytes);
        let _ = parse_unix(&bytes);
        let _ = join_argv(&bytes);
        for limit in 0..20 {
            prop_assert!(lossy(&bytes, limit).len() <= 3 * limit);
        }
    }

    #[test]
    fn parsers_take_almost_right_lines(words in proptest::collection::vec("[0-9a-fA-F:.()>-]{0,12}|FLOCK|POSIX|EOF|tfd:|flags:|lock:|Uid:|NSpid:|->", 0..40), sep in "[ \t\n]") {
        let text = words.join(&sep);
        let bytes = text.as_bytes();
        let _ = parse_stat(bytes);
        let _ = parse_status(bytes);
        let _ = parse_fdinfo(bytes);
        let _ = parse_locks(bytes);
        let _ = parse_inet(bytes);
        let _ = parse_unix(bytes);
    }

    #[test]
    fn any_name_survives_stat(name in proptest::collection::vec(any::<u8>(), 0..64), start in any::<u64>()) {
        let mut line = b"5 (".to_vec();
        line.extend(&name);
        line.extend(format!(") R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0").bytes());
        let stat = parse_stat(&line).expect("a well-formed line");
        prop_assert_eq!(stat.comm, name);
        prop_assert_eq!(stat.start_ticks, start);
    }

    #[test]
    fn cutting_text_keeps_it_text(text in "\\PC{0,40}", limit in 0usize..80) {
        let cut = lossy(text.as_bytes(), limit);
        prop_assert!(text.starts_with(&cut), "{cut:?} of {text:?}");
    }
}

#[test]
fn who_has_ended_has_no_memory() {
    use std::process::Command;
    use std::time::{Duration, Instant};
    assert!(!has_ended(std::process::id()));
    let mut child = Command::new("true").spawn().unwrap();
    let begin = Instant::now();
    // Nobody has waited for it yet: its folder in /proc is still there.
    while !has_ended(child.id()) && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(path_of(child.id(), "maps").exists());
    let ended = has_ended(child.id());
    child.wait().unwrap();
    assert!(ended && has_ended(child.id()));
}
