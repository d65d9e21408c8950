//! What a server writes to stderr.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::ServerEventKind;
use crate::event::Events;

/// How much of its end is kept.
const KEPT: usize = 2 << 10;
/// The longest piece that is told as one line.
const LINE: usize = 4 << 10;

/// The end of what was written, and where its lines go.
#[derive(Clone)]
pub(super) struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    events: Events,
}

impl Tail {
    pub(super) fn new(events: Events) -> Self {
        Self { kept: Arc::default(), events }
    }

    /// Reads until nothing more comes. It always reads on, so that the server never waits for us.
    pub(super) async fn listen(&self, mut stderr: impl AsyncRead + Unpin) {
        let mut line = Vec::new();
        let mut chunk = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            self.keep(&chunk[..count]);
            for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(&piece[..piece.len().min(LINE.saturating_sub(line.len()))]);
                if piece.ends_with(b"\n") || line.len() >= LINE {
                    self.tell(&mut line);
                }
            }
        }
        self.tell(&mut line);
    }

    /// Keeps a line of stdout that is no message: it often says why a server does not work.
    pub(super) fn line_of_stdout(&self, line: &[u8]) {
        let mut line = line[..line.len().min(LINE)].to_vec();
        line.push(b'\n');
        self.keep(&line);
        self.tell(&mut line);
    }

    /// What is kept, as text that can stand in an error: no escape codes, no control characters.
    pub(super) fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = &kept[kept.len().saturating_sub(KEPT)..];
        if last.len() < kept.len() {
            // A first line without its beginning, or a word or character without its beginning, is left out.
            let line = memchr::memchr(b'\n', last).filter(|at| at + 1 < last.len());
            let cut = line.or_else(|| memchr::memchr(b' ', last)).map_or(0, |at| at + 1);
            last = &last[cut..];
            let broken = last.iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
            last = &last[broken..];
        }
        plain(&String::from_utf8_lossy(last))
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT + 1)..]);
        if kept.len() > 4 * KEPT {
            let cut = kept.len() - KEPT - 1;
            kept.drain(..cut);
        }
    }

    fn tell(&self, line: &mut Vec<u8>) {
        if self.events.is_heard() {
            let text = plain(&String::from_utf8_lossy(line));
            let text = text.trim_end();
            if !text.is_empty() {
                self.events.send(ServerEventKind::Stderr(text.to_owned()));
            }
        }
        line.clear();
    }
}

/// Text without terminal escape codes and control characters, at most as long as what is kept of a line.
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

    fn tail() -> (Tail, broadcast::Receiver<crate::ServerEvent>) {
        let (to, from) = broadcast::channel(64);
        (Tail::new(Events::new("s".into(), to)), from)
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
        assert!(text.len() <= KEPT && text.chars().all(|c| c == 'ä'), "{text}");
        assert!(lines.len() > 5 && lines.iter().all(|line| line.len() <= LINE * 3));
    }

    #[tokio::test]
    async fn colours_and_broken_text_are_made_plain() {
        let (text, _) = heard(b"\x1b[1;31mno key\x1b[0m \xff\x07!").await;
        assert_eq!(text, "no key \u{fffd}!");
    }
}
