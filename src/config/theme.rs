//! Themes (colours) and glyphs (shapes). Nothing is told by colour alone: every state has a shape of its own.

use super::{ConfigError, line_of};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use std::collections::BTreeMap;
use toml::Spanned;

/// What a piece of the screen is; a theme gives each of these a style.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Look {
    /// Ordinary text.
    Text,
    /// Less important text.
    Dim,
    /// Names that matter.
    Strong,
    /// Titles of panes, column heads.
    Title,
    /// Borders.
    Border,
    /// Keys in hints and help.
    Key,
    /// The status line.
    Status,
    /// The selected line.
    Selected,
    /// The cursor in the timeline.
    Cursor,
    /// A marked span.
    Marked,
    /// What a search matched.
    Match,
    /// On the CPU.
    Running,
    /// Runnable, waiting for a CPU.
    Runnable,
    /// Blocked.
    Blocked,
    /// Blocked on a disk or another uninterruptible wait.
    Disk,
    /// Held back: throttled, stopped, traced, frozen.
    Stopped,
    /// Idle, or nothing to see.
    Idle,
    /// Events were lost here.
    Lost,
    /// A wake-up arrow.
    Arrow,
    /// A strong edge.
    StrongEdge,
    /// A weak edge.
    WeakEdge,
    /// A victim.
    Victim,
    /// A root cause.
    Cause,
    /// A bookmark or note.
    Note,
    /// Something went wrong.
    Error,
    /// Something to know about.
    Warning,
    /// Something went well.
    Good,
}

const LOOKS: &[(&str, Look)] = &[
    ("text", Look::Text),
    ("dim", Look::Dim),
    ("strong", Look::Strong),
    ("title", Look::Title),
    ("border", Look::Border),
    ("key", Look::Key),
    ("status", Look::Status),
    ("selected", Look::Selected),
    ("cursor", Look::Cursor),
    ("marked", Look::Marked),
    ("match", Look::Match),
    ("running", Look::Running),
    ("runnable", Look::Runnable),
    ("blocked", Look::Blocked),
    ("disk", Look::Disk),
    ("stopped", Look::Stopped),
    ("idle", Look::Idle),
    ("lost", Look::Lost),
    ("arrow", Look::Arrow),
    ("strong-edge", Look::StrongEdge),
    ("weak-edge", Look::WeakEdge),
    ("victim", Look::Victim),
    ("cause", Look::Cause),
    ("note", Look::Note),
    ("error", Look::Error),
    ("warning", Look::Warning),
    ("good", Look::Good),
];

/// A theme as written: `base` (another theme's name), and a style for each look, `"#rrggbb on 236 bold"`.
pub type ThemeFile = BTreeMap<Spanned<String>, Spanned<String>>;

/// Colours by name of what they mean.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Theme {
    /// Its name.
    pub name: String,
    styles: [Style; LOOKS.len()],
}

impl Theme {
    /// The style of a look.
    pub fn style(&self, look: Look) -> Style {
        self.styles[look as usize]
    }
}

/// The themes built in.
pub(super) fn builtin() -> Result<Vec<Theme>, ConfigError> {
    let mut out: Vec<Theme> = Vec::new();
    for (name, text) in [
        ("dark", include_str!("../../assets/themes/dark.toml")),
        ("light", include_str!("../../assets/themes/light.toml")),
        ("16", include_str!("../../assets/themes/16.toml")),
        ("none", include_str!("../../assets/themes/none.toml")),
    ] {
        let file = format!("assets/themes/{name}.toml");
        let parsed: ThemeFile = toml::from_str(text).map_err(|e| ConfigError::toml(&file, text, &e))?;
        let theme = build(name, &parsed, &out).map_err(|(offset, what)| ConfigError {
            line: line_of(text, offset),
            file,
            what,
        })?;
        out.push(theme);
    }
    Ok(out)
}

