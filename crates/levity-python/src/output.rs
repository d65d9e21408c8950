use serde::{Deserialize, Serialize};

/// What a program printed: the beginning and the end of it, when it was much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Printed {
    head: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tail: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    cut: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Printed {
    /// Takes in some more; `most` bytes are kept in all.
    pub(crate) fn push(&mut self, text: &str, most: usize) {
        let half = most / 2;
        let room = if self.tail.is_empty() && self.cut == 0 {
            half.saturating_sub(self.head.len())
        } else {
            0
        };
        let (first, rest) = text.split_at(floor(text, room));
        self.head.push_str(first);
        // Only the end of something large can be kept, so no more of it is copied.
        let end = ceil(rest, rest.len().saturating_sub(half));
        self.cut += end as u64;
        if end > 0 {
            self.cut += self.tail.len() as u64;
            self.tail.clear();
        }
        self.tail.push_str(&rest[end..]);
        // Moved seldom, so that many small prints do not each move all of it.
        if self.tail.len() > most {
            self.trim(half);
        }
    }

    fn trim(&mut self, half: usize) {
        let start = ceil(&self.tail, self.tail.len().saturating_sub(half));
        self.cut += start as u64;
        self.tail.drain(..start);
    }

    /// Drops what is kept beyond `most` bytes for the sake of speed.
    pub(crate) fn settle(&mut self, most: usize) {
        self.trim(most / 2);
    }

    /// All of it, with a word about what was left out.
    pub(crate) fn text(&self) -> String {
        match self.cut {
            0 => format!("{}{}", self.head, self.tail),
            cut => format!("{}\n[.. {cut} bytes left out ..]\n{}", self.head, self.tail),
        }
    }
}

/// The last place at or before `at` where the text can be parted.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// The first place at or after `at` where the text can be parted.
pub(crate) fn ceil(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len())
}

/// The beginning and the end of a text of more than `most` bytes.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let mut printed = Printed::default();
    printed.push(text, most);
    printed.settle(most);
    printed.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_kept_as_it_is() {
        assert_eq!(shorten("abc", 6), "abc");
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("", 0), "");
    }

    #[test]
    fn much_loses_its_middle() {
        assert_eq!(shorten("abcdefgh", 6), "abc\n[.. 2 bytes left out ..]\nfgh");
        assert_eq!(shorten("ab", 0), "\n[.. 2 bytes left out ..]\n");
    }

    #[test]
    fn no_letter_is_cut_in_two() {
        assert_eq!(shorten("äöüß", 6), "ä\n[.. 4 bytes left out ..]\nß");
    }

    #[test]
    fn many_small_ones_are_as_one() {
        let mut printed = Printed::default();
        for number in 0..1000 {
            printed.push(&format!("{number}\n"), 20);
        }
        printed.settle(20);
        assert_eq!(
            printed.text(),
            "0\n1\n2\n3\n4\n\n[.. 3870 bytes left out ..]\n7\n998\n999\n"
        );
    }
}
