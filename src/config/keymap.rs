//! The keymap: from context and keys to commands. Its default is `assets/keymap.toml`.

use super::keys::{Key, parse_sequence, show_sequence};
use super::{ConfigError, line_of};
use crate::app::command::{Cmd, Context};
use std::collections::{BTreeMap, HashMap};
use toml::Spanned;

/// The keymap as it is built in.
pub const DEFAULT: &str = include_str!("../../assets/keymap.toml");

/// A section of a keymap as written: keys to a command's name.
pub type Section = BTreeMap<Spanned<String>, Spanned<String>>;

/// What keys lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// A command.
    Command(Cmd),
    /// More keys have to follow.
    Prefix,
    /// Nothing.
    Nothing,
}

/// Keys to commands, per context.
#[derive(Clone, Debug, Default)]
pub struct Keymap {
    bindings: HashMap<Context, Vec<(Vec<Key>, Cmd)>>,
}

impl Keymap {
    /// The default.
    ///
    /// # Errors
    /// Never for the file as shipped; a test holds it to that.
    pub fn builtin() -> Result<Self, ConfigError> {
        let sections: BTreeMap<Spanned<String>, Section> =
            toml::from_str(DEFAULT).map_err(|e| ConfigError::toml("assets/keymap.toml", DEFAULT, &e))?;
        let mut map = Self::default();
        map.merge("assets/keymap.toml", DEFAULT, &sections)?;
        Ok(map)
    }

    /// Lays the sections of a file over what is there. The command `none` takes a key away.
    ///
    /// # Errors
    /// An unknown context, key or command, with file and line.
    pub fn merge(
        &mut self,
        file: &str,
        text: &str,
        sections: &BTreeMap<Spanned<String>, Section>,
    ) -> Result<(), ConfigError> {
        for (name, section) in sections {
            let at = |span: std::ops::Range<usize>, what: String| ConfigError {
                file: file.to_owned(),
                line: line_of(text, span.start),
                what,
            };
            let Some(context) = Context::from_name(name.get_ref()) else {
                let known = Context::ALL.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
                return Err(at(
                    name.span(),
                    format!("no view is called `{}` (known: {known})", name.get_ref()),
                ));
            };
            let here = self.bindings.entry(context).or_default();
            for (keys, command) in section {
                let sequence = parse_sequence(keys.get_ref()).map_err(|e| at(keys.span(), e))?;
                here.retain(|(k, _)| *k != sequence);
                if command.get_ref() == "none" {
                    continue;
                }
                let Some(cmd) = Cmd::from_name(command.get_ref()) else {
                    return Err(at(
                        command.span(),
                        format!(
                            "no command is called `{}`{}",
                            command.get_ref(),
                            did_you_mean(command.get_ref())
                        ),
                    ));
                };
                if !cmd.row().applies(context) {
                    return Err(at(
                        command.span(),
                        format!("`{}` means nothing in [{context}]", command.get_ref()),
                    ));
                }
                // A sequence and its own beginning cannot both be bound: the longer would never be reached.
                if let Some((other, _)) = here
                    .iter()
                    .find(|(k, _)| k.len() != sequence.len() && k.iter().zip(&sequence).all(|(a, b)| a == b))
                {
                    return Err(at(
                        keys.span(),
                        format!(
                            "`{}` and `{}` cannot both be keys in [{context}]: one begins with the other",
                            keys.get_ref(),
                            show_sequence(other)
                        ),
                    ));
                }
                here.push((sequence, cmd));
            }
        }
        Ok(())
    }

