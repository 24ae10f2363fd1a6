//! Processes and threads, with where their time went.

use super::parts::{Ui, bar, fit, left, nothing, right, rule, state_look, width};
use crate::app::recording::Recording;
use crate::app::time;
use crate::app::views::threads::{Branch, Node};
use crate::config::Look;
use pg_event::ProcessId;
use pg_graph::LaneState;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use tui_tree_widget::{Tree, TreeItem};

/// Widths of: name, bar, number of threads, shares (each). 0: left out.
struct Columns {
    name: usize,
    bar: usize,
    threads: usize,
    share: usize,
    wait: usize,
}

impl Columns {
    /// Room for names as far in as these, from what tells least.
    fn with_names(mut self, widest: usize) -> Self {
        let more = widest.saturating_sub(self.name);
        let of_wait = more.min(self.wait.saturating_sub(20));
        let of_bar = (more - of_wait).min(self.bar.saturating_sub(6));
        self.wait -= of_wait;
        self.bar -= of_bar;
        self.name += of_wait + of_bar;
        self
    }
}

/// Columns of the widest name with the branches before it, each cut to what tells it from others.
fn widest(branches: &[Branch], depth: usize) -> usize {
    let own = |b: &Branch| width(&b.name).min(NAME) + 1 + depth * 2;
    branches.iter().map(|b| own(b).max(widest(&b.children, depth + 1))).max().unwrap_or(0)
}

/// Columns that a name has however far in it stands.
const LEAST_NAME: usize = 10;

/// A name that is longer need not be seen whole.
const NAME: usize = 18;

fn columns(width: usize) -> Columns {
    match width {
        0..60 => Columns { name: width.saturating_sub(26), bar: 0, threads: 0, share: 7, wait: 0 },
        60..110 => {
            let bar = (width - 60) / 2 + 6;
            Columns { name: width - 4 - 5 - 1 - bar - 27 - 1, bar, threads: 5, share: 9, wait: 0 }
        }
        _ => {
            let bar = (width / 5).min(40);
            let name = (width / 4).min(50);
            Columns { name, bar, threads: 8, share: 10, wait: width - 4 - name - 8 - 1 - bar - 30 - 1 }
        }
    }
}

/// Draws the view.
pub fn draw(ui: &Ui, frame: &mut Frame, body: Rect) {
    let s = &ui.state.threads;
    let count = ui.recording().map_or(0, |r| r.groups().iter().map(|g| g.threads.len()).sum());
    let title =
        format!("Processes ({}) and threads ({count})", ui.recording().map_or(0, |r| r.groups().len()));
    let unit = if body.width >= 100 { "100 %: one thread all the time; " } else { "" };
    rule(ui, frame.buffer_mut(), body, &title, &format!("{unit}by {}", s.sort.word()));
    let c = columns(usize::from(body.width)).with_names(widest(&s.roots, 0));
    let head = head(ui, &c);
    frame.buffer_mut().set_line(body.x, body.y + 1, &head, body.width);
    let legend = legend(ui);
    let tall = body.height >= 9;
    // Where there is no column for command lines, that of the selected process has a line.
    let told = body.height >= 8 && c.wait == 0;
    if tall {
        let legend = fit(ui, legend, usize::from(body.width));
        frame.buffer_mut().set_line(body.x, body.bottom() - 1, &legend, body.width);
    }
    if told && let Some(line) = selected_command(ui, usize::from(body.width)) {
        let y = body.bottom() - 1 - u16::from(tall);
        frame.buffer_mut().set_line(body.x, y, &line, body.width);
    }
    let below = u16::from(tall) + u16::from(told);
    let area = Rect { y: body.y + 2, height: body.height.saturating_sub(2 + below), ..body };
    let items: Vec<TreeItem<Node>> =
        s.roots.iter().filter_map(|b| item(ui, b, &c, &mut Vec::new())).collect();
    if items.is_empty() {
        nothing(ui, frame.buffer_mut(), area, "No thread was seen.");
        return;
    }
    // Ids of siblings are unique, so the widget has nothing to complain about.
    let Ok(tree) = Tree::new(&items) else { return };
    let closed = format!("{} ", ui.g.closed);
    let opened = format!("{} ", ui.g.opened);
    let tree = tree
        .highlight_style(Style { fg: None, ..ui.style(Look::Selected) })
        .highlight_symbol(if ui.g.ascii { "> " } else { "▶ " })
        .node_closed_symbol(&closed)
        .node_open_symbol(&opened)
        .node_no_children_symbol("  ");
    frame.render_stateful_widget(tree, area, &mut s.tree.borrow_mut());
}

