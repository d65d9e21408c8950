//! The live view on a terminal.

use std::io::{self, IsTerminal as _, Stderr};
use std::time::Duration;

use levity::core::Timestamp;
use levity::observe::PlanView;
use ratatui_core::backend::Backend as _;
use ratatui_core::layout::{Position, Size};
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};

use super::draw;
use super::inline::Inline;

/// Disables the echo of typed text while the view is drawn, except for answers to questions.
struct EchoGuard(#[cfg(unix)] Option<rustix::termios::Termios>);

impl EchoGuard {
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
pub(super) struct Live {
    /// `None` while a question is open.
    viewer: Option<Viewer>,
    colours: bool,
    /// The time of the last drawing.
    last: Option<Timestamp>,
}

struct Viewer {
    terminal: Terminal<Inline<Stderr>>,
    size: Size,
    _echo_guard: EchoGuard,
}

/// The minimum time between two drawings.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The smallest terminal that has room for the view.
const MIN_SIZE: Size = Size::new(20, 8);
const MAX_ROWS: u16 = 30;

impl Live {
    /// Creates the view; returns `None` if there is no terminal or it is too small.
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
    pub(super) fn pause(&self, now: Timestamp) -> Duration {
        self.last
            .map_or(Duration::ZERO, |last| PAUSE.saturating_sub(now.since(last)))
    }

    /// Draws the view. Stops drawing if the terminal cannot be written to.
    pub(super) fn draw(&mut self, view: &PlanView, now: Timestamp) {
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
            && viewer.draw(view, now).is_err()
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

    fn draw(&mut self, view: &PlanView, now: Timestamp) -> io::Result<()> {
        let mut end = Position::ORIGIN;
        self.terminal.draw(|frame| {
            draw::draw(view, now, frame.area(), frame.buffer_mut());
            end.y = frame.area().bottom().saturating_sub(1);
        })?;
        // Between two drawings, the cursor is at the end of the view.
        let backend = self.terminal.backend_mut();
        backend.set_cursor_position(end)?;
        backend.flush()
    }
}

/// Returns `true` if this process is in the background, where changing the terminal would stop it.
#[cfg(unix)]
fn in_background() -> bool {
    let front = rustix::termios::tcgetpgrp(io::stdin());
    front.is_ok_and(|front| front != rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn in_background() -> bool {
    false
}

#[cfg(unix)]
fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size::new(size.ws_col, size.ws_row))
}

#[cfg(not(unix))]
fn size() -> Option<Size> {
    None
}
