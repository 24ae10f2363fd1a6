//! Help and which-key: both are the command table, read out.

use super::parts::{Ui, left, width, wrap};
use super::timeline;
use crate::app::command::{COMMANDS, Cmd, Command, Context};
use crate::config::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// The lines of the help for a view: its own keys first. With something to find only what has it.
pub fn lines(ui: &Ui, context: Context, find: &str, columns: usize) -> Vec<Line<'static>> {
    let keymap = &ui.state.config.keymap;
    let keys_width = 14.min(columns / 3);
    let find = find.trim().to_lowercase();
    let mut out = Vec::new();
    let section = |title: String, of: Context, out: &mut Vec<Line<'static>>| {
        let here = |c: &&Command| c.contexts.contains(&of) && (of == Context::Text || c.applies(context));
        let before = out.len();
        for c in COMMANDS.iter().filter(here) {
            // Numbered choices are one thing to a person.
            if c.cmd.choice().is_some_and(|n| n > 1) {
                continue;
            }
            let keys = if c.cmd.choice().is_some() {
                "1-9".to_owned()
            } else {
                let lookup = if of == Context::Global || of == Context::List { context } else { of };
                keymap.keys_for(lookup, c.cmd).join(", ")
            };
            let doc = match c.cmd {
                _ if c.cmd.choice().is_some() => "Choose this option.",
                // There is no session.
                Cmd::Quit if context == Context::Live => "Leave pg-tui.",
                Cmd::Cancel if context == Context::Live => "Close what is open, or show all threads again.",
                _ => c.doc,
            };
            // A view has moves that others make, or none: then its keys do something else.
            if keys.is_empty() && of == Context::List {
                continue;
            }
            let has = |text: &str| text.to_lowercase().contains(&find);
            if !has(c.name) && !has(doc) && !has(&keys) {
                continue;
            }
            let text = wrap(&format!("{}: {doc}", c.name), columns.saturating_sub(keys_width + 4).max(10));
            let mut keys = wrap(&keys, keys_width).into_iter();
            for l in text {
                let k = keys.next().unwrap_or_default();
                out.push(Line::from(vec![
                    Span::raw("  "),
                    ui.span(Look::Key, left(&k, keys_width) + " "),
                    Span::raw(l),
                ]));
            }
            for k in keys {
                out.push(Line::from(vec![Span::raw("  "), ui.span(Look::Key, k)]));
            }
        }
        if out.len() > before {
            out.insert(before, Line::from(ui.span(Look::Title, title)));
            out.push(Line::default());
        }
    };
    section(format!("In this view ({context})"), context, &mut out);
    section("Moving about".into(), Context::List, &mut out);
    section("Everywhere".into(), Context::Global, &mut out);
    if !find.is_empty() {
        if out.is_empty() {
            out.push(Line::from(ui.span(Look::Dim, "  nothing in this help has that")));
        }
        return out;
    }
    if context == Context::Live {
        out.push(Line::from(ui.span(Look::Title, "Shapes")));
        let circle = Line::from(vec![
            Span::raw(" "),
            ui.span(Look::Cause, ui.g.circle),
            ui.span(Look::Dim, " waits in a circle: threads that wait for one another"),
        ]);
        out.extend([super::live::legend(ui), circle]);
        return out;
    }
    section("Where text is typed".into(), Context::Text, &mut out);
    out.push(Line::from(ui.span(Look::Title, "Shapes")));
    out.push(timeline::legend(ui));
    let mixed = " mixed (underlined): it also did something else within that column";
    out.push(Line::from(ui.span(Look::Dim, mixed)));
    out.push(Line::from(vec![
        Span::raw(" "),
        ui.span(Look::Runnable, ui.g.yielding),
        ui.span(Look::Dim, " repeated yield: a victim that asked again and again"),
    ]));
    let edges = vec![
        Span::raw(" "),
        ui.span(Look::StrongEdge, ui.g.strong),
        ui.span(Look::Dim, " strong edge: it made the other go on   "),
        ui.span(Look::WeakEdge, ui.g.weak),
        ui.span(Look::Dim, " weak edge: it need not have"),
    ];
    out.push(Line::from(edges));
    out
}

/// What may follow the keys pressed so far.
pub fn which_key(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = ui.state;
    let rows = s.config.keymap.continuations(s.context(), &s.pending);
    if rows.is_empty() || body.height < 3 {
        return;
    }
    let columns = usize::from(body.width);
    let each = 26.min(columns);
    let per_line = (columns / each).max(1);
    let height = (rows.len().div_ceil(per_line) + 1).min(usize::from(body.height)) as u16;
    let area = Rect { y: body.bottom() - height, height, ..body };
    Clear.render(area, buffer);
    let pressed = crate::config::keys::show_sequence(&s.pending);
    super::parts::rule(ui, buffer, area, &format!("{pressed} and then"), "esc: nothing");
    for (i, (key, cmd)) in rows.iter().enumerate() {
        let (x, y) = ((i % per_line * each) as u16, (i / per_line) as u16 + 1);
        if y >= height {
            break;
        }
        let room = each.saturating_sub(width(key) + 5);
        let line = Line::from(vec![
            Span::raw(" "),
            ui.span(Look::Key, key.clone()),
            Span::raw(format!("  {}", left(cmd.row().name, room))),
        ]);
        buffer.set_line(area.x + x, area.y + y, &line, each as u16);
    }
}