fn head(ui: &Ui, c: &Columns) -> Line<'static> {
    let mut text = format!("    {}", left("name", c.name));
    if c.threads > 0 {
        text += &right(if c.threads >= 8 { "threads" } else { "thr" }, c.threads);
    }
    if c.bar > 0 {
        text.push(' ');
        text += &left("where its time went", c.bar);
    }
    for name in if c.share < 8 { ["cpu", "rq", "wait"] } else { ["on CPU", "runnable", "blocked"] } {
        text += &right(name, c.share);
    }
    if c.wait > 0 {
        text += "   command";
    }
    Line::from(ui.span(Look::Dim, text))
}

fn legend(ui: &Ui) -> Line<'static> {
    let mut spans = vec![Span::raw("  ")];
    for (state, name) in [
        (LaneState::Running, "on CPU"),
        (LaneState::Runnable, "runnable"),
        (LaneState::Blocked, "blocked"),
        (LaneState::Disk, "disk"),
        (LaneState::Throttled, "throttled"),
        (LaneState::Stopped, "stopped"),
        (LaneState::Lost, "not seen"),
    ] {
        spans.push(ui.span(state_look(state), ui.glyph(state)));
        spans.push(ui.span(Look::Dim, format!(" {name}  ")));
    }
    Line::from(spans)
}

/// The command line of a process, and in which container it is.
fn command(r: &Recording, p: ProcessId) -> String {
    r.catalog.process(p).map_or_else(String::new, |p| {
        let inside = pg_graph::words::inside(p);
        if inside.is_empty() { p.cmdline().to_owned() } else { format!("[{inside}] {}", p.cmdline()) }
    })
}

/// That of the selected process, or of the process of the selected thread.
fn selected_command(ui: &Ui, columns: usize) -> Option<Line<'static>> {
    let r = ui.recording()?;
    let process = r.catalog.thread(ui.state.threads.thread(r)?)?.process;
    let text = command(r, process);
    let text = if text.is_empty() { "(it has no command line)".to_owned() } else { ui.plain(&text) };
    let text = crate::clean::clean_to(&text, columns.saturating_sub(12));
    Some(Line::from(vec![ui.span(Look::Dim, "  command  "), Span::raw(text)]))
}

/// A line with those under it; `path`: those above it.
fn item<'a>(ui: &Ui, b: &'a Branch, c: &Columns, path: &mut Vec<Node>) -> Option<TreeItem<'a, Node>> {
    let depth = path.len();
    path.push(b.node);
    let open = ui.state.threads.tree.borrow().opened().contains(path.as_slice());
    // A folded line stands for all that it hides.
    let all = (!open).then(|| b.whole());
    let (shown, hidden) = all.as_ref().map_or((b, 0), |(all, n)| (all, *n));
    let t = &shown.times;
    let (whole, lasted) = (t.total(), shown.lasted());
    // So far in that no name fits, the shares make room: who it is tells more.
    let room = c.name.saturating_sub(depth * 2).max(LEAST_NAME);
    let more = if hidden > 0 { format!(" +{hidden}") } else { String::new() };
    let name = crate::clean::clean_to(&ui.plain(&b.name), room.saturating_sub(width(&more)));
    let look = if b.focus { Look::Strong } else { Look::Text };
    let aside = left(&more, room - width(&name));
    let mut spans = vec![ui.span(look, name), ui.span(Look::Dim, aside)];
    if c.threads > 0 {
        let n = if matches!(b.node, Node::Process(_)) { shown.threads.to_string() } else { String::new() };
        spans.push(ui.span(Look::Dim, right(&n, c.threads)));
    }
    if c.bar > 0 {
        let part = |s: LaneState| (t.get(s), ui.glyph(s), ui.style(state_look(s)));
        let running = (t.running(), ui.g.running, ui.style(Look::Running));
        let parts = [
            running,
            part(LaneState::Runnable),
            part(LaneState::Throttled),
            part(LaneState::Blocked),
            part(LaneState::Disk),
            part(LaneState::Stopped),
            part(LaneState::Lost),
        ];
        spans.push(Span::raw(" "));
        spans.extend(bar(&parts, whole, c.bar, (ui.g.idle, ui.style(Look::Idle))));
    }
    for (part, look) in [
        (t.running(), Look::Running),
        (t.runnable(), Look::Runnable),
        (t.blocked() - t.get(LaneState::Idle), Look::Text),
    ] {
        let text = right(&time::percent(part, lasted), c.share);
        spans.push(if part == 0 { ui.span(Look::Idle, text) } else { ui.span(look, text) });
    }
    if c.wait > 0
        && let (Node::Process(p), Some(r)) = (b.node, ui.recording())
    {
        let text = command(r, p);
        spans.push(ui.span(
            Look::Dim,
            format!("   {}", crate::clean::clean_to(&ui.plain(&text), c.wait.saturating_sub(3))),
        ));
    }
    let children: Vec<TreeItem<Node>> = b.children.iter().filter_map(|x| item(ui, x, c, path)).collect();
    path.pop();
    TreeItem::new(b.node, Line::from(spans), children).ok()
}
