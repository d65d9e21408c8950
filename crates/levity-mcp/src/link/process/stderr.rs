//! What a server writes to stderr.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::ServerEventKind;
use crate::event::Events;

/// How much of its end is kept.
const KEPT: usize = 2 << 10;
/// The longest piece that is told as one line.
const LINE: usize = 4 << 10;

/// The end of what was written, and where its lines go. The server's secrets are in neither.
#[derive(Clone)]
pub(super) struct Tail {
    kept: Arc<Mutex<Kept>>,
    events: Events,
}

#[derive(Default)]
struct Kept {
    /// The end of what was told, plain and without secrets.
    told: String,
    /// What was written since: a line that may go on.
    pending: Vec<u8>,
}

impl Tail {
    pub(super) fn new(events: Events) -> Self {
        Self {
            kept: Arc::default(),
            events,
        }
    }

    /// Reads until nothing more comes. It always reads on, so that the server never waits for us.
    pub(super) async fn listen(&self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
                self.take(piece);
            }
        }
        let pending = std::mem::take(&mut self.kept().pending);
        if !pending.is_empty() {
            self.tell(&self.clean(&pending));
        }
    }

    /// Keeps a line of stdout that is no message: it often says why a server does not work.
    pub(super) fn line_of_stdout(&self, line: &[u8]) {
        // Only what can be a part of what is told is made plain.
        let longest = LINE + self.events.secrets().secrets().longest_known();
        let line = plain(&String::from_utf8_lossy(&line[..line.len().min(longest)]));
        self.tell(&format!("{}\n", self.events.secrets().head(&line, LINE)));
    }

    /// What is kept, as text that can stand in an error: no escape codes, no control characters, no
    /// secrets.
    pub(super) fn text(&self) -> String {
        let kept = self.kept();
        let pending = plain(&String::from_utf8_lossy(&kept.pending));
        let text = format!(
            "{}{}",
            kept.told,
            self.events.secrets().unfinished(&pending)
        );
        drop(kept);
        end(&text, KEPT).to_owned()
    }

    /// Takes a line, or a part of one. A line without an end is told in pieces, none of which ends
    /// within a secret.
    fn take(&self, piece: &[u8]) {
        let is_whole = piece.ends_with(b"\n");
        let line = {
            let pending = &mut self.kept().pending;
            pending.extend_from_slice(piece);
            if !is_whole && pending.len() < LINE {
                return;
            }
            std::mem::take(pending)
        };
        if is_whole && line.len() <= LINE {
            return self.tell(&self.clean(&line));
        }
        // A character of which only the beginning is there waits for its rest.
        let whole = if is_whole {
            line.len()
        } else {
            line.len() - unfinished(&line)
        };
        let mut text = plain(&String::from_utf8_lossy(&line[..whole]));
        while let Some(front) = self.events.secrets().take_front(&mut text, LINE) {
            self.tell(&front);
        }
        if is_whole {
            self.tell(&self.events.secrets().text(&text));
        } else {
            let mut pending = text.into_bytes();
            pending.extend_from_slice(&line[whole..]);
            self.kept().pending = pending;
        }
    }

    fn clean(&self, line: &[u8]) -> String {
        self.events
            .secrets()
            .text(&plain(&String::from_utf8_lossy(line)))
            .into_owned()
    }

    /// Keeps and tells a line that has no secrets.
    fn tell(&self, line: &str) {
        {
            let told = &mut self.kept().told;
            told.push_str(line);
            if told.len() > 4 * KEPT {
                *told = end(told, KEPT).to_owned();
            }
        }
        let line = line.trim_end();
        if self.events.is_heard() && !line.is_empty() {
            self.events.send(ServerEventKind::Stderr(line.to_owned()));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a text, which begins with a whole line where there is one.
fn end(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let from = (text.len() - most..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    let last = &text[from..];
    let line = last.find('\n').filter(|at| at + 1 < last.len());
    line.or_else(|| last.find(' '))
        .map_or(last, |at| &last[at + 1..])
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let length = |byte: u8| match byte {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => 1,
    };
    (1..=tail.len())
        .find(|back| length(tail[tail.len() - back]) > *back)
        .unwrap_or(0)
}

/// Text without terminal escape codes and control characters, at most as long as what is kept of a
/// line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len().min(LINE));
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => {
                // `ESC [ .. letter`; of anything else only the next character is left out.
                if chars.next() == Some('[') {
                    chars.by_ref().find(|char| ('@'..='~').contains(char));
                }
            }
            '\n' | '\t' => plain.push(char),
            char if char.is_control() => {}
            char => plain.push(char),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;
    use crate::redact::Redactor;

    const SECRET: &str = "correct-härse-battery";

    fn tail() -> (Tail, broadcast::Receiver<crate::ServerEvent>) {
        let (to, from) = broadcast::channel(64);
        let secrets = Redactor::new(levity_core::Secrets::new().known_only().known(SECRET));
        (Tail::new(Events::new("s".into(), to, secrets)), from)
    }

    async fn heard(written: &[u8]) -> (String, Vec<String>) {
        let (tail, mut events) = tail();
        tail.listen(written).await;
        let mut lines = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let ServerEventKind::Stderr(line) = event.kind {
                lines.push(line);
            }
        }
        (tail.text(), lines)
    }

    #[tokio::test]
    async fn keeps_the_end_and_tells_lines() {
        let (text, lines) = heard(b"one\r\ntwo\n\nthree").await;
        assert_eq!(text, "one\ntwo\n\nthree");
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[tokio::test]
    async fn is_bounded_and_begins_with_a_whole_line() {
        let long: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let (text, _) = heard(long.as_bytes()).await;
        assert!(text.len() <= KEPT && text.starts_with("line "), "{text}");
        assert!(text.ends_with("line 4999\n"), "{text}");
    }

    #[tokio::test]
    async fn one_endless_line_is_told_in_pieces() {
        let (text, lines) = heard("ä".repeat(50_000).as_bytes()).await;
        assert!(
            text.len() <= KEPT && text.chars().all(|c| c == 'ä'),
            "{text}"
        );
        assert!(lines.len() > 5 && lines.iter().all(|line| line.len() <= LINE * 3));
    }

    #[tokio::test]
    async fn colours_and_broken_text_are_made_plain() {
        let (text, _) = heard(b"\x1b[1;31mno key\x1b[0m \xff\x07!").await;
        assert_eq!(text, "no key \u{fffd}!");
    }

    #[tokio::test]
    async fn secret_is_shown_nowhere_whatever_stands_around_it() {
        let around = ["", "\n", " ", "x", "\u{1b}[31m", "é", "bye: "];
        for before in [
            0,
            1,
            90,
            LINE - 30,
            LINE - 10,
            LINE - 1,
            LINE,
            LINE + 5,
            8170,
            8185,
            8192,
            12_280,
        ] {
            for (head, tail) in around
                .iter()
                .flat_map(|head| around.map(|tail| (head, tail)))
            {
                for after in [0, 100, KEPT - 20, KEPT - 5, LINE] {
                    let (fill, rest) = ("a".repeat(before), "b".repeat(after));
                    let written = format!("{fill}{head}{SECRET}{tail}{rest}");
                    let (text, lines) = heard(written.as_bytes()).await;
                    let shown = format!("{text}\n{}", lines.concat());
                    for part in ["corr", "härse", "batt", "ttery"] {
                        assert!(
                            !shown.contains(part),
                            "{before} {head:?} {tail:?} {after}: {part}"
                        );
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn secret_that_is_half_written_is_not_shown() {
        let (tail, _events) = tail();
        tail.take(b"key: correct-h");
        assert_eq!(tail.text(), "key: ***");
        tail.line_of_stdout(format!("{}{SECRET}", "x".repeat(LINE - 4)).as_bytes());
        assert!(!tail.text().contains("corr"), "{}", tail.text());
    }
}
