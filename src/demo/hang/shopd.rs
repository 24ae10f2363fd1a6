//! `shopd`: the front end that its customers see hanging.

use super::{Plan, command, hash_rows, set_process_name};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Time between two customers.
const PAUSE: Duration = Duration::from_millis(30);
/// What a checkout costs in the shop itself.
const CART: Duration = Duration::from_millis(1);

/// Starts `payd`, sends it orders for the length of the plan, and says how long they took.
pub(super) fn run(plan: Plan) -> Result<(), String> {
    set_process_name("shopd");
    let dir = Folder::new()?;
    let socket = dir.0.join("pay.sock");
    let mut payd = start_payd(plan, &socket)?;
    let connected = UnixStream::connect(&socket);
    let stream = connected.map_err(|e| format!("cannot reach payd at {}: {e}", socket.display()))?;
    drop(dir);

    let took = serve_customers(plan, stream)?;
    let status = payd.wait().map_err(|e| format!("cannot wait for payd: {e}"))?;
    if !status.success() {
        return Err(format!("payd ended with {status}"));
    }
    report(&took);
    Ok(())
}

fn start_payd(plan: Plan, socket: &Path) -> Result<Child, String> {
    let seconds = plan.hang.as_secs_f64().to_string();
    let mut command = command("payd")?;
    command.arg("payd").arg(seconds).arg(socket).stdout(Stdio::piped());
    let mut payd = command.spawn().map_err(|e| format!("cannot start payd: {e}"))?;
    let mut line = String::new();
    if let Some(out) = payd.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(|e| format!("payd says nothing: {e}"))?;
    }
    if line.trim() == "ready" { Ok(payd) } else { Err("payd did not start".into()) }
}

/// The main loop: one customer after the other. The connection closes when it returns.
#[inline(never)]
fn serve_customers(plan: Plan, stream: UnixStream) -> Result<Vec<Duration>, String> {
    let mut replies = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
    let mut pay = stream;
    let start = Instant::now();
    let mut took = Vec::new();
    while start.elapsed() < plan.before + plan.hang + plan.after {
        let begin = Instant::now();
        checkout(took.len() as u64, &mut pay, &mut replies)?;
        took.push(begin.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(took)
}

#[inline(never)]
fn checkout(order: u64, pay: &mut UnixStream, replies: &mut BufReader<UnixStream>) -> Result<(), String> {
    let mut cart = [order; 16];
    black_box(hash_rows(&mut cart, CART));
    pay_call(order, pay, replies)
}

/// One request to `payd` and its answer.
#[inline(never)]
fn pay_call(order: u64, pay: &mut UnixStream, replies: &mut BufReader<UnixStream>) -> Result<(), String> {
    // One write, one message.
    pay.write_all(format!("{order}\n").as_bytes()).map_err(|e| format!("payd takes no order: {e}"))?;
    let mut answer = String::new();
    replies.read_line(&mut answer).map_err(|e| format!("payd's answer cannot be read: {e}"))?;
    if answer.starts_with("paid ") { Ok(()) } else { Err(format!("payd answered `{}`", answer.trim())) }
}

fn report(took: &[Duration]) {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let (Some(median), Some(worst)) = (sorted.get(sorted.len() / 2), sorted.last()) else { return };
    println!("shopd: {} orders paid, usually in {median:.0?}; one took {worst:.2?}", took.len());
}

/// A folder for the socket, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("pg-tui-demo.{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
