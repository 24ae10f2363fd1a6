//! What an event costs the recorder from the ring to the file, in CPU time of this thread, so that it can
//! be measured beside other load. Not a test: it prints what it measures.
//!
//! `cargo bench --bench recorder` prints, for two kinds of work, ns an event for translating records into
//! events in order and for writing those, bytes an event in the file, and a sum over what a reader gets
//! back, by which two versions are compared.

mod records;

use pg_event::Item;
use pg_tracer::collector::replay::Replay;
use pg_tui::session::{Header, Session, Writer};
use records::Stream;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

/// So often each is measured; the best counts.
const TIMES: usize = 7;
/// A look at the rings every so often, ns.
const LOOK: u64 = 50_000_000;

fn main() {
    for (name, stream) in [("pipe", records::pipe(400_000)), ("messaging", records::messaging(400_000))] {
        measure(name, &stream);
    }
}

/// CPU time of this thread, ns.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

fn measure(name: &str, stream: &Stream) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("recorder-{name}.pgs"));
    let n = stream.times.len() as f64;
    let (mut translating, mut writing, mut size) = (f64::MAX, f64::MAX, 0);
    for _ in 0..TIMES {
        let spent = run(stream, &file);
        translating = translating.min(spent.translating as f64 / n);
        writing = writing.min(spent.writing as f64 / n);
        size = spent.size;
    }
    println!(
        "{name:<10} translate {translating:6.1} ns  write {writing:6.1} ns  {:5.2} bytes  sum {:016x}",
        size as f64 / n,
        sum(&file)
    );
}

#[derive(Default)]
struct Spent {
    translating: u64,
    writing: u64,
    size: u64,
}

/// Once through, look by look as it is recorded.
fn run(stream: &Stream, file: &Path) -> Spent {
    let header = Header { version: "bench".into(), host: "bench".into(), cpus: 2, ..Header::default() };
    let mut writer = Writer::create(file, &header).expect("a file");
    let mut replay = Replay::default();
    let mut spent = Spent::default();
    let mut look = LOOK;
    let mut begin = cpu();
    for (record, time) in stream.iter() {
        if time >= look {
            let items = replay.release(look, false);
            let translated = cpu();
            write(&mut writer, items);
            let written = cpu();
            spent.translating += translated - begin;
            spent.writing += written - translated;
            begin = written;
            look += LOOK;
        }
        replay.record(record);
    }
    let items = replay.release(look, true);
    let translated = cpu();
    write(&mut writer, items);
    spent.size = writer.finish().expect("written");
    spent.translating += translated - begin;
    spent.writing += cpu() - translated;
    spent
}

fn write(writer: &mut Writer, items: Vec<Item>) {
    for item in items {
        writer.item(&item).expect("written");
    }
}

fn sum(file: &Path) -> u64 {
    let session = Session::open(file).expect("it opens");
    let mut hasher = DefaultHasher::new();
    for item in session.items() {
        // Where chunks end does not count.
        match item {
            Item::Events(events) => events.iter().for_each(|e| hasher.write(format!("{e:?}").as_bytes())),
            Item::Catalog(_) => {}
            other @ Item::End { .. } => hasher.write(format!("{other:?}").as_bytes()),
        }
    }
    hasher.finish()
}
