//! Configuration: `$XDG_CONFIG_HOME/pg-tui/config.toml` over what is built in (`assets/`).

pub mod keymap;
pub mod keys;
pub mod theme;

pub use keymap::{Keymap, Lookup};
pub use keys::Key;
pub use theme::{Glyphs, Look, Theme};

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terminal_colorsaurus::{QueryOptions, background_color};
use toml::Spanned;

/// The configuration as it is built in, with all that can be said in it.
pub const DEFAULT: &str = include_str!("../../assets/config.toml");

/// A mistake in a configuration file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}{}: {what}", if *line == 0 { String::new() } else { format!(", line {line}") })]
pub struct ConfigError {
    /// Which file.
    pub file: String,
    /// Line, from 1; 0 where it is not about a line.
    pub line: usize,
    /// What is wrong and what would be right.
    pub what: String,
}

impl ConfigError {
    /// From what the TOML parser says.
    fn toml(file: &str, text: &str, e: &toml::de::Error) -> Self {
        Self {
            file: file.to_owned(),
            line: e.span().map_or(1, |s| line_of(text, s.start)),
            what: e.message().trim().replace('\n', "; "),
        }
    }
}

/// Line of a byte offset, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count()
}

/// The file as written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    theme: Option<Spanned<String>>,
    ascii: Option<bool>,
    mouse: Option<bool>,
    clipboard: Option<Vec<String>>,
    keys: BTreeMap<Spanned<String>, keymap::Section>,
    themes: BTreeMap<String, theme::ThemeFile>,
}

/// What the session looks and feels like.
#[derive(Clone, Debug)]
pub struct Config {
    /// Colours.
    pub theme: Theme,
    /// Shapes.
    pub glyphs: Glyphs,
    /// Keys.
    pub keymap: Keymap,
    /// All themes there are, by name: those built in, then the user's.
    pub themes: Vec<Theme>,
    /// Take mouse events.
    pub mouse: bool,
    /// A command that takes the clipboard's text on its standard input; empty: found by itself.
    pub clipboard: Vec<String>,
}

/// What the environment says about the terminal.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `NO_COLOR` is set and not empty (<https://no-color.org>).
    pub no_color: bool,
    /// `TERM`.
    pub term: String,
    /// `COLORTERM`.
    pub colorterm: String,
    /// `COLORFGBG`, set by some terminals: `foreground;background`.
    pub colorfgbg: String,
    /// The locale is not UTF-8.
    pub not_utf8: bool,
    /// The terminal itself can be asked for its background.
    pub asks: bool,
}

/// How long a terminal is waited for that is asked for its background.
const ANSWER: std::time::Duration = std::time::Duration::from_millis(150);

impl Environment {
    /// From this process.
    pub fn read() -> Self {
        let var = |name| std::env::var(name).unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(var).into_iter().find(|v| !v.is_empty());
        let locale = locale.map(|l| l.to_ascii_lowercase());
        Self {
            no_color: !var("NO_COLOR").is_empty(),
            term: var("TERM"),
            colorterm: var("COLORTERM"),
            colorfgbg: var("COLORFGBG"),
            // An empty locale or plain "C" is common in containers whose terminal is UTF-8 all the same;
            // only a locale that names another character set is believed.
            not_utf8: locale.is_some_and(|l| l.contains('.') && !l.contains("utf-8") && !l.contains("utf8")),
            asks: true,
        }
    }

    /// Are only ASCII shapes safe? The console of Linux and the old terminals have fonts of 256 or 512
    /// characters, most of the shapes used here not among them.
    fn ascii(&self) -> bool {
        const POOR: [&str; 7] = ["linux", "vt", "dumb", "ansi", "cons", "sun", "pcansi"];
        self.not_utf8 || POOR.iter().any(|p| self.term.starts_with(p))
    }

