//! Conversation metadata, read without reading whole files.
//!
//! The first 8 KiB of a file are enough, unless another program wrote it; such a file is read
//! completely.

use std::fs;
use std::path::Path;

use levity_core::{ConversationId, ConversationInfo, MemoryError, MemoryErrorKind};

use super::{disk, format, name};

/// The maximum length of a file's first line.
const MAX_HEAD_BYTES: u64 = 8 << 10;

/// Lists all conversations of a folder. It skips files that were removed meanwhile or cannot be
/// read.
pub(super) fn many(dir: &Path) -> Result<Vec<ConversationInfo>, MemoryError> {
    let entries = fs::read_dir(dir).map_err(|error| {
        MemoryError::new(
            MemoryErrorKind::Io,
            "cannot read the folder of conversations",
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

/// Returns the metadata of a conversation, if its file can be read. `name` is the id for a file
/// that does not contain one.
pub(super) fn info(path: &Path, name: &ConversationId) -> Option<ConversationInfo> {
    let (start, stamp) = disk::read_start(path, MAX_HEAD_BYTES).ok()??;
    let line = start
        .split_inclusive(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    if let Some(info) = format::head(line) {
        return Some(info);
    }
    let (bytes, _) = disk::read(path).ok()??;
    let read = format::read(name, &bytes, stamp.modified()).ok()?;
    Some(read.stored.info(read.id.as_ref().unwrap_or(name)))
}
