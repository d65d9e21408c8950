//! Discovery of the context files.
//!
//! The order is the order of reading for the model: the user's file, `.context` by name, then
//! `AGENTS.md` from the root down, so that the most specific rules come last. The rank is another
//! order: it decides which files survive a short budget. The nearest `AGENTS.md` has the highest
//! rank.

use std::path::Path;

use levity_sandbox::{EntryKind, FolderEntry, PathError, Workspace};

use super::ContextFiles;
use super::read::reason;

/// The maximum number of entries that are read of a folder.
const MAX_ENTRIES: usize = 10_000;
/// The maximum depth of subfolders that are read.
const MAX_DEPTH: usize = 16;
const AGENTS: &str = "AGENTS.md";

/// A file that may be shown.
#[derive(Debug)]
pub(super) struct File {
    /// The name of its block.
    pub(super) name: String,
    /// The location and size of the file, or the reason why it cannot be shown.
    pub(super) at: Result<(FileLocation, u64), String>,
    /// Files with a lower rank are omitted first if the budget is short.
    pub(super) rank: usize,
}

/// The user's file has a workspace of its own, because it may be anywhere.
#[derive(Debug)]
pub(super) enum FileLocation {
    /// A path in the workspace.
    Inside(String),
    /// A separate workspace, and the file's name in it.
    User(Workspace, String),
}

/// Returns the files in the order in which they are shown.
///
/// # Errors
/// Fails if the working folder does not exist or leads out of the workspace.
pub(super) fn find(files: &ContextFiles) -> Result<Vec<File>, PathError> {
    let space = &files.space;
    let agents = if files.agents {
        agents(space, &files.working_dir)?
    } else {
        Vec::new()
    };
    let mut found: Vec<_> = files
        .user_file
        .as_deref()
        .and_then(user)
        .into_iter()
        .collect();
    if files.has_folder {
        found.extend(folder(files, &agents));
    }
    found.extend(
        agents
            .into_iter()
            .zip(2..)
            .map(|(path, rank)| inside(space, path.clone(), path, rank)),
    );
    Ok(found)
}

/// Returns the paths of `AGENTS.md` from the root to a folder.
///
/// A file that exists but cannot be read is kept: its block then states the reason.
fn agents(space: &Workspace, working_dir: &str) -> Result<Vec<String>, PathError> {
    let dir = space.dir(working_dir)?;
    let ends = dir
        .path()
        .match_indices('/')
        .map(|(at, _)| at)
        .chain([dir.path().len()]);
    let below = ends
        .filter(|end| *end > 0)
        .map(|end| format!("{}/{AGENTS}", &dir.path()[..end]));
    let all = [AGENTS.to_owned()].into_iter().chain(below);
    Ok(all
        .filter(|path| !matches!(space.metadata(path), Err(PathError::NotFound(_))))
        .collect())
}

/// Returns the user's file; `None` if it does not exist.
///
/// The rank is above that of `.context` and below that of each `AGENTS.md`.
fn user(path: &Path) -> Option<File> {
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let at = match locate(path) {
        Ok(place) => Ok(place),
        Err(PathError::NotFound(_)) => return None,
        Err(error) => Err(reason(&error)),
    };
    Some(File {
        name: format!("{name} (of the user)"),
        at,
        rank: 1,
    })
}

/// Resolves the path of the user's file, which may be a link.
fn locate(path: &Path) -> Result<(FileLocation, u64), PathError> {
    let shown = || path.to_string_lossy().into_owned();
    let real = path.canonicalize().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => PathError::NotFound(shown()),
        _ => PathError::Io {
            path: shown(),
            source,
        },
    })?;
    let (Some(folder), Some(name)) = (
        real.parent(),
        real.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(PathError::NotAFile(shown()));
    };
    let space = Workspace::builder(folder)
        .read_only()
        .allow_all()
        .allow_hard_links()
        .build()?;
    let size = size(&space, name)?;
    Ok((FileLocation::User(space, name.to_owned()), size))
}

