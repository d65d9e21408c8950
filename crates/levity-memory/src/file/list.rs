//! What is known of conversations without reading all of them.

use std::fs;
use std::path::Path;

use levity_core::{ConversationId, ConversationInfo, MemoryError, MemoryErrorKind};

use super::{disk, format, name};

/// The first line of a file is not longer than this.
const LONGEST_HEAD: u64 = 8 << 10;

/// All conversations of a folder. One that has gone meanwhile, or cannot be read, does not hide the
/// others.
pub(super) fn many(dir: &Path) -> Result<Vec<ConversationInfo>, MemoryError> {
    let entries = fs::read_dir(dir).map_err(|error| {
        MemoryError::new(
            MemoryErrorKind::Io,
            "the folder of conversations could not be read",
        )
        .with_source(error)
    })?;
    let mut infos = Vec::new();
    for entry in entries.flatten() {
        let file = entry.file_name();
        let id = file
            .to_str()
            .and_then(|file| file.strip_suffix(".json"))
            .and_then(name::unescape);
        let Some(id) = id.map(ConversationId::new) else {
            continue;
        };
        infos.extend(info(&entry.path(), &id).filter(|info| info.id == id));
    }
    Ok(infos)
}

/// What is known of a conversation without reading all of it, if it can be read. `name` is what it
/// is called if it does not say so itself.
pub(super) fn info(path: &Path, name: &ConversationId) -> Option<ConversationInfo> {
    let (start, stamp) = disk::read_start(path, LONGEST_HEAD).ok()??;
    let line = start
        .split_inclusive(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    if let Some(info) = format::head(line) {
        return Some(info);
    }
    let (bytes, _) = disk::read(path).ok()??;
    let read = format::read(name, &bytes, stamp.modified()).ok()?;
    Some(read.kept.info(read.id.as_ref().unwrap_or(name)))
}
