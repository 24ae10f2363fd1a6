//! What a test asks of the wait of one thread.

use crate::truth::Truth;
use pg_event::{ObjectKind, OffState, Relation};
use pg_graph::report::{Report, RootCause};
use pg_graph::{
    BlockType, EdgeKind, Options, SelectError, Selection, Vertex, VertexId, VictimOptions, Weak,
    run_with_policy, select, waits_on,
};

/// The longest wait of a thread.
pub struct Wait<'a> {
    truth: &'a Truth,
    role: &'static str,
    id: VertexId,
    vertex: Vertex,
}

impl Truth {
    /// The longest wait of whoever played this part.
    pub fn wait(&self, role: &'static str) -> Wait<'_> {
        let (g, thread) = (&self.loaded.graph, self.thread(role));
        let longest = g.vertices_of(thread).max_by_key(|v| g.vertex(*v).waited());
        let id = longest.unwrap_or_else(|| panic!("{role} did nothing"));
        let wait = Wait { truth: self, role, id, vertex: g.vertex(id) };
        assert!(wait.vertex.waited() > 400_000_000, "{role} never waited long: {}", wait.shown());
        wait
    }

    /// The report on whoever played this part, answered by the policy.
    pub fn diagnose(&self, role: &str) -> Report {
        let (g, c) = (&self.loaded.graph, &self.loaded.catalog);
        let s = Selection { tid: Some(self.ids(role).1), ..Selection::default() };
        let v = select(g, c, &s, &VictimOptions::default()).unwrap_or_else(|e| panic!("{role}: {e}"));
        let (_, coverage) = self.loaded.info();
        run_with_policy(g, c, v, Options { coverage, ..Options::default() })
    }

    /// The first cause of what `role` suffers from is `cause`. What is said of it.
    pub fn caused_by(&self, role: &str, cause: &str) -> Said {
        self.caused_by_either(role, &[cause])
    }

    /// The same where two answers are true.
    pub fn caused_by_either(&self, role: &str, causes: &[&str]) -> Said {
        let report = self.diagnose(role);
        let said = Said { first: report.root_causes.first().cloned(), report };
        let first = said.first.as_ref().map(|c| (c.pid, c.tid));
        let is = |(pid, tid)| first == Some((Some(pid), Some(tid)));
        let fits = causes.iter().any(|cause| is(self.ids(cause)));
        assert!(fits, "{role}: the cause is {causes:?}, the report says {}", said.shown());
        said
    }
}

/// A diagnosis, and its first cause.
pub struct Said {
    first: Option<RootCause>,
    report: Report,
}

impl Said {
    fn shown(&self) -> String {
        let causes: Vec<_> = self.report.root_causes.iter().take(3).map(|c| c.why.as_str()).collect();
        let steps = self.report.slice.iter();
        let steps: Vec<_> = steps.map(|s| format!("{} {:?} {:?}", s.thread, s.waits_on, s.edge)).collect();
        format!("{causes:#?}\nalong {steps:#?}")
    }

    /// The victim hung in this way.
    pub fn victim(&self, block_type: BlockType) -> &Self {
        assert_eq!(self.report.victim.block_type, block_type, "{}", self.shown());
        self
    }

    /// The first cause's sentence has these words.
    pub fn says(&self, words: &str) -> &Self {
        let why = self.first.as_ref().map_or("", |c| c.why.as_str());
        assert!(why.contains(words), "no {words:?} in {}", self.shown());
        self
    }

    /// The sentence of the first cause or of another one has these words.
    pub fn tells(&self, words: &str) -> &Self {
        let has = self.report.root_causes.iter().any(|c| c.why.contains(words));
        assert!(has, "no {words:?} in {}", self.shown());
        self
    }

    /// Some step of the way is for this (a word of the report).
    pub fn passes(&self, waits_on: &str) -> &Self {
        let has = self.report.slice.iter().any(|s| s.waits_on.as_deref() == Some(waits_on));
        assert!(has, "no wait for {waits_on} in {}", self.shown());
        self
    }
}

impl Wait<'_> {
    fn shown(&self) -> String {
        let (t, v) = (self.truth, &self.vertex);
        let g = &t.loaded.graph;
        let edge = g.waking(self.id).map(|e| g.edge(e));
        let by = edge.map(|e| (t.name(g.vertex(e.from).thread), e.kind, e.weak));
        let what = t.loaded.catalog.object(v.object);
        let holds: Vec<_> = g
            .holds(v.thread, 0..u64::MAX)
            .map(|h| (t.name(h.holder), h.relation, h.time / 1_000_000))
            .collect();
        format!(
            "{} waited {} ms ({:?}, {:?}, {what:?}) until {} ms, ended by {by:?}, held by {holds:?}",
            self.role,
            v.waited() / 1_000_000,
            v.syscall,
            v.state,
            v.woken / 1_000_000
        )
    }

