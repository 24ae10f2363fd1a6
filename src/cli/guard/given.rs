//! `--unit-begin` and `--unit-end`.

use crate::cli::exit::Failure;
use crate::guard::Bounds;
use pg_event::Ns;
use pg_graph::units::Limit;
use pg_tracer::given::GivenPoint;

/// Both together make sense.
pub fn bounds(begin: Option<&GivenPoint>, end: Option<&GivenPoint>) -> Result<Option<Bounds>, Failure> {
    let Some(begin) = begin else { return Ok(None) };
    if begin.needs_end() && end.is_none() {
        return Err(Failure::Usage(format!(
            "where do units end that begin at {begin}? Say --unit-end WHERE"
        )));
    }
    Ok(Some(Bounds { begin: begin.clone(), end: end.cloned() }))
}

/// How long a unit may take of which nothing was learnt.
pub fn time(limit: Limit) -> Result<Ns, Failure> {
    match limit {
        Limit::Fixed(ns) if ns > 0 => Ok(ns),
        _ => Err(Failure::Usage(
            "how long may a unit take? Say a time, --threshold 50ms, or learn it first: pg-tui train --unit-begin WHERE"
                .into(),
        )),
    }
}
