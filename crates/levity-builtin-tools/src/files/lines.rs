//! Some lines of a file that may be of any length.

/// The longest line that is shown whole, in bytes.
pub(super) const MAX_LINE: usize = 8 << 10;

/// Takes a file piece by piece, keeps the lines that were asked for, and counts all.
#[derive(Debug)]
pub(super) struct Window {
    first: u64,
    last: u64,
    room: usize,
    numbers: bool,
    /// The line under way: what is kept of it, and how long it is.
    line: Vec<u8>,
    length: usize,
    /// How many lines are complete.
    seen: u64,
    full: bool,
    pub(super) kept: Kept,
}

/// What was kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) text: String,
    /// The last line that is in it.
    pub(super) last: u64,
    /// Whether a line was too long to be shown whole.
    pub(super) cut: bool,
}

impl Window {
    /// Lines `first` to `last`, counted from 1, in at most `room` bytes.
    pub(super) fn new(first: u64, last: u64, room: usize, numbers: bool) -> Self {
        let (line, kept) = (Vec::new(), Kept::default());
        Self {
            first,
            last,
            room,
            numbers,
            line,
            length: 0,
            seen: 0,
            full: false,
            kept,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.take(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// The end of the file: how many lines it has.
    pub(super) fn finish(&mut self) -> u64 {
        if self.length > 0 {
            self.end_line();
        }
        self.seen
    }

    fn is_wanted(&self) -> bool {
        let line = self.seen + 1;
        !self.full && line >= self.first && line <= self.last
    }

    fn take(&mut self, piece: &[u8]) {
        if self.is_wanted() {
            let room = (MAX_LINE + 4).saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        self.length += piece.len();
    }

    fn end_line(&mut self) {
        if self.is_wanted() {
            self.keep_line();
        }
        self.line.clear();
        self.length = 0;
        self.seen += 1;
    }

    /// Adds the line if there is room; the first one is added as far as there is.
    fn keep_line(&mut self) {
        let number = self.seen + 1;
        let most = MAX_LINE.min(self.room);
        let mut text = if self.numbers {
            format!("{number:>6}\t")
        } else {
            String::new()
        };
        match self.length > most {
            true => {
                let shown = String::from_utf8_lossy(&self.line);
                text.push_str(&shown[..crate::text::floor(&shown, most)]);
                text.push_str(&format!("… [the line has {} bytes]\n", self.length));
            }
            false => text.push_str(&String::from_utf8_lossy(&self.line)),
        }
        self.full = self.kept.last > 0 && self.kept.text.len() + text.len() > self.room;
        if !self.full {
            self.kept.cut |= self.length > most;
            self.kept.last = number;
            self.kept.text.push_str(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines, whatever the pieces: the text, the last line shown, and how many there are.
    #[track_caller]
    fn check(text: &str, (first, last, room): (u64, u64, usize), expected: (&str, u64, u64)) {
        for size in [1, 2, 3, 1000] {
            let mut window = Window::new(first, last, room, false);
            text.as_bytes()
                .chunks(size)
                .for_each(|piece| window.feed(piece));
            let total = window.finish();
            assert_eq!(
                (&*window.kept.text, window.kept.last, total),
                expected,
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn lines_are_counted_and_kept() {
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
    fn a_long_line_is_cut() {
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
        assert!(window.kept.cut && window.kept.text.len() < MAX_LINE + 100);
        assert!(window.kept.text.starts_with("     1\té"));
    }
}
