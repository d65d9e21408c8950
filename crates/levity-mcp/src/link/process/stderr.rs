//! The stderr output of a server.
//!
//! The output serves two purposes: the last 2 KiB are part of errors, and each line is an event.
//! Both are free of the server's secrets, of escape codes and of control characters, which could
//! change a terminal. Lines without an end are reported in chunks of about 4 KiB; a chunk never
//! ends inside a secret or a character.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::ServerEventKind;
use crate::event::Events;

/// The maximum length of the retained end, in bytes.
const MAX_TAIL: usize = 2 << 10;
/// The maximum length of a chunk that is reported as one line.
const MAX_LINE: usize = 4 << 10;

/// The end of the output, and the channel for its lines. Neither contains the server's secrets.
#[derive(Clone)]
pub(super) struct Tail {
    state: Arc<Mutex<TailState>>,
    events: Events,
}

#[derive(Default)]
struct TailState {
    /// The end of the reported output, without control characters and secrets.
    reported: String,
    /// The data after that: an incomplete line.
    pending: Vec<u8>,
}

impl Tail {
    pub(super) fn new(events: Events) -> Self {
        Self {
            state: Arc::default(),
            events,
        }
    }

    /// Reads until the end of the stream. It never stops reading, so that the server never blocks.
    pub(super) async fn read_stderr(&self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
                self.push(piece);
            }
        }
        let pending = std::mem::take(&mut self.state().pending);
        if !pending.is_empty() {
            self.report(&self.redact_line(&pending));
        }
    }

    /// Adds a line of stdout that is not a message, because it often explains why a server fails.
    pub(super) fn push_stdout_line(&self, line: &[u8]) {
        // Only the part that can be reported is processed.
        let longest = MAX_LINE + self.events.secrets().secrets().longest_known();
        let line = strip_control(&String::from_utf8_lossy(&line[..line.len().min(longest)]));
        self.report(&format!(
            "{}\n",
            self.events.secrets().head(&line, MAX_LINE)
        ));
    }

    /// Returns the retained end as text for an error: without escape codes, control characters and
    /// secrets.
    pub(super) fn text(&self) -> String {
        let state = self.state();
        let pending = strip_control(&String::from_utf8_lossy(&state.pending));
        let text = format!(
            "{}{}",
            state.reported,
            self.events.secrets().unfinished(&pending)
        );
        drop(state);
        last_bytes(&text, MAX_TAIL).to_owned()
    }

    /// Adds a line, or a part of one. A line without an end is reported in chunks; no chunk ends
    /// within a secret.
    fn push(&self, piece: &[u8]) {
        let is_whole = piece.ends_with(b"\n");
        let line = {
            let pending = &mut self.state().pending;
            pending.extend_from_slice(piece);
            if !is_whole && pending.len() < MAX_LINE {
                return;
            }
            std::mem::take(pending)
        };
        if is_whole && line.len() <= MAX_LINE {
            return self.report(&self.redact_line(&line));
        }
        // An incomplete character at the end waits for its remaining bytes.
        let whole = if is_whole {
            line.len()
        } else {
            line.len() - incomplete_len(&line)
        };
        let mut text = strip_control(&String::from_utf8_lossy(&line[..whole]));
        while let Some(front) = self.events.secrets().take_front(&mut text, MAX_LINE) {
            self.report(&front);
        }
        if is_whole {
            self.report(&self.events.secrets().text(&text));
        } else {
            let mut pending = text.into_bytes();
            pending.extend_from_slice(&line[whole..]);
            self.state().pending = pending;
        }
    }

    /// Returns a line as text without control characters and secrets.
    fn redact_line(&self, line: &[u8]) -> String {
        self.events
            .secrets()
            .text(&strip_control(&String::from_utf8_lossy(line)))
            .into_owned()
    }

    /// Retains and reports a line without secrets.
    fn report(&self, line: &str) {
        {
            let reported = &mut self.state().reported;
            reported.push_str(line);
            if reported.len() > 4 * MAX_TAIL {
                *reported = last_bytes(reported, MAX_TAIL).to_owned();
            }
        }
        let line = line.trim_end();
        if self.events.has_receivers() && !line.is_empty() {
            self.events.send(ServerEventKind::Stderr(line.to_owned()));
        }
    }

    fn state(&self) -> MutexGuard<'_, TailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the end of a text, starting with a whole line if possible.
