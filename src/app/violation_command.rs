//! Commands of the views of slow units.

use super::command::Cmd;
use super::jobs::Job;
use super::layer::{GuardBox, Layer};
use super::place;
use super::recording::Recording;
use super::state::{State, View};
use super::update::run_job;
use crate::app::input::Line;
use crate::config::Look;
use crate::session::GuardRule;
use crate::unit_rule::UnitRule;
use pg_event::UnitTypeId;
use pg_graph::ViolationFact;

/// Runs it.
pub fn run(state: &mut State, cmd: Cmd) {
    let Some(r) = state.recording.clone() else { return };
    if cmd == Cmd::SortViolations {
        state.violations.next_order(&r);
        let word = state.violations.sort.word();
        state.say_only(Look::Dim, format!("ordered by {word}"));
        return;
    }
    let Some(v) = selected(state) else {
        state.say_only(Look::Dim, "there is no unit that took too long");
        return;
    };
    match cmd {
        Cmd::DiagnoseUnit => match pg_graph::violation_victim(&r.graph, &r.catalog, &v) {
            Some(victim) => place::diagnose(state, victim, None),
            None => {
                state.say(
                    Look::Warning,
                    "nothing was recorded of this thread meanwhile, so nothing tells why",
                );
            }
        },
        Cmd::DiagnoseTransaction => diagnose_transaction(state, &r, &v),
        Cmd::SeeHander => match r.graph.handed_on(&r.catalog, v.thread, v.time) {
            Some(h) => {
                place::see(state, h.by.thread, (h.by.start, h.by.end), h.hand_over.time);
                state.say_only(Look::Dim, h.words(&r.catalog));
            }
            None => state.say_only(Look::Dim, NOT_HANDED_ON),
        },
        Cmd::CompareUnits => run_job(state, Job::Compare(r, Box::new(v))),
        Cmd::AdjustGuard if r.catalog.unit_type(v.unit_type).is_some() => {
            let before =
                state.violations.rules.get(&v.unit_type).map_or_else(String::new, ToString::to_string);
            let layer = GuardBox { line: Line::new(&before), unit_type: v.unit_type };
            state.layers.push(Layer::Guard(layer));
        }
        Cmd::SilenceGuard if r.catalog.unit_type(v.unit_type).is_some() => {
            let silenced = state.violations.rules.get(&v.unit_type) == Some(&UnitRule::Silence);
            decide(state, v.unit_type, if silenced { UnitRule::AUTO } else { UnitRule::Silence });
        }
        Cmd::AdjustGuard | Cmd::SilenceGuard => {
            state.say_only(
                Look::Warning,
                "the type of this unit is not known, so it has no threshold of its own",
            );
        }
        _ => {}
    }
}

/// What is said where nobody is known who handed a unit on.
const NOT_HANDED_ON: &str = "no other thread is known to have handed this unit on";

/// Diagnoses the part of a slow unit's transaction that took longest.
fn diagnose_transaction(state: &mut State, r: &Recording, v: &ViolationFact) {
    let Some(way) = r.graph.slow_way(&r.catalog, v) else {
        state.say_only(Look::Dim, format!("{NOT_HANDED_ON}: d diagnoses it"));
        return;
    };
    let words = way.words(&r.catalog);
    match pg_graph::way_victim(&r.graph, &r.catalog, v, &way) {
        Some(victim) => {
            place::diagnose(state, victim, None);
            state.say(Look::Good, words);
        }
        None => state.say(Look::Warning, format!("{words}; nothing was recorded of this thread meanwhile")),
    }
}

/// The slow unit that is looked at.
pub fn selected(state: &State) -> Option<ViolationFact> {
    match state.view {
        View::Units => state.units.shown.as_ref().map(|s| s.0),
        _ => state.violations.current().copied(),
    }
}

/// Is somebody known who handed it on?
pub fn is_handed_on(state: &State) -> bool {
    let (Some(r), Some(v)) = (&state.recording, selected(state)) else { return false };
    r.graph.handed_on(&r.catalog, v.thread, v.time).is_some()
}

/// Takes what was typed over the guard of a type.
pub fn accept(state: &mut State, typed: GuardBox) {
    match UnitRule::parse(typed.line.text()) {
        Ok(rule) => decide(state, typed.unit_type, rule),
        Err(e) => {
            state.layers.push(Layer::Guard(typed));
            state.say_only(Look::Warning, e);
        }
    }
}

/// Keeps a rule in the session, and says which command writes it into the profile.
fn decide(state: &mut State, unit_type: UnitTypeId, rule: UnitRule) {
    let Some(r) = state.recording.clone() else { return };
    let before = state.violations.rules.insert(unit_type, rule);
    let name = r.unit_type(unit_type);
    let what = match rule {
        UnitRule::Silence => format!("{name} is silenced"),
        UnitRule::AUTO => format!("{name} may take what was learnt"),
        UnitRule::Limit(_) => format!("{name} may take {rule}"),
    };
    let known = r.profile_and_name(unit_type).map(|(profile, name)| {
        // What silences a type in a profile is no threshold of it.
        let heard = before == Some(UnitRule::Silence) && rule != UnitRule::Silence;
        let heard = heard.then(|| format!("{} --off", UnitRule::Silence.command(&profile, &name)));
        match (heard, rule) {
            (Some(heard), UnitRule::AUTO) => heard,
            (Some(heard), rule) => format!("{heard} && {}", rule.command(&profile, &name)),
            (None, rule) => rule.command(&profile, &name),
        }
    });
    let profile = known.map_or_else(
        // Short: a narrow screen shows it whole.
        || ", in this file only: no profile is known".into(),
        |command| format!(". For its guards: {command}"),
    );
    state.say(Look::Good, format!("{what}{profile}"));
    if r.session().is_some() {
        let written = super::time::now();
        run_job(state, Job::KeepRule(r, GuardRule { unit_type, rule: rule.to_string(), written }));
    }
}
