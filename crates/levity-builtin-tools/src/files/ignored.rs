//! What `.gitignore` and `.ignore` leave out, with git's rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use levity_sandbox::{Dir, FolderEntry, Kind};

use super::walk::is_heavy;

/// The longest file of rules, in bytes, and all of them in one walk: a matcher is built of them
/// before anything is listed. Rules beyond these are left out.
const MAX_RULES: u64 = 64 << 10;
const MAX_RULES_OF_WALK: u64 = 512 << 10;

/// The rules that hold in a folder: those of its own, and those of the folders above it.
#[derive(Clone, Debug)]
pub(super) struct Ignored {
    layer: Option<Arc<Layer>>,
    /// How many bytes of rules this walk may still read.
    left: Arc<AtomicU64>,
}

impl Default for Ignored {
    fn default() -> Self {
        Self {
            layer: None,
            left: Arc::new(AtomicU64::new(MAX_RULES_OF_WALK)),
        }
    }
}

#[derive(Debug)]
struct Layer {
    above: Option<Arc<Layer>>,
    /// How much of a path leads to the folder, the last `/` included.
    start: usize,
    git: Option<Gitignore>,
    own: Option<Gitignore>,
}

impl Ignored {
    /// The rules below `dir`; its entries, where they are known, spare it from being asked for
    /// files that are not there.
    pub(super) fn enter(&self, dir: &Dir, entries: Option<&[FolderEntry]>) -> Self {
        let rules = |name: &str| {
            let is_file = |entry: &FolderEntry| entry.name == name && entry.kind == Kind::File;
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
            above: self.layer.clone(),
            start,
            git,
            own,
        };
        Self {
            layer: Some(Arc::new(layer)),
            left: self.left.clone(),
        }
    }

    /// The rules of a file; lines that do not parse are left out, as git does, and those that are
    /// too heavy.
    fn read(&self, dir: &Dir, name: &str) -> Option<Gitignore> {
        let most = self.left.load(Ordering::Relaxed).min(MAX_RULES);
        let bytes = dir.file(name).ok()?.read_to(most).ok()?.bytes;
        let read = u64::try_from(bytes.len()).unwrap_or(most);
        // Several threads of one walk may read at once, and each a little more than is left.
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(read))
            });
        // A line that was cut would be another rule.
        let whole = if read < most {
            bytes.len()
        } else {
            bytes.iter().rposition(|byte| *byte == b'\n')?
        };
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let mut rules = GitignoreBuilder::new("");
        for line in text
            .trim_start_matches('\u{feff}')
            .lines()
            .filter(|line| !is_heavy(line))
        {
            let _ = rules.add_line(None, line);
        }
        rules.build().ok().filter(|rules| !rules.is_empty())
    }

    /// Whether a path is left out. The folders above it are not looked at: whoever walks does not
    /// enter them.
    ///
    /// Rules of a deeper folder come before those above it, and all of `.ignore` before all of
    /// `.gitignore`.
    pub(super) fn leaves_out(&self, path: &str, is_dir: bool) -> bool {
        let own = self.first(path, is_dir, |layer| layer.own.as_ref());
        own.or_else(|| self.first(path, is_dir, |layer| layer.git.as_ref()))
            .unwrap_or(false)
    }

    fn first(
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
                Match::None => next = layer.above.as_deref(),
            }
        }
        None
    }
}
