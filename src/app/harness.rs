//! Runs a session in a test: keys in, screen out, jobs at once.

use super::jobs::{Done, Job};
use super::msg::{Effect, Load};
use super::recording::Recording;
use super::{Msg, State, prepare, update};
use crate::config::{Config, Environment, Overrides, keys::parse_key};
use crate::draw;
use crate::session::Header;
use crossterm::event::{Event as Input, KeyEvent};
use pg_event::{Catalog, Coverage, Display, Event, Item, Kind, ObjectId, ThreadId, Unserved};
use pg_graph::{BuildOptions, Builder};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

#[path = "../../tests/fixtures/shop.rs"]
mod shop;

#[path = "../../tests/fixtures/painted.rs"]
mod painted;

#[path = "../../tests/fixtures/slow.rs"]
mod slow;

#[path = "../../tests/fixtures/walked.rs"]
mod walked;

/// A session under test.
pub struct Session {
    /// Its state.
    pub state: State,
    terminal: Terminal<TestBackend>,
    /// What was asked of the outside, jobs left out.
    pub asked: Vec<Effect>,
}

/// The hand-made recording of a shop that waits.
pub fn recording() -> Recording {
    let mut r = built("shop", shop::items());
    // 2026-11-25 09:10:12 UTC.
    r.header.start_wall = 1_795_597_812_000_000_000;
    r
}

/// The same, in which shopd is the client of a display and leaves its events waiting meanwhile.
pub fn unserved() -> Recording {
    const S: u64 = 1_000_000_000;
    let mut items = shop::items();
    let object = ObjectId(0);
    let u = Unserved {
        object,
        since: 11 * S / 10,
        until: 5 * S,
        bytes: 96,
        open: false,
        arrived: true,
        display: Display::X11,
    };
    let event = Event { time: 5 * S, thread: ThreadId(0), cpu: 0, kind: Kind::Unserved(u) };
    for item in &mut items {
        if let Item::Events(events) = item {
            events.push(event);
            events.sort_by_key(|e| e.time);
        }
    }
    built("shop", items)
}

/// The same, in which nobody had to do with the process of the evil name.
pub fn stranger() -> Recording {
    let mut items = shop::items();
    for item in &mut items {
        let Item::Events(events) = item else { continue };
        for e in events {
            if let Kind::OffCpu(o) = &mut e.kind
                && o.waker == ThreadId(4)
            {
                o.waker = ThreadId::NONE;
            }
        }
    }
    built("shop", items)
}

/// The hand-made recording of a loop that asks for a data flag.
pub fn painted() -> Recording {
    built("shell", painted::items())
}

/// The hand-made recording of a loop that was followed instruction by instruction.
pub fn walked() -> Recording {
    built("asker", walked::items())
}

/// What the first one is made of.
pub fn shop_items() -> Vec<Item> {
    shop::items()
}

/// What the next one is made of.
pub fn slow_items() -> Vec<Item> {
    slow::items()
}

/// The hand-made recording of a guarded server, some of whose units took too long.
pub fn slow() -> Recording {
    built("shopd", slow_items())
}

/// A recording in which nothing happened.
pub fn empty() -> Recording {
    built("nothing", vec![Item::End { duration: 0, coverage: Coverage::default() }])
}

/// A recording of these items.
pub fn built(name: &str, items: Vec<Item>) -> Recording {
    let mut catalog = Catalog::default();
    let mut builder = Builder::new(BuildOptions::default());
    let (mut duration, mut coverage) = (0, Coverage::default());
    for item in items {
        match item {
            Item::Catalog(d) => assert_eq!(catalog.apply(d), 0),
            Item::Events(e) => builder.events(&e, &catalog),
            Item::End { duration: d, coverage: c } => (duration, coverage) = (d, c),
        }
    }
    let graph = builder.finish(duration, &catalog);
    let header =
        Header { host: "db7".into(), kernel: "6.18".into(), focus: "shopd".into(), ..Header::default() };
    Recording::new(format!("{name}.pgs").into(), header, catalog, graph, coverage, Vec::new(), None)
}

impl Session {
    /// Before anything is loaded.
    pub fn loading(width: u16, height: u16, theme: &str, ascii: bool) -> Self {
        let environment = Environment { term: "xterm-256color".into(), ..Environment::default() };
        let overrides = Overrides { theme: Some(theme.into()), ascii };
        let config =
            Config::from_text("test", "", &environment, &overrides).unwrap_or_else(|e| panic!("{e}"));
        let backend = TestBackend::new(width, height);
        let Ok(terminal) = Terminal::new(backend);
        let mut s = Self {
            state: State::new(config, "shop.pgs".into(), (width, height)),
            terminal,
            asked: Vec::new(),
        };
        s.draw();
        s
    }

    /// With the hand-made recording.
    pub fn new(width: u16, height: u16, ascii: bool) -> Self {
        Self::with(recording(), width, height, ascii)
    }

    /// With another one.
    pub fn with(recording: Recording, width: u16, height: u16, ascii: bool) -> Self {
        let mut s = Self::loading(width, height, "dark", ascii);
        s.send(Msg::Load(Load::Ready(Arc::new(recording))));
        s
    }

    /// Takes a message in, runs the jobs it starts, and draws.
    pub fn send(&mut self, msg: Msg) {
        let mut inbox = VecDeque::from([msg]);
        while let Some(msg) = inbox.pop_front() {
            update(&mut self.state, msg);
            for effect in std::mem::take(&mut self.state.effects) {
                match effect {
                    Effect::Run(Job::Copy(_, _, what)) => {
                        inbox.push_back(Msg::Job(Done::Copied(what, Ok(None))));
                    }
                    Effect::Run(job) => {
                        let out = RefCell::new(Vec::new());
                        job.run(&|m| out.borrow_mut().push(m));
                        inbox.extend(out.into_inner());
                    }
                    other => self.asked.push(other),
                }
            }
        }
        self.draw();
    }

    /// Presses keys, written with spaces between them; `'text'` is typed character by character.
    pub fn keys(&mut self, keys: &str) {
        for word in keys.split(' ') {
            if let Some(text) = word.strip_prefix('\'').filter(|t| !t.is_empty()) {
                for c in text.trim_end_matches('\'').chars() {
                    self.key(&c.to_string());
                }
            } else {
                self.key(word);
            }
        }
    }

    fn key(&mut self, text: &str) {
        let k = parse_key(text).unwrap_or_else(|e| panic!("{e}"));
        self.send(Msg::Input(Input::Key(KeyEvent::new(k.code, k.mods))));
    }

    /// Another size of the screen.
    pub fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
        self.send(Msg::Input(Input::Resize(width, height)));
    }

    fn draw(&mut self) {
        prepare(&mut self.state);
        let Ok(_) = self.terminal.draw(|f| crate::ui::draw(f, &self.state));
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        let b = self.terminal.backend().buffer();
        let mut out = String::new();
        for y in 0..b.area.height {
            let mut line = String::new();
            let mut skip = 0;
            for x in 0..b.area.width {
                let symbol = b[(x, y)].symbol();
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                skip = crate::ui::columns_of(symbol).saturating_sub(1);
                line.push_str(symbol);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// Is this text on the screen?
    pub fn shows(&self, text: &str) -> bool {
        self.screen().contains(text)
    }
}
