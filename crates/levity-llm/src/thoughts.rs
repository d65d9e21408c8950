//! Thoughts that stand in the text before the reply: `<think>..</think>`, `[Thinking: ..]`.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
const NOTE: &str = "[Thinking:";

/// The longest `[Thinking: ..]` that is waited for, in bytes.
const LONGEST_NOTE: usize = 16 << 10;

/// Tells thoughts from the text behind them, however both are cut.
#[derive(Debug, Default)]
pub(crate) struct Thoughts {
    place: Place,
    /// True if `[Thinking: ..]` is a thought, too.
    notes: bool,
    /// Text that may be the beginning of a thought, or of its end.
    held: String,
}

#[derive(Debug, Default, PartialEq)]
enum Place {
    #[default]
    Start,
    Thoughts,
    /// Behind the thoughts, before the first word.
    Gap,
    Text,
}

/// A piece of the reply.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Thinking(String),
    Text(String),
}

impl Thoughts {
    /// Reads `[Thinking: ..]` as well.
    pub(crate) fn with_notes() -> Self {
        Self {
            notes: true,
            ..Self::default()
        }
    }

    /// Takes more of the text.
    pub(crate) fn take(&mut self, text: &str, mut give: impl FnMut(Piece)) {
        self.held.push_str(text);
        loop {
            match self.place {
                Place::Start => {
                    let words = self.held.trim_start();
                    if let Some(rest) = words.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.place = Place::Thoughts;
                    } else if let Some(note) = words.strip_prefix(NOTE).filter(|_| self.notes) {
                        match note_end(note).filter(|end| *end <= LONGEST_NOTE) {
                            Some(end) => {
                                give_some(
                                    Piece::Thinking(note[..end].trim().to_owned()),
                                    &mut give,
                                );
                                self.held = note[end + 1..].to_owned();
                                self.place = Place::Gap;
                            }
                            None if note.len() <= LONGEST_NOTE => return,
                            None => self.place = Place::Text,
                        }
                    } else if OPEN.starts_with(words) || (self.notes && NOTE.starts_with(words)) {
                        return;
                    } else {
                        self.place = Place::Text;
                    }
                }
                Place::Thoughts => {
                    let Some((thought, rest)) = self.held.split_once(CLOSE) else {
                        let sure = self.held.len() - overlap(&self.held, CLOSE);
                        let rest = self.held.split_off(sure);
                        return give_some(
                            Piece::Thinking(std::mem::replace(&mut self.held, rest)),
                            give,
                        );
                    };
                    give_some(Piece::Thinking(thought.to_owned()), &mut give);
                    self.held = rest.to_owned();
                    self.place = Place::Gap;
                }
                Place::Gap => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return;
                    }
                    self.place = Place::Text;
                }
                Place::Text => return give_some(Piece::Text(std::mem::take(&mut self.held)), give),
            }
        }
    }

    /// No more will come.
    pub(crate) fn end(&mut self, give: impl FnMut(Piece)) {
        let held = std::mem::take(&mut self.held);
        let piece = if self.place == Place::Thoughts {
            Piece::Thinking(held)
        } else {
            Piece::Text(held)
        };
        give_some(piece, give);
    }
}

fn give_some(piece: Piece, mut give: impl FnMut(Piece)) {
    let (Piece::Thinking(text) | Piece::Text(text)) = &piece;
    if !text.is_empty() {
        give(piece);
    }
}

/// Finds the bracket that closes a note, which may have brackets inside.
fn note_end(note: &str) -> Option<usize> {
    let mut depth = 0_usize;
    note.char_indices().find_map(|(at, char)| {
        match char {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
        None
    })
}

/// How many bytes at the end of a text may be the beginning of a tag.
fn overlap(text: &str, tag: &str) -> usize {
    let longest = (1..tag.len()).rev();
    longest
        .into_iter()
        .find(|&length| text.ends_with(tag.get(..length).unwrap_or(tag)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, thinking: &str, said: &str) {
        check_with(Thoughts::default, text, thinking, said);
    }

    #[track_caller]
    fn check_with(new: fn() -> Thoughts, text: &str, thinking: &str, said: &str) {
        for length in [1, 2, 3, text.len()] {
            let (mut thoughts, mut words) = (String::new(), String::new());
            let mut give = |piece: Piece| match piece {
                Piece::Thinking(text) => thoughts.push_str(&text),
                Piece::Text(text) => words.push_str(&text),
            };
            let mut thoughts_of = new();
            let chars: Vec<char> = text.chars().collect();
            for piece in chars.chunks(length.max(1)) {
                thoughts_of.take(&piece.iter().collect::<String>(), &mut give);
            }
            thoughts_of.end(&mut give);
            assert_eq!(
                (&*thoughts, &*words),
                (thinking, said),
                "in pieces of {length}"
            );
        }
    }

    #[test]
    fn thoughts_come_first() {
        check("<think>Hm.</think>\n\nSeven.", "Hm.", "Seven.");
        check(
            "\n<think>\na < b </thin </think> x <think>",
            "\na < b </thin ",
            "x <think>",
        );
        check("Seven. <think>no</think>", "", "Seven. <think>no</think>");
        check("<thing> seven", "", "<thing> seven");
        check("<think>cut o", "cut o", "");
        check("<think>ä</thin", "ä</thin", "");
        check("<thi", "", "<thi");
        check("", "", "");
        check("<think></think>Seven", "", "Seven");
    }

    #[test]
    fn notes_are_thoughts_where_they_are_wanted() {
        let check_note =
            |text, thinking, said| check_with(Thoughts::with_notes, text, thinking, said);
        check_note("[Thinking: a [b] c]\n\nYes.", "a [b] c", "Yes.");
        check_note(" [Thinking: hm]", "hm", "");
        check_note("<think>\nhm [b]\n</think>\n\nYes.", "\nhm [b]\n", "Yes.");
        check_note("[Thinking: never closed", "", "[Thinking: never closed");
        check_note("[Think]", "", "[Think]");
        check_note("Well [Thinking: hm] yes", "", "Well [Thinking: hm] yes");
        check("[Thinking: hm] Yes.", "", "[Thinking: hm] Yes.");
    }
}