    fn order(context: Context) -> &'static [Context] {
        match context {
            Context::Text | Context::Global => &[],
            Context::List => &[Context::Global],
            _ => &[Context::List, Context::Global],
        }
    }

    fn contexts(context: Context) -> impl Iterator<Item = Context> {
        std::iter::once(context).chain(Self::order(context).iter().copied())
    }

    /// What these keys lead to.
    pub fn lookup(&self, context: Context, keys: &[Key]) -> Lookup {
        let mut prefix = false;
        for c in Self::contexts(context) {
            for (sequence, cmd) in self.bindings.get(&c).into_iter().flatten() {
                if sequence == keys {
                    // A longer sequence of a nearer context has been seen: it keeps its meaning.
                    return if prefix { Lookup::Prefix } else { Lookup::Command(*cmd) };
                }
                prefix |= sequence.starts_with(keys);
            }
        }
        if prefix { Lookup::Prefix } else { Lookup::Nothing }
    }

    /// What may follow these keys: rest of the sequence and command. For which-key.
    pub fn continuations(&self, context: Context, keys: &[Key]) -> Vec<(String, Cmd)> {
        let mut out: Vec<(String, Cmd)> = Vec::new();
        for c in Self::contexts(context) {
            for (sequence, cmd) in self.bindings.get(&c).into_iter().flatten() {
                if sequence.len() > keys.len() && sequence.starts_with(keys) {
                    let rest = show_sequence(&sequence[keys.len()..]);
                    if !out.iter().any(|(k, _)| *k == rest) {
                        out.push((rest, *cmd));
                    }
                }
            }
        }
        out.sort();
        out
    }

    /// Keys that run a command in a context, the handiest first.
    pub fn keys_for(&self, context: Context, cmd: Cmd) -> Vec<String> {
        let mut keys: Vec<&Vec<Key>> = Vec::new();
        for c in Self::contexts(context) {
            for (sequence, bound) in self.bindings.get(&c).into_iter().flatten() {
                // A nearer context may have taken the key for something else.
                if *bound == cmd && self.lookup(context, sequence) == Lookup::Command(cmd) {
                    keys.push(sequence);
                }
            }
        }
        let enter = Key::plain(crossterm::event::KeyCode::Enter);
        keys.sort_by_key(|k| {
            let written = k.iter().map(|k| k.to_string().len()).sum::<usize>();
            (k.first() != Some(&enter), k.len(), written)
        });
        let mut out: Vec<String> = keys.into_iter().map(|k| show_sequence(k)).collect();
        out.dedup();
        out
    }
}

fn did_you_mean(name: &str) -> String {
    let best = crate::app::command::COMMANDS
        .iter()
        .map(|c| (distance(c.name, name), c.name))
        .min()
        .filter(|(d, _)| *d <= 3);
    best.map_or(String::new(), |(_, n)| format!("; did you mean `{n}`?"))
}

/// Edits between two short names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(40).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::command::COMMANDS;

    fn keys(text: &str) -> Vec<Key> {
        parse_sequence(text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn merged(text: &str) -> Result<Keymap, ConfigError> {
        let mut map = Keymap::builtin()?;
        let sections: BTreeMap<Spanned<String>, Section> =
            toml::from_str(text).unwrap_or_else(|e| panic!("{e}"));
        map.merge("x.toml", text, &sections)?;
        Ok(map)
    }

    #[test]
    fn every_command_can_be_reached_by_a_key() {
        let map = Keymap::builtin().unwrap_or_else(|e| panic!("{e}"));
        for c in COMMANDS {
            for context in c.contexts {
                assert!(!map.keys_for(*context, c.cmd).is_empty(), "{} has no key in {context}", c.name);
            }
        }
    }

    #[test]
    fn nearer_contexts_win() {
        let map = Keymap::builtin().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(map.lookup(Context::Victims, &keys("L")), Lookup::Command(Cmd::GoLog));
        assert_eq!(map.lookup(Context::Timeline, &keys("L")), Lookup::Command(Cmd::PanRight));
        assert_eq!(map.lookup(Context::Timeline, &keys("g")), Lookup::Prefix);
        assert_eq!(map.lookup(Context::Timeline, &keys("g g")), Lookup::Command(Cmd::First));
        assert_eq!(map.lookup(Context::Text, &keys("q")), Lookup::Nothing);
        assert!(map.continuations(Context::Victims, &keys("g")).len() > 6);
    }

    #[test]
    fn users_change_and_take_away() {
        let map =
            merged("[timeline]\n\"i\" = \"zoom-in\"\n\"+\" = \"none\"\n").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(map.lookup(Context::Timeline, &keys("i")), Lookup::Command(Cmd::ZoomIn));
        assert_eq!(map.lookup(Context::Timeline, &keys("+")), Lookup::Nothing);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, part) in [
            ("[timelin]\n", 1, "no view is called `timelin`"),
            ("[timeline]\n\n\"i\" = \"zoom-inn\"\n", 3, "did you mean `zoom-in`"),
            ("[timeline]\n\"hyper-i\" = \"zoom-in\"\n", 2, "no key is called `hyper-i`"),
            ("[log]\n\"i\" = \"zoom-in\"\n", 2, "means nothing in [log]"),
            ("[global]\n\"g\" = \"quit\"\n", 2, "one begins with the other"),
        ] {
            let Err(e) = merged(text) else { panic!("accepted: {text}") };
            assert_eq!(e.line, line, "{e}");
            assert!(e.to_string().contains(part), "{e}");
        }
    }
}
