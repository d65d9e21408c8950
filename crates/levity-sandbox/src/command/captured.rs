//! Output of commands: decoding, and the limit on what is retained.
//!
//! Output arrives in chunks that split characters, and may be endless. [`Decoder`] joins split
//! characters, and [`HeadTailBuffer`] keeps a fixed number of bytes: the beginning, which often
//! names the problem, and the end, which often contains the result.

use std::collections::VecDeque;
use std::fmt;

/// An output stream of a command.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use std::sync::{Arc, Mutex};
/// use levity_sandbox::{Level, Sandbox, Stream, Workspace};
///
/// let sandbox =
///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
/// let errors = Arc::new(Mutex::new(String::new()));
/// let sink = errors.clone();
/// let listener = move |stream: Stream, text: &str| {
///     if stream == Stream::Stderr {
///         sink.lock().unwrap().push_str(text);
///     }
/// };
/// sandbox.shell("echo out; echo problem >&2").on_output(listener).run().await?;
/// assert_eq!(*errors.lock().unwrap(), "problem\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The standard output stream.
    Stdout,
    /// The standard error stream.
    Stderr,
}

/// The captured output of a command. If it exceeds the limit, a line that states the number of
/// omitted bytes replaces the middle.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_sandbox::{Level, Sandbox, Workspace};
///
/// let sandbox = Sandbox::builder(Workspace::open(folder.path())?)
///     .max_output(8)
///     .require_level(Level::Open)
///     .build()?;
/// let finished = sandbox.command(["echo", "abcdefghijkl"]).run().await?;
/// assert_eq!(finished.stdout.text, "abcd\n[.. 5 bytes left out ..]\njkl\n");
/// assert!(finished.stdout.is_truncated());
/// # Ok(())
/// # }
/// ```
///
/// The text is untrusted: a program, or a file that it prints, may contain instructions for a
/// model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapturedOutput {
    /// The text. Invalid UTF-8 is replaced.
    pub text: String,
    /// The number of omitted bytes.
    pub omitted_bytes: u64,
}

impl CapturedOutput {
    /// Returns `true` if bytes were omitted.
    pub fn is_truncated(&self) -> bool {
        self.omitted_bytes > 0
    }
}

impl fmt::Display for CapturedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Decodes text from bytes that arrive in chunks.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// An incomplete character: at most three bytes.
    rest: Vec<u8>,
}

impl Decoder {
    /// Returns the text decoded from these bytes. Bytes that may become a character with the next
    /// chunk are retained.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        self.rest = all.split_off(whole);
        match String::from_utf8(all) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }

    /// Returns the text of the bytes that remain at the end.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// Returns the number of bytes at the end that are the beginning of a character.
