//! Draws a terminal's screen as SVG: rectangles for backgrounds, one text element for each run of a style.

use std::fmt::Write;
use vt100::{Cell, Color, Screen};

/// Size of a cell, in SVG units.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 18.0;
const MARGIN: f32 = 10.0;
const FOREGROUND: &str = "#d4d7dd";
const BACKGROUND: &str = "#16181d";
/// The sixteen named colours.
const NAMED: [&str; 16] = [
    "#16181d", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4", "#6b7280",
    "#ef8a91", "#b2d99b", "#f0d399", "#86c4f5", "#d99bec", "#7fd0da", "#ffffff",
];

#[derive(Clone, PartialEq)]
struct Style {
    fg: String,
    bg: String,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
}

/// The picture of a screen.
pub fn draw(screen: &Screen) -> String {
    let (rows, cols) = screen.size();
    let (w, h) = (f32::from(cols) * WIDTH + 2.0 * MARGIN, f32::from(rows) * HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.1} {h:.1}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"'DejaVu Sans Mono', 'JetBrains Mono', Menlo, Consolas, monospace\" font-size=\"14\" \
         xml:space=\"preserve\">\n"
    );
    for row in 0..rows {
        let runs = runs(screen, row, cols);
        // Backgrounds first: a glyph may reach into the next cell.
        for run in runs.iter().filter(|r| r.style.bg != BACKGROUND) {
            let (x, y) = (MARGIN + f32::from(run.col) * WIDTH, MARGIN + f32::from(row) * HEIGHT);
            let width = f32::from(run.cells) * WIDTH;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{}\"/>",
                run.style.bg
            );
        }
        for run in runs.iter().filter(|r| !r.text.trim().is_empty()) {
            text(&mut out, run, row);
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

struct Run {
    col: u16,
    cells: u16,
    text: String,
    style: Style,
}

/// Neighbouring cells of one style.
fn runs(screen: &Screen, row: u16, cols: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for col in 0..cols {
        let Some(cell) = screen.cell(row, col) else { continue };
        if cell.is_wide_continuation() {
            if let Some(last) = runs.last_mut() {
                last.cells += 1;
            }
            continue;
        }
        let style = style_of(cell);
        let text = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut() {
            Some(last) if last.style == style => {
                last.cells += 1;
                last.text.push_str(text);
            }
            _ => runs.push(Run { col, cells: 1, text: text.into(), style }),
        }
    }
    runs
}

fn text(out: &mut String, run: &Run, row: u16) {
    let lead = run.text.len() - run.text.trim_start_matches(' ').len();
    let shown = run.text.trim_matches(' ');
    let cells = run.cells as usize - (run.text.len() - run.text.trim_matches(' ').len());
    let x = MARGIN + (f32::from(run.col) + lead as f32) * WIDTH;
    let y = MARGIN + f32::from(row) * HEIGHT + 13.5;
    let length = cells as f32 * WIDTH;
    let mut more = String::new();
    if run.style.bold {
        more.push_str(" font-weight=\"bold\"");
    }
    if run.style.italic {
        more.push_str(" font-style=\"italic\"");
    }
    if run.style.underline {
        more.push_str(" text-decoration=\"underline\"");
    }
    if run.style.dim {
        more.push_str(" opacity=\"0.6\"");
    }
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         fill=\"{}\"{more}>{}</text>",
        run.style.fg,
        escape(shown)
    );
}

fn style_of(cell: &Cell) -> Style {
    let mut fg = colour(cell.fgcolor(), FOREGROUND);
    let mut bg = colour(cell.bgcolor(), BACKGROUND);
    if cell.inverse() {
        std::mem::swap(&mut fg, &mut bg);
    }
    Style { fg, bg, bold: cell.bold(), dim: cell.dim(), italic: cell.italic(), underline: cell.underline() }
}

fn colour(colour: Color, default: &str) -> String {
    match colour {
        Color::Default => default.into(),
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Idx(n @ 0..=15) => NAMED[n as usize].into(),
        Color::Idx(n @ 16..=231) => {
            let level = |v: u8| if v == 0 { 0 } else { 55 + 40 * v };
            let n = n - 16;
            format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        Color::Idx(n) => {
            let grey = 8 + 10 * (n - 232);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_and_special_characters_arrive_in_the_picture() {
        let mut terminal = vt100::Parser::new(2, 20, 0);
        terminal.process(b"a<b \x1b[1;31mred\x1b[0m \x1b[48;2;1;2;3mbg\x1b[0m");
        let svg = draw(terminal.screen());
        assert!(svg.contains("a&lt;b"), "{svg}");
        assert!(svg.contains("fill=\"#e06c75\" font-weight=\"bold\">red<"), "{svg}");
        assert!(svg.contains("height=\"18\" fill=\"#010203\""), "{svg}");
    }
}
