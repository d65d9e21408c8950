//! What is wrong with an SQLite file, as an error of memory.

use levity_core::{MemoryError, MemoryErrorKind};
use levity_sqlite::{Error, ErrorKind};

pub(crate) fn told(error: Error) -> MemoryError {
    let kind = match error.kind() {
        ErrorKind::Refused | ErrorKind::TooBig => MemoryErrorKind::Refused,
        ErrorKind::Damaged => MemoryErrorKind::Damaged,
        ErrorKind::Version => MemoryErrorKind::Version,
        // Whoever is told that a conversation is `Busy` waits for its holder, and here was waited
        // already.
        _ => MemoryErrorKind::Io,
    };
    let told = MemoryError::new(kind, error.to_string());
    match error.into_source() {
        Some(source) => told.with_source(source),
        None => told,
    }
}