/// Returns the files of the folder by name. A file with the same name as an `AGENTS.md` is named by
/// its whole path.
fn folder(files: &ContextFiles, agents: &[String]) -> Vec<File> {
    let mut walk = Walk {
        files,
        remaining: MAX_ENTRIES,
        found: Vec::new(),
    };
    walk.enter("", 0);
    let mut found = walk.found;
    found.retain(|file| {
        !agents
            .iter()
            .any(|path| *path == format!("{}/{}", files.folder, file.name))
    });
    found.sort_by(|a, b| a.name.cmp(&b.name));
    for file in &mut found {
        if agents.contains(&file.name) {
            file.name = format!("{}/{}", files.folder, file.name);
        }
    }
    found
}

/// The state of listing `.context`: the remaining entries and the files found.
struct Walk<'a> {
    files: &'a ContextFiles,
    remaining: usize,
    found: Vec<File>,
}

impl Walk<'_> {
    /// Reads a folder, by its path below the context folder.
    fn enter(&mut self, below: &str, depth: usize) {
        let folder = &self.files.folder;
        let path = if below.is_empty() {
            folder.clone()
        } else {
            format!("{folder}/{below}")
        };
        let listing = match self.files.space.list(&path, self.remaining) {
            Ok(listing) => listing,
            Err(PathError::NotFound(_)) => return,
            Err(error) => return self.problem(path, reason(&error)),
        };
        self.remaining = self.remaining.saturating_sub(listing.entries.len());
        if listing.truncated {
            self.problem(
                path,
                format!("only the first {MAX_ENTRIES} entries are read"),
            );
        }
        for entry in listing
            .entries
            .iter()
            .filter(|entry| !entry.name.starts_with('.'))
        {
            let name = if below.is_empty() {
                entry.name.clone()
            } else {
                format!("{below}/{}", entry.name)
            };
            self.entry(entry, name, depth);
        }
    }

    /// Only names that end with `.md` count. Hidden names were left out before.
    fn entry(&mut self, entry: &FolderEntry, name: String, depth: usize) {
        let (space, path) = (&self.files.space, format!("{}/{name}", self.files.folder));
        let is_text = entry.name.ends_with(".md");
        match entry.kind {
            EntryKind::Dir if !self.files.nested => {}
            EntryKind::Dir if depth >= MAX_DEPTH => {
                self.problem(
                    path,
                    format!("folders more than {MAX_DEPTH} levels deep are not read"),
                );
            }
            EntryKind::Dir => self.enter(&name, depth + 1),
            EntryKind::Link if !is_text && self.files.nested => match space.metadata(&path) {
                Ok(meta) if meta.kind() == EntryKind::Dir => {
                    self.problem(path, "links to folders are not followed".to_owned());
                }
                Err(error @ PathError::Outside(_)) => self.problem(path, reason(&error)),
                _ => {}
            },
            _ if is_text => self.found.push(inside(space, path, name, 0)),
            _ => {}
        }
    }

    /// A problem names the whole path, because it may be the folder itself.
    fn problem(&mut self, path: String, reason: String) {
        self.found.push(File {
            name: path,
            at: Err(reason),
            rank: 0,
        });
    }
}

/// Returns a file of the workspace, or the reason why it cannot be shown.
fn inside(space: &Workspace, path: String, name: String, rank: usize) -> File {
    let at = match size(space, &path) {
        Ok(size) => Ok((FileLocation::Inside(path), size)),
        Err(error) => Err(reason(&error)),
    };
    File { name, at, rank }
}

/// Returns the size of a file. Opening it detects an unreadable file early, so that the reason gets
/// space.
fn size(space: &Workspace, path: &str) -> Result<u64, PathError> {
    Ok(space.read_prefix(path, 0)?.size)
}
