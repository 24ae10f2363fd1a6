//! The terminal: taken over at the start, given back at the end, however that comes.

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, execute, queue};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use std::io::{self, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Is the terminal ours? What restores it must do so once, from whichever thread.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
    mouse: bool,
}

/// Are both ends of this process a terminal?
///
/// # Errors
/// A sentence that says which is not, and what to use instead: `instead`.
pub fn check(instead: &str) -> Result<(), String> {
    match (io::stdin().is_terminal(), io::stdout().is_terminal()) {
        (true, true) => Ok(()),
        (false, true) => Err(format!("standard input is not a terminal: {instead}")),
        (true, false) => Err(format!("standard output is not a terminal: {instead}")),
        (false, false) => Err(format!("neither standard input nor output is a terminal: {instead}")),
    }
}

impl Terminal {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// What the system says.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        take(mouse)?;
        let inner = ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(Self { inner, mouse })
    }

    /// Takes it again after it was given back, and forgets what was on it.
    ///
    /// # Errors
    /// What the system says.
    pub fn again(&mut self) -> io::Result<()> {
        TAKEN.store(false, Ordering::SeqCst);
        take(self.mouse)?;
        self.clear()
    }

    /// Draws a frame, within one synchronised update so that no half of it is ever seen.
    ///
    /// # Errors
    /// What the system says.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.inner.draw(render)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Forgets what is on the screen: the next frame is drawn whole.
    ///
    /// # Errors
    /// What the system says.
    pub fn clear(&mut self) -> io::Result<()> {
        // `ratatui::Terminal::clear` asks the terminal where its cursor is, and the answer would be read by
        // the thread that waits for keys. A new one remembers nothing just as well.
        self.inner = ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))?;
        execute!(io::stdout(), Clear(ClearType::All))
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// What the system says.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        self.inner.size().map(|s| (s.width, s.height))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn take(mouse: bool) -> io::Result<()> {
    crossterm::terminal::enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
    if mouse {
        execute!(io::stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

/// Gives the terminal back as it was. Safe to call at any time, from any thread, more than once.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Nothing useful can be done about errors here: the terminal may be gone.
    let mut out = io::stdout();
    let _ = execute!(
        out,
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableBracketedPaste,
        // Some multiplexers (tmux) keep lines of a screen that was resized if the cursor is left below them.
        Clear(ClearType::All),
        cursor::MoveTo(0, 0),
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = out.flush();
    let _ = crossterm::terminal::disable_raw_mode();
}

/// Writes an escape sequence of ours (never text from outside) to the terminal.
///
/// # Errors
/// What the system says.
pub fn write_sequence(sequence: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(sequence.as_bytes())?;
    out.flush()
}

/// Makes a panic of this thread give the terminal back before anything is printed. A panic of another
/// thread is caught where the thread was started and reported within the session; printing it here
/// would spoil the screen.
pub fn restore_on_panic() {
    let previous = std::panic::take_hook();
    let ours = std::thread::current().id();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == ours {
            restore();
            previous(info);
        } else if !TAKEN.load(Ordering::SeqCst) {
            previous(info);
        } else {
            tracing::error!("background thread: {info}");
        }
    }));
}