fn last_bytes(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let from = (text.len() - max..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    let last = &text[from..];
    let line = last.find('\n').filter(|at| at + 1 < last.len());
    line.or_else(|| last.find(' '))
        .map_or(last, |at| &last[at + 1..])
}

/// Returns the number of bytes at the end that start an incomplete character.
fn incomplete_len(bytes: &[u8]) -> usize {
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

/// Removes terminal escape codes and control characters from a text.
fn strip_control(text: &str) -> String {
    let mut clean = String::with_capacity(text.len().min(MAX_LINE));
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => {
                // This is `ESC [ .. letter`; for other codes only the next character is removed.
                if chars.next() == Some('[') {
                    chars.by_ref().find(|char| ('@'..='~').contains(char));
                }
            }
            '\n' | '\t' => clean.push(char),
            char if char.is_control() => {}
            char => clean.push(char),
        }
    }
    clean
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

    async fn read_all(written: &[u8]) -> (String, Vec<String>) {
        let (tail, mut events) = tail();
        tail.read_stderr(written).await;
        let mut lines = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let ServerEventKind::Stderr(line) = event.kind {
                lines.push(line);
            }
        }
        (tail.text(), lines)
    }

    #[tokio::test]
    async fn tail_retains_end_and_reports_lines() {
        let (text, lines) = read_all(b"one\r\ntwo\n\nthree").await;
        assert_eq!(text, "one\ntwo\n\nthree");
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[tokio::test]
    async fn tail_is_bounded_and_starts_with_whole_line() {
        let long: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let (text, _) = read_all(long.as_bytes()).await;
        assert!(
            text.len() <= MAX_TAIL && text.starts_with("line "),
            "{text}"
        );
        assert!(text.ends_with("line 4999\n"), "{text}");
    }

    #[tokio::test]
    async fn tail_reports_endless_line_in_chunks() {
        let (text, lines) = read_all("ä".repeat(50_000).as_bytes()).await;
        assert!(
            text.len() <= MAX_TAIL && text.chars().all(|c| c == 'ä'),
            "{text}"
        );
        assert!(lines.len() > 5 && lines.iter().all(|line| line.len() <= MAX_LINE * 3));
    }

    #[tokio::test]
    async fn tail_removes_colours_and_invalid_text() {
        let (text, _) = read_all(b"\x1b[1;31mno key\x1b[0m \xff\x07!").await;
        assert_eq!(text, "no key \u{fffd}!");
    }

    #[tokio::test]
    async fn tail_masks_secret_in_any_context() {
        let around = ["", "\n", " ", "x", "\u{1b}[31m", "é", "bye: "];
        for before in [
            0,
            1,
            90,
            MAX_LINE - 30,
            MAX_LINE - 10,
            MAX_LINE - 1,
            MAX_LINE,
            MAX_LINE + 5,
            8170,
            8185,
            8192,
            12_280,
        ] {
            for (head, tail) in around
                .iter()
                .flat_map(|head| around.map(|tail| (head, tail)))
            {
                for after in [0, 100, MAX_TAIL - 20, MAX_TAIL - 5, MAX_LINE] {
                    let (fill, rest) = ("a".repeat(before), "b".repeat(after));
                    let written = format!("{fill}{head}{SECRET}{tail}{rest}");
                    let (text, lines) = read_all(written.as_bytes()).await;
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
    async fn tail_masks_partially_written_secret() {
        let (tail, _events) = tail();
        tail.push(b"key: correct-h");
        assert_eq!(tail.text(), "key: ***");
        tail.push_stdout_line(format!("{}{SECRET}", "x".repeat(MAX_LINE - 4)).as_bytes());
        assert!(!tail.text().contains("corr"), "{}", tail.text());
    }
}
