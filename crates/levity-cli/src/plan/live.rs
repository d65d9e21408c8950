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

/// What is typed is not shown while the view is drawn, but where it is asked for.
struct Silent(#[cfg(unix)] Option<rustix::termios::Termios>);

impl Silent {
    #[cfg(unix)]
    fn new() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut silent = before.clone();
            silent.local_modes.remove(LocalModes::ECHO);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &silent);
        }
        Self(before)
    }

    #[cfg(not(unix))]
    fn new() -> Self {
        Self()
    }
}

#[cfg(unix)]
impl Drop for Silent {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = rustix::termios::tcsetattr(
                io::stdin(),
                rustix::termios::OptionalActions::Now,
                before,
            );
        }
    }
}

/// The view as it is drawn on the standard error. Dropped, it is gone and the terminal is as it
/// was.
pub(super) struct Live {
    /// None while a person is asked something.
    drawn: Option<Drawn>,
    colours: bool,
    /// When it was drawn last.
    last: Option<Timestamp>,
}

struct Drawn {
    terminal: Terminal<Inline<Stderr>>,
    size: Size,
    _silent: Silent,
}

/// The least time between two drawings.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The smallest terminal that has room for it.
const SMALLEST: Size = Size::new(20, 8);
const MOST_ROWS: u16 = 30;

impl Live {
    /// Ready to draw; `None` where there is no terminal, or too small a one.
    pub(super) fn new() -> Option<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let size = size()?;
        if dumb
            || !io::stdin().is_terminal()
            || in_background()
            || size.width < SMALLEST.width
            || size.height < SMALLEST.height
        {
            return None;
        }
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Some(Self {
            drawn: None,
            colours,
            last: None,
        })
    }

    /// How long it is until the next drawing may be.
    pub(super) fn pause(&self, now: Timestamp) -> Duration {
        self.last
            .map_or(Duration::ZERO, |last| PAUSE.saturating_sub(now.since(last)))
    }

    /// Draws the view. A terminal that cannot be written to is left alone.
    pub(super) fn draw(&mut self, view: &PlanView, now: Timestamp) {
        self.last = Some(now);
        let size = size().unwrap_or(SMALLEST);
        if self.drawn.as_ref().is_some_and(|drawn| drawn.size != size) {
            self.erase();
        }
        if self.drawn.is_none() {
            self.drawn = Drawn::new(size, self.colours).ok();
        }
        if let Some(drawn) = &mut self.drawn
            && drawn.draw(view, now).is_err()
        {
            self.drawn = None;
        }
    }

    /// Takes the view away, so that something can be printed or asked; the next drawing is below
    /// that.
    pub(super) fn erase(&mut self) {
        if let Some(mut drawn) = self.drawn.take() {
            let _ = drawn.terminal.backend_mut().erase();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What went wrong was said within the view, and stays there.
            let _ = io::Write::write_all(&mut io::stderr(), b"\n");
            self.drawn = None;
        }
        self.erase();
    }
}

impl Drawn {
    fn new(size: Size, colours: bool) -> io::Result<Self> {
        // Most of the screen, but not what was printed just before.
        let height = (size.height - size.height / 4)
            .clamp(4, MOST_ROWS)
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
            _silent: Silent::new(),
        })
    }

    fn draw(&mut self, view: &PlanView, now: Timestamp) -> io::Result<()> {
        let mut end = Position::ORIGIN;
        self.terminal.draw(|frame| {
            draw::draw(view, now, frame.area(), frame.buffer_mut());
            end.y = frame.area().bottom().saturating_sub(1);
        })?;
        // At rest, the cursor is at the end of the view.
        let backend = self.terminal.backend_mut();
        backend.set_cursor_position(end)?;
        backend.flush()
    }
}

/// Whether the terminal is somebody else's just now: who changes its settings then is stopped.
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
