//! What of a tree is listed and searched.

use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use levity_core::{CancelToken, ToolError, ToolErrorKind};
use levity_sandbox::{Dir, Kind, Listing, PathError, Workspace};

use super::args::refused;
use super::ignored::Ignored;

/// How many entries of one folder are looked at.
const MAX_ENTRIES: usize = 200_000;
/// How long a glob may be, in bytes, and how deep its braces may be nested.
const MAX_GLOB: usize = 1024;
const MAX_NEST: usize = 16;
/// How deep a tree is walked; each step may hold a folder open.
const MAX_DEPTH: usize = 100;

/// A folder that is walked, with the rules that hold in it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) dir: Arc<Dir>,
    ignored: Ignored,
    depth: usize,
}

/// What is walked over.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Whether names that begin with a dot are left out.
    pub(super) no_hidden: bool,
    /// Whether what `.gitignore` and `.ignore` name is left out.
    pub(super) no_ignored: bool,
    pub(super) glob: Option<Glob>,
    /// Heard when nobody waits any more: rules of a folder can be so heavy that one name takes
    /// long.
    pub(super) cancel: CancelToken,
}

impl Folder {
    /// Opens a folder to begin with. Rules of the folders above it hold as well.
    pub(super) fn open(space: &Workspace, path: &str) -> Result<Self, ToolError> {
        let dir = space.dir(path).map_err(refused)?;
        let mut ignored = Ignored::default();
        let ends = dir.path().match_indices('/').map(|(at, _)| at);
        let above = [0]
            .into_iter()
            .filter(|_| !dir.path().is_empty())
            .chain(ends);
        for end in above {
            let path = if end == 0 { "." } else { &dir.path()[..end] };
            // The way was open a moment ago; whatever has changed since then has no say.
            if let Ok(dir) = space.dir(path) {
                ignored = ignored.enter(&dir, None);
            }
        }
        Ok(Self {
            dir: Arc::new(dir),
            ignored,
            depth: 0,
        })
    }

    /// Opens a folder in this one.
    pub(super) fn enter(&self, name: &str) -> Result<Self, PathError> {
        let dir = Arc::new(self.dir.dir(name)?);
        Ok(Self {
            dir,
            ignored: self.ignored.clone(),
            depth: self.depth + 1,
        })
    }

    /// The entries that are not left out, by name. The rules of this folder hold from now on.
    pub(super) fn list(&mut self, filter: &Filter) -> Result<Listing, PathError> {
        let mut listing = self.dir.entries(MAX_ENTRIES)?;
        if filter.no_ignored {
            self.ignored = self.ignored.enter(&self.dir, Some(&listing.entries));
        }
        let (dir, ignored) = (&self.dir, filter.no_ignored.then_some(&self.ignored));
        listing.entries.retain(|entry| {
            if filter.cancel.is_cancelled() {
                return false;
            }
            let is_hidden = filter.no_hidden && entry.name.starts_with('.');
            let is_ignored = |ignored: &Ignored| {
                ignored.leaves_out(&dir.path_of(&entry.name), entry.kind == Kind::Dir)
            };
            !is_hidden && !ignored.is_some_and(is_ignored)
        });
        Ok(listing)
    }

    /// Whether folders in this one are walked, too.
    pub(super) fn may_go_deeper(&self) -> bool {
        self.depth < MAX_DEPTH
    }
}

/// A glob that a model wrote.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    matcher: GlobMatcher,
    /// Whether it speaks of names, and not of paths.
    is_name: bool,
    negated: bool,
    /// How much of a path leads to the folder that is walked.
    start: usize,
}

impl Glob {
    /// A glob without `/` matches names at any depth, any other paths: from the workspace or from
    /// `base`. With `!` before it, it matches all others.
    pub(super) fn new(glob: &str, base: &str) -> Result<Self, ToolError> {
        let (text, negated) = glob
            .strip_prefix('!')
            .map_or((glob, false), |text| (text, true));
        let text = text.trim_start_matches("./").trim_start_matches('/');
        if is_heavy(text) {
            let text =
                "the glob is too long or nested too deeply; try one like `*.rs` or `src/**/*.ts`";
            return Err(ToolError::new(ToolErrorKind::InvalidArgs, text));
        }
        let built = GlobBuilder::new(text).literal_separator(true).build();
        let matcher = built.map_err(|error| {
            let text =
                format!("the glob `{glob}` does not parse; try one like `*.rs` or `src/**/*.ts`");
            ToolError::new(ToolErrorKind::InvalidArgs, text).with_source(error)
        })?;
        let start = if base.is_empty() { 0 } else { base.len() + 1 };
        Ok(Self {
            matcher: matcher.compile_matcher(),
            is_name: !text.contains('/'),
            negated,
            start,
        })
    }

    pub(super) fn matches(&self, path: &str, name: &str) -> bool {
        let found = match self.is_name {
            true => self.matcher.is_match(name),
            false => {
                let relative = path.get(self.start..).unwrap_or(path);
                self.matcher.is_match(path) || (self.start > 0 && self.matcher.is_match(relative))
            }
        };
        found != self.negated
    }
}

/// Returns whether a glob is too long, or its braces are nested so deep that a parser may run out
/// of stack.
pub(super) fn is_heavy(glob: &str) -> bool {
    glob.len() > MAX_GLOB || depth(glob) > MAX_NEST
}

/// How deep braces of a glob are nested, at most: a brace behind a backslash or in brackets closes
/// nothing.
fn depth(glob: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut escaped, mut brackets) = (false, false);
    for char in glob.chars() {
        match char {
            '{' => open += 1,
            '}' if !escaped && !brackets => open = open.saturating_sub(1),
            // Where they end is for the parser to say.
            '[' => brackets = true,
            _ => {}
        }
        escaped = char == '\\' && !escaped;
        deepest = deepest.max(open);
    }
    deepest
}

impl Filter {
    /// Whether an entry is among those that were asked for.
    pub(super) fn wants(&self, path: &str, name: &str) -> bool {
        self.glob
            .as_ref()
            .is_none_or(|glob| glob.matches(path, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_lists_nothing_once_its_call_has_stopped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "").unwrap();
        let space = Workspace::open(folder.path()).unwrap();
        let cancel = CancelToken::new();
        let filter = Filter {
            no_hidden: true,
            no_ignored: true,
            glob: None,
            cancel: cancel.clone(),
        };
        let count = || {
            Folder::open(&space, ".")
                .unwrap()
                .list(&filter)
                .unwrap()
                .entries
                .len()
        };
        assert_eq!(count(), 1);
        cancel.cancel();
        assert_eq!(count(), 0);
    }
}
