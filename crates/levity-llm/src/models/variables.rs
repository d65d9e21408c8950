//! The environment, and `.env` beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::{Error, Secret};

/// The longest `.env` that is read.
const LONGEST: u64 = 1 << 20;

/// Who set a variable. It decides where the variable's value may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The program, by [`Models::with_variable`](super::Models::with_variable).
    Code,
    /// Whoever started the program.
    Environment,
    /// A file, which may be from a stranger.
    File(Arc<Path>),
}

impl Origin {
    /// The file, if it is one.
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

/// What is set, by name and origin. Nothing prints the values.
///
/// The program counts before the environment, the environment before files, and an earlier file
/// before a later one.
#[derive(Clone, Default)]
pub(super) struct Variables(Vec<(Origin, BTreeMap<String, Secret>)>);

/// A variable that is set.
pub(super) struct Found<'a, 'n> {
    pub(super) name: &'n str,
    pub(super) value: &'a Secret,
    pub(super) origin: &'a Origin,
}

impl Variables {
    /// Sets a variable of the program's own; an empty one counts as not set.
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<Secret>) {
        let value = value.into();
        if !value.is_empty() {
            self.from(Origin::Code).insert(name.into(), value);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<(&Secret, &Origin)> {
        self.0
            .iter()
            .find_map(|(origin, values)| Some((values.get(name)?, origin)))
    }

    /// The first of these that is set. One that the user sets counts before one that a file sets by
    /// another name.
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

    /// The first of these that this file sets, whatever else does.
    pub(super) fn first_in(&self, file: &Path, names: &[&str]) -> Option<&Secret> {
        let (_, values) = self
            .0
            .iter()
            .find(|(origin, _)| origin.file().is_some_and(|known| **known == *file))?;
        names.iter().find_map(|name| values.get(*name))
    }

    /// Finds the values of variables that are named like secrets.
    pub(super) fn secrets(&self) -> levity_core::Secrets {
        let all = self.0.iter().flat_map(|(_, values)| values);
        levity_core::Secrets::new().variables(all.map(|(name, value)| (name, value.expose())))
    }

    /// The environment of the process.
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

    /// Adds what a file sets. Nothing is added where there is no such file.
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

    /// What is set from there.
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

fn read(path: &Path) -> Result<Option<String>, Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    // A stranger's link may lead to a file of the user's, whose relative names then mean the
    // stranger's files.
    if leads_away(path) {
        return Err(Error::Link {
            path: path.to_owned(),
        });
    }
    match std::fs::metadata(path) {
        // Some keep a folder of this name, and a pipe may never end.
        Ok(about) if !about.is_file() => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(LONGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns whether a path is a link to something outside of its folder. Links within the folder are
/// of whoever wrote the folder.
fn leads_away(path: &Path) -> bool {
    if !std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_symlink()) {
        return false;
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match (std::fs::canonicalize(path), std::fs::canonicalize(folder)) {
        (Ok(real), Ok(folder)) => !real.starts_with(folder),
        // A link that leads nowhere is no file.
        (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => false,
        _ => true,
    }
}

/// Lines of `NAME=value`, also with `export` before them, quotes around the value and a comment
/// behind it. Others are for other programs to read.
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
    fn lines_that_set_something_are_read() {
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
    fn what_is_empty_is_not_set() {
        let mut variables = Variables::default();
        variables.set("A", " ");
        assert!(variables.get("A").is_none());
        assert!(!format!("{variables:?}").contains('A'));
    }

    #[test]
    fn variable_set_twice_has_the_origin_that_counts() {
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
