//! What `.gitignore` and `.ignore` leave out, by git's rules.

use std::borrow::Cow;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use levity_sandbox::{Dir, FolderEntry, Kind};

/// How much of one file of rules is read, in bytes. What is made of rules takes a hundred times the
/// room, and time.
const MAX_FILE: u64 = 64 << 10;
/// How much of all files of rules is read.
pub(super) const MAX_RULES: u64 = 512 << 10;
/// The files of rules; what the first says weighs more than what the second says.
const FILES: [&str; 2] = [".ignore", ".gitignore"];

/// The rules that hold in a folder: its own, and those of the folders above it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored(Option<Arc<Rules>>);

#[derive(Debug)]
struct Rules {
    above: Ignored,
    /// How much of a path leads to the folder, the last `/` included.
    start: usize,
    own: [Option<Gitignore>; 2],
}

impl Ignored {
    /// The rules in a folder, of which at most `left` bytes are read.
    pub(super) fn enter(&self, dir: &Dir, entries: &[FolderEntry], left: &mut u64) -> Self {
        let is_there = |name: &str| {
            entries
                .iter()
                .any(|entry| entry.name == name && entry.kind == Kind::File)
        };
        let own = FILES.map(|name| is_there(name).then(|| read(dir, name, left)).flatten());
        if own.iter().all(Option::is_none) {
            return self.clone();
        }
        let start = if dir.path().is_empty() {
            0
        } else {
            dir.path().len() + 1
        };
        Self(Some(Arc::new(Rules {
            above: self.clone(),
            start,
            own,
        })))
    }

    /// Whether an entry is left out. The folders above it are not: whoever walks does not enter
    /// what is left out.
    pub(super) fn leaves_out(&self, path: &str, is_dir: bool) -> bool {
        (0..FILES.len())
            .find_map(|file| self.says(file, path, is_dir))
            .unwrap_or(false)
    }

    /// What the nearest rule says that speaks of a path.
    fn says(&self, file: usize, path: &str, is_dir: bool) -> Option<bool> {
        let mut next = self.0.as_deref();
        while let Some(rules) = next {
            let relative = path.get(rules.start..).unwrap_or(path);
            match rules.own[file]
                .as_ref()
                .map_or(Match::None, |own| own.matched(relative, is_dir))
            {
                Match::Ignore(_) => return Some(true),
                Match::Whitelist(_) => return Some(false),
                Match::None => next = rules.above.0.as_deref(),
            }
        }
        None
    }
}

/// The rules of a file; lines that do not parse have no say.
fn read(dir: &Dir, name: &str, left: &mut u64) -> Option<Gitignore> {
    let read = dir.file(name).ok()?.read_to(MAX_FILE.min(*left)).ok()?;
    // The beginning of a rule would be another one.
    let whole_lines = |bytes: &[u8]| {
        bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1)
    };
    let end = if read.truncated {
        whole_lines(&read.bytes)
    } else {
        read.bytes.len()
    };
    *left = left.saturating_sub(read.bytes.len() as u64);
    let text = String::from_utf8_lossy(&read.bytes[..end]);
    let mut rules = GitignoreBuilder::new("");
    // A `!` alone says nothing to git, and would take back everything.
    for line in text
        .trim_start_matches('\u{feff}')
        .lines()
        .filter(|line| line.trim_end() != "!")
    {
        let _ = rules.add_line(None, &plain_braces(line));
    }
    rules.build().ok().filter(|rules| !rules.is_empty())
}

/// The rule with a backslash before each brace that has none: to git, braces stand for themselves.
fn plain_braces(line: &str) -> Cow<'_, str> {
    if !line.contains(['{', '}']) {
        return line.into();
    }
    let mut escaped = false;
    let plain = |char: char| {
        let bare = matches!(char, '{' | '}') && !escaped;
        escaped = char == '\\' && !escaped;
        bare.then_some('\\').into_iter().chain([char])
    };
    line.chars().flat_map(plain).collect()
}