    /// The theme that fits this terminal when none was asked for.
    fn theme(&self) -> &'static str {
        if self.no_color || self.term == "dumb" {
            "none"
        } else if self.colorterm.is_empty() && !self.term.contains("256") && !self.term.contains("direct") {
            "16"
        } else if self.is_light() {
            "light"
        } else {
            "dark"
        }
    }

    /// Is the terminal's background a light one? Few terminals say so in the environment, nearly all when they are asked.
    fn is_light(&self) -> bool {
        if !self.colorfgbg.is_empty() {
            return self.colorfgbg.rsplit(';').next().is_some_and(|bg| matches!(bg, "7" | "15"));
        }
        // One that does not answer keeps nobody waiting for the first frame; `app::late_answer` knows what comes later.
        let mut options = QueryOptions::default();
        options.timeout = ANSWER;
        self.asks && background_color(options).is_ok_and(|c| c.perceived_lightness() > 0.5)
    }
}

/// What the command line asks for; it wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Name of a theme.
    pub theme: Option<String>,
    /// Only ASCII shapes.
    pub ascii: bool,
}

impl Config {
    /// What is built in, for a terminal with all colours.
    ///
    /// # Errors
    /// Never for the files as shipped; a test holds them to that.
    pub fn builtin() -> Result<Self, ConfigError> {
        Self::from_text(
            "built-in",
            "",
            &Environment { term: "xterm-256color".into(), ..Environment::default() },
            &Overrides::default(),
        )
    }

    /// Reads the user's file, if there is one. `path` is one he named: then it must be there.
    ///
    /// # Errors
    /// A file that cannot be read or holds a mistake, with its line.
    pub fn load(
        path: Option<&Path>,
        environment: &Environment,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        let found = path.map(Path::to_owned).or_else(|| default_path().filter(|p| p.exists()));
        let Some(found) = found else {
            return Self::from_text("built-in", "", environment, overrides);
        };
        let name = found.display().to_string();
        let text = std::fs::read_to_string(&found).map_err(|e| ConfigError {
            file: name.clone(),
            line: 0,
            what: format!("cannot be read: {e}"),
        })?;
        Self::from_text(&name, &text, environment, overrides)
    }

    /// From the text of a configuration file.
    ///
    /// # Errors
    /// A mistake, with its line.
    pub fn from_text(
        file: &str,
        text: &str,
        environment: &Environment,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        let parsed: File = toml::from_str(text).map_err(|e| ConfigError::toml(file, text, &e))?;
        let mut keymap = Keymap::builtin()?;
        keymap.merge(file, text, &parsed.keys)?;
        let mut themes = theme::builtin()?;
        for (name, t) in &parsed.themes {
            let made = theme::build(name, t, &themes).map_err(|(offset, what)| ConfigError {
                file: file.to_owned(),
                line: line_of(text, offset),
                what,
            })?;
            themes.retain(|t| t.name != *name);
            themes.push(made);
        }
        let find = |name: &str| themes.iter().find(|t| t.name == name).cloned();
        let known = || themes.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
        let theme = if let Some(name) = &overrides.theme {
            find(if name == "auto" { environment.theme() } else { name }).ok_or_else(|| ConfigError {
                file: "--theme".into(),
                line: 0,
                what: format!("no theme is called `{name}` (known: auto, {})", known()),
            })?
        } else if let Some(name) =
            parsed.theme.as_ref().filter(|n| n.get_ref() != "auto" && !environment.no_color)
        {
            find(name.get_ref()).ok_or_else(|| ConfigError {
                file: file.to_owned(),
                line: line_of(text, name.span().start),
                what: format!("no theme is called `{}` (known: auto, {})", name.get_ref(), known()),
            })?
        } else {
            find(environment.theme()).unwrap_or_default()
        };
        let ascii = overrides.ascii || parsed.ascii.unwrap_or_else(|| environment.ascii());
        Ok(Self {
            theme,
            glyphs: if ascii { Glyphs::ascii() } else { Glyphs::unicode() },
            keymap,
            themes,
            mouse: parsed.mouse.unwrap_or(true),
            clipboard: parsed.clipboard.unwrap_or_default(),
        })
    }
}

