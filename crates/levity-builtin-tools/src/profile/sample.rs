//! Samples of a file's bytes.
//!
//! A large file is read in ten pieces: its first 512 KiB, eight pieces of 48 KiB at equal
//! distances, and its last 128 KiB. The beginning decides the format, the pieces improve the
//! estimate of lines, and the end shows the last lines. The path is checked before and after
//! opening, so no device is opened and no pipe is waited for.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use levity_system::files::open_without_waiting;

use super::Encoding;

/// The maximum number of bytes that are read.
pub(super) const MAX_READ: u64 = 1 << 20;
/// The number of bytes read at the beginning and end of a large file, and in each piece between.
const HEAD: u64 = 512 << 10;
const TAIL: u64 = 128 << 10;
const PIECE: u64 = 48 << 10;
const PIECES: u64 = 8;

/// A sample of a file, or all of it.
pub(super) struct Sample {
    pub(super) size: u64,
    pub(super) whole: bool,
    /// The pieces in the order of the file; the first is its beginning.
    pub(super) pieces: Vec<Vec<u8>>,
}

impl Sample {
    /// Reads a sample of a regular file.
    ///
    /// # Errors
    /// Returns a message that names the path.
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        let named = |problem: &str| {
            format!(
                "`{}` {problem}",
                super::text::one_line(&path.to_string_lossy())
            )
        };
        let failed = |error: io::Error| named(&reason(&error));
        // The type is checked before opening, because opening a device may have side effects.
        regular(&fs::metadata(path).map_err(failed)?).map_err(named)?;
        let mut file = open_without_waiting(path).map_err(failed)?;
        // The type is checked again, because the path may have been replaced.
        let metadata = file.metadata().map_err(failed)?;
        regular(&metadata).map_err(named)?;
        read(&mut file, metadata.len()).map_err(failed)
    }

    pub(super) fn head(&self) -> &[u8] {
        self.pieces.first().map_or(&[], Vec::as_slice)
    }
}

/// Returns the reason in words that fit after the path.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be read: permission denied".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// Returns the words for an error if the file is not a regular one.
fn regular(metadata: &Metadata) -> Result<(), &'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(if kind.is_dir() {
        "is a folder; name the files in it"
    } else {
        special(kind)
    })
}

#[cfg(unix)]
fn special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match () {
        () if kind.is_fifo() => "is a pipe, not a file",
        () if kind.is_socket() => "is a socket, not a file",
        () => "is a device, not a file",
    }
}

#[cfg(not(unix))]
fn special(_: FileType) -> &'static str {
    "is not a file"
}

/// A file that grows beyond the limit while it is read counts as sampled, with its size so far.
fn read(file: &mut File, size: u64) -> io::Result<Sample> {
    if size <= MAX_READ {
        // The file may grow during the read, and files in `/proc` have no size before it.
        let bytes = piece(file, 0, MAX_READ + 1)?;
        if bytes.len() as u64 <= MAX_READ {
            return Ok(Sample {
                size: bytes.len() as u64,
                whole: true,
                pieces: vec![bytes],
            });
        }
        return Ok(Sample {
            size: bytes.len() as u64,
            whole: false,
            pieces: vec![bytes],
        });
    }
    let mut pieces = vec![piece(file, 0, HEAD)?];
    let step = (size - HEAD - TAIL) / PIECES;
    for at in 0..PIECES {
        pieces.push(piece(
            file,
            HEAD + at * step + (step.saturating_sub(PIECE)) / 2,
            PIECE.min(step),
        )?);
    }
    pieces.push(piece(file, size - TAIL, TAIL)?);
    Ok(Sample {
        size,
        whole: false,
        pieces,
    })
}

