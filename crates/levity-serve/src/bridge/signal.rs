//! Files that appear once when a task has ended.

use levity_core::{Ending, Timestamp};
use levity_sandbox::{PathError, Workspace, WriteOptions};
use serde_json::json;

use super::book::{Book, Note, Stage};
use super::error::{Error, ErrorKind, Result};

/// How long the answer in a signal file is at most, in bytes. All of it is in the journal.
const MAX_ANSWER: usize = 32 << 10;

/// The name of the signal file that was wished for, if a task can have it.
///
/// It is a plain relative path that means the same on every system, and nothing has that name yet.
pub(super) fn checked(space: &Workspace, done: &str) -> Result<String> {
    // Nor has it what means something in a glob, by which it is waited for.
    let odd = |char: char| char.is_control() || "\\:*?\"<>|[]{},!".contains(char);
    let plain = |name: &str| {
        !matches!(name, "" | "." | "..")
            && !name.ends_with(['.', ' '])
            && !name.starts_with(".levity-")
    };
    if done.starts_with('/') || done.split('/').any(|name| name == "..") {
        return Err(PathError::Outside(done.to_owned()).into());
    }
    if done.len() > 400 || done.contains(odd) || !done.split('/').all(plain) {
        let words = "`done` must be a plain relative path, such as `DONE_plan` or `signals/plan`";
        return Err(Error::invalid(words));
    }
    free(space, done)?;
    Ok(done.to_owned())
}

/// Says so when something has the name of a signal file already.
pub(super) fn free(space: &Workspace, done: &str) -> Result<()> {
    match space.metadata(done) {
        Err(PathError::NotFound(_)) => Ok(()),
        Err(PathError::NotADirectory(_)) => Err(Error::new(
            ErrorKind::NotAFile,
            format!("`{done}` leads through a file; name another `done`"),
        )),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Error::new(
            ErrorKind::Exists,
            format!(
                "`{done}` is there already and would say nothing; remove it, or name another \
                    `done` or `task`"
            ),
        )),
    }
}

/// Makes the end of a task seen: writes its signal file, unless an earlier process did. Says where
/// it is.
///
/// The file is written beside its place first, then it is noted that it is about to get its name,
/// and then it gets it. Whoever finds the note after a crash looks whether the file beside is still
/// there: only then its name is still missing.
pub(super) fn signal(
    space: &Workspace,
    book: &Book,
    mut note: Note,
    ending: &Ending,
    at: Timestamp,
) -> Result<Note> {
    let good = ending.status.is_answer();
    if space.is_read_only() {
        return settled(book, note, None, good);
    }
    if note.stage == Stage::Open {
        let wished = if good {
            note.done.clone()
        } else {
            note.failed.clone()
        };
        let content = content(&note, ending, at);
        let write = |path: String| {
            let from = beside(&path, &note.task);
            space.write_with(
                &from,
                content.as_bytes(),
                WriteOptions::new().parents().synced(),
            )?;
            space.sync_names(&from)?;
            Ok::<_, PathError>((from, path))
        };
        // The folder of the name that was wished for may have become something else.
        let (from, path) = write(wished).or_else(|_| write(own_name(&note.task, good)))?;
        note.stage = Stage::Signalling { from, path, good };
        kept(book, &note)?;
    }
    name(space, book, note)
}

/// Gives a file its name that was about to get it.
pub(super) fn name(space: &Workspace, book: &Book, mut note: Note) -> Result<Note> {
    let Stage::Signalling { from, path, good } = note.stage.clone() else {
        return Ok(note);
    };
    match space.rename_new(&from, &path) {
        Ok(()) | Err(PathError::NotFound(_)) => named(space, book, note, path, good),
        Err(PathError::Exists(_)) if is_same(space, &from, &path) => {
            let _ = space.remove(&from);
            named(space, book, note, path, good)
        }
        // Somebody else has made a file of that name, the agent perhaps. It stays as it is.
        Err(PathError::Exists(_)) => {
            let own = own_name(&note.task, good);
            if path == own {
                let _ = space.remove(&from);
                return settled(book, note, None, good);
            }
            note.stage = Stage::Signalling {
                from,
                path: own,
                good,
            };
            kept(book, &note)?;
            name(space, book, note)
        }
        Err(error) => Err(error.into()),
    }
}

/// Notes that a file has its name once that is so after a loss of power, too: what is noted is not
/// looked at again.
fn named(space: &Workspace, book: &Book, note: Note, path: String, good: bool) -> Result<Note> {
    match space.sync_names(&path) {
        // Whoever waited has removed the folder, too.
        Ok(()) | Err(PathError::NotFound(_)) => settled(book, note, Some(path), good),
        Err(error) => Err(error.into()),
    }
}

/// The name that no other task's file has.
pub(super) fn own_name(task: &str, good: bool) -> String {
    format!("{}_{task}", if good { "DONE" } else { "FAILED" })
}

fn settled(book: &Book, mut note: Note, path: Option<String>, good: bool) -> Result<Note> {
    note.stage = Stage::Signalled { path, good };
    kept(book, &note)?;
    Ok(note)
}

fn kept(book: &Book, note: &Note) -> Result<()> {
    book.keep(note)
        .map_err(|error| Error::failed(format!("task `{}` cannot be noted: {error}", note.task)))
}

/// A hidden name in the same folder.
fn beside(path: &str, task: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/.levity-signal-{task}"),
        None => format!(".levity-signal-{task}"),
    }
}

/// Whether both are one file: where a name cannot be given in one go, a crash may leave two.
fn is_same(space: &Workspace, one: &str, other: &str) -> bool {
    let read = |path| space.read(path, 4 * MAX_ANSWER as u64).ok();
    read(one).is_some_and(|bytes| read(other) == Some(bytes))
}

fn content(note: &Note, ending: &Ending, at: Timestamp) -> String {
    let starts = ending
        .text
        .char_indices()
        .map(|(at, _)| at)
        .chain([ending.text.len()]);
    let end = starts
        .take_while(|&at| at <= MAX_ANSWER)
        .last()
        .unwrap_or(0);
    let content = json!({
        "task": note.task,
        "status": ending.status.to_string(),
        "answer": &ending.text[..end],
        "complete": end == ending.text.len(),
        "ended": at.to_string(),
        "stats": ending.stats,
        "usage": ending.usage,
    });
    format!("{content:#}\n")
}

#[cfg(test)]
mod tests;
