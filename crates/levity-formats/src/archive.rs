//! Archives (`.zip`, `.tar`, `.tar.gz`) and compressed files (`.gz`).
//!
//! A file of an archive that cannot be read is left out and does not affect the others.

use std::io::Cursor;

use flate2::read::MultiGzDecoder;

use crate::container::{Container, failure};
use crate::limits::Budget;
use crate::output::name_within;
use crate::{FileTexts, FormatError, FormatErrorKind, read_into};

/// The maximum number of files that are named as left out.
const MAX_LEFT_OUT: usize = 100;

pub(crate) fn read_zip(
    name: &str,
    bytes: &[u8],
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let mut archive = Container::open(bytes)?.0;
    for number in 0..archive.len() {
        budget.count_file()?;
        let own = archive.name_for_index(number).and_then(Result::ok);
        let within = own.and_then(|own| name_within(name, &own));
        let file = match archive.by_index(number) {
            Ok(file) => file,
            Err(error) => {
                let within = within.unwrap_or_else(|| name.to_owned());
                leave_out(output, &within, failure(&error));
                continue;
            }
        };
        if file.is_dir() || file.is_symlink() {
            continue;
        }
        let Some(within) = within else {
            continue;
        };
        let unpacked = budget.unpack(file, "a file of the archive");
        read_file(&within, unpacked, budget, output)?;
    }
    Ok(())
}

pub(crate) fn read_tar(
    name: &str,
    bytes: &[u8],
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let damaged = |_| FormatError::damaged("the archive");
    let mut archive = tar::Archive::new(Cursor::new(bytes));
    for entry in archive.entries().map_err(damaged)? {
        budget.count_file()?;
        let entry = entry.map_err(damaged)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let own = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(within) = name_within(name, &own) else {
            continue;
        };
        let unpacked = budget.unpack(entry, "a file of the archive");
        read_file(&within, unpacked, budget, output)?;
    }
    Ok(())
}

/// A compressed archive keeps its name, and another file loses the ending `.gz`.
pub(crate) fn read_gzip(
    name: &str,
    bytes: &[u8],
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let unpacked = budget.unpack(MultiGzDecoder::new(bytes), "the compressed file")?;
    let within = match name
        .strip_suffix(".gz")
        .and_then(|name| name.rsplit('/').next())
    {
        Some(own) if !own.ends_with(".tar") => name_within(name, own),
        _ => Some(name.to_owned()),
    };
    let within = within.unwrap_or_else(|| name.to_owned());
    budget.nested(|budget| read_into(&within, &unpacked, budget, output))
}

/// Reads a file of an archive. Only the limits of the whole archive are an error.
fn read_file(
    name: &str,
    unpacked: Result<Vec<u8>, FormatError>,
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let read =
        unpacked.and_then(|bytes| budget.nested(|budget| read_into(name, &bytes, budget, output)));
    match read {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == FormatErrorKind::TooLarge && budget.is_exhausted() => {
            Err(error)
        }
        Err(error) => {
            leave_out(output, name, error);
            Ok(())
        }
    }
}

fn leave_out(output: &mut FileTexts, name: &str, error: FormatError) {
    if output.left_out.len() < MAX_LEFT_OUT {
        output.leave_out(name, error);
    }
}
