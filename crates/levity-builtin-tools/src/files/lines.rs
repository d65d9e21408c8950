//! A window of lines from a file of any length.
//!
//! Chunks may split lines and characters at any place. Only lines in the window are stored, and of
//! each at most 8 KiB; all others are counted.

/// The longest line that is shown in full, in bytes.
pub(super) const MAX_LINE: usize = 8 << 10;

/// Reads a file in chunks, collects the requested lines and counts all lines.
#[derive(Debug)]
pub(super) struct Window {
    first: u64,
    last: u64,
    room: usize,
    numbers: bool,
    /// The collected part of the current line.
    line: Vec<u8>,
    /// The length of the current line in bytes.
    length: usize,
    /// The number of complete lines.
    seen: u64,
    full: bool,
    pub(super) excerpt: Excerpt,
}

/// The lines that a window collected.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    pub(super) text: String,
    /// The number of the last line in `text`.
    pub(super) last: u64,
    /// Set if a line was too long to be shown in full.
    pub(super) cut: bool,
}

impl Window {
    /// Creates a window for lines `first` to `last`, counted from 1, of at most `room` bytes.
    pub(super) fn new(first: u64, last: u64, room: usize, numbers: bool) -> Self {
        let (line, excerpt) = (Vec::new(), Excerpt::default());
        Self {
            first,
            last,
            room,
            numbers,
            line,
            length: 0,
            seen: 0,
            full: false,
            excerpt,
        }
    }

    /// Chunks must arrive in order. An empty chunk is allowed.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.take(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Ends the file and returns its number of lines.
    pub(super) fn finish(&mut self) -> u64 {
        if self.length > 0 {
            self.end_line();
        }
        self.seen
    }

    /// Returns `true` if the current line was requested and room remains.
    fn is_in_window(&self) -> bool {
        let line = self.seen + 1;
        !self.full && line >= self.first && line <= self.last
    }

    /// Stores a piece of the current line. Four bytes beyond the limit are kept, so that a
    /// character at the limit is complete.
    fn take(&mut self, piece: &[u8]) {
        if self.is_in_window() {
            let room = (MAX_LINE + 4).saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        self.length += piece.len();
    }

    /// Completes the current line, whether it is shown or not.
    fn end_line(&mut self) {
        if self.is_in_window() {
            self.add_line();
        }
        self.line.clear();
        self.length = 0;
        self.seen += 1;
    }

    /// Adds the line if it fits. The first line is cut to fit.
    fn add_line(&mut self) {
        let number = self.seen + 1;
        let max = MAX_LINE.min(self.room);
        let mut text = if self.numbers {
            format!("{number:>6}\t")
        } else {
            String::new()
        };
        match self.length > max {
            true => {
                let shown = String::from_utf8_lossy(&self.line);
                text.push_str(&shown[..crate::text::floor(&shown, max)]);
                text.push_str(&format!("… [the line has {} bytes]\n", self.length));
            }
            false => text.push_str(&String::from_utf8_lossy(&self.line)),
        }
        self.full = self.excerpt.last > 0 && self.excerpt.text.len() + text.len() > self.room;
        if !self.full {
            self.excerpt.cut |= self.length > max;
            self.excerpt.last = number;
            self.excerpt.text.push_str(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the text, the last line and the total for several chunk sizes.
    #[track_caller]
    fn check(text: &str, (first, last, room): (u64, u64, usize), expected: (&str, u64, u64)) {
        for size in [1, 2, 3, 1000] {
            let mut window = Window::new(first, last, room, false);
            text.as_bytes()
                .chunks(size)
                .for_each(|piece| window.feed(piece));
            let total = window.finish();
            assert_eq!(
                (&*window.excerpt.text, window.excerpt.last, total),
                expected,
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn window_counts_all_lines_and_collects_requested_ones() {
        check("a\nb\nc\n", (1, 9, 100), ("a\nb\nc\n", 3, 3));
        check("a\nb\nc", (2, 9, 100), ("b\nc", 3, 3));
        check("a\nb\nc", (2, 2, 100), ("b\n", 2, 3));
        check("a\nb\nc", (4, 9, 100), ("", 0, 3));
        check("", (1, 9, 100), ("", 0, 0));
        check("\n\n", (1, 9, 100), ("\n\n", 2, 2));
        check("aa\nbb\ncc", (1, 9, 6), ("aa\nbb\n", 2, 3));
        check("aa\nbbb\nc", (1, 9, 6), ("aa\n", 1, 3));
        check("é\r\nb", (1, 9, 100), ("é\r\nb", 2, 2));
    }

    #[test]
    fn window_cuts_long_line() {
        check(
            "aaaaaaaa\nb\n",
            (1, 9, 4),
            ("aaaa… [the line has 9 bytes]\n", 1, 2),
        );
        let long = "é".repeat(MAX_LINE);
        let mut window = Window::new(1, 1, 100_000, true);
        long.as_bytes()
            .chunks(1000)
            .for_each(|piece| window.feed(piece));
        window.finish();
        assert!(window.excerpt.cut && window.excerpt.text.len() < MAX_LINE + 100);
        assert!(window.excerpt.text.starts_with("     1\té"));
    }
}
