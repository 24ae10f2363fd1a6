//! Measured units as lines of JSON, for those who want to look at each of them.

use pg_event::Ns;
use pg_graph::units::{Function, FunctionId, Place};
use pg_tracer::guards::UnitTold;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;

/// A file of units: first the functions, then each unit with `[function, depth, times]` for what it came by, and the number of its kind;
/// at last the type of each kind.
pub struct UnitLog {
    out: BufWriter<File>,
    failed: Result<()>,
}

impl UnitLog {
    /// A new file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path, functions: &[(Function, Place)]) -> Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        let names: Vec<_> = functions.iter().map(|(f, _)| json!([f.module, f.name])).collect();
        writeln!(out, "{}", json!({ "functions": names }))?;
        Ok(Self { out, failed: Ok(()) })
    }

    /// Adds a unit that took so long without what the probes took; `numbers` are the functions' places in the list.
    pub(super) fn unit(&mut self, u: &UnitTold, ns: Ns, kind: Option<usize>, numbers: &[FunctionId]) {
        let calls = u.contexts.iter().filter_map(|&(f, d, n)| Some([numbers.get(f)?.0, d, n]));
        let calls: Vec<[u32; 3]> = calls.collect();
        let line = json!({
            "loop": u.of_loop, "pid": u.pid, "tid": u.tid, "start": u.start, "ns": ns, "probes": u.spent,
            "off_cpu": u.away, "ready": u.ready, "calls": calls, "more": u.more, "kind": kind,
        });
        if self.failed.is_ok() {
            self.failed = writeln!(self.out, "{line}");
        }
    }

    /// Ends the file with the type of each kind.
    ///
    /// # Errors
    /// Something could not be written.
    pub(super) fn end(mut self, types: &[Option<String>]) -> Result<()> {
        self.failed?;
        writeln!(self.out, "{}", json!({ "types": types }))?;
        self.out.flush()
    }
}
