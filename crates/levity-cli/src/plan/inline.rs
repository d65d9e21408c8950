//! A few lines of the terminal that are redrawn below earlier output.
//!
//! levity does not ask the terminal for the position of its cursor. It counts rows from the first
//! line of the view, and moves the cursor up or down by that number. Therefore nothing is read from
//! the terminal, and it stays in its usual mode.
//!
//! The module implements ratatui's `Backend`. Its stock backends either take over the whole screen
//! or query the cursor, which fails when standard input is a pipe and races with typed text.
//! Sequences in use are few and old (move, erase, colour), so they work in every terminal that is
//! not dumb.

use std::io::{self, Write};

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// Draws by writing to a terminal. Row 0 is the first position of the cursor.
///
/// Generic over the output, so tests read the written bytes from a vector.
pub(super) struct Inline<W> {
    out: W,
    /// The output of the next flush, written at once so that no partial frame is visible.
    written: Vec<u8>,
    /// The assumed position of the cursor. Nothing else may write to the terminal while the view is
    /// visible, or rows are counted wrongly; callers erase the view first.
    at: Position,
    size: Size,
    colours: bool,
}

impl<W: Write> Inline<W> {
    /// Draws on a terminal of this size. The last column stays empty, because terminals differ in
    /// their behaviour after it.
    pub(super) fn new(out: W, size: Size, colours: bool) -> Self {
        let size = Size::new(size.width.saturating_sub(1).max(1), size.height.max(1));
        Self {
            out,
            written: Vec::new(),
            at: Position::ORIGIN,
            size,
            colours,
        }
    }

    /// Collects output until the next flush.
    fn push_text(&mut self, text: &str) {
        self.written.extend_from_slice(text.as_bytes());
    }

    /// Moves relatively between rows and absolutely between columns, because only the column is
    /// known independently of the scroll position.
    fn move_to(&mut self, to: Position) {
        match i32::from(to.y) - i32::from(self.at.y) {
            0 => {}
            up @ ..0 => self.push_text(&format!("\x1b[{}A", -up)),
            down => self.push_text(&format!("\x1b[{down}B")),
        }
        if to.x != self.at.x {
            self.push_text(&format!("\x1b[{}G", to.x + 1));
        }
        self.at = to;
    }

    /// Erases the view and returns the cursor to its first position.
    pub(super) fn erase(&mut self) -> io::Result<()> {
        self.move_to(Position::ORIGIN);
        self.push_text("\r\x1b[J");
        self.flush()
    }
}

/// Covers only the five colours and the bold face that the view uses; each sequence begins with a
/// reset, so styles do not add up.
fn style(cell: &Cell) -> String {
    let mut codes = vec!["0"];
    codes.extend(match cell.fg {
        Color::Red => Some("31"),
        Color::Green => Some("32"),
        Color::Yellow => Some("33"),
        Color::Cyan => Some("36"),
        Color::DarkGray => Some("90"),
        _ => None,
    });
    if cell.modifier.contains(Modifier::BOLD) {
        codes.push("1");
    }
    format!("\x1b[{}m", codes.join(";"))
}

impl<W: Write> Backend for Inline<W> {
    type Error = io::Error;

    /// Writes changed cells. The cursor position is tracked by the width of each symbol, since wide
    /// ones take two columns.
    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, cells: I) -> io::Result<()> {
        let mut last = String::new();
        for (x, y, cell) in cells {
            self.move_to(Position::new(x, y));
            let style = style(cell);
            if self.colours && style != last {
                self.push_text(&style);
                last = style;
            }
            self.push_text(cell.symbol());
            let width = ratatui_core::text::Span::raw(cell.symbol()).width();
            self.at.x = x.saturating_add(u16::try_from(width).unwrap_or(1));
        }
        if !last.is_empty() {
            self.push_text("\x1b[0m");
        }
        Ok(())
    }

    /// Line breaks at the bottom of the screen scroll it, which moves the view up together with its
    /// rows; counted rows stay valid.
    fn append_lines(&mut self, lines: u16) -> io::Result<()> {
        self.push_text(&"\n".repeat(lines.into()));
        self.push_text("\r");
        self.at = Position::new(0, self.at.y.saturating_add(lines));
        self.flush()
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        // The cursor stays visible, because this process may be killed before it can restore it.
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the tracked position; the terminal is not asked.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.at)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.move_to(position.into());
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.erase()
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        match region {
            ClearType::AfterCursor => self.push_text("\x1b[J"),
            ClearType::UntilNewLine => self.push_text("\x1b[K"),
            ClearType::CurrentLine => self.push_text("\x1b[2K"),
            // Lines above the view belong to other output.
            _ => return self.erase(),
        }
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size,
            pixels: Size::ZERO,
        })
    }

    /// Writes the frame at once. After an error, the frame is kept for the next attempt.
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.written)?;
        self.written.clear();
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::style::Style;
    use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};

    fn drawn(terminal: &mut Terminal<Inline<Vec<u8>>>, text: &str) -> String {
        terminal
            .draw(|frame| {
                let area = frame.area();
                frame.buffer_mut().set_string(0, 0, text, Style::new());
                frame.buffer_mut().set_string(
                    0,
                    area.bottom() - 1,
                    "end",
                    Style::new().fg(Color::Red),
                );
            })
            .map(|_| ())
            .and_then(|()| terminal.backend_mut().flush())
            .ok();
        String::from_utf8(std::mem::take(&mut terminal.backend_mut().out)).unwrap_or_default()
    }

    #[test]
    fn draw_writes_only_changed_cells_with_relative_moves() -> io::Result<()> {
        let inline = Inline::new(Vec::new(), Size::new(20, 10), true);
        let options = TerminalOptions {
            viewport: Viewport::Inline(3),
        };
        let mut terminal = Terminal::with_options(inline, options)?;
        assert_eq!(
            drawn(&mut terminal, "日x"),
            "\n\n\r\x1b[2A\x1b[0m日x\x1b[2B\x1b[1G\x1b[0;31mend\x1b[0m"
        );
        assert_eq!(drawn(&mut terminal, "日y"), "\x1b[2A\x1b[3G\x1b[0my\x1b[0m");
        assert_eq!(drawn(&mut terminal, "日y"), "");
        terminal.backend_mut().erase()?;
        let erased = String::from_utf8_lossy(&terminal.backend().out).into_owned();
        assert_eq!(erased, "\x1b[1G\r\x1b[J");
        Ok(())
    }

    #[test]
    fn draw_without_colours_writes_no_colour_codes() -> io::Result<()> {
        let inline = Inline::new(Vec::new(), Size::new(20, 10), false);
        let options = TerminalOptions {
            viewport: Viewport::Inline(2),
        };
        let mut terminal = Terminal::with_options(inline, options)?;
        assert_eq!(drawn(&mut terminal, "x"), "\n\r\x1b[1Ax\x1b[1B\x1b[1Gend");
        Ok(())
    }
}
