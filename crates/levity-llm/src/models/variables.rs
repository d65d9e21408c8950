//! Variables from the environment and `.env` files.
//!
//! Each value remembers where it was set, because that decides where it may be sent. The values of
//! one origin stay together, in order of precedence: program, environment, files in the order of
//! reading. Nothing is written to the environment of the process, so child processes do not inherit
//! a `.env` file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::{Error, Secret};

/// The maximum size of a `.env` file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The origin of a variable, which decides where its value may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The program, through [`Models::with_variable`](super::Models::with_variable).
    Code,
    /// The environment of the process, which the user controls.
    Environment,
    /// A file, which may come from a third party.
    File(Arc<Path>),
}

impl Origin {
    /// Returns the file, if the origin is one.
    pub(super) fn file(&self) -> Option<&Arc<Path>> {
        match self {
            Self::File(path) => Some(path),
            Self::Code | Self::Environment => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code => f.write_str("by the program"),
            Self::Environment => f.write_str("in the environment"),
            Self::File(path) => write!(f, "in `{}`", path.display()),
        }
    }
}

/// Variables by name and origin. Their values are never printed.
///
/// The program takes precedence over the environment, the environment over files, and an earlier
/// file over a later one.
#[derive(Clone, Default)]
pub(super) struct Variables(Vec<(Origin, BTreeMap<String, Secret>)>);

/// A variable that is set.
pub(super) struct Found<'a, 'n> {
    pub(super) name: &'n str,
    pub(super) value: &'a Secret,
    pub(super) origin: &'a Origin,
}

impl Variables {
    /// Sets a variable from the program; an empty value counts as not set.
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<Secret>) {
        let value = value.into();
        if !value.is_empty() {
            self.from(Origin::Code).insert(name.into(), value);
        }
    }

    /// Returns the value with the highest precedence, and its origin.
    pub(super) fn get(&self, name: &str) -> Option<(&Secret, &Origin)> {
        self.0
            .iter()
            .find_map(|(origin, values)| Some((values.get(name)?, origin)))
    }

    /// Returns the first of these variables that is set. A variable that the user sets takes
    /// precedence over one that a file sets under another name.
    ///
    /// An example: with `GOOGLE_API_KEY` in the environment and `GEMINI_API_KEY` in a file, the
    /// environment wins, although the file sets the preferred name.
    pub(super) fn first<'n>(&self, names: &[&'n str]) -> Option<Found<'_, 'n>> {
        self.0.iter().find_map(|(origin, values)| {
            let (name, value) = names
                .iter()
                .find_map(|name| Some((*name, values.get(*name)?)))?;
            Some(Found {
                name,
                value,
                origin,
            })
        })
    }

    /// Returns the first of these variables that this file sets, regardless of other origins.
    pub(super) fn first_in(&self, file: &Path, names: &[&str]) -> Option<&Secret> {
        let (_, values) = self
            .0
            .iter()
            .find(|(origin, _)| origin.file().is_some_and(|known| **known == *file))?;
        names.iter().find_map(|name| values.get(*name))
    }

    /// Returns a detector for the values of variables with secret-like names.
    ///
    /// Names such as `.._API_KEY`, `.._TOKEN` and `.._PASSWORD` are secret-like.
    pub(super) fn secrets(&self) -> levity_core::Secrets {
        let all = self.0.iter().flat_map(|(_, values)| values);
        levity_core::Secrets::new().variables(all.map(|(name, value)| (name, value.expose())))
    }

    /// Reads the environment of the process.
    ///
    /// Names and values that are not Unicode are skipped.
    pub(super) fn from_env() -> Self {
        let mut variables = Self::default();
        let values = variables.from(Origin::Environment);
        for (name, value) in std::env::vars_os() {
            if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string())
                && !value.trim().is_empty()
            {
                values.insert(name, value.into());
            }
        }
        variables
    }

    /// Adds the variables that a file sets, if the file exists.
    ///
    /// # Errors
    /// Returns [`Error::ExternalLink`] for a link out of the folder, and [`Error::File`] if reading
    /// fails.
    pub(super) fn read(&mut self, path: &Path) -> Result<(), Error> {
        let Some(text) = read(path)? else {
            return Ok(());
        };
        let values = self.from(Origin::File(path.into()));
        parse(&text, |name, value| {
            if !value.trim().is_empty() {
                values.insert(name.to_owned(), value.into());
            }
        });
        Ok(())
    }

    /// Returns the variables of an origin, creating an empty set if needed.
    fn from(&mut self, origin: Origin) -> &mut BTreeMap<String, Secret> {
        let rank = |origin: &Origin| match origin {
            Origin::Code => 0,
            Origin::Environment => 1,
            Origin::File(_) => 2,
        };
        let known = self.0.iter().position(|(known, _)| *known == origin);
        let at = known.unwrap_or_else(|| {
            let at = self
                .0
                .partition_point(|(known, _)| rank(known) <= rank(&origin));
            self.0.insert(at, (origin, BTreeMap::new()));
            at
        });
        &mut self.0[at].1
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Variables({})",
            self.0.iter().map(|(_, values)| values.len()).sum::<usize>()
        )
    }
}