fn piece(file: &mut File, at: u64, max: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A sample decoded as text.
pub(super) struct Text {
    pub(super) encoding: Encoding,
    pub(super) whole: bool,
    pub(super) size: u64,
    pub(super) head: String,
    /// The last piece; empty if `head` contains the whole file.
    pub(super) tail: String,
    /// The number of lines and bytes in all pieces.
    seen: (u64, u64),
    /// Set if the last line has no line ending.
    open: bool,
}

impl Text {
    /// Decodes a sample; `None` if it is not text.
    pub(super) fn of(sample: &Sample) -> Option<Self> {
        let encoding = encoding(sample)?;
        let unit = if matches!(encoding, Encoding::Utf16Le | Encoding::Utf16Be) {
            2
        } else {
            1
        };
        let mark = match encoding {
            Encoding::Utf8Bom => 3,
            _ if unit == 2 => 2,
            _ => 0,
        };
        let head = decode(encoding, sample.head().get(mark..).unwrap_or_default());
        let tail = match &*sample.pieces {
            [_, .., last] => decode(encoding, cut_begin(last, unit, sample.size)),
            _ => String::new(),
        };
        let lines = |piece: &Vec<u8>| piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        let seen = (
            sample.pieces.iter().map(lines).sum(),
            sample.pieces.iter().map(|piece| piece.len() as u64).sum(),
        );
        let open = !head.is_empty() && !if tail.is_empty() { &head } else { &tail }.ends_with('\n');
        Some(Self {
            encoding,
            whole: sample.whole,
            size: sample.size,
            head,
            tail,
            seen,
            open,
        })
    }

    /// Returns the number of lines in the file.
    ///
    /// The number is exact only if the whole file was read; otherwise it is scaled by size, and at
    /// least 1.
    pub(super) fn lines(&self) -> super::Count {
        let (lines, bytes) = self.seen;
        if self.whole {
            return super::Count::exact(lines + u64::from(self.open));
        }
        let about = super::Count::scaled(lines, self.size, bytes);
        super::Count::estimated(about.number.max(1))
    }

    /// Returns the beginning without a last line that may be cut.
    pub(super) fn whole_lines(&self) -> &str {
        match self.head.rfind('\n') {
            Some(end) if !self.whole => &self.head[..=end],
            _ => &self.head,
        }
    }
}

/// Returns the last piece from the start of a two-byte unit.
fn cut_begin(piece: &[u8], unit: u64, size: u64) -> &[u8] {
    let odd = (size - piece.len() as u64) % unit;
    piece.get(odd as usize..).unwrap_or_default()
}

/// Detects the encoding of a sample; `None` if it is not text.
fn encoding(sample: &Sample) -> Option<Encoding> {
    match sample.head() {
        [0xff, 0xfe, 0, 0, ..] => return None,
        [0xff, 0xfe, ..] => return Some(Encoding::Utf16Le),
        [0xfe, 0xff, ..] => return Some(Encoding::Utf16Be),
        _ => {}
    }
    let (mut all, mut invalid, mut controls) = (0, 0, 0);
    for piece in &sample.pieces {
        let piece = trimmed(piece);
        all += piece.len();
        invalid += piece
            .utf8_chunks()
            .map(|chunk| chunk.invalid().len())
            .sum::<usize>();
        controls += piece
            .iter()
            .filter(|byte| matches!(byte, 1..=6 | 14..=26 | 28..=31))
            .count();
        if piece.contains(&0) {
            return None;
        }
    }
    // Text in a legacy encoding contains some bytes that are not UTF-8. Data with mostly such bytes
    // is not text.
    match () {
        () if invalid * 10 > all.max(20) * 3 || controls * 10 > all.max(20) => None,
        () if invalid > 0 => Some(Encoding::Other),
        () if sample.head().starts_with(b"\xef\xbb\xbf") => Some(Encoding::Utf8Bom),
        () => Some(Encoding::Utf8),
    }
}

/// Removes partial characters from both ends of a piece.
fn trimmed(piece: &[u8]) -> &[u8] {
    let is_continuation = |byte: &u8| byte & 0xc0 == 0x80;
    let begin = piece
        .iter()
        .take(3)
        .take_while(|byte| is_continuation(byte))
        .count();
    let piece = &piece[begin..];
    match piece.utf8_chunks().last() {
        Some(chunk)
            if std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none()) =>
        {
            &piece[..piece.len() - chunk.invalid().len()]
        }
        _ => piece,
    }
}

fn decode(encoding: Encoding, bytes: &[u8]) -> String {
    let unit = |pair: &[u8]| match (encoding, pair) {
        (Encoding::Utf16Be, &[high, low]) => u16::from_be_bytes([high, low]),
        (_, &[low, high]) => u16::from_le_bytes([low, high]),
        _ => 0xfffd,
    };
    match encoding {
        Encoding::Utf16Le | Encoding::Utf16Be => {
            let units = bytes.chunks(2).map(unit);
            char::decode_utf16(units)
                .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        _ => String::from_utf8_lossy(trimmed(bytes)).into_owned(),
    }
}

/// Formats a number of bytes for people to read.
pub(super) fn bytes(size: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if size < 1024 {
        return format!("{size} B");
    }
    let (mut number, mut unit) = (size as f64 / 1024.0, 0);
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        (number, unit) = (number / 1024.0, unit + 1);
    }
    format!("{number:.1} {}", UNITS[unit])
}
