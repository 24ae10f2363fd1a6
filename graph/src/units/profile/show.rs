//! A profile as text for people: `profile show`.

use super::{Limit, Listed, LoopKey, LoopTypes, Profile};
use crate::units::path::CallPath;
use crate::units::{Caution, Row, Rule, TypeId, TypeOptions, average_relative};
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
        for Listed { key, of, rows } in self.listed(options, rule) {
            writeln!(out)?;
            let place = format!("{}+{:#x}", clean(self.file_of(&key), 60), key.offset);
            let place = match self.loop_function(&key) {
                Some(f) => format!("{} ({place})", clean(&f.function.label(), 60)),
                None => format!("at {place}"),
            };
            let (types, trees) = (of.types.types().len(), of.types.trees().len());
            let what = match &key.given {
                Some(given) => format!("{}, given, in", clean(&given.to_string(), 200)),
                None => "loop".into(),
            };
            let plural = |n: usize| if n == 1 { "" } else { "s" };
            writeln!(
                out,
                "{what} {place}: {types} type{}, {trees} distinct call tree{}",
                plural(types),
                plural(trees)
            )?;
            writeln!(
                out,
                "{:>4} {:>9} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9}  type",
                "no", "units", "mean", "sigma", "c", "median", "p99", "greatest", "threshold"
            )?;
            for (number, row) in &rows {
                write!(out, "{number:>4} ")?;
                self.write_row(out, row, &of)?;
            }
            let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
            if let Some(c) = average_relative(&rows) {
                match rows.len().min(10) {
                    1 => writeln!(out, "mean c of its one type: {c:.1} %")?,
                    n => writeln!(out, "mean c of the {n} costliest types: {c:.1} %")?,
                }
            }
        }
        Ok(())
    }

    /// File name of the binary that a loop is in; its build-id where that is not known.
    fn file_of<'a>(&'a self, key: &'a LoopKey) -> &'a str {
        let function = self.loop_function(key).map(|f| f.function.module.as_str());
        let binary = || self.binaries.iter().find(|b| b.build_id == key.build_id);
        let path = || binary().map(|b| b.path.rsplit('/').next().unwrap_or_default());
        function.or_else(path).filter(|f| !f.is_empty()).unwrap_or(&key.build_id)
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
            of.known.names[row.of],
        )?;
        match row.threshold.caution {
            Some(Caution::TooFew { have, need }) => write!(out, " (too few units: {have} of {need})")?,
            Some(Caution::Rule) => write!(out, " (the rule makes no sense: mean + 4 sigma taken)")?,
            None => {}
        }
        if row.threshold.skewed {
            write!(out, " (too skewed for mean + 4 sigma: 99.99 % quantile)")?;
        }
        if row.threshold.few && row.threshold.caution.is_none() {
            write!(out, " (bounded from few units)")?;
        }
        if row.threshold.above > 0 {
            write!(out, " ({} of these units were above it)", row.threshold.above)?;
        }
        match of.known.limits[row.of] {
            Limit::Auto => {}
            Limit::Fixed(_) => write!(out, " (threshold set by hand)")?,
            Limit::Sigma(k) => write!(out, " (set to mean + {} sigma)", f64::from(k) / 1e3)?,
            Limit::Quantile(q) => write!(out, " (set to the {} % quantile)", f64::from(q) / 1e4)?,
        }
        if of.known.silent[row.of] {
            write!(out, " (silent)")?;
        }
        if of.unseen(TypeId(row.of as u32), &self.functions) {
            write!(out, " (what they called is not known: different work may be among them)")?;
        }
        writeln!(out)?;
        let paths = of.types.trees()[of.types.types()[row.of].representative].paths.paths();
        for p in paths.iter().take(PATHS) {
            writeln!(out, "               {}", self.path(p))?;
        }
        if paths.len() > PATHS {
            writeln!(out, "               and {} more call paths", paths.len() - PATHS)?;
        }
        Ok(())
    }

    fn path(&self, p: &CallPath) -> String {
        let name = |i: u32| self.functions.get(i as usize).map_or("?".into(), |f| clean(&f.label(), 60));
        let shown = &p.functions()[p.len().saturating_sub(FRAMES)..];
        let text = shown.iter().map(|f| name(f.0)).collect::<Vec<_>>().join(" > ");
        if shown.len() < p.len() { format!("... > {text}") } else { text }
    }
}
