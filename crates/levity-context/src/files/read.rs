//! Reading of a context file.
//!
//! A file must never fail a run: whatever is wrong with it becomes a short text in its block. The
//! text is cut at a character boundary, and invalid UTF-8 is replaced and reported in the text
//! itself.

use std::borrow::Cow;

use levity_core::ContextBlock;
use levity_sandbox::{Excerpt, PathError, Workspace};

use super::FileExcerpt;
use super::find::{File, FileLocation};

/// Returns a file as a block within a token limit; `None` if not even a note fits.
///
/// A token counts as four bytes, so at most `tokens * 4` bytes are read.
pub(super) fn read(
    space: &Workspace,
    file: &File,
    tokens: usize,
) -> (Option<ContextBlock>, FileExcerpt) {
    let excerpt = match &file.at {
        Ok((place, _)) => open(space, place, tokens.saturating_mul(4) as u64),
        Err(reason) => Err(reason.clone()),
    };
    let name = file.name.as_str();
    let (text, whole) = match excerpt {
        Ok(excerpt) => decode(&excerpt),
        Err(reason) => {
            return (
                ContextBlock::new(name, not_shown(&reason)).cut_to(tokens),
                FileExcerpt::no(reason),
            );
        }
    };
    let is_whole = text.len() as u64 >= whole;
    let long = text.len();
    let block = ContextBlock::new(name, text).cut_of(tokens, whole);
    let is_whole = is_whole && block.as_ref().is_some_and(|block| block.text.len() == long);
    (
        block,
        if is_whole {
            FileExcerpt::Complete
        } else {
            FileExcerpt::Truncated
        },
    )
}

/// Reads the beginning of a file, at most `max` bytes.
fn open(space: &Workspace, place: &FileLocation, max: u64) -> Result<Excerpt, String> {
    let excerpt = match place {
        FileLocation::Inside(path) => space.read_prefix(path, max),
        FileLocation::User(space, name) => space.read_prefix(name, max),
    };
    excerpt.map_err(|error| reason(&error))
}

/// Returns the text of a file and its total size in bytes.
///
/// A byte order mark is removed and does not count.
fn decode(excerpt: &Excerpt) -> (String, u64) {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let (bytes, size) = match excerpt.bytes.strip_prefix(MARK) {
        Some(bytes) => (bytes, excerpt.size.saturating_sub(MARK.len() as u64)),
        None => (&*excerpt.bytes, excerpt.size),
    };
    let bytes = if excerpt.truncated {
        whole_characters(bytes)
    } else {
        bytes
    };
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => (text.to_owned(), size),
        // The decoded text may be longer than the file.
        Cow::Owned(text) => {
            let text =
                format!("[this is not UTF-8; each `\u{fffd}` replaces invalid bytes]\n{text}");
            let whole = if excerpt.truncated {
                size.max(text.len() as u64 + 1)
            } else {
                text.len() as u64
            };
            (text, whole)
        }
    }
}

/// Removes an incomplete character from the end of the bytes.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Formats the text that replaces a file.
pub(super) fn not_shown(reason: &str) -> String {
    format!("[not shown: {reason}]")
}

/// Returns the reason why a file cannot be shown, without naming other files.
pub(super) fn reason(error: &PathError) -> String {
    match error {
        PathError::Outside(_) => "it leads out of the workspace".to_owned(),
        PathError::Denied(_) => "it is denied to tools".to_owned(),
        PathError::NotFound(_) => "it does not exist".to_owned(),
        PathError::NotAFile(_) => "it is not a regular file".to_owned(),
        PathError::NotADirectory(_) => "it is not a folder".to_owned(),
        PathError::HardLink(_) => {
            "it has several hard links and may be shared with a place outside".to_owned()
        }
        PathError::Busy(_) => "another process is changing it".to_owned(),
        PathError::Io { source, .. } => format!("it cannot be read: {}", source.kind()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file that had `then` bytes when it was found.
    fn read_later(text: Option<&[u8]>, then: u64, tokens: usize) -> (Option<String>, FileExcerpt) {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            std::fs::write(folder.path().join("a.md"), text).unwrap();
        }
        let space = Workspace::open(folder.path()).unwrap();
        let file = File {
            name: "a.md".into(),
            at: Ok((FileLocation::Inside("a.md".into()), then)),
            rank: 0,
        };
        let (block, shown) = read(&space, &file, tokens);
        (block.map(|block| block.text), shown)
    }

    #[test]
    fn removed_file_is_replaced_by_note() {
        let (text, shown) = read_later(None, 5, 100);
        assert_eq!(text.as_deref(), Some("[not shown: it does not exist]"));
        assert_eq!(shown, FileExcerpt::no("it does not exist"));
    }

    #[test]
    fn changed_file_is_shown_with_current_content() {
        assert_eq!(
            read_later(Some(b"one"), 500, 100),
            (Some("one".into()), FileExcerpt::Complete)
        );
        let (text, shown) = read_later(Some(&b"0123456\n".repeat(100)), 5, 40);
        assert!(
            text.unwrap()
                .ends_with("6\n[cut: these are the first 96 of 800 bytes]")
        );
        assert_eq!(
            (shown, read_later(Some(b""), 5, 3).0),
            (FileExcerpt::Truncated, None)
        );
    }

    #[test]
    fn excerpt_ends_at_char_boundary() {
        for tokens in 20..40 {
            let (text, _) = read_later(Some("€".repeat(1_000).as_bytes()), 3_000, tokens);
            assert!(text.unwrap().starts_with('€'));
        }
    }

    #[test]
    fn excerpt_of_binary_file_has_note() {
        let (text, shown) = read_later(Some(&b"\xff\xfeh\0i\0".repeat(500)), 3_000, 60);
        let text = text.unwrap();
        assert!(
            text.starts_with("[this is not UTF-8;") && text.contains("[cut: "),
            "{text}"
        );
        assert_eq!(shown, FileExcerpt::Truncated);
        assert!(read_later(Some(b"a\xff"), 2, 100).1 == FileExcerpt::Complete);
    }
}
