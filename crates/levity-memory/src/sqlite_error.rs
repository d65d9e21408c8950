//! Converts SQLite errors into memory errors.
//!
//! A locked file becomes an I/O error and not `Busy`: callers would treat `Busy` as a conversation
//! that is held, and wait again.

use levity_core::{MemoryError, MemoryErrorKind};
use levity_sqlite::{Error, ErrorKind};

pub(crate) fn to_memory_error(error: Error) -> MemoryError {
    let kind = match error.kind() {
        ErrorKind::Refused | ErrorKind::TooBig => MemoryErrorKind::Refused,
        ErrorKind::Damaged => MemoryErrorKind::Damaged,
        ErrorKind::Version => MemoryErrorKind::Version,
        ErrorKind::LogInUse => MemoryErrorKind::Busy,
        // A caller that gets `Busy` waits for the holder, but this operation has already waited.
        _ => MemoryErrorKind::Io,
    };
    let memory_error = MemoryError::new(kind, error.to_string());
    match error.into_source() {
        Some(source) => memory_error.with_source(source),
        None => memory_error,
    }
}