/// Makes a theme of a file. The error is an offset and a sentence.
pub(super) fn build(name: &str, file: &ThemeFile, known: &[Theme]) -> Result<Theme, (usize, String)> {
    let base = file.iter().find(|(k, _)| k.get_ref() == "base").map(|(_, v)| v);
    let mut theme = match base {
        None => known.first().cloned().unwrap_or_default(),
        Some(base) => known.iter().find(|t| t.name == *base.get_ref()).cloned().ok_or_else(|| {
            let names = known.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
            (base.span().start, format!("no theme is called `{}` (known: {names})", base.get_ref()))
        })?,
    };
    name.clone_into(&mut theme.name);
    for (key, value) in file.iter().filter(|(k, _)| k.get_ref() != "base") {
        let Some((_, look)) = LOOKS.iter().find(|(n, _)| n == key.get_ref()) else {
            let names = LOOKS.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
            return Err((
                key.span().start,
                format!("a theme has no `{}` (known: base, {names})", key.get_ref()),
            ));
        };
        theme.styles[*look as usize] = parse_style(value.get_ref()).map_err(|e| (value.span().start, e))?;
    }
    Ok(theme)
}

/// Reads `green`, `#a0c0ff on 236 bold underline`, `reset`.
fn parse_style(text: &str) -> Result<Style, String> {
    let mut style = Style::new();
    let mut background = false;
    for word in text.split_ascii_whitespace() {
        let modifier = match word {
            "on" => {
                background = true;
                continue;
            }
            "bold" => Modifier::BOLD,
            "dim" => Modifier::DIM,
            "italic" => Modifier::ITALIC,
            "underline" => Modifier::UNDERLINED,
            "reverse" => Modifier::REVERSED,
            _ => {
                let color: Color = word.parse().map_err(|_| {
                    format!(
                        "`{word}` is no colour (write #rrggbb, 0 to 255, or a name like green or lightblue; \
                         `on` before the background; bold, dim, italic, underline, reverse)"
                    )
                })?;
                style = if background { style.bg(color) } else { style.fg(color) };
                background = false;
                continue;
            }
        };
        style = style.add_modifier(modifier);
    }
    if background {
        return Err(format!("`{text}`: a colour is missing after `on`"));
    }
    Ok(style)
}

/// Shapes, each exactly one column wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glyphs {
    /// Only ASCII.
    pub ascii: bool,
    /// On the CPU.
    pub running: &'static str,
    /// Runnable.
    pub runnable: &'static str,
    /// It asked again and again, waiting shortly in between: a repeated yield.
    pub yielding: &'static str,
    /// Blocked.
    pub blocked: &'static str,
    /// Disk or another uninterruptible wait.
    pub disk: &'static str,
    /// Held back by a CPU quota.
    pub throttled: &'static str,
    /// Stopped, traced, frozen.
    pub stopped: &'static str,
    /// Idle.
    pub idle: &'static str,
    /// Not born yet or ended.
    pub absent: &'static str,
    /// Events lost.
    pub lost: &'static str,
    /// Nothing is known.
    pub unknown: &'static str,
    /// The selected line.
    pub pointer: &'static str,
    /// Closed and open branches of a tree.
    pub closed: &'static str,
    /// See `closed`.
    pub opened: &'static str,
    /// Up, from one step to the one that caused it.
    pub caused_by: &'static str,
    /// A step that is part of a circular wait.
    pub circle: &'static str,
    /// The root cause, in the slice.
    pub cause: &'static str,
    /// A line that goes on.
    pub line: &'static str,
    /// The end of a line.
    pub end: &'static str,
    /// A strong edge, three columns.
    pub strong: &'static str,
    /// A weak edge, three columns.
    pub weak: &'static str,
    /// Arrow heads.
    pub up: &'static str,
    /// See `up`.
    pub down: &'static str,
    /// Vertical line of an arrow.
    pub vertical: &'static str,
    /// Where an arrow begins.
    pub origin: &'static str,
    /// Bookmark.
    pub bookmark: &'static str,
    /// Full and empty part of a bar.
    pub full: &'static str,
    /// See `full`.
    pub empty: &'static str,
    /// Steps of a sparkline, lowest first.
    pub spark: [&'static str; 8],
    /// Something cut off.
    pub more: &'static str,
    /// "from": who made it go on.
    pub from: &'static str,
    /// Borders.
    pub border: border::Set<'static>,
}