///
/// At most three bytes can be unfinished, since a character has at most four. For example, the last
/// byte of `b"a\xC3"` is the beginning of an `ä`.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    (0..tail.len())
        .map(|start| &tail[start..])
        .find(|piece| {
            std::str::from_utf8(piece)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .map_or(0, <[u8]>::len)
}

/// Retains the beginning and the end of a text, each up to half of the limit.
///
/// `room` is the limit in bytes. The head is filled first and never changes; the tail is a ring
/// that drops its oldest bytes.
#[derive(Debug)]
pub(super) struct HeadTailBuffer {
    head: String,
    tail: VecDeque<u8>,
    room: usize,
    left_out: u64,
}

impl HeadTailBuffer {
    pub(super) fn new(room: usize) -> Self {
        Self {
            head: String::new(),
            tail: VecDeque::new(),
            room,
            left_out: 0,
        }
    }

    /// Cuts the head at a character. The tail may begin inside of one, and [`finish`](Self::finish)
    /// removes that rest.
    pub(super) fn push(&mut self, text: &str) {
        let mut text = text;
        let head = self.room / 2;
        if self.tail.is_empty() && self.left_out == 0 && self.head.len() < head {
            let taken = text.floor_char_boundary_at(head - self.head.len());
            self.head.push_str(&text[..taken]);
            text = &text[taken..];
        }
        let tail = self.room - head;
        let bytes = text.as_bytes();
        let retained = &bytes[bytes.len().saturating_sub(tail)..];
        let dropped = (self.tail.len() + retained.len())
            .saturating_sub(tail)
            .min(self.tail.len());
        self.tail.drain(..dropped);
        self.tail.extend(retained);
        self.left_out += (dropped + bytes.len() - retained.len()) as u64;
    }

    /// The line about omitted bytes is added only if bytes were omitted, and is not counted in the
    /// limit.
    pub(super) fn finish(self) -> CapturedOutput {
        let Self {
            mut head,
            mut tail,
            mut left_out,
            ..
        } = self;
        // A truncated character begins with bytes that cannot begin one.
        while left_out > 0 && tail.front().is_some_and(|byte| byte & 0xC0 == 0x80) {
            tail.pop_front();
            left_out += 1;
        }
        if left_out > 0 {
            head.push_str(&format!("\n[.. {left_out} bytes left out ..]\n"));
        }
        let (front, back) = tail.as_slices();
        let tail = [front, back].concat();
        head.push_str(&String::from_utf8_lossy(&tail));
        CapturedOutput {
            text: head,
            omitted_bytes: left_out,
        }
    }
}

trait Boundary {
    /// Returns the end of the last character that ends at or before `max`.
    fn floor_char_boundary_at(&self, max: usize) -> usize;
}

impl Boundary for str {
    fn floor_char_boundary_at(&self, max: usize) -> usize {
        if max >= self.len() {
            return self.len();
        }
        (0..=max)
            .rev()
            .find(|&index| self.is_char_boundary(index))
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_decoded(pieces: &[&[u8]], expected: &str) {
        let mut decoder = Decoder::default();
        let mut text: String = pieces.iter().map(|piece| decoder.decode(piece)).collect();
        text += &decoder.finish();
        assert_eq!(text, expected);
    }

    #[test]
    fn decoder_joins_characters_split_between_chunks() {
        check_decoded(&[b"a\xC3", b"\xA4b"], "aäb");
        check_decoded(&[b"\xF0", b"\x9F", b"\x98", b"\x80"], "😀");
        check_decoded(&["€".as_bytes(), b"\xE2\x82"], "€\u{FFFD}");
        check_decoded(&[b"\xFFa", b"\xC3", b"a"], "\u{FFFD}a\u{FFFD}a");
        check_decoded(&[b"\x80\x80\x80"], "\u{FFFD}\u{FFFD}\u{FFFD}");
        check_decoded(&[b"", b""], "");
    }

    #[test]
    fn decoder_output_does_not_depend_on_chunk_size() {
        let bytes: Vec<u8> = (0..4000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for size in 1..9 {
            let mut decoder = Decoder::default();
            let mut text: String = bytes
                .chunks(size)
                .map(|piece| decoder.decode(piece))
                .collect();
            text += &decoder.finish();
            assert_eq!(text, String::from_utf8_lossy(&bytes), "in pieces of {size}");
        }
    }

    #[track_caller]
    fn retained(room: usize, pieces: &[&str], expected: &str, left_out: u64) {
        let mut keep = HeadTailBuffer::new(room);
        pieces.iter().for_each(|piece| keep.push(piece));
        let captured = keep.finish();
        assert_eq!(
            (captured.text.as_str(), captured.omitted_bytes),
            (expected, left_out)
        );
    }

    #[test]
    fn buffer_over_limit_retains_head_and_tail() {
        retained(8, &["abcd", "efgh"], "abcdefgh", 0);
        retained(8, &["abcdefghi"], "abcd\n[.. 1 bytes left out ..]\nfghi", 1);
        retained(
            8,
            &["a", "bcdefghij", "k"],
            "abcd\n[.. 3 bytes left out ..]\nhijk",
            3,
        );
        retained(0, &["abc"], "\n[.. 3 bytes left out ..]\n", 3);
        retained(8, &["ääääää"], "ää\n[.. 4 bytes left out ..]\nää", 4);
        retained(6, &["äxäxäx"], "äx\n[.. 3 bytes left out ..]\näx", 3);
        retained(8, &[], "", 0);
    }
}
