use std::collections::VecDeque;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::job::Cover;
use crate::Workspace;

/// How many entries of a workspace are looked at for something to hide. With more, no command runs: whoever makes many
/// files would make the next command see what is hidden from this one.
const MOST: usize = 1_000_000;

/// What of the workspace must be hidden from a command.
///
/// Git needs what is in `.git`, which tools for files have no business with. What of it would be executed outside
/// the sandbox later is protected instead.
pub(super) fn covers(workspace: &Workspace) -> io::Result<Vec<Cover>> {
    covers_among(workspace, MOST)
}

fn covers_among(workspace: &Workspace, most: usize) -> io::Result<Vec<Cover>> {
    let mut covers = Vec::new();
    let mut folders = VecDeque::from([(workspace.root().to_owned(), String::new())]);
    let mut seen = 0;
    while let Some((folder, name)) = folders.pop_front() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > most {
                return Err(io::Error::other(
                    "the workspace has too many files to look for those that it denies",
                ));
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let file_name = entry.file_name();
            let relative = join(&name, &file_name.to_string_lossy());
            if workspace.denies(&relative) {
                if file_name == ".git" {
                    protect(&path, &mut covers);
                } else {
                    covers.extend(hide(&path, kind.is_dir()));
                }
            } else if kind.is_dir() {
                folders.push_back((path, relative));
            }
        }
    }
    Ok(covers)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn hide(path: &Path, is_folder: bool) -> Option<Cover> {
    // What a symbolic link leads to is hidden where it is, or out of reach.
    if path.is_symlink() {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    Some(if is_folder { Cover::Folder(path) } else { Cover::File(path) })
}

fn protect(git: &Path, covers: &mut Vec<Cover>) {
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_dir());
    let exists = |path: &PathBuf| path.symlink_metadata().is_ok_and(|it| !it.is_symlink());
    let c_path = |path: PathBuf| CString::new(path.into_os_string().into_encoded_bytes()).ok();
    if !is_dir(git) {
        // A file that says where the folder is.
        covers.extend(Some(git.to_owned()).filter(exists).and_then(c_path).map(Cover::Fixed));
        return;
    }
    covers.extend(c_path(git.to_owned()).map(Cover::Pinned));
    let parts = [git.join("hooks"), git.join("config")].into_iter().filter(exists);
    covers.extend(parts.filter_map(c_path).map(Cover::Fixed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_hidden_by_halves() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", ".env"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        assert_eq!(covers_among(&workspace, 3).unwrap().len(), 1);
        assert!(covers_among(&workspace, 2).is_err());
    }
}
