//! `pg-tui redact`.

use super::args::Redact;
use super::diagnose::regex;
use super::exit::{Failure, Outcome};
use super::text::{bytes, count};
use crate::clean::clean;
use crate::redact::{Count, Options, Summary, redact};
use crate::session::{self, Session, SessionError};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Redact, out: &mut dyn Write) -> Outcome {
    let keep_process =
        args.keep_process.iter().map(|r| regex("--keep-process", r)).collect::<Result<_, _>>()?;
    let options = Options { keep_process, keep_host: args.keep_host, keep_notes: args.keep_notes };
    // The input first: its faults are not those of the arguments.
    Session::open(&args.input)?;
    let same = |a: io::Result<PathBuf>, b: io::Result<PathBuf>| matches!((a, b), (Ok(a), Ok(b)) if a == b);
    if same(fs::canonicalize(&args.input), fs::canonicalize(&args.output)) {
        return Err(Failure::Usage("IN and OUT are the same file: the original would be lost".into()));
    }
    // IN and OUT are easily swapped: a recording that is at OUT is kept.
    let kept = session::keep_old(&args.output).map_err(|e| Failure::Usage(e.to_string()))?;
    let summary = redact(&args.input, &args.output, &options).map_err(|e| match e {
        SessionError::Io { ref path, action, .. } if *path == args.output && action.starts_with("create") => {
            Failure::Usage(e.to_string())
        }
        SessionError::Io { ref path, .. } if *path == args.output => {
            // Half a copy is of no use, and looks like one.
            let ours = fs::metadata(path).is_ok_and(|m| m.is_file());
            let _ = ours.then(|| fs::remove_file(path));
            Failure::Other(e.to_string())
        }
        e => e.into(),
    })?;
    if let Some(old) = kept {
        say!("pg-tui: the recording that was there is now {}", clean(&old.display().to_string()));
    }
    tell(out, &summary, &args.output.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn tell(out: &mut dyn Write, s: &Summary, path: &str) -> io::Result<()> {
    let line = |c: Count| format!("{:>7} kept {:>7} renamed {:>7} dropped", c.kept, c.renamed, c.dropped);
    writeln!(out, "processes  {}", line(s.processes))?;
    writeln!(out, "threads    {}", line(s.threads))?;
    writeln!(out, "objects    {}", line(s.objects))?;
    writeln!(out, "modules    {}", line(s.modules))?;
    writeln!(out, "events     {:>7} kept {:>15} {:>7} dropped", count(s.events.0), "", count(s.events.1))?;
    writeln!(out, "{} names are gone; {} notes were left out", s.names, s.notes)?;
    if s.everybody {
        writeln!(
            out,
            "what everybody did had to be kept (without names): with less the verdict would change"
        )?;
    }
    let hangs = |n: usize| if n == 1 { "1 hang".to_owned() } else { format!("{n} hangs") };
    match (s.compared, s.differ) {
        (0, _) => writeln!(out, "no hang of the focus was found, so no verdict could be compared")?,
        (n, 0) => writeln!(out, "the verdict on {} is the same as in the original", hangs(n))?,
        (n, d) => writeln!(out, "BEWARE: of {} {d} lead to another verdict than in the original", hangs(n))?,
    }
    writeln!(out, "{}, {}; read it before you share it: pg-tui open {0}", clean(path), bytes(s.bytes))
}
