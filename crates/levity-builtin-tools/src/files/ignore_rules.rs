//! The rules of `.gitignore` and `.ignore` files, as git applies them.
//!
//! Rules form a chain of layers, one for each folder that has any. A folder without rules shares
//! the layer of its parent, so a deep tree costs nothing. Rules are untrusted, since anyone may
//! have written the files: their size and their complexity are limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use levity_sandbox::{Dir, EntryKind, FolderEntry};

use super::walk::is_too_complex;

/// The maximum size of one rules file and of all rules files in one walk, in bytes. A matcher is
/// built from them before anything is listed. Rules beyond the limit are skipped.
const MAX_RULES: u64 = 64 << 10;
const MAX_RULES_OF_WALK: u64 = 512 << 10;

/// The rules that apply in a folder: its own and those of its parent folders.
#[derive(Clone, Debug)]
pub(super) struct IgnoreRules {
    layer: Option<Arc<Layer>>,
    /// The number of bytes of rules that this walk may still read.
    remaining: Arc<AtomicU64>,
}

impl Default for IgnoreRules {
    fn default() -> Self {
        Self {
            layer: None,
            remaining: Arc::new(AtomicU64::new(MAX_RULES_OF_WALK)),
        }
    }
}

/// The rules of one folder. `own` are those of `.ignore`.
#[derive(Debug)]
struct Layer {
    parent: Option<Arc<Layer>>,
    /// The length of the path prefix that leads to the folder, including the last `/`.
    start: usize,
    git: Option<Gitignore>,
    own: Option<Gitignore>,
}

impl IgnoreRules {
    /// Returns the rules below `dir`. If `entries` is given, rules files that it does not list are
    /// not opened.
    pub(super) fn enter(&self, dir: &Dir, entries: Option<&[FolderEntry]>) -> Self {
        let rules = |name: &str| {
            let is_file = |entry: &FolderEntry| entry.name == name && entry.kind == EntryKind::File;
            let may_be_there = entries.is_none_or(|entries| entries.iter().any(is_file));
            may_be_there.then(|| self.read(dir, name)).flatten()
        };
        let (git, own) = (rules(".gitignore"), rules(".ignore"));
        if git.is_none() && own.is_none() {
            return self.clone();
        }
        let start = if dir.path().is_empty() {
            0
        } else {
            dir.path().len() + 1
        };
        let layer = Layer {
            parent: self.layer.clone(),
            start,
            git,
            own,
        };
        Self {
            layer: Some(Arc::new(layer)),
            remaining: self.remaining.clone(),
        }
    }

    /// Reads a rules file. Lines that do not parse are skipped, as in git, and so are patterns that
    /// are too complex.
    fn read(&self, dir: &Dir, name: &str) -> Option<Gitignore> {
        let max = self.remaining.load(Ordering::Relaxed).min(MAX_RULES);
        let bytes = dir.file(name).ok()?.read_up_to(max).ok()?.bytes;
        let read = u64::try_from(bytes.len()).unwrap_or(max);
        // Threads of one walk may read at once, so each may exceed the limit slightly.
        let _ = self
            .remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| {
                Some(remaining.saturating_sub(read))
            });
        // A truncated line would be a different rule.
        let whole = if read < max {
            bytes.len()
        } else {
            bytes.iter().rposition(|byte| *byte == b'\n')?
        };
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let mut rules = GitignoreBuilder::new("");
        for line in text
            .trim_start_matches('\u{feff}')
            .lines()
            .filter(|line| !is_too_complex(line))
        {
            let _ = rules.add_line(None, line);
        }
        rules.build().ok().filter(|rules| !rules.is_empty())
    }

    /// Returns `true` if the rules exclude a path. Parent folders are not checked, because the walk
    /// does not enter excluded folders.
    ///
    /// Rules of a deeper folder take precedence over those of its parents, and all `.ignore` rules
    /// over all `.gitignore` rules.
    pub(super) fn excludes(&self, path: &str, is_dir: bool) -> bool {
        let own = self.first_match(path, is_dir, |layer| layer.own.as_ref());
        own.or_else(|| self.first_match(path, is_dir, |layer| layer.git.as_ref()))
            .unwrap_or(false)
    }

    /// Asks the layers from the innermost outward, and returns the first decision; `None` if no
    /// rule matches.
    fn first_match(
        &self,
        path: &str,
        is_dir: bool,
        rules: impl Fn(&Layer) -> Option<&Gitignore>,
    ) -> Option<bool> {
        let mut next = self.layer.as_deref();
        while let Some(layer) = next {
            let relative = path.get(layer.start..).unwrap_or(path);
            match rules(layer).map_or(Match::None, |rules| rules.matched(relative, is_dir)) {
                Match::Ignore(_) => return Some(true),
                Match::Whitelist(_) => return Some(false),
                Match::None => next = layer.parent.as_deref(),
            }
        }
        None
    }
}
