//! What is told of units that only seemed to take too long: they turned out to be of another type, which may take as long.

use super::guarding::Watched;
use super::tell::{Shown, json, what, who};
use pg_graph::report::WithdrawnInfo;
use pg_graph::words::span;
use pg_tracer::guards::Withdrawn as TakenBack;
use serde_json::{Value, json as value};

/// A unit that only seemed to take too long.
#[derive(Clone, Debug)]
pub struct Withdrawn {
    /// As it was seen; [`pg_graph::report::ViolationInfo::withdrawn`] says what it turned out to be.
    pub shown: Box<Shown>,
    /// It was told as a violation before that was known.
    pub told: bool,
}

impl Withdrawn {
    /// One that was seen so.
    pub fn of(mut shown: Box<Shown>, w: &TakenBack, watched: &Watched, told: bool) -> Self {
        let unit_type = w.of.and_then(|t| watched.types.get(t)).map_or_else(String::new, |t| t.name.clone());
        shown.info.withdrawn = Some(WithdrawnInfo { unit_type, threshold_ns: w.threshold });
        Self { shown, told }
    }

    /// For people; `None` where they were told nothing that has to be taken back.
    pub fn text(&self) -> Option<String> {
        let of = self.shown.info.withdrawn.as_ref().filter(|_| self.told)?;
        let may = if of.threshold_ns == 0 { "as long as it likes".into() } else { span(of.threshold_ns) };
        Some(format!(
            "{}: {} that ran for {} is one of type {}, which may take {may}: it does not take too long",
            who(&self.shown),
            what(&self.shown),
            span(self.shown.info.elapsed_ns),
            of.unit_type
        ))
    }

    /// For scripts: one line. `event` is `withdrawn`; where `told`, one whose `event` is `violation` has the same number.
    pub fn json(&self) -> Value {
        let mut line = json(&self.shown);
        line["event"] = value!("withdrawn");
        line["told"] = value!(self.told);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::UnitTypeRow;
    use pg_graph::report::ViolationInfo;
    use pg_graph::units::{KnownTypes, LoopKey};

    fn withdrawn(threshold: u64, told: bool) -> Withdrawn {
        let info = ViolationInfo {
            number: 3,
            tid: 8,
            process: "shop".into(),
            thread: "shop".into(),
            unit_type: "sort".into(),
            elapsed_ns: 41_000_000,
            threshold_ns: 10_000_000,
            ..ViolationInfo::default()
        };
        let shown = Shown {
            info,
            seen: 0,
            of_loop: "serve".into(),
            kernel: 0,
            starved: false,
            goes_on: false,
            slow_before: false,
            stopped: false,
            given: None,
        };
        let row = |name: &str| UnitTypeRow { name: name.into(), ..UnitTypeRow::default() };
        let watched = Watched {
            key: LoopKey::default(),
            module: String::new(),
            function: "serve".into(),
            types: vec![row("sort"), row("report")],
            known: KnownTypes::default(),
            limits: (vec![10_000_000, threshold], threshold),
            guards: 1,
            given: None,
        };
        let (start, elapsed) = (0, 45_000_000);
        let w = TakenBack {
            tid: 8,
            pid: 8,
            of_loop: 0,
            number: 1,
            time: 0,
            start,
            elapsed,
            of: Some(1),
            threshold,
        };
        Withdrawn::of(Box::new(shown), &w, &watched, told)
    }

    #[test]
    fn people_are_told_of_what_they_were_told() {
        assert_eq!(withdrawn(200_000_000, false).text(), None);
        assert_eq!(
            withdrawn(200_000_000, true).text().as_deref(),
            Some(
                "shop/8: a unit of type sort that ran for 41 ms is one of type report, which may take 200 ms: it does not take too \
                 long"
            )
        );
        assert!(withdrawn(0, true).text().is_some_and(|t| t.contains("which may take as long as it likes")));
    }

    #[test]
    fn scripts_can_tell_it_from_a_violation() {
        let line = withdrawn(200_000_000, false).json();
        assert_eq!(
            (&line["event"], &line["number"], &line["told"]),
            (&value!("withdrawn"), &value!(3), &value!(false))
        );
        assert_eq!(line["withdrawn"], value!({ "type": "report", "threshold_ns": 200_000_000 }));
        assert_eq!((&line["type"], &line["threshold_ns"]), (&value!("sort"), &value!(10_000_000)));
    }
}
