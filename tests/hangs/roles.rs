//! The programs that hang: this test binary again, under other names. `scenario NAME` starts the rest.

use crate::system::{attach, detach, flock, wait_readable};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How long each hang lasts.
const HANG: Duration = Duration::from_millis(2500);
const SOON: Duration = Duration::from_millis(300);

/// Runs one role; what goes wrong ends the process with a panic's message.
pub fn run(args: &[String]) {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let Some(name) = args.first() {
        fs::write("/proc/self/comm", name).expect("a name");
    }
    match args[..] {
        ["scenario", name, dir] => scenario(name, dir),
        ["store", dir] => store(dir),
        ["store-cli", word, dir] => println!("{}", ask(&sock(dir), word)),
        ["web-worker", page, dir] => web_worker(page, dir),
        ["browser", page, dir] => browser(page, dir),
        ["runner"] => runner(),
        ["lister"] => lister(),
        ["inspector", pid] => inspector(pid.parse().expect("a pid")),
        ["name-server", dir] => name_server(dir),
        ["fetch", dir] => fetch(dir),
        ["bus", dir] => bus(dir),
        ["service", dir] => service(dir),
        ["backup", dir] => backup(dir),
        _ => panic!("no role {args:?}"),
    }
}

/// Starts a role as a process of that name.
fn start(args: &[&str]) -> Child {
    role(args).spawn().expect("it starts")
}

/// The command for a role.
pub fn role(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own file"));
    command.arg0(args[0]).arg("--role").args(args);
    command
}

fn finish(mut child: Child) {
    child.wait().expect("it ends");
}

fn end(mut child: Child) {
    child.kill().expect("it was running");
    child.wait().expect("it ends");
}

fn wait_for(path: &str) {
    for _ in 0..500 {
        if Path::new(path).exists() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("{path} did not appear");
}

fn sock(dir: &str) -> String {
    format!("{dir}/s")
}

fn scenario(name: &str, dir: &str) {
    match name {
        "script" => {
            let server = start(&["store", dir]);
            wait_for(&sock(dir));
            finish(start(&["store-cli", "get", dir]));
            let script = start(&["store-cli", "eval", dir]);
            sleep(SOON);
            finish(start(&["store-cli", "get2", dir]));
            finish(script);
            end(server);
        }
        "file-lock" => {
            let workers = ["report", "quick"].map(|page| start(&["web-worker", page, dir]));
            wait_for(&format!("{dir}/report.port"));
            wait_for(&format!("{dir}/quick.port"));
            let slow = start(&["browser", "report", dir]);
            sleep(SOON);
            finish(start(&["browser", "quick", dir]));
            finish(slow);
            workers.into_iter().for_each(end);
        }
        "pipe" => {
            let parent = start(&["runner"]);
            sleep(HANG);
            end(parent);
        }
        "traced" => {
            let server = start(&["store", dir]);
            wait_for(&sock(dir));
            finish(start(&["store-cli", "get", dir]));
            let pid = server.id().to_string();
            let mut tool = role(&["inspector", &pid]).stdin(Stdio::piped()).spawn().expect("it starts");
            while !fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives").contains("State:\tt")
            {
                sleep(Duration::from_millis(10));
            }
            let client = start(&["store-cli", "get2", dir]);
            sleep(HANG);
            tool.stdin.take().expect("a pipe").write_all(b"go on\n").expect("it reads");
            finish(client);
            finish(tool);
            end(server);
        }
        "silent" => {
            let server = start(&["name-server", dir]);
            wait_for(&format!("{dir}/port"));
            finish(start(&["fetch", dir]));
            end(server);
        }
        "activation" => {
            let job = start(&["backup", dir]);
            wait_for(&format!("{dir}/locked"));
            let bus = start(&["bus", dir]);
            wait_for(&sock(dir));
            finish(start(&["store-cli", "call", dir]));
            finish(job);
            end(bus);
        }
        _ => panic!("no scenario {name}"),
    }
}

/// Asks a server on a unix socket one word and returns its answer.
#[inline(never)]
fn ask(socket: &str, word: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("a server");
    stream.write_all(format!("{word}\n").as_bytes()).expect("it reads");
    read_line(&stream)
}

fn read_line(stream: impl Read) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    line.trim().into()
}

/// One thread, one event loop: while it runs a script nobody else is served.
fn store(dir: &str) {
    let listener = UnixListener::bind(sock(dir)).expect("a socket");
    let mut clients: Vec<UnixStream> = Vec::new();
    loop {
        let mut fds = vec![listener.as_raw_fd()];
        fds.extend(clients.iter().map(AsRawFd::as_raw_fd));
        match wait_readable(&fds) {
            0 => clients.push(listener.accept().expect("a client").0),
            n => {
                let mut client = clients.swap_remove(n - 1);
                if read_line(&client) == "eval" {
                    black_box(run_script(HANG));
                }
                client.write_all(b"done\n").expect("it waits");
            }
        }
    }
}