/// Where the user's file is looked for.
pub fn default_path() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .filter(|v| Path::new(v).is_absolute())
        .map(PathBuf::from)
        .or_else(|| {
            std::env::var_os("HOME").filter(|v| !v.is_empty()).map(|h| Path::new(&h).join(".config"))
        })?;
    Some(base.join("pg-tui").join("config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, environment: &Environment, overrides: &Overrides) -> Result<Config, ConfigError> {
        Config::from_text("config.toml", text, environment, overrides)
    }

    fn good(text: &str) -> Config {
        read(text, &Environment::default(), &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn what_is_built_in_is_sound() {
        Config::builtin().unwrap_or_else(|e| panic!("{e}"));
        // The documented file says the same as no file.
        let documented = good(DEFAULT);
        assert!(documented.mouse && documented.clipboard.is_empty());
    }

    #[test]
    fn the_terminal_chooses_the_theme_unless_told() {
        let term = |term: &str, colorterm: &str, fgbg: &str, no_color| Environment {
            no_color,
            term: term.into(),
            colorterm: colorterm.into(),
            colorfgbg: fgbg.into(),
            not_utf8: false,
            asks: false,
        };
        let name = |e: &Environment, text: &str, o: Option<&str>| {
            let overrides = Overrides { theme: o.map(str::to_owned), ascii: false };
            read(text, e, &overrides).unwrap_or_else(|e| panic!("{e}")).theme.name
        };
        let rich = term("xterm-256color", "", "", false);
        assert_eq!(name(&rich, "", None), "dark");
        assert_eq!(name(&term("xterm-256color", "", "0;15", false), "", None), "light");
        assert_eq!(name(&term("linux", "", "", false), "", None), "16");
        assert_eq!(name(&term("xterm-256color", "", "", true), "theme = 'dark'", None), "none");
        assert_eq!(name(&term("xterm-256color", "", "", true), "", Some("dark")), "dark");
        assert_eq!(name(&rich, "theme = 'light'", None), "light");
        assert_eq!(name(&rich, "theme = 'mine'\n[themes.mine]\nbase = 'light'\n", None), "mine");
    }

    #[test]
    fn consoles_with_small_fonts_get_ascii_unless_told() {
        let with = |term: &str, text: &str| {
            let environment = Environment { term: term.into(), ..Environment::default() };
            read(text, &environment, &Overrides::default()).unwrap_or_else(|e| panic!("{e}")).glyphs.ascii
        };
        for term in ["linux", "vt100", "vt220", "dumb"] {
            assert!(with(term, ""), "{term}");
            assert!(!with(term, "ascii = false"), "{term}");
        }
        for term in ["xterm-256color", "screen", "tmux-256color", "alacritty", "foot", "", "xterm-kitty"] {
            assert!(!with(term, ""), "{term}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, part) in [
            ("theme = 'drak'\n", 1, "no theme is called `drak`"),
            ("\nmouse = 3\n", 2, "bool"),
            ("mouse = true\nkolor = 1\n", 2, "kolor"),
            ("mouse = \n", 1, ""),
            ("\n\n[themes.mine]\nrunning = 'reddish'\n", 4, "reddish"),
            ("[themes.mine]\nbase = 'nope'\n", 2, "nope"),
            ("[keys.timeline]\n'i' = 'zoom'\n", 2, "no command is called `zoom`"),
        ] {
            let Err(e) = read(text, &Environment::default(), &Overrides::default()) else {
                panic!("accepted: {text}")
            };
            assert_eq!(e.line, line, "{e}");
            assert!(e.to_string().contains(part), "{e}");
            assert!(e.to_string().starts_with("config.toml, line "), "{e}");
        }
    }

    #[test]
    fn a_file_that_was_named_must_exist() {
        let e = Config::load(
            Some(Path::new("/nonexistent/x.toml")),
            &Environment::default(),
            &Overrides::default(),
        );
        assert!(e.is_err());
    }
}
