//! The environment, and `.env` beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;

use crate::{Error, Secret};

/// The longest `.env` that is read.
const LONGEST: u64 = 1 << 20;

/// What is set, by name. Nothing prints the values.
#[derive(Clone, Default)]
pub(super) struct Variables(BTreeMap<String, Secret>);

impl Variables {
    /// Sets a variable; an empty one counts as not set.
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<Secret>) {
        let value = value.into();
        if !value.is_empty() {
            self.0.insert(name.into(), value);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name)
    }

    /// The first of these that is set.
    pub(super) fn first<'a>(&self, names: &[&'a str]) -> Option<(&'a str, &Secret)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// The environment of the process, and what a `.env` in the working directory adds to it.
    pub(super) fn from_env() -> Result<Self, Error> {
        let mut variables = Self::default();
        if let Some(text) = read(Path::new(".env"))? {
            parse(&text, |name, value| variables.set(name, value));
        }
        for (name, value) in std::env::vars_os() {
            if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) {
                variables.set(name, value);
            }
        }
        Ok(variables)
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variables({})", self.0.len())
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // Some keep a folder of this name.
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Lines of `NAME=value`, also with `export` before them, quotes around the value and a comment behind it.
/// Others are for other programs to read.
fn parse(text: &str, mut set: impl FnMut(&str, String)) {
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(plain) {
            set(name, unquote(value.trim()));
        }
    }
}

fn unquote(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some((inner, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.to_owned();
        }
    }
    value.split_once(" #").map_or(value, |(value, _)| value.trim_end()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let mut found = Vec::new();
        parse(text, |name, value| found.push((name.to_owned(), value)));
        let found: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_that_set_something_are_read() {
        check("A=1\n# B=2\n\nexport C = 3 # three\r\nnonsense\n=x\n", &[("A", "1"), ("C", "3")]);
        check("A=\"x # y\" # z\nB='q'\nC=\"open", &[("A", "x # y"), ("B", "q"), ("C", "\"open")]);
        check("A=b=c\nX-Y=1\nB=#no comment", &[("A", "b=c"), ("B", "#no comment")]);
        check("\u{feff}A=1", &[("A", "1")]);
    }

    #[test]
    fn what_is_empty_is_not_set() {
        let mut variables = Variables::default();
        variables.set("A", " ");
        assert!(variables.get("A").is_none());
        assert!(!format!("{variables:?}").contains('A'));
    }
}
