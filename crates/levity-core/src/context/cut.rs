//! Blocks that are too long.

use super::ContextBlock;

/// What is shown around a block, in bytes: the line with its name, and the empty line behind it.
const AROUND: usize = "--- ".len() + " ---\n".len() + "\n\n".len();

impl ContextBlock {
    /// How many tokens it takes where it is shown, the line with its name included, counted as a
    /// quarter of the bytes.
    pub fn tokens(&self) -> usize {
        (self.name.len() + self.text.len() + AROUND).div_ceil(4)
    }

    /// The block within so many [`tokens`](Self::tokens). A text that is too long is cut, at the
    /// end of a line where one is near, and a last line says how much of it is there; `None` when
    /// there is no room for that.
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

    /// As [`cut_to`](Self::cut_to), for a text that may itself be only the beginning of one with
    /// `whole` bytes.
    pub fn cut_of(mut self, tokens: usize, whole: u64) -> Option<Self> {
        let room = tokens
            .saturating_mul(4)
            .checked_sub(self.name.len() + AROUND)?;
        let have = self.text.len() as u64;
        if have >= whole && self.text.len() <= room {
            return Some(self);
        }
        let whole = whole.max(have);
        // The longest that the note can be, and the end of the line before it.
        let left = room.checked_sub(note(whole, whole).len())?;
        self.text.truncate(end(&self.text, left.saturating_sub(1)));
        let shown = self.text.len() as u64;
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&note(shown, whole));
        Some(self)
    }
}

fn note(shown: u64, whole: u64) -> String {
    match shown {
        0 => format!("[cut: none of its {whole} bytes are shown]"),
        _ => format!("[cut: these are the first {shown} of {whole} bytes]"),
    }
}

/// Where to cut a text that has room for `most` bytes: behind the last line that ends in the second
/// half of them, otherwise behind the last whole character.
fn end(text: &str, most: usize) -> usize {
    let mut end = most.min(text.len());
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
    fn no_room_is_overrun_and_no_character_is_torn() {
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
    fn a_long_line_is_cut_within() {
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
    fn what_was_cut_before_is_said_although_the_rest_fits() {
        let cut = block("one").cut_of(100, 10).unwrap();
        assert_eq!(cut.text, "one\n[cut: these are the first 3 of 10 bytes]");
    }
}
