//! Separates thoughts from the reply text that follows them: `<think>..</think>`, `[Thinking: ..]`.
//!
//! Models write such marks as plain text if their server does not separate thoughts. Only marks at
//! the start of a reply count: later ones belong to the answer, which may be about such marks. Text
//! is held back only as long as it may be a part of a mark.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
const NOTE: &str = "[Thinking:";

/// The maximum length of a `[Thinking: ..]` note in bytes.
const MAX_NOTE_BYTES: usize = 16 << 10;

/// A streaming parser that separates thoughts from text, regardless of chunk boundaries.
///
/// `<think>2 + 3</think> Five.` yields the thought `2 + 3` and the text `Five.`, in any split of
/// the input.
#[derive(Debug, Default)]
pub(crate) struct Thoughts {
    position: Position,
    /// True if `[Thinking: ..]` also counts as a thought.
    notes: bool,
    /// Text that may be the start of a thought or of its end tag.
    held: String,
}

/// The part of the reply that the parser has reached.
#[derive(Debug, Default, PartialEq)]
enum Position {
    #[default]
    Start,
    Thoughts,
    /// After the thoughts, before the first word.
    Gap,
    Text,
}

/// A piece of the parsed reply.
///
/// A thought or a text may arrive in several pieces; none of them is empty.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Thinking(String),
    Text(String),
}

impl Thoughts {
    /// Creates a parser that also recognises `[Thinking: ..]`.
    ///
    /// The layer that offers tools as text enables it.
    pub(crate) fn with_notes() -> Self {
        Self {
            notes: true,
            ..Self::default()
        }
    }

    /// Parses the next chunk of text.
    ///
    /// A note that is longer than 16 KiB or never ends is text.
    pub(crate) fn take(&mut self, text: &str, mut emit: impl FnMut(Piece)) {
        self.held.push_str(text);
        loop {
            match self.position {
                Position::Start => {
                    let words = self.held.trim_start();
                    if let Some(rest) = words.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.position = Position::Thoughts;
                    } else if let Some(note) = words.strip_prefix(NOTE).filter(|_| self.notes) {
                        match note_end(note).filter(|end| *end <= MAX_NOTE_BYTES) {
                            Some(end) => {
                                emit_nonempty(
                                    Piece::Thinking(note[..end].trim().to_owned()),
                                    &mut emit,
                                );
                                self.held = note[end + 1..].to_owned();
                                self.position = Position::Gap;
                            }
                            None if note.len() <= MAX_NOTE_BYTES => return,
                            None => self.position = Position::Text,
                        }
                    } else if OPEN.starts_with(words) || (self.notes && NOTE.starts_with(words)) {
                        return;
                    } else {
                        self.position = Position::Text;
                    }
                }
                Position::Thoughts => {
                    let Some((thought, rest)) = self.held.split_once(CLOSE) else {
                        let certain = self.held.len() - overlap(&self.held, CLOSE);
                        let rest = self.held.split_off(certain);
                        return emit_nonempty(
                            Piece::Thinking(std::mem::replace(&mut self.held, rest)),
                            emit,
                        );
                    };
                    emit_nonempty(Piece::Thinking(thought.to_owned()), &mut emit);
                    self.held = rest.to_owned();
                    self.position = Position::Gap;
                }
                Position::Gap => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return;
                    }
                    self.position = Position::Text;
                }
                Position::Text => {
                    return emit_nonempty(Piece::Text(std::mem::take(&mut self.held)), emit);
                }
            }
        }
    }

    /// Ends the text and emits the rest.
    ///
    /// Thoughts without an end stay thoughts; a partial mark is text.
    pub(crate) fn end(&mut self, emit: impl FnMut(Piece)) {
        let held = std::mem::take(&mut self.held);
        let piece = if self.position == Position::Thoughts {
            Piece::Thinking(held)
        } else {
            Piece::Text(held)
        };
        emit_nonempty(piece, emit);
    }
}

/// Emits a piece, unless it is empty.
fn emit_nonempty(piece: Piece, mut emit: impl FnMut(Piece)) {
    let (Piece::Thinking(text) | Piece::Text(text)) = &piece;
    if !text.is_empty() {
        emit(piece);
    }
}

/// Finds the bracket that closes a note, which may contain brackets.
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

/// Returns the number of bytes at the end of a text that may start a tag.
///
/// `abc</th` and `</think>` overlap in four bytes.
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
    fn check(text: &str, thinking: &str, reply: &str) {
        check_with(Thoughts::default, text, thinking, reply);
    }

    #[track_caller]
    fn check_with(new: fn() -> Thoughts, text: &str, thinking: &str, reply: &str) {
        for length in [1, 2, 3, text.len()] {
            let (mut thoughts, mut words) = (String::new(), String::new());
            let mut emit = |piece: Piece| match piece {
                Piece::Thinking(text) => thoughts.push_str(&text),
                Piece::Text(text) => words.push_str(&text),
            };
            let mut thoughts_of = new();
            let chars: Vec<char> = text.chars().collect();
            for piece in chars.chunks(length.max(1)) {
                thoughts_of.take(&piece.iter().collect::<String>(), &mut emit);
            }
            thoughts_of.end(&mut emit);
            assert_eq!(
                (&*thoughts, &*words),
                (thinking, reply),
                "in pieces of {length}"
            );
        }
    }

    #[test]
    fn thoughts_precede_text() {
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
    fn notes_are_thoughts_if_enabled() {
        let check_note =
            |text, thinking, reply| check_with(Thoughts::with_notes, text, thinking, reply);
        check_note("[Thinking: a [b] c]\n\nYes.", "a [b] c", "Yes.");
        check_note(" [Thinking: hm]", "hm", "");
        check_note("<think>\nhm [b]\n</think>\n\nYes.", "\nhm [b]\n", "Yes.");
        check_note("[Thinking: never closed", "", "[Thinking: never closed");
        check_note("[Think]", "", "[Think]");
        check_note("Well [Thinking: hm] yes", "", "Well [Thinking: hm] yes");
        check("[Thinking: hm] Yes.", "", "[Thinking: hm] Yes.");
    }
}
