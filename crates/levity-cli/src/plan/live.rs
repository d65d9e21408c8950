//! The live view on a terminal.
//!
//! The view occupies up to three quarters of the terminal, at most 30 rows, below the earlier
//! output, and is redrawn at most 20 times per second. It disappears when a question is asked or
//! the run ends, so the scrollback contains only notes, decisions and the summary, and no stale
//! frames.
//!
//! The terminal stays in its usual mode apart from the echo of typed text, which would damage the
//! picture. No alternate screen and no raw mode are used: Ctrl-C keeps its meaning, and a killed
//! process leaves a usable terminal behind, apart from the echo.

use std::io::{self, IsTerminal as _, Stderr};
use std::time::Duration;

use levity::core::Timestamp;
use levity::observe::PlanView;
use ratatui_core::backend::Backend as _;
use ratatui_core::layout::{Position, Size};
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};

use super::draw;
use super::inline::Inline;
use super::streamed::StreamedText;

/// Disables the echo of typed text while the view is drawn, except for answers to questions.
///
/// Holds the original settings and restores them when it is dropped. It holds nothing if standard
/// input is no terminal, or on Windows.
struct EchoGuard(#[cfg(unix)] Option<rustix::termios::Termios>);

impl EchoGuard {
    /// Disables the echo and remembers the original mode; does nothing if the input is not a
    /// terminal.
    #[cfg(unix)]
    fn new() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let original = tcgetattr(io::stdin()).ok();
        if let Some(original) = &original {
            let mut without_echo = original.clone();
            without_echo.local_modes.remove(LocalModes::ECHO);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &without_echo);
        }
        Self(original)
    }

    #[cfg(not(unix))]
    fn new() -> Self {
        Self()
    }
}

#[cfg(unix)]
impl Drop for EchoGuard {
    fn drop(&mut self) {
        if let Some(original) = &self.0 {
            let _ = rustix::termios::tcsetattr(
                io::stdin(),
                rustix::termios::OptionalActions::Now,
                original,
            );
        }
    }
}

/// The view on the standard error. Dropping it erases the view and restores the terminal.
///
/// `viewer` exists only while something is drawn; erasing drops it, and with it the echo guard, so
/// answers to questions are visible while they are typed.
pub(super) struct Live {
    /// `None` while a question is open.
    viewer: Option<Viewer>,
    /// False if `NO_COLOR` has a value, by the convention of no-color.org.
    colours: bool,
    /// The time of the last drawing.
    last: Option<Timestamp>,
}

/// Lives for one period of drawing at one size of the terminal. A changed size needs a new one,
/// because the rows of the old one have been rewrapped by the terminal.
struct Viewer {
    terminal: Terminal<Inline<Stderr>>,
    size: Size,
    _echo_guard: EchoGuard,
}

/// The minimum time between two drawings.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The smallest terminal that has room for the view.
const MIN_SIZE: Size = Size::new(20, 8);
/// The upper bound keeps earlier output visible on very tall terminals.
const MAX_ROWS: u16 = 30;

impl Live {
    /// Creates the view; returns `None` if there is no terminal or it is too small.
    ///
    /// A process in the background gets no view: changing the settings of the terminal from there
    /// would stop the process by a signal.
    pub(super) fn new() -> Option<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let size = size()?;
        if dumb
            || !io::stdin().is_terminal()
            || in_background()
            || size.width < MIN_SIZE.width
            || size.height < MIN_SIZE.height
        {
            return None;
        }
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Some(Self {
            viewer: None,
            colours,
            last: None,
        })
    }

    /// Returns the time until the next drawing is allowed.
    ///
    /// Events can arrive thousands of times per second, and drawing each would be slower than the
    /// run.
    pub(super) fn pause(&self, now: Timestamp) -> Duration {
        self.last
            .map_or(Duration::ZERO, |last| PAUSE.saturating_sub(now.since(last)))
    }

    /// Draws the view. Stops drawing if the terminal cannot be written to.
    ///
    /// A viewer that fails is dropped, and the next call tries again with a new one; the run never
    /// fails because of its display.
    pub(super) fn draw(&mut self, view: &PlanView, streamed: &StreamedText, now: Timestamp) {
        self.last = Some(now);
        let size = size().unwrap_or(MIN_SIZE);
        if self
            .viewer
            .as_ref()
            .is_some_and(|viewer| viewer.size != size)
        {
            self.erase();
        }
        if self.viewer.is_none() {
            self.viewer = Viewer::new(size, self.colours).ok();
        }
        if let Some(viewer) = &mut self.viewer
            && viewer.draw(view, streamed, now).is_err()
        {
            self.viewer = None;
        }
    }

    /// Erases the view for other output or a question; the next drawing is below that.
    pub(super) fn erase(&mut self) {
        if let Some(mut viewer) = self.viewer.take() {
            let _ = viewer.terminal.backend_mut().erase();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic message was printed within the view, so it must stay.
            let _ = io::Write::write_all(&mut io::stderr(), b"\n");
            self.viewer = None;
        }
        self.erase();
    }
}

impl Viewer {
    /// Reserves the rows. The height is three quarters of the terminal, between 4 and 30 rows, and
    /// always one less than the terminal has.
    fn new(size: Size, colours: bool) -> io::Result<Self> {
        // The view takes most of the screen, but leaves the latest output visible.
        let height = (size.height - size.height / 4)
            .clamp(4, MAX_ROWS)
            .min(size.height.saturating_sub(1))
            .max(1);
        let viewport = Viewport::Inline(height);
        let terminal = Terminal::with_options(
            Inline::new(io::stderr(), size, colours),
            TerminalOptions { viewport },
        )?;
        Ok(Self {
            terminal,
            size,
            _echo_guard: EchoGuard::new(),
        })
    }

    /// Draws a frame and leaves the cursor on the last row, so a message of another program appears
    /// below the view.
    fn draw(&mut self, view: &PlanView, streamed: &StreamedText, now: Timestamp) -> io::Result<()> {
        let mut end = Position::ORIGIN;
        self.terminal.draw(|frame| {
            draw::draw(view, streamed, now, frame.area(), frame.buffer_mut());
            end.y = frame.area().bottom().saturating_sub(1);
        })?;
        // Between two drawings, the cursor is at the end of the view.
        let backend = self.terminal.backend_mut();
        backend.set_cursor_position(end)?;
        backend.flush()
    }
}

/// Returns `true` if this process is in the background, where changing the terminal would stop it.
///
/// Always `false` on other systems.
#[cfg(unix)]
fn in_background() -> bool {
    let front = rustix::termios::tcgetpgrp(io::stdin());
    front.is_ok_and(|front| front != rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn in_background() -> bool {
    false
}

/// Returns the size of the terminal behind the standard error.
#[cfg(unix)]
fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size::new(size.ws_col, size.ws_row))
}

#[cfg(not(unix))]
fn size() -> Option<Size> {
    None
}
