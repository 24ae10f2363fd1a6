//! The sentence of a loop that gives the CPU up only to ask again.

use super::{Ranked, Writer};
use crate::EdgeKind;
use crate::diagnose::SliceNode;
use crate::profile::{Profile, profile};
use crate::words::{clean, short_who, span};
use crate::yields::{ASKS, YieldLoop, yield_loop};

impl Writer<'_> {
    /// What it does again and again, and who may let it go on.
    pub(super) fn why_yielding(
        &self,
        r: &Ranked,
        p: &Profile,
        full: &str,
        next: Option<&SliceNode>,
    ) -> String {
        let whole = crate::diagnose::spans_total(&r.spans);
        let f = p.function.as_ref().map_or_else(String::new, |f| {
            let module = p.module.as_ref().map_or_else(String::new, |m| format!(" ({m})"));
            format!(" in {}{module}", clean(f, 80))
        });
        let how = yield_loop(self.g, self.c, r.thread, &r.spans, p);
        let means = match (&how, next) {
            (Some(YieldLoop::Fails { .. }), Some(h)) => {
                format!("it waits for {}", self.full(h.thread, h.start + h.duration))
            }
            (_, Some(h)) if h.edge == Some(EdgeKind::Holder) => format!(
                "it asks again and again whether it may go on, and {} may let it",
                clean(&short_who(self.c, h.thread), 60)
            ),
            _ => how.as_ref().map_or(ASKS.into(), YieldLoop::means).into_owned(),
        };
        // A tight loop names its function itself.
        let f = if matches!(how, Some(YieldLoop::Spins { .. })) { String::new() } else { f };
        let how = how.map_or_else(|| "asked again and again".into(), |y| y.words_with(self.c));
        format!("{full} {how}{f} for {}: {means}", span(whole))
    }

    /// What a step did that ran in a loop which asks something, and for how long.
    pub(super) fn spun(&self, n: &SliceNode) -> Option<String> {
        let how = self.loop_of(n)?;
        Some(format!("{} for {}", how.words_with(self.c), span(n.spent)))
    }

    /// `, which asks done again and again,` of a step that ran in a loop which asks one variable.
    pub(super) fn asks_variable(&self, n: &SliceNode) -> String {
        let how = self.loop_of(n);
        let variable = how.as_ref().and_then(YieldLoop::variable);
        variable.map_or_else(String::new, |v| format!(", which asks {} again and again,", clean(v, 60)))
    }

    fn loop_of(&self, n: &SliceNode) -> Option<YieldLoop> {
        let spans = &[(n.start, n.start + n.duration)];
        let p = (n.state == "running").then(|| profile(self.g, self.c, n.thread, spans))?;
        yield_loop(self.g, self.c, n.thread, spans, &p)
    }
}