    /// Its own process asked for the connection that it waits on, and not the one at the other end.
    pub fn over_its_own_connection(&self) -> &Self {
        let c = &self.truth.loaded.catalog;
        let own = c.object(self.vertex.object).expect("what it waits on");
        assert!(own.connected, "{own:?}");
        let other = c.objects.iter().find(|o| o.is_other_end_of(own)).expect("the other end was used");
        assert!(!other.connected && other.name == own.name, "{other:?}");
        self
    }

    /// What it waited for is of this kind.
    pub fn on(&self, kind: ObjectKind) -> &Self {
        let found = self.truth.loaded.catalog.object(self.vertex.object).map(|o| o.kind);
        assert_eq!(found, Some(kind), "{}", self.shown());
        self
    }

    /// It waited within this system call.
    pub fn within(&self, call: &str) -> &Self {
        assert!(self.vertex.syscall.is_any(&[call]), "{}", self.shown());
        self
    }

    /// The report calls it so.
    pub fn called(&self, word: &str) -> &Self {
        let w = waits_on(&self.vertex, &self.truth.loaded.catalog);
        assert_eq!(w, Some(word), "{}", self.shown());
        self
    }

    /// The name of what it waits for begins so.
    pub fn named(&self, begin: &str) -> &Self {
        let o = self.truth.loaded.catalog.object(self.vertex.object);
        assert!(o.is_some_and(|o| o.name.starts_with(begin)), "{begin}: {o:?}, {}", self.shown());
        self
    }

    /// Its state.
    pub fn state(&self, state: OffState) -> &Self {
        assert_eq!(self.vertex.state, state, "{}", self.shown());
        self
    }

    /// An edge from `role` ended it: of this kind, strong or weak as given.
    pub fn ended_by(&self, role: &str, kind: EdgeKind, weak: Option<Weak>) -> &Self {
        let g = &self.truth.loaded.graph;
        let Some(e) = g.waking(self.id).map(|e| g.edge(e)) else { panic!("nobody: {}", self.shown()) };
        let from = g.vertex(e.from).thread;
        assert_eq!(from, self.truth.thread(role), "not by {role}: {}", self.shown());
        assert_eq!((e.kind, e.weak), (kind, weak), "{}", self.shown());
        self
    }

    /// A worker of the kernel ended it, since `role` had asked for that.
    pub fn ended_for(&self, role: &str) -> &Self {
        let t = self.truth;
        let (g, c) = (&t.loaded.graph, &t.loaded.catalog);
        let Some(e) = g.waking(self.id).map(|e| g.edge(e)) else { panic!("nobody: {}", self.shown()) };
        let worker = g.vertex(e.from).thread;
        if worker == t.thread(role) && e.kind == EdgeKind::Work {
            return self;
        }
        assert!(c.thread(worker).is_some_and(|w| w.kernel), "no worker: {}", self.shown());
        let asked: Vec<_> = g.incoming(e.from).map(|e| g.edge(e)).collect();
        let of = |e: &pg_graph::Edge| g.vertex(e.from).thread;
        let names: Vec<_> = asked.iter().map(|e| (t.name(of(e)), e.kind)).collect();
        let right = asked.iter().any(|e| of(e) == t.thread(role) && e.kind == EdgeKind::Work);
        assert!(right, "not for {role} but {names:?}: {}", self.shown());
        self
    }

    /// Its time-out ended it, nobody else.
    pub fn timed_out(&self) -> &Self {
        assert!(self.vertex.timed_out, "{}", self.shown());
        assert!(self.truth.loaded.graph.waking(self.id).is_none(), "{}", self.shown());
        self
    }

    /// It never ended by itself.
    pub fn lasted(&self) -> &Self {
        assert!(self.vertex.open || self.vertex.interrupted, "{}", self.shown());
        self
    }

    /// `role`, and nobody else, was seen to hold what it waited for, while it did.
    pub fn held_by(&self, role: &str, relation: Relation) -> &Self {
        let v = &self.vertex;
        let holds: Vec<_> = self.truth.loaded.graph.holds(v.thread, v.start..v.woken + 1).collect();
        let who = self.truth.thread(role);
        let right = holds.iter().any(|h| (h.holder, h.relation) == (who, relation));
        let wrong = holds.iter().any(|h| h.holder != who);
        assert!(right && !wrong, "not held by {role} alone: {}", self.shown());
        self
    }

    /// Nobody was seen to hold it.
    pub fn held_by_nobody(&self) -> &Self {
        let v = &self.vertex;
        let any = self.truth.loaded.graph.holds(v.thread, v.start..v.woken + 1).next();
        assert!(any.is_none(), "{}", self.shown());
        self
    }

    /// Nothing that a person would complain about: whoever waits so has nothing to do.
    pub fn innocent(&self) -> &Self {
        let (g, c) = (&self.truth.loaded.graph, &self.truth.loaded.catalog);
        let s = Selection { tid: Some(self.truth.ids(self.role).1), ..Selection::default() };
        let found = select(g, c, &s, &VictimOptions::default());
        assert!(matches!(found, Err(SelectError::NothingAbnormal(_))), "{found:?}: {}", self.shown());
        self
    }

    /// The diagnosis of it names `role` first.
    pub fn caused_by(&self, role: &str) -> Said {
        self.truth.caused_by(self.role, role)
    }
}
