//! What `.gitignore` and `.ignore` leave out, with git's rules.

use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use levity_sandbox::{Dir, Entry, Kind};

/// The longest file of rules, in bytes.
const MAX_RULES: u64 = 1 << 20;

/// The rules that hold in a folder: those of its own, and those of the folders above it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored(Option<Arc<Layer>>);

#[derive(Debug)]
struct Layer {
    above: Ignored,
    /// How much of a path leads to the folder, the last `/` included.
    start: usize,
    git: Option<Gitignore>,
    own: Option<Gitignore>,
}

impl Ignored {
    /// The rules below `dir`; its entries, where they are known, spare it from being asked for files that are not there.
    pub(super) fn enter(&self, dir: &Dir, entries: Option<&[Entry]>) -> Self {
        let rules = |name: &str| {
            let is_file = |entry: &Entry| entry.name == name && entry.kind == Kind::File;
            let may_be_there = entries.is_none_or(|entries| entries.iter().any(is_file));
            may_be_there.then(|| read(dir, name)).flatten()
        };
        let (git, own) = (rules(".gitignore"), rules(".ignore"));
        if git.is_none() && own.is_none() {
            return self.clone();
        }
        let start = if dir.path().is_empty() { 0 } else { dir.path().len() + 1 };
        Self(Some(Arc::new(Layer { above: self.clone(), start, git, own })))
    }

    /// Whether a path is left out. The folders above it are not looked at: whoever walks does not enter them.
    ///
    /// Rules of a deeper folder come before those above it, and all of `.ignore` before all of `.gitignore`.
    pub(super) fn leaves_out(&self, path: &str, is_dir: bool) -> bool {
        let own = self.first(path, is_dir, |layer| layer.own.as_ref());
        own.or_else(|| self.first(path, is_dir, |layer| layer.git.as_ref())).unwrap_or(false)
    }

    fn first(&self, path: &str, is_dir: bool, rules: impl Fn(&Layer) -> Option<&Gitignore>) -> Option<bool> {
        let mut next = self.0.as_deref();
        while let Some(layer) = next {
            let relative = path.get(layer.start..).unwrap_or(path);
            match rules(layer).map_or(Match::None, |rules| rules.matched(relative, is_dir)) {
                Match::Ignore(_) => return Some(true),
                Match::Whitelist(_) => return Some(false),
                Match::None => next = layer.above.0.as_deref(),
            }
        }
        None
    }
}

/// The rules of a file; lines that do not parse are left out, as git does.
fn read(dir: &Dir, name: &str) -> Option<Gitignore> {
    let bytes = dir.file(name).ok()?.read_to(MAX_RULES).ok()?.bytes;
    let text = String::from_utf8_lossy(&bytes);
    let mut rules = GitignoreBuilder::new("");
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = rules.add_line(None, line);
    }
    rules.build().ok().filter(|rules| !rules.is_empty())
}