impl Glyphs {
    /// For terminals that show Unicode.
    pub fn unicode() -> Self {
        Self {
            ascii: false,
            running: "●",
            runnable: "◇",
            yielding: "≈",
            blocked: "■",
            disk: "◆",
            throttled: "▒",
            stopped: "▣",
            idle: "·",
            absent: " ",
            lost: "!",
            unknown: "?",
            pointer: "▶",
            closed: "▸",
            opened: "▾",
            caused_by: "↑",
            circle: "↺",
            cause: "★",
            line: "│",
            end: "▼",
            strong: "═══",
            weak: "───",
            up: "▲",
            down: "▼",
            vertical: "│",
            origin: "○",
            bookmark: "⚑",
            full: "█",
            empty: "░",
            spark: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
            more: "…",
            from: "←",
            border: border::PLAIN,
        }
    }

    /// For terminals that do not.
    pub fn ascii() -> Self {
        Self {
            ascii: true,
            running: "#",
            runnable: "r",
            yielding: "y",
            blocked: "=",
            disk: "D",
            throttled: "q",
            stopped: "T",
            idle: ".",
            absent: " ",
            lost: "!",
            unknown: "?",
            pointer: ">",
            closed: "+",
            opened: "-",
            caused_by: "^",
            circle: "o",
            cause: "*",
            line: "|",
            end: "v",
            strong: "===",
            weak: "---",
            up: "^",
            down: "v",
            vertical: "|",
            origin: "o",
            bookmark: "*",
            full: "#",
            empty: ".",
            spark: ["_", ".", ":", "-", "=", "+", "*", "#"],
            more: "~",
            from: "<",
            border: border::Set {
                top_left: "+",
                top_right: "+",
                bottom_left: "+",
                bottom_right: "+",
                vertical_left: "|",
                vertical_right: "|",
                horizontal_top: "-",
                horizontal_bottom: "-",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn looks_are_listed_in_order() {
        for (i, (name, look)) in LOOKS.iter().enumerate() {
            assert_eq!(*look as usize, i, "{name}");
        }
    }

    #[test]
    fn default_colours_are_the_terminals_own() {
        for theme in builtin().unwrap_or_else(|e| panic!("{e}")) {
            let text = theme.style(Look::Text);
            assert!(matches!(text.fg, None | Some(Color::Reset)), "{}", theme.name);
            assert!(matches!(text.bg, None | Some(Color::Reset)), "{}", theme.name);
            if theme.name == "none" {
                for (name, look) in LOOKS {
                    let s = theme.style(*look);
                    let plain = |c: Option<Color>| matches!(c, None | Some(Color::Reset));
                    assert!(plain(s.fg) && plain(s.bg), "{name} has a colour without colours");
                }
            }
            if theme.name == "16" {
                for (name, look) in LOOKS {
                    for c in [theme.style(*look).fg, theme.style(*look).bg].into_iter().flatten() {
                        assert!(!matches!(c, Color::Rgb(..) | Color::Indexed(16..)), "{name}: {c}");
                    }
                }
            }
        }
    }

    #[test]
    fn states_differ_by_shape_and_take_one_column() {
        for g in [Glyphs::unicode(), Glyphs::ascii()] {
            let states = [
                g.running,
                g.runnable,
                g.yielding,
                g.throttled,
                g.blocked,
                g.disk,
                g.stopped,
                g.idle,
                g.absent,
                g.lost,
                g.unknown,
            ];
            for (i, a) in states.iter().enumerate() {
                assert_eq!(a.width(), 1, "{a}");
                assert!(states[i + 1..].iter().all(|b| a != b), "{a} twice");
                assert!(!g.ascii || a.is_ascii());
            }
        }
    }
}
