//! The rules of `.gitignore` and `.ignore` files, as git applies them.
//!
//! The rules of a folder refer to those of its parent, like a linked list, so that siblings share
//! them. For each kind of file, the nearest matching rule decides, and `.ignore` has precedence
//! over `.gitignore`. Rules are untrusted input: their total size is limited, since compiling them
//! costs far more than reading.

use std::borrow::Cow;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use levity_sandbox::{Dir, EntryKind, FolderEntry};

/// The maximum size of one rules file, in bytes. Compiled rules take about a hundred times the
/// memory, and time.
const MAX_FILE: u64 = 64 << 10;
/// The maximum size of all rules files together.
pub(super) const MAX_RULES: u64 = 512 << 10;
/// The names of rules files, in order of precedence.
const FILES: [&str; 2] = [".ignore", ".gitignore"];

/// The rules that apply in a folder: its own and those of its parent folders.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoreRules(Option<Arc<Rules>>);

/// The rules of one folder that has a rules file.
#[derive(Debug)]
struct Rules {
    parent: IgnoreRules,
    /// The length of the path prefix that leads to the folder, including the last `/`.
    start: usize,
    own: [Option<Gitignore>; 2],
}

impl IgnoreRules {
    /// Returns the rules in a folder, reading at most `remaining` bytes.
    pub(super) fn enter(&self, dir: &Dir, entries: &[FolderEntry], remaining: &mut u64) -> Self {
        let is_there = |name: &str| {
            entries
                .iter()
                .any(|entry| entry.name == name && entry.kind == EntryKind::File)
        };
        let own = FILES.map(|name| is_there(name).then(|| read(dir, name, remaining)).flatten());
        if own.iter().all(Option::is_none) {
            return self.clone();
        }
        let start = if dir.path().is_empty() {
            0
        } else {
            dir.path().len() + 1
        };
        Self(Some(Arc::new(Rules {
            parent: self.clone(),
            start,
            own,
        })))
    }

    /// Returns `true` if the rules exclude an entry. Parent folders are not checked, because the
    /// walk does not enter excluded folders.
    pub(super) fn excludes(&self, path: &str, is_dir: bool) -> bool {
        (0..FILES.len())
            .find_map(|file| self.decision(file, path, is_dir))
            .unwrap_or(false)
    }

    /// Returns the decision of the nearest rule that matches a path.
    ///
    /// The walk goes from the folder itself up to the root. A rule sees paths relative to its own
    /// folder.
    fn decision(&self, file: usize, path: &str, is_dir: bool) -> Option<bool> {
        let mut next = self.0.as_deref();
        while let Some(rules) = next {
            let relative = path.get(rules.start..).unwrap_or(path);
            match rules.own[file]
                .as_ref()
                .map_or(Match::None, |own| own.matched(relative, is_dir))
            {
                Match::Ignore(_) => return Some(true),
                Match::Whitelist(_) => return Some(false),
                Match::None => next = rules.parent.0.as_deref(),
            }
        }
        None
    }
}

/// Reads a rules file; lines that do not parse are skipped.
///
/// A truncated file loses its last, incomplete line.
fn read(dir: &Dir, name: &str, remaining: &mut u64) -> Option<Gitignore> {
    let read = dir
        .file(name)
        .ok()?
        .read_up_to(MAX_FILE.min(*remaining))
        .ok()?;
    // A truncated line would be a different rule.
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
    *remaining = remaining.saturating_sub(read.bytes.len() as u64);
    let text = String::from_utf8_lossy(&read.bytes[..end]);
    let mut rules = GitignoreBuilder::new("");
    // Git ignores a single `!`, but the matcher would include everything again.
    for line in text
        .trim_start_matches('\u{feff}')
        .lines()
        .filter(|line| line.trim_end() != "!")
    {
        let _ = rules.add_line(None, &escape_braces(line));
    }
    rules.build().ok().filter(|rules| !rules.is_empty())
}

/// Escapes all braces in a rule, because git treats them literally.
fn escape_braces(line: &str) -> Cow<'_, str> {
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
