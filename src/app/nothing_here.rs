//! What is said where a key does nothing: it may do something in another view.

use super::command::{Cmd, Context};
use super::state::{LogLine, State};
use crate::config::{Key, Keymap, Look, Lookup, keys::show_sequence};

/// Most views that are named.
const MOST: usize = 3;

/// Says that these keys do nothing in a view, and where they do something.
pub fn tell(state: &mut State, context: Context, keys: &[Key]) {
    let text = words(&state.config.keymap, context, keys);
    state.message = Some(LogLine { look: Look::Warning, text });
}

/// `x: nothing here; delete in notes, silence in violations`.
fn words(keymap: &Keymap, context: Context, keys: &[Key]) -> String {
    let pressed = show_sequence(keys);
    let mut found: Vec<(Cmd, Vec<&str>)> = Vec::new();
    let views = Context::ALL.iter().filter(|c| !matches!(c, Context::Text | Context::Help | Context::Live));
    for &c in views.filter(|c| **c != context) {
        let Lookup::Command(cmd) = keymap.lookup(c, keys) else { continue };
        // Of keys that mean the same everywhere those of other views tell nothing.
        if !cmd.row().contexts.contains(&c) {
            continue;
        }
        match found.iter_mut().find(|f| f.0 == cmd) {
            Some(f) => f.1.push(c.name()),
            None => found.push((cmd, vec![c.name()])),
        }
    }
    if found.is_empty() {
        return format!("no command on these keys; ? shows all ({pressed})");
    }
    let more = if found.len() > MOST { ", \u{2026}" } else { "" };
    let word = |cmd: Cmd| if cmd.row().hint.is_empty() { cmd.row().name } else { cmd.row().hint };
    let told: Vec<String> =
        found.iter().take(MOST).map(|(cmd, c)| format!("{} in {}", word(*cmd), c.join(" and "))).collect();
    format!("{pressed}: nothing here; {}{more}", told.join(", "))
}
