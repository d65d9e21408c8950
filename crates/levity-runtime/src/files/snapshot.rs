//! The last snapshot of a run, in a file beside the run's own.
//!
//! A snapshot saves reading the records before it. It is valid only if it is complete and the line
//! of the run's file at which it was taken is unchanged; otherwise all records are read.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use levity_core::{JournalError, JournalErrorKind, RunId, Snapshot};
use levity_system::Replace;
use levity_system::files as private;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::format::{self, DEEP, append_checksum, depth, is_intact};
use super::{failed, read_regular};
use crate::checksum::checksum;

/// The last line that a snapshot covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastLine {
    /// The offset of its end in the file.
    pub(super) end: u64,
    len: u64,
    crc: u32,
}

impl LastLine {
    /// Returns the last line of the written bytes, which end at this offset.
    pub(super) fn of(bytes: &[u8], end: u64) -> Self {
        let line = bytes
            .split_inclusive(|byte| *byte == b'\n')
            .next_back()
            .unwrap_or_default();
        Self {
            end,
            len: line.len() as u64,
            crc: checksum(&[line]),
        }
    }

    /// Returns `true` if the line is in the file of a run.
    ///
    /// It compares the header as well, because a file of another run may have an equal line.
    fn is_in(&self, file: &mut File, run: &RunId) -> io::Result<bool> {
        let header = format::header(run);
        let Some(start) = self.end.checked_sub(self.len) else {
            return Ok(false);
        };
        let (Ok(len), true) = (
            usize::try_from(self.len),
            file.metadata()?.len() >= self.end,
        ) else {
            return Ok(false);
        };
        let (mut first, mut line) = (
            vec![0; header.len()],
            vec![0; len.min(private::MAX_SIZE as usize)],
        );
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut first)?;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut line)?;
        Ok(first == header && checksum(&[&line]) == self.crc)
    }
}

/// The content of the file: one line of JSON with a checksum, like a record.
#[derive(Serialize, Deserialize)]
struct SnapshotFile {
    levity_snapshot: u32,
    run: RunId,
    seq: u64,
    last: LastLine,
    state: Value,
}

/// Returns the path of a run's snapshot. No run has an id that begins with a dot.
pub(super) fn path_of(run: &Path) -> PathBuf {
    let name = run.file_stem().unwrap_or_default().to_string_lossy();
    run.with_file_name(format!(".{name}.snapshot"))
}

/// Reads the snapshot of a run, if there is a valid one, with the offset of the records that follow
/// it and its length.
pub(super) fn read(path: &Path, run: &RunId, file: &mut File) -> Option<(Snapshot, LastLine, u64)> {
    let bytes = read_regular(&path_of(path)).ok()?;
    if is_intact(&bytes) != Some(true) {
        return None;
    }
    let snapshot_file: SnapshotFile = serde_json::from_slice(&bytes).ok()?;
    let is_good = snapshot_file.levity_snapshot == 1
        && snapshot_file.run == *run
        && snapshot_file.last.is_in(file, run).ok()?;
    is_good.then(|| {
        (
            Snapshot::new(snapshot_file.seq, snapshot_file.state),
            snapshot_file.last,
            bytes.len() as u64,
        )
    })
}

/// Replaces the snapshot of a run, and returns its length.
pub(super) fn write(
    path: &Path,
    run: &RunId,
    snapshot: Snapshot,
    last: LastLine,
) -> Result<u64, JournalError> {
    let snapshot_file = SnapshotFile {
        levity_snapshot: 1,
        run: run.clone(),
        seq: snapshot.seq,
        last,
        state: snapshot.state,
    };
    let refused = |problem: &str| {
        JournalError::new(JournalErrorKind::Refused, format!("a snapshot {problem}"))
    };
    let mut bytes = serde_json::to_vec(&snapshot_file)
        .map_err(|error| refused("is not JSON").with_source(error))?;
    if depth(&bytes) > DEEP {
        return Err(refused("is nested too deeply"));
    }
    append_checksum(&mut bytes, 0);
    let path = path_of(path);
    let written = Replace::new(&path).through(&beside(&path)).write(&bytes);
    written.map_err(|error| failed(&path, "written", error))?;
    Ok(bytes.len() as u64)
}

/// Removes the snapshot of a run, if there is one, and the remains of an interrupted write.
pub(super) fn remove(path: &Path) {
    let path = path_of(path);
    let _ = fs::remove_file(beside(&path));
    let _ = fs::remove_file(path);
}

/// Returns the path that a snapshot is written to before it is renamed.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("snapshot.new")
}
