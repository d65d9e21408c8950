//! The bytes of a file that are looked at.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use levity_system::files::open_without_waiting;

use super::Encoding;

/// How many bytes are read at most.
pub(super) const MOST: u64 = 1 << 20;
/// How much of a large file's beginning and end is read, and of each piece between.
const HEAD: u64 = 512 << 10;
const TAIL: u64 = 128 << 10;
const PIECE: u64 = 48 << 10;
const PIECES: u64 = 8;

/// Some of a file, or all of it.
pub(super) struct Sample {
    pub(super) size: u64,
    pub(super) whole: bool,
    /// In the order of the file; the first is its beginning.
    pub(super) pieces: Vec<Vec<u8>>,
}

impl Sample {
    /// Reads from a regular file.
    ///
    /// # Errors
    /// In words that name the path.
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        let named = |problem: &str| {
            format!(
                "`{}` {problem}",
                super::text::one_line(&path.to_string_lossy())
            )
        };
        let failed = |error: io::Error| named(&reason(&error));
        // Asked before it is opened, since opening a device may already do something.
        regular(&fs::metadata(path).map_err(failed)?).map_err(named)?;
        let mut file = open_without_waiting(path).map_err(failed)?;
        // Asked again, since it may have been put in the other's place.
        let metadata = file.metadata().map_err(failed)?;
        regular(&metadata).map_err(named)?;
        read(&mut file, metadata.len()).map_err(failed)
    }

    pub(super) fn head(&self) -> &[u8] {
        self.pieces.first().map_or(&[], Vec::as_slice)
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "is not there".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

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

fn read(file: &mut File, size: u64) -> io::Result<Sample> {
    if size <= MOST {
        // It may grow while it is read, and files of the system have no size before that.
        let bytes = piece(file, 0, MOST + 1)?;
        if bytes.len() as u64 <= MOST {
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

fn piece(file: &mut File, at: u64, most: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A sample as text.
pub(super) struct Text {
    pub(super) encoding: Encoding,
    pub(super) whole: bool,
    pub(super) size: u64,
    pub(super) head: String,
    /// The last piece; empty when all is in `head`.
    pub(super) tail: String,
    /// Lines in all that was read, and bytes.
    seen: (u64, u64),
    /// Whether the last line has no end.
    open: bool,
}

impl Text {
    /// The text, unless it is none.
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

    /// How many lines there are.
    pub(super) fn lines(&self) -> super::Count {
        let (lines, bytes) = self.seen;
        if self.whole {
            return super::Count::exact(lines + u64::from(self.open));
        }
        let about = super::Count::scaled(lines, self.size, bytes);
        super::Count::about(about.number.max(1))
    }

    /// The beginning without a last line that may go on.
    pub(super) fn whole_lines(&self) -> &str {
        match self.head.rfind('\n') {
            Some(end) if !self.whole => &self.head[..=end],
            _ => &self.head,
        }
    }
}

/// The last piece of a file, from where a unit of two bytes begins.
fn cut_begin(piece: &[u8], unit: u64, size: u64) -> &[u8] {
    let odd = (size - piece.len() as u64) % unit;
    piece.get(odd as usize..).unwrap_or_default()
}

/// How its text is written; nothing if it is not text.
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
    // Text in an older encoding has some bytes that are no UTF-8; what is mostly such bytes is not
    // text.
    match () {
        () if invalid * 10 > all.max(20) * 3 || controls * 10 > all.max(20) => None,
        () if invalid > 0 => Some(Encoding::Other),
        () if sample.head().starts_with(b"\xef\xbb\xbf") => Some(Encoding::Utf8Bom),
        () => Some(Encoding::Utf8),
    }
}

/// A piece without what is left at its ends of characters that it cuts through.
fn trimmed(piece: &[u8]) -> &[u8] {
    let goes_on = |byte: &u8| byte & 0xc0 == 0x80;
    let begin = piece
        .iter()
        .take(3)
        .take_while(|byte| goes_on(byte))
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

/// A number of bytes, for people.
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
