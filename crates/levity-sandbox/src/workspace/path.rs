//! Normalization of paths as a model writes them.
//!
//! Everything here works on text and touches no file, so it cannot be raced and reveals nothing.
//! The order of checks is: empty, length, NUL, root, `.` and `..`, length of names, depth. A path
//! without anything to normalize is returned without a copy.

use std::borrow::Cow;
use std::path::Path;

use super::PathError;

/// The maximum length of a path, in bytes.
const MAX_PATH: usize = 4096;
/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 255;
/// The maximum depth of a path. Resolving a link may hold a folder open for each step.
pub(super) const MAX_DEPTH: usize = 128;

/// Returns the path relative to the workspace, with one `/` between its names and neither `.` nor
/// `..`; empty for the workspace itself.
///
/// `..` removes the name before it, whether that is a link or not. A path that begins with one of
/// `roots` counts as relative to it.
///
/// The lexical reading of `..` is intended: `link/../a` is `a`, whatever `link` points to. So a
/// model can predict the result, and no link decides where `..` leads.
///
/// # Errors
/// - [`PathError::Invalid`] if the path is empty, contains a NUL character, or exceeds a limit.
/// - [`PathError::Outside`] if it is absolute and below no root, or has too many `..`.
pub(super) fn normalize<'a>(path: &'a str, roots: &[&Path]) -> Result<Cow<'a, str>, PathError> {
    if path.is_empty() {
        return Err(PathError::invalid(
            path,
            "it is empty; `.` is the workspace itself",
        ));
    }
    if path.len() > MAX_PATH {
        return Err(PathError::invalid(
            path,
            "it is longer than 4096 bytes; use a shorter one",
        ));
    }
    if path.contains('\0') {
        let shown = path.replace('\0', "\u{fffd}");
        return Err(PathError::invalid(
            &shown,
            "it contains a NUL character; remove it",
        ));
    }
    let relative = match path.starts_with('/') {
        true => strip_root(path, roots).ok_or_else(|| PathError::Outside(path.to_owned()))?,
        false => path,
    };
    match is_normal(relative) {
        true => checked(path, Cow::Borrowed(relative)),
        false => checked(path, Cow::Owned(join(path, relative)?)),
    }
}

/// Returns the part of an absolute path below a root. The comparison is textual and touches no
/// file.
fn strip_root<'a>(path: &'a str, roots: &[&Path]) -> Option<&'a str> {
    roots
        .iter()
        .find_map(|root| Path::new(path).strip_prefix(root).ok()?.to_str())
}

/// Returns `true` if the path needs no copy: no empty name, no `.` and no `..`.
fn is_normal(path: &str) -> bool {
    path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// Applies `.` and `..` to a path; fails if `..` leads above the workspace.
fn join(requested: &str, relative: &str) -> Result<String, PathError> {
    let mut names: Vec<&str> = Vec::new();
    for name in relative.split('/') {
        match name {
            "" | "." => {}
            ".." if names.pop().is_none() => return Err(PathError::Outside(requested.to_owned())),
            ".." => {}
            name => names.push(name),
        }
    }
    Ok(names.join("/"))
}

/// Checks the limits of a normalized path. `requested` is the text for the error.
fn checked<'a>(requested: &str, path: Cow<'a, str>) -> Result<Cow<'a, str>, PathError> {
    if path.split('/').any(|name| name.len() > MAX_NAME) {
        return Err(PathError::invalid(
            requested,
            "a name in it is longer than 255 bytes; use a shorter one",
        ));
    }
    if path.split('/').count() > MAX_DEPTH {
        return Err(PathError::invalid(
            requested,
            "it is deeper than 128 folders; use a shorter one",
        ));
    }
    Ok(path)
}

/// Validates a single name of a folder's entry.
///
/// A name is refused if it is empty, `.` or `..`, contains `/` or NUL, or has more than 255 bytes.
pub(super) fn name(name: &str) -> Result<&str, PathError> {
    let bad =
        matches!(name, "" | "." | "..") || name.contains(['/', '\0']) || name.len() > MAX_NAME;
    match bad {
        true => Err(PathError::invalid(
            &name.replace('\0', "\u{fffd}"),
            "it is not the name of a folder's entry",
        )),
        false => Ok(name),
    }
}

/// Splits a path into its parent folder and its last name.
///
/// The parent of a name at the top is the empty path: `a/b/c` gives `("a/b", "c")`, and `c` gives
/// `("", "c")`.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Appends a name to a path.
pub(super) fn child(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<&str>) {
        let root = Path::new("/home/me/project");
        assert_eq!(
            normalize(path, &[root]).ok().as_deref(),
            expected,
            "{path:?}"
        );
    }

    #[test]
    fn normalize_returns_relative_path() {
        check("a", Some("a"));
        check("./a//b/../c", Some("a/c"));
        check("a/b/", Some("a/b"));
        check(".", Some(""));
        check("a/..", Some(""));
        check("/home/me/project", Some(""));
        check("/home/me/project/", Some(""));
        check("/home/me/project/a/../b", Some("b"));
        check("/home/me/project//b", Some("b"));
        check("a\\b", Some("a\\b"));
        check("...", Some("..."));
    }

    #[test]
    fn normalize_refuses_paths_that_leave_workspace() {
        for path in [
            "..",
            "../a",
            "a/../..",
            "a/../../a",
            "/",
            "/etc/passwd",
            "/home/me/project/..",
            "//a",
        ] {
            check(path, None);
        }
        check("/home/me/project2", None);
        check("/home/me/project/../project/a", None);
    }

    #[test]
    fn normalize_refuses_invalid_paths() {
        for path in [
            "",
            "a\0b",
            &"a".repeat(256),
            &"a/".repeat(129),
            &"a/".repeat(2100),
        ] {
            check(path, None);
        }
        check(
            &"a/".repeat(128),
            Some("a/".repeat(128).trim_end_matches('/')),
        );
        for bad in ["", ".", "..", "a/b", "/", "a\0"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