/// At most [`MAX_BYTES`] are read, and invalid UTF-8 is replaced: a `.env` file may belong to
/// another program.
fn read(path: &Path) -> Result<Option<String>, Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    // A link from a third party may lead to one of the user's files, whose relative names would
    // then refer to the third party's files.
    if links_outside_folder(path) {
        return Err(Error::ExternalLink {
            path: path.to_owned(),
        });
    }
    match std::fs::metadata(path) {
        // A folder may have this name, and a pipe may never end.
        Ok(metadata) if !metadata.is_file() => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns `true` if a path is a link to a target outside its folder. Links within the folder
/// belong to the author of the folder.
fn links_outside_folder(path: &Path) -> bool {
    if !std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_symlink()) {
        return false;
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match (std::fs::canonicalize(path), std::fs::canonicalize(folder)) {
        (Ok(real), Ok(folder)) => !real.starts_with(folder),
        // A dangling link is not a file.
        (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => false,
        _ => true,
    }
}

/// Parses lines of `NAME=value`, optionally with `export`, quotes around the value and a comment at
/// the end. Other lines are ignored, because they are for other programs.
fn parse(text: &str, mut set: impl FnMut(&str, String)) {
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let name = name.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(plain) {
            set(name, unquote(value.trim()));
        }
    }
}

/// A quoted value ends at the next quote of the same kind; escapes are not interpreted. An unquoted
/// value ends before ` #`.
fn unquote(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some((inner, _)) = value
            .strip_prefix(quote)
            .and_then(|rest| rest.split_once(quote))
        {
            return inner.to_owned();
        }
    }
    value
        .split_once(" #")
        .map_or(value, |(value, _)| value.trim_end())
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let mut found = Vec::new();
        parse(text, |name, value| found.push((name.to_owned(), value)));
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn parse_reads_assignments_and_skips_other_lines() {
        check(
            "A=1\n# B=2\n\nexport C = 3 # three\r\nnonsense\n=x\n",
            &[("A", "1"), ("C", "3")],
        );
        check(
            "A=\"x # y\" # z\nB='q'\nC=\"open",
            &[("A", "x # y"), ("B", "q"), ("C", "\"open")],
        );
        check(
            "A=b=c\nX-Y=1\nB=#no comment",
            &[("A", "b=c"), ("B", "#no comment")],
        );
        check("\u{feff}A=1", &[("A", "1")]);
    }

    #[test]
    fn empty_value_counts_as_unset() {
        let mut variables = Variables::default();
        variables.set("A", " ");
        assert!(variables.get("A").is_none());
        assert!(!format!("{variables:?}").contains('A'));
    }

    #[test]
    fn variable_set_twice_uses_origin_with_precedence() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path().join(".env");
        std::fs::write(&path, "A=file\nB=file\n").unwrap_or_else(|error| panic!("{error}"));
        let mut variables = Variables::default();
        variables
            .read(&path)
            .unwrap_or_else(|error| panic!("{error}"));
        variables
            .from(Origin::Environment)
            .insert("A".to_owned(), "env".into());
        let found = |variables: &Variables, name: &str| {
            variables
                .get(name)
                .map(|(value, origin)| (value.expose().to_owned(), origin.clone()))
        };
        let file = Origin::File(path.as_path().into());
        assert_eq!(
            found(&variables, "A"),
            Some(("env".to_owned(), Origin::Environment))
        );
        assert_eq!(found(&variables, "B"), Some(("file".to_owned(), file)));
        variables.set("A", "code");
        assert_eq!(
            found(&variables, "A"),
            Some(("code".to_owned(), Origin::Code))
        );
        assert_eq!(
            variables.first_in(&path, &["X", "A"]).map(Secret::expose),
            Some("file")
        );
        assert!(variables.first_in(Path::new("other"), &["A"]).is_none());
    }
}
