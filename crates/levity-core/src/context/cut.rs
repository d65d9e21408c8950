//! Truncation of context blocks that are too long.

use super::ContextBlock;

/// The bytes that surround a displayed block: the line with its name and the empty line after it.
const AROUND: usize = "--- ".len() + " ---\n".len() + "\n\n".len();

impl ContextBlock {
    /// Returns the displayed size in tokens, including the line with its name, counted as a quarter
    /// of the bytes.
    pub fn tokens(&self) -> usize {
        (self.name.len() + self.text.len() + AROUND).div_ceil(4)
    }

    /// Truncates the block to this many [`tokens`](Self::tokens).
    ///
    /// A text that is too long is cut, if possible at the end of a line. A last line states how
    /// much of it remains. Returns `None` if there is no room for that line.
    ///
    /// ```
    /// # use levity_core::ContextBlock;
    /// let block = ContextBlock::new("days.txt", "Monday\nTuesday\n".repeat(9));
    /// let cut = block.clone().cut_to(20).unwrap();
    /// assert_eq!(cut.text, "Monday\nTuesday\n[cut: these are the first 15 of 135 bytes]");
    /// assert!(cut.tokens() <= 20);
    /// assert_eq!(block.clone().cut_to(1_000), Some(block.clone()));
    /// assert_eq!(block.cut_to(4), None);
    /// ```
    pub fn cut_to(self, tokens: usize) -> Option<Self> {
        let whole = self.text.len();
        self.cut_of(tokens, whole as u64)
    }

    /// Truncates like [`cut_to`](Self::cut_to), for a text that may itself be only the beginning of
    /// one with `whole` bytes.
    pub fn cut_of(mut self, tokens: usize, whole: u64) -> Option<Self> {
        let room = tokens
            .saturating_mul(4)
            .checked_sub(self.name.len() + AROUND)?;
        let have = self.text.len() as u64;
        if have >= whole && self.text.len() <= room {
            return Some(self);
        }
        let whole = whole.max(have);
        // Reserve room for the longest possible note and the line end before it.
        let rest = room.checked_sub(cut_note(whole, whole).len())?;
        self.text
            .truncate(cut_position(&self.text, rest.saturating_sub(1)));
        let shown = self.text.len() as u64;
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&cut_note(shown, whole));
        Some(self)
    }
}

fn cut_note(shown: u64, whole: u64) -> String {
    match shown {
        0 => format!("[cut: none of its {whole} bytes are shown]"),
        _ => format!("[cut: these are the first {shown} of {whole} bytes]"),
    }
}

/// Returns the position at which to cut a text that has room for `limit` bytes: after the last line
/// that ends in the second half of them, otherwise after the last whole character.
fn cut_position(text: &str, limit: usize) -> usize {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() {
        return end;
    }
    match text[..end].rfind('\n') {
        Some(line) if line + 1 > end / 2 => line + 1,
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> ContextBlock {
        ContextBlock::new("a", text)
    }

    #[test]
    fn cut_block_stays_within_limit_and_keeps_characters_whole() {
        let texts = [
            "",
            "a",
            "äöü€😀",
            "one\ntwo\r\nthree\n",
            &"x".repeat(500),
            &"€\n".repeat(200),
        ];
        for text in texts {
            for tokens in (0..200).chain([usize::MAX]) {
                for more in [0, 1, 100_000_000] {
                    let whole = text.len() as u64 + more;
                    let Some(cut) = block(text).cut_of(tokens, whole) else {
                        continue;
                    };
                    assert!(cut.tokens() <= tokens, "{text:?} {tokens}");
                    let is_whole = cut.text == text && more == 0;
                    assert!(
                        is_whole
                            || cut.text.ends_with(&format!("{whole} bytes]"))
                            || cut.text.contains("none")
                    );
                }
            }
        }
    }

    #[test]
    fn cut_to_splits_long_line_inside() {
        let text = format!("short\n{}", "x".repeat(1_000));
        let cut = block(&text).cut_to(100).unwrap();
        assert!(cut.text.len() > 350, "{}", cut.text);
        assert!(
            cut.text.contains("x\n[cut: these are the first "),
            "{}",
            cut.text
        );
    }

    #[test]
    fn cut_of_reports_earlier_cut_although_rest_fits() {
        let cut = block("one").cut_of(100, 10).unwrap();
        assert_eq!(cut.text, "one\n[cut: these are the first 3 of 10 bytes]");
    }
}