#[inline(never)]
fn run_script(how_long: Duration) -> u64 {
    let (begin, mut sum) = (Instant::now(), 1_u64);
    while begin.elapsed() < how_long {
        for n in 0..100_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
    sum
}

/// Serves one page over TCP; all pages of a session take its lock file first.
fn web_worker(page: &str, dir: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    publish(dir, page, listener.local_addr().expect("bound").port());
    for stream in listener.incoming() {
        let mut stream = stream.expect("a client");
        read_line(&stream);
        let session = open_session(dir);
        if page == "report" {
            black_box(render_report());
        }
        drop(session);
        stream.write_all(b"page\n").expect("it waits");
    }
}

#[inline(never)]
fn open_session(dir: &str) -> File {
    let file = File::options().create(true).append(true).open(format!("{dir}/session")).expect("a file");
    flock(&file);
    file
}

#[inline(never)]
fn render_report() -> u64 {
    run_script(HANG)
}

fn browser(page: &str, dir: &str) {
    let port = fs::read_to_string(format!("{dir}/{page}.port")).expect("published");
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("a server");
    stream.write_all(b"get\n").expect("it reads");
    println!("{}", read_line(&stream));
}

/// Publishes a port in one step, so that nobody reads half a number.
fn publish(dir: &str, name: &str, port: u16) {
    fs::write(format!("{dir}/{name}.new"), port.to_string()).expect("written");
    fs::rename(format!("{dir}/{name}.new"), format!("{dir}/{name}.port")).expect("renamed");
}

/// Waits for a child whose output it does not read.
fn runner() {
    let mut child = role(&["lister"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let status = child.wait().expect("it ends");
    println!("{status}");
}

/// Writes more than a pipe holds.
fn lister() {
    let line = [b'x'; 4096];
    for _ in 0..64 {
        if std::io::stdout().write_all(&line).is_err() {
            return;
        }
    }
}

/// Stops a process as a debugger does, until its user says a word.
fn inspector(pid: i32) {
    attach(pid);
    read_line(std::io::stdin());
    detach(pid);
}

/// Takes queries and never answers.
fn name_server(dir: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    publish(dir, "udp", socket.local_addr().expect("bound").port());
    fs::write(format!("{dir}/port"), "").expect("written");
    let mut query = [0; 512];
    loop {
        socket.recv_from(&mut query).expect("a query");
    }
}

/// Waits for its resolver thread, which asks the name server twice.
fn fetch(dir: &str) {
    let port = fs::read_to_string(format!("{dir}/udp.port")).expect("published");
    let (answer, answered) = mpsc::channel();
    let resolver = thread::Builder::new().name("resolver".into());
    let resolver = resolver.spawn(move || answer.send(resolve(&port)).expect("main waits"));
    println!("{:?}", answered.recv().expect("an answer"));
    resolver.expect("it started").join().expect("it ends");
}

#[inline(never)]
fn resolve(port: &str) -> Option<usize> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(format!("127.0.0.1:{port}")).expect("an address");
    socket.set_read_timeout(Some(HANG / 2)).expect("a time-out");
    let mut answer = [0; 512];
    (0..2).find_map(|_| {
        socket.send(b"build.example.org?").expect("sent");
        socket.recv(&mut answer).ok()
    })
}

/// Answers a call when the service it starts for it is ready.
fn bus(dir: &str) {
    let listener = UnixListener::bind(sock(dir)).expect("a socket");
    let mut caller = listener.accept().expect("a caller").0;
    assert_eq!(read_line(&caller), "call");
    let child = start(&["service", dir]);
    fs::write(format!("{dir}/started"), "").expect("written");
    let service = listener.accept().expect("the service").0;
    assert_eq!(read_line(&service), "ready");
    caller.write_all(b"done\n").expect("it waits");
    finish(child);
    sleep(HANG * 4);
}

fn service(dir: &str) {
    let file = File::options().create(true).append(true).open(format!("{dir}/lock")).expect("a file");
    flock(&file);
    let mut bus = UnixStream::connect(sock(dir)).expect("the bus");
    bus.write_all(b"ready\n").expect("it reads");
}

/// Holds the lock while it does a job that takes long: that begins when somebody is about to want the lock, however long a busy
/// machine takes until then.
fn backup(dir: &str) {
    let file = File::options().create(true).append(true).open(format!("{dir}/lock")).expect("a file");
    flock(&file);
    fs::write(format!("{dir}/locked"), "").expect("written");
    wait_for(&format!("{dir}/started"));
    sleep(HANG);
}
