//! The folders and files that a list or search visits.
//!
//! Folders are opened relative to each other and links are not followed, so a walk cannot leave the
//! workspace or run in circles. Ignore rules of the folders above the start apply as well, as git
//! does it.

use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use levity_core::{CancelToken, ToolError, ToolErrorKind};
use levity_sandbox::{Dir, EntryKind, Listing, PathError, Workspace};

use super::args::path_error;
use super::ignore_rules::IgnoreRules;

/// The maximum number of entries that are read of one folder.
const MAX_ENTRIES: usize = 200_000;
/// The maximum length of a glob in bytes, and the maximum nesting of its braces.
const MAX_GLOB: usize = 1024;
const MAX_NEST: usize = 16;
/// The maximum depth of a walk; each level may keep a folder open.
const MAX_DEPTH: usize = 100;

/// A folder in a walk, with the ignore rules that apply in it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) dir: Arc<Dir>,
    ignore_rules: IgnoreRules,
    depth: usize,
}

/// The entries that a walk skips.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Skips names that begin with a dot.
    pub(super) no_hidden: bool,
    /// Skips paths that `.gitignore` and `.ignore` exclude.
    pub(super) no_ignored: bool,
    pub(super) glob: Option<Glob>,
    /// Stops the walk when cancelled: complex rules can take long for a single name.
    pub(super) cancel: CancelToken,
}

impl Folder {
    /// Opens the first folder of a walk. Rules of its parent folders apply as well.
    pub(super) fn open(space: &Workspace, path: &str) -> Result<Self, ToolError> {
        let dir = space.dir(path).map_err(path_error)?;
        let mut ignore_rules = IgnoreRules::default();
        let ends = dir.path().match_indices('/').map(|(at, _)| at);
        let above = [0]
            .into_iter()
            .filter(|_| !dir.path().is_empty())
            .chain(ends);
        for end in above {
            let path = if end == 0 { "." } else { &dir.path()[..end] };
            // The path was valid a moment ago, so a change since then is ignored.
            if let Ok(dir) = space.dir(path) {
                ignore_rules = ignore_rules.enter(&dir, None);
            }
        }
        Ok(Self {
            dir: Arc::new(dir),
            ignore_rules,
            depth: 0,
        })
    }

    /// Opens a subfolder of this folder.
    pub(super) fn enter(&self, name: &str) -> Result<Self, PathError> {
        let dir = Arc::new(self.dir.dir(name)?);
        Ok(Self {
            dir,
            ignore_rules: self.ignore_rules.clone(),
            depth: self.depth + 1,
        })
    }

    /// Returns the entries that are not skipped, by name, and applies this folder's own rules.
    pub(super) fn list(&mut self, filter: &Filter) -> Result<Listing, PathError> {
        let mut listing = self.dir.entries(MAX_ENTRIES)?;
        if filter.no_ignored {
            self.ignore_rules = self.ignore_rules.enter(&self.dir, Some(&listing.entries));
        }
        let (dir, ignore_rules) = (&self.dir, filter.no_ignored.then_some(&self.ignore_rules));
        listing.entries.retain(|entry| {
            if filter.cancel.is_cancelled() {
                return false;
            }
            let is_hidden = filter.no_hidden && entry.name.starts_with('.');
            let is_ignored = |ignore_rules: &IgnoreRules| {
                ignore_rules.excludes(&dir.path_of(&entry.name), entry.kind == EntryKind::Dir)
            };
            !is_hidden && !ignore_rules.is_some_and(is_ignored)
        });
        Ok(listing)
    }

    /// Returns `true` if the walk enters subfolders of this folder.
    pub(super) fn may_descend(&self) -> bool {
        self.depth < MAX_DEPTH
    }
}

/// Returns `true` if a folder could not be read although it is there. A folder that was removed or
/// replaced since it was listed counts as empty.
pub(super) fn is_unread(error: &PathError) -> bool {
    !matches!(error, PathError::NotFound(_) | PathError::NotADirectory(_))
}

/// A glob that the model wrote.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    matcher: GlobMatcher,
    /// Set if the glob matches names, not paths.
    is_name: bool,
    negated: bool,
    /// The length of the path prefix that leads to the walked folder.
    start: usize,
}

impl Glob {
    /// Parses a glob. Without `/` it matches names at any depth, otherwise paths from the workspace
    /// or from `base`. A leading `!` negates it.
    pub(super) fn new(glob: &str, base: &str) -> Result<Self, ToolError> {
        let (text, negated) = glob
            .strip_prefix('!')
            .map_or((glob, false), |text| (text, true));
        let text = text.trim_start_matches("./").trim_start_matches('/');
        if is_too_complex(text) {
            let text =
                "the glob is too long or nested too deeply; try one like `*.rs` or `src/**/*.ts`";
            return Err(ToolError::new(ToolErrorKind::InvalidArgs, text));
        }
        let built = GlobBuilder::new(text).literal_separator(true).build();
        let matcher = built.map_err(|error| {
            let text =
                format!("the glob `{glob}` is invalid; try one like `*.rs` or `src/**/*.ts`");
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

    /// A path glob is tried from the workspace and from the folder of the walk, since models use
    /// both.
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

/// Returns `true` if a glob is too long, or if its braces are nested so deeply that a parser may
/// overflow its stack.
pub(super) fn is_too_complex(glob: &str) -> bool {
    glob.len() > MAX_GLOB || depth(glob) > MAX_NEST
}

/// Returns the maximum nesting of braces in a glob. An escaped brace or one in brackets closes
/// nothing.
fn depth(glob: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut escaped, mut brackets) = (false, false);
    for char in glob.chars() {
        match char {
            '{' => open += 1,
            '}' if !escaped && !brackets => open = open.saturating_sub(1),
            // Only the parser knows where brackets end.
            '[' => brackets = true,
            _ => {}
        }
        escaped = char == '\\' && !escaped;
        deepest = deepest.max(open);
    }
    deepest
}

impl Filter {
    /// Returns `true` if an entry matches the glob.
    pub(super) fn matches(&self, path: &str, name: &str) -> bool {
        self.glob
            .as_ref()
            .is_none_or(|glob| glob.matches(path, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_list_is_empty_after_cancellation() {
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
