//! A profile as text for people: `profile show`.

use super::{LoopTypes, Profile};
use crate::units::path::CallPath;
use crate::units::{Caution, Row, Rule, TypeOptions, average_relative, table};
use crate::words::{clean, span};
use std::fmt::Write;

/// Frames of a call path that are shown, the innermost.
const FRAMES: usize = 6;
/// Call paths of a type that are shown.
const PATHS: usize = 3;

impl Profile {
    /// What was learnt, for people: the binaries, and for each loop a table of its types like table 5 of the paper,
    /// with call paths of their representatives. No control characters but line ends.
    pub fn show(&self, options: TypeOptions, rule: Rule) -> String {
        let mut out = String::new();
        // Writing to a text cannot fail.
        let _ = self.write(&mut out, options, rule);
        out
    }

    fn write(&self, out: &mut String, options: TypeOptions, rule: Rule) -> std::fmt::Result {
        writeln!(
            out,
            "units: {}, loops: {}, functions: {}",
            self.units(),
            self.loops.len(),
            self.functions.len()
        )?;
        for b in &self.binaries {
            let id = if b.build_id.is_empty() { "none" } else { &b.build_id };
            writeln!(out, "binary {} (build-id {})", clean(&b.path, 200), clean(id, 64))?;
        }
        for key in self.loops.keys() {
            let Some(of) = self.types(key, options) else { continue };
            writeln!(out)?;
            writeln!(
                out,
                "loop at {}+{:#x}: {} types, {} distinct call trees",
                clean(&key.build_id, 64),
                key.offset,
                of.types.types().len(),
                of.types.trees().len()
            )?;
            let rows = table(&of.stats, rule);
            writeln!(
                out,
                "{:>9} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9}  type",
                "units", "mean", "sigma", "c", "median", "p99", "greatest", "threshold"
            )?;
            for row in &rows {
                self.write_row(out, row, &of)?;
            }
            if let Some(c) = average_relative(&rows) {
                writeln!(out, "mean c of the {} costliest types: {c:.1} %", rows.len().min(10))?;
            }
        }
        Ok(())
    }

    fn write_row(&self, out: &mut String, row: &Row, of: &LoopTypes) -> std::fmt::Result {
        let ns = |x: f64| span(x.round() as u64);
        let sigma = row.sigma.map_or("-".into(), ns);
        let c = row.relative.map_or("-".into(), |c| format!("{c:.1} %"));
        write!(
            out,
            "{:>9} {:>9} {sigma:>9} {c:>6} {:>9} {:>9} {:>9} {:>9}  {}",
            row.units,
            ns(row.mean),
            span(row.median),
            span(row.p99),
            span(row.greatest),
            span(row.threshold.ns),
            of.names[row.of],
        )?;
        match row.threshold.caution {
            Some(Caution::TooFew { have, need }) => write!(out, " (too few units: {have} of {need})")?,
            Some(Caution::Rule) => write!(out, " (the rule makes no sense: mean + 4 sigma taken)")?,
            None => {}
        }
        if row.threshold.above > 0 {
            write!(out, " ({} of these units were above it)", row.threshold.above)?;
        }
        writeln!(out)?;
        let paths = of.types.trees()[of.types.types()[row.of].representative].paths.paths();
        for p in paths.iter().take(PATHS) {
            writeln!(out, "          {}", self.path(p))?;
        }
        if paths.len() > PATHS {
            writeln!(out, "          and {} more call paths", paths.len() - PATHS)?;
        }
        Ok(())
    }

    fn path(&self, p: &CallPath) -> String {
        let name = |i: u32| self.functions.get(i as usize).map_or("?".into(), |f| clean(&f.name, 60));
        let shown = &p.functions()[p.len().saturating_sub(FRAMES)..];
        let text = shown.iter().map(|f| name(f.0)).collect::<Vec<_>>().join(" > ");
        if shown.len() < p.len() { format!("... > {text}") } else { text }
    }
}
