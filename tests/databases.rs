//! Locks inside database servers, with real servers: who has the row, table or advisory lock that a client waits for,
//! and what that session's client does. The holders say which process or thread serves them. Needs root, the right to
//! trace, and PostgreSQL or MariaDB; says so and skips where one is missing.

#[path = "hangs/report.rs"]
mod report;

use report::{Report, diagnose, pg_tui, text};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server of the test's own, as its usual user; ended with the test.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        for _ in 0..100 {
            if self.child.try_wait().is_ok_and(|s| s.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program as another user, in a folder.
fn as_user(user: &str, dir: &Path, program: &Path) -> Command {
    let mut c = Command::new("setpriv");
    c.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    c.arg(program).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    c
}

/// A folder that belongs to a user. `Err` says why there is none.
fn folder(user: &str) -> Result<tempfile::TempDir, String> {
    pg_tracer::check_permission().map_err(|e| e.to_string().lines().next().unwrap_or_default().to_owned())?;
    let dir = tempfile::tempdir().expect("a folder");
    let mut chown = Command::new("chown");
    let owned = chown.arg(user).arg(dir.path()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if owned { Ok(dir) } else { Err(format!("no user {user} here, or not root")) }
}

fn sh(script: &str, dir: &Path) -> Command {
    let mut c = Command::new("sh");
    c.args(["-c", script]).env("PGHOST", dir).env("PGUSER", "postgres").env("S", dir.join("s"));
    c
}

/// Run `script` again and again until it works.
fn until(script: &str, server: &mut Server) {
    for _ in 0..300 {
        let out = sh(script, server.dir.path()).output().expect("sh runs");
        if out.status.success() {
            return;
        }
        assert!(server.child.try_wait().expect("ours").is_none(), "the server ended: {}", text(&out));
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the server does not start");
}

fn postgres() -> Result<Server, String> {
    let lib = std::fs::read_dir("/usr/lib/postgresql").map_err(|_| "PostgreSQL is not installed")?;
    let bin = lib.flatten().map(|e| e.path().join("bin")).filter(|p| p.join("initdb").exists()).max();
    let bin = bin.ok_or("PostgreSQL's server is not installed")?;
    let dir = folder("postgres")?;
    let data = dir.path().join("d");
    let mut initdb = as_user("postgres", dir.path(), &bin.join("initdb"));
    let made = initdb.args(["--no-sync", "-A", "trust", "-D"]).arg(&data).status();
    if !made.is_ok_and(|s| s.success()) {
        return Err("initdb does not work here".into());
    }
    let mut server = as_user("postgres", dir.path(), &bin.join("postgres"));
    server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-D"]).arg(&data).arg("-k").arg(dir.path());
    let mut server = Server { child: server.spawn().expect("it starts"), dir };
    until(
        "psql -qc 'create table t(id int primary key, x int); insert into t values (1, 1); create table u(x int)'",
        &mut server,
    );
    Ok(server)
}

fn mariadb() -> Result<Server, String> {
    let bin = PathBuf::from("/usr/sbin/mariadbd");
    if !bin.exists() {
        return Err("MariaDB's server is not installed".into());
    }
    let dir = folder("mysql")?;
    let data = dir.path().join("d");
    let mut install = as_user("mysql", dir.path(), Path::new("mariadb-install-db"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    if !install.arg(format!("--datadir={}", data.display())).status().is_ok_and(|s| s.success()) {
        return Err("mariadb-install-db does not work here".into());
    }
    let mut server = as_user("mysql", dir.path(), &bin);
    server.args([
        "--no-defaults",
        "--skip-networking",
        "--skip-grant-tables",
        "--innodb-buffer-pool-size=16M",
    ]);
    server.arg(format!("--datadir={}", data.display()));
    server.arg(format!("--socket={}", dir.path().join("s").display()));
    server.arg(format!("--pid-file={}", dir.path().join("p").display()));
    let mut server = Server { child: server.spawn().expect("it starts"), dir };
    until(
        "mariadb --no-defaults -S $S -e 'create database b; create table b.t(id int primary key, x int) \
         engine=innodb; insert into b.t values (1, 1); create table b.u(x int)'",
        &mut server,
    );
    Ok(server)
}

/// A report on one of several recordings of the same, and which process or thread serves which holder.
type Holders = HashMap<String, u64>;

/// Records `script`; `args` are more arguments for the recorder.
fn record(server: &Server, script: &str, args: &[&str]) -> (PathBuf, Holders) {
    let file = server.dir.path().join("r.pgs");
    let mut c = pg_tui();
    c.args(["record", "--no-tui", "-o"]).arg(&file).args(args).args(["--", "sh", "-c", script]);
    let dir = server.dir.path();
    let out =
        c.env("PGHOST", dir).env("PGUSER", "postgres").env("S", dir.join("s")).output().expect("starts");
    assert!(out.status.success(), "record: {}\n{}", out.status, text(&out));
    let lines = String::from_utf8_lossy(&out.stdout).into_owned();
    let facts = lines.lines().filter_map(|l| l.strip_prefix("fact ")?.split_once([' ', '\t']));
    let holders = facts.map(|(name, id)| (name.to_owned(), id.trim().parse().expect("a number"))).collect();
    (file, holders)
}

/// Does `holds` for each holder's victim? Those of whom it does not are recorded again when the kernel did not report
/// every switch.
fn check(
    server: &Server,
    script: &str,
    args: &[&str],
    victims: &[(&str, &str)],
    holds: impl Fn(&Report, &Holders, &str),
) {
    let mut left = victims.to_vec();
    for more in (0..5).rev() {
        let (file, holders) = record(server, script, args);
        left.retain(|(holder, victim)| {
            let incomplete = std::cell::Cell::new(false);
            let attempt = || {
                let report = diagnose(&file, &["--process", victim]);
                incomplete.set(report.0["coverage"]["notes"].to_string().contains("did not report"));
                holds(&report, &holders, holder);
            };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)) {
                Ok(()) => false,
                Err(_) if more > 0 && incomplete.get() => {
                    println!("again for {holder}: the kernel did not report every switch");
                    true
                }
                Err(e) => std::panic::resume_unwind(e),
            }
        });
        if left.is_empty() {
            return;
        }
    }
}

/// The slice passes through the session that serves `holder`, and a cause is that session with these words.
fn by_session(r: &Report, holders: &Holders, holder: &str, words: &str) {
    let tid = holders[holder];
    let steps = r.0["slice"].as_array().expect("a slice");
    assert!(
        steps.iter().any(|s| s["tid"] == tid),
        "the session {tid} of {holder} is not on the way: {:#}",
        r.0
    );
    let causes = r.0["root_causes"].as_array().expect("causes");
    let fits =
        |c: &serde_json::Value| c["tid"] == tid && c["why"].as_str().is_some_and(|w| w.contains(words));
    assert!(causes.iter().take(2).any(fits), "no cause is the session {tid} with {words:?}: {:#}", r.0);
}

/// PostgreSQL: a client begins a transaction, takes a lock, and idles.
fn hold(name: &str, statement: &str, seconds: u32) -> String {
    format!(
        "{{ echo \"begin; {statement}; select 'fact {name} ' || pg_backend_pid();\"; sleep {seconds}; \
         echo 'commit;'; }} | psql -qAt &\n"
    )
}

#[test]
fn postgresql_sessions_that_have_a_lock() {
    let server = match postgres() {
        Ok(server) => server,
        Err(why) => {
            println!("skipped: postgresql_sessions_that_have_a_lock: {why}");
            return;
        }
    };
    let kinds = [
        ("row", "update t set x = 2 where id = 1", "update t set x=3 where id=1"),
        ("table", "lock table u", "select * from u"),
        ("advisory", "select pg_advisory_xact_lock(7)", "select pg_advisory_xact_lock(7)"),
    ];
    let mut script: String = kinds.iter().map(|k| hold(k.0, k.1, 3)).collect();
    script.push_str("sleep 1\n");
    script.extend(kinds.iter().map(|k| format!("psql -qAtc '{}' >/dev/null &\n", k.2)));
    script.push_str("wait");
    let victims = [
        ("row", "psql -qAtc update"),
        ("table", "psql -qAtc select . from u$"),
        ("advisory", "psql -qAtc select pg_"),
    ];
    check(&server, &script, &[], &victims, |r, holders, name| {
        r.victim("^psql ", &["long-wait"], 1_000_000_000);
        r.slice(&["^postgres ", "^postgres ", "^psql "]).clean(1);
        by_session(r, holders, name, "had the lock and was idle for");
    });
    // The hang goes on, and the server's titles tell who is in a transaction.
    let script = format!(
        "psql -qAtc 'select pg_sleep(9)' >/dev/null &\n{}sleep 1\ntimeout 8 psql -qAtc '{}' >/dev/null &\nsleep 8; kill %1; true",
        hold("row", kinds[0].1, 8),
        kinds[0].2
    );
    check(&server, &script, &["--duration", "5"], &[victims[0]], |r, holders, name| {
        r.slice(&["^postgres .*UPDATE waiting ", "^postgres .*idle in transaction", "^psql "]).clean(3);
        by_session(r, holders, name, "may have the lock and was idle for");
        assert!(r.0["coverage"]["notes"].to_string().contains("pg_blocking_pids"), "{:#}", r.0);
    });
}

#[test]
fn mariadb_sessions_that_have_a_lock() {
    let server = match mariadb() {
        Ok(server) => server,
        Err(why) => {
            println!("skipped: mariadb_sessions_that_have_a_lock: {why}");
            return;
        }
    };
    let hold = |name: &str, statement: &str, seconds: u32| {
        format!(
            "{{ echo \"begin; {statement}; select 'fact {name}', tid from information_schema.processlist \
             where id = connection_id();\"; sleep {seconds}; echo 'commit;'; }} | \
             mariadb --no-defaults -S $S -N -n b &\n"
        )
    };
    let one = |name: &str, statement: &str, waits: &str, seconds: u32| {
        format!(
            "{}sleep 1\ntimeout {seconds} mariadb --no-defaults -S $S b -e '{waits}' &\nsleep {seconds}\nwait",
            hold(name, statement, seconds)
        )
    };
    let row = ("row", "update t set x = 2 where id = 1", "update t set x=3 where id=1");
    for (name, statement, waits) in [row, ("table", "select * from u", "alter table u comment \"x\"")] {
        let victim = [(name, "^mariadb .* -e (update|alter) ")];
        check(&server, &one(name, statement, waits, 3), &[], &victim, |r, holders, name| {
            r.victim("^mariadb ", &["long-wait"], 1_000_000_000);
            r.slice(&["^mariadbd ", "^mariadbd ", "^mariadb .*-N -n"]).clean(1);
            by_session(r, holders, name, "had the lock and was idle for");
        });
    }
    let script = one(row.0, row.1, row.2, 8);
    let victims = [("row", "^mariadb .* -e update ")];
    check(&server, &script, &["--duration", "5"], &victims, |r, holders, name| {
        r.slice(&["^mariadbd ", "^mariadbd ", "^mariadb .*-N -n"]).clean(3);
        by_session(r, holders, name, "may have the lock and was idle for");
        assert!(r.0["coverage"]["notes"].to_string().contains("innodb_trx"), "{:#}", r.0);
    });
}
