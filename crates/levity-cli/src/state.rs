//! State of a user that commands store between two calls.
//!
//! The state holds tokens, marks of own runs and similar small files. It lies outside of every
//! workspace and repository, so neither an agent with file tools nor a copied folder can bring or
//! change it. Folders are created with the mode 0700 on Unix.
//!
//! Nothing is created by looking a path up; commands that only read leave no trace.

use std::path::{Path, PathBuf};
use std::{env, fs};

use levity::core::__private::sha256;

/// Returns the folder for this user's state, below `XDG_STATE_HOME`, or `LOCALAPPDATA` on Windows,
/// or `~/.local/state`. Others may be able to change it: use this only to protect it, and
/// [`folder`] to read from it.
///
/// Relative values of the variables are ignored, as the XDG specification demands: they would place
/// the state into the current folder, which may be an untrusted repository. Fails if no variable
/// gives an absolute path.
pub(crate) fn path() -> Result<PathBuf, String> {
    let named = |variable: &str| {
        env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let above = named("XDG_STATE_HOME")
        .or_else(|| named("LOCALAPPDATA"))
        .or_else(|| named("HOME").map(|home| home.join(".local/state")));
    let above = above.ok_or(
        "there is no folder for levity's state: set `XDG_STATE_HOME` or `HOME` \
        to an absolute path",
    )?;
    Ok(above.join("levity"))
}

/// Returns the folder for this user's state, as [`path`] does.
///
/// Also fails if another user could change what this one trusts, because the folder belongs to that
/// user (`sudo` may keep the variables of its caller) or others can write to it.
pub(crate) fn folder() -> Result<PathBuf, String> {
    let folder = path()?;
    match control(&folder) {
        Control::OwnUser => Ok(folder),
        Control::OtherUser => Err(format!(
            "the folder for levity's state, `{}`, belongs to another user; set `XDG_STATE_HOME` to \
                a folder of your own",
            folder.display()
        )),
        Control::SeveralUsers => Err(format!(
            "other users can write to the folder for levity's state, `{0}`; check its files, and \
                run `chmod 700 {0}`",
            folder.display()
        )),
    }
}

/// The users who can change a folder.
enum Control {
    OwnUser,
    OtherUser,
    SeveralUsers,
}

/// Returns the users who can change a folder. A missing one counts as that of this user.
#[cfg(unix)]
fn control(folder: &Path) -> Control {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(found) = fs::metadata(folder) else {
        return Control::OwnUser;
    };
    match found.uid() == rustix::process::geteuid().as_raw() {
        false => Control::OtherUser,
        true if found.mode() & 0o022 == 0 => Control::OwnUser,
        true => Control::SeveralUsers,
    }
}

/// Access lists of the user's profile protect the folder.
#[cfg(not(unix))]
fn control(_: &Path) -> Control {
    Control::OwnUser
}

/// Creates a folder that only its owner can read.
///
/// Missing parents are created with the same mode. The permissions of a folder that already exists
/// stay unchanged.
pub(crate) fn create(folder: &Path) -> Result<(), String> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(folder)
        .map_err(|error| format!("cannot create `{}`: {error}", folder.display()))
}

/// Returns a name for the state of a folder, unique to that folder.
///
/// The name has at most 40 characters of the last component, for people, and a digest of the whole
/// path, for uniqueness: `/home/a/my app` becomes `my_app-` and a digest. Callers pass an absolute
/// path; a relative one would depend on the current folder.
pub(crate) fn name_of(folder: &Path) -> String {
    let last: String = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let plain = |char: char| {
        if char.is_ascii_alphanumeric() || "-_.".contains(char) {
            char
        } else {
            '_'
        }
    };
    let last: String = last.chars().take(40).map(plain).collect();
    // Two paths may differ only in bytes that are not UTF-8.
    let hash = sha256(folder.as_os_str().as_encoded_bytes());
    format!("{last}-{}", &hash[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_contains_digest_of_exact_path() {
        let hash = sha256("/home/ä/my app".as_bytes());
        let name = name_of(Path::new("/home/ä/my app"));
        assert_eq!(name, format!("my_app-{}", &hash[..32]));
    }

    #[cfg(unix)]
    #[test]
    fn names_differ_for_paths_that_are_not_utf8() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let name = |path: &[u8]| name_of(Path::new(OsStr::from_bytes(path)));
        assert_ne!(name(b"/a/\xff"), name(b"/a/\xfe"));
        assert_ne!(name(b"/a/\xff"), name("/a/\u{fffd}".as_bytes()));
    }
}
