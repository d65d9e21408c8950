use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use levity_context::WorkspaceFiles;
use levity_core::text::{clipped, head};
use levity_sandbox::{PathError, Workspace};
use serde_json::json;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::{Document, Hit, Library, LibraryError, file_path, file_url};

/// The files of a workspace as a library: what `.gitignore` names is left out, and so is what is
/// not text.
///
/// Files are looked for by words, in their names and in their text: rare words count more, and so
/// do names.
///
/// ```
/// use levity_sandbox::Workspace;
/// use levity_serve::{Library, WorkspaceLibrary};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// std::fs::write(folder.join("tides.md"), "High water is at six.")?;
/// let library = WorkspaceLibrary::new(Workspace::open(folder)?);
/// let found = library.search("When is high water?", 5).await?;
/// assert_eq!(library.fetch(&found[0].id).await?.unwrap().text, "High water is at six.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceLibrary {
    space: Workspace,
    max_fetch: u64,
    /// Who may search now; others wait for their turn.
    turns: Arc<Turns>,
}

/// Searches that go on at once: so many in all, and fewer for one tenant.
#[derive(Debug)]
struct Turns {
    all: Arc<Semaphore>,
    /// Those of tenants that search or wait.
    by_tenant: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

/// A search that may go on; kept by the thread that it goes on in.
struct Turn {
    _all: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for a turn of this tenant, and then for one of all. The owner waits for the second
    /// only.
    async fn take(&self, tenant: &str) -> Result<Turn, AcquireError> {
        let own = match tenant {
            "" => None,
            tenant => Some(self.of(tenant).acquire_owned().await?),
        };
        Ok(Turn {
            _all: self.all.clone().acquire_owned().await?,
            _own: own,
        })
    }

    fn of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut turns = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = turns.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        turns.retain(|_, turns| turns.strong_count() > 0);
        let new = Arc::new(Semaphore::new(AT_ONCE_FOR_TENANT));
        turns.insert(tenant.into(), Arc::downgrade(&new));
        new
    }
}

/// What ids of files begin with.
const ID: &str = "file:";
/// How many files are looked at in a search.
const MOST_FILES: usize = 10_000;
/// How much of each.
const MOST_OF_FILE: u64 = 256 << 10;
/// How much of all.
const MOST_BYTES: u64 = 64 << 20;
/// How many searches go on at once. Each keeps a thread busy, and goes on to its end when nobody
/// waits for it any more.
const AT_ONCE: usize = 4;
/// How many of them are of one tenant.
const AT_ONCE_FOR_TENANT: usize = 1;
/// How many words of a question count.
const MOST_WORDS: usize = 16;
/// How much is shown around what was found.
const SHOWN: usize = 200;

impl WorkspaceLibrary {
    /// How many bytes of a file are given: 1 MiB.
    pub const DEFAULT_MAX_FETCH: u64 = 1 << 20;

    /// The files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        let turns = Arc::new(Turns {
            all: Arc::new(Semaphore::new(AT_ONCE)),
            by_tenant: Mutex::default(),
        });
        Self {
            space: workspace,
            max_fetch: Self::DEFAULT_MAX_FETCH,
            turns,
        }
    }

    /// How many bytes of a file are given; [`DEFAULT_MAX_FETCH`](Self::DEFAULT_MAX_FETCH) by
    /// default.
    #[must_use]
    pub fn max_fetch(mut self, bytes: u64) -> Self {
        self.max_fetch = bytes;
        self
    }
}

#[async_trait]
impl Library for WorkspaceLibrary {
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError> {
        self.search_for("", query, limit).await
    }

    async fn search_for(
        &self,
        tenant: &str,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, LibraryError> {
        let words = words(query);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let turn = self.turns.take(tenant).await;
        let turn = turn.map_err(|error| failed("no more is searched").with_source(error))?;
        let listed = WorkspaceFiles::new(&self.space)
            .max_files(MOST_FILES)
            .view()
            .await;
        let files = listed
            .map_err(|error| failed("the workspace cannot be listed").with_source(error))?
            .files;
        let space = self.space.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            search(&space, &files, &words, limit)
        });
        looked
            .await
            .map_err(|error| failed("the search was broken off").with_source(error))
    }

    async fn fetch(&self, id: &str) -> Result<Option<Document>, LibraryError> {
        let path = id
            .strip_prefix(ID)
            .map(str::to_owned)
            .or_else(|| file_path(id));
        let (library, Some(path)) = (self.clone(), path) else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || library.read(&path));
        read.await
            .map_err(|error| failed("the reading was broken off").with_source(error))?
    }
}

impl WorkspaceLibrary {
    fn read(&self, path: &str) -> Result<Option<Document>, LibraryError> {
        let excerpt = match self.space.read_start(path, self.max_fetch) {
            Ok(excerpt) => excerpt,
            Err(PathError::NotFound(_)) => return Ok(None),
            Err(error) => {
                return Err(failed(format!("`{path}` cannot be given")).with_source(error));
            }
        };
        let (size, cut) = (excerpt.size, excerpt.truncated);
        let Some(text) = text_of(excerpt.bytes) else {
            return Err(failed(format!(
                "`{path}` is not text, so it cannot be given"
            )));
        };
        let document = Document::new(format!("{ID}{path}"), path, file_url(path), text);
        Ok(Some(
            document.with_metadata(json!({"bytes": size, "complete": !cut})),
        ))
    }
}

fn failed(message: impl Into<String>) -> LibraryError {
    LibraryError::new(message)
}

/// The words of a question that count: those of some length, or all when there are no such.
fn words(query: &str) -> Vec<String> {
    let lower = query.to_lowercase();
    let all = || {
        lower
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
    };
    let mut words: Vec<String> = all()
        .filter(|word| word.chars().count() > 2)
        .map(str::to_owned)
        .collect();
    if words.is_empty() {
        words = all().map(str::to_owned).collect();
    }
    let mut seen = BTreeSet::new();
    words.retain(|word| seen.len() < MOST_WORDS && seen.insert(word.clone()));
    words
}

/// What is text, cut at the end of its last character.
fn text_of(bytes: Vec<u8>) -> Option<String> {
    if bytes.contains(&0) {
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let whole = error.utf8_error();
            let end = whole.valid_up_to();
            let is_cut = whole.error_len().is_none();
            is_cut.then(|| String::from_utf8_lossy(&error.as_bytes()[..end]).into_owned())
        }
    }
}

/// A file in which some of the words are.
struct Candidate {
    path: String,
    /// How often each word is in it, names counted more.
    counts: BTreeMap<usize, f64>,
    shown: Option<String>,
}

fn search(space: &Workspace, files: &[String], words: &[String], limit: usize) -> Vec<Hit> {
    let mut read = 0;
    let mut found = Vec::new();
    for path in files {
        let bytes = match read < MOST_BYTES {
            true => space
                .read_start(path, MOST_OF_FILE)
                .map_or_else(|_| Vec::new(), |excerpt| excerpt.bytes),
            false => Vec::new(),
        };
        // What is not text was read, too.
        read += bytes.len() as u64;
        found.extend(look(path, &text_of(bytes).unwrap_or_default(), words));
    }
    ranked(found, words.len(), files.len(), limit)
}

fn look(path: &str, text: &str, words: &[String]) -> Option<Candidate> {
    let (name, lower) = (path.to_lowercase(), text.to_lowercase());
    let count = |word: &String| {
        let in_text = lower.matches(word.as_str()).count() as f64;
        let in_name = name.matches(word.as_str()).count() as f64;
        in_text + 4.0 * in_name
    };
    let counts: BTreeMap<_, _> = words
        .iter()
        .map(count)
        .enumerate()
        .filter(|(_, count)| *count > 0.0)
        .collect();
    if counts.is_empty() {
        return None;
    }
    let first = words
        .iter()
        .filter_map(|word| lower.find(word.as_str()))
        .min();
    Some(Candidate {
        path: path.to_owned(),
        counts,
        shown: first.map(|at| around(&lower, text, at)),
    })
}

/// What stands around a place. Lower case may be longer or shorter, so the place is only about
/// right there.
fn around(lower: &str, text: &str, at: usize) -> String {
    let source = if lower.len() == text.len() {
        text
    } else {
        lower
    };
    let start = head(source, at).rfind('\n').map_or(0, |end| end + 1);
    clipped(source[start..].trim(), SHOWN).into_owned()
}

fn ranked(mut found: Vec<Candidate>, words: usize, files: usize, limit: usize) -> Vec<Hit> {
    let mut with = vec![0.0_f64; words];
    found
        .iter()
        .flat_map(|candidate| candidate.counts.keys())
        .for_each(|word| with[*word] += 1.0);
    let weight = |word: usize| (1.0 + files as f64 / with[word]).ln();
    let score = |candidate: &Candidate| -> f64 {
        candidate
            .counts
            .iter()
            .map(|(word, count)| weight(*word) * count / (count + 1.5))
            .sum()
    };
    found.sort_by(|a, b| {
        score(b)
            .total_cmp(&score(a))
            .then_with(|| a.path.cmp(&b.path))
    });
    found.truncate(limit);
    let hit = |found: Candidate| {
        let hit = Hit::new(
            format!("{ID}{}", found.path),
            &*found.path,
            file_url(&found.path),
        );
        match found.shown {
            Some(text) => hit.with_text(text),
            None => hit,
        }
    };
    found.into_iter().map(hit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_of_a_question_count() {
        let long = "zebra yak zebra of the a b c one two three four five six seven eight nine ten \
            eleven twelve alpha beta";
        let words = words(long);
        assert_eq!(words.len(), MOST_WORDS);
        assert_eq!(words[..3], ["zebra", "yak", "the"]);
        assert_eq!(
            super::words("a b a"),
            ["a", "b"],
            "short ones count where there are no others"
        );
    }

    #[tokio::test]
    async fn searches_of_one_tenant_leave_turns_for_others() {
        use futures_util::FutureExt as _;
        let folder = tempfile::tempdir().unwrap();
        let turns = WorkspaceLibrary::new(Workspace::open(folder.path()).unwrap()).turns;
        let take = |tenant: &'static str| turns.take(tenant).now_or_never().and_then(Result::ok);
        let ann = take("ann").unwrap();
        assert!(take("ann").is_none(), "one tenant has one turn");
        let (_bob, _owner, _again) = (take("bob").unwrap(), take("").unwrap(), take("").unwrap());
        assert!(
            take("eye").is_none() && take("").is_none(),
            "there are four turns"
        );
        drop(ann);
        let _eye = take("eye").unwrap();
        assert!(take("ann").is_none());
        drop((_eye, _bob));
        for number in 0..100 {
            drop(turns.take(&format!("t{number}")).await.unwrap());
        }
        assert!(
            turns.by_tenant.lock().unwrap().len() < 4,
            "those who have left are forgotten"
        );
    }

    #[test]
    fn what_is_not_text_counts_as_read() {
        let folder = tempfile::tempdir().unwrap();
        let files = usize::try_from(MOST_BYTES / MOST_OF_FILE).unwrap();
        let noise = vec![0; usize::try_from(MOST_OF_FILE).unwrap()];
        for number in 0..files {
            std::fs::write(folder.path().join(format!("{number:04}.bin")), &noise).unwrap();
        }
        std::fs::write(folder.path().join("last.md"), "A zebra.").unwrap();
        let space = Workspace::open(folder.path()).unwrap();
        let mut paths: Vec<String> = (0..files)
            .map(|number| format!("{number:04}.bin"))
            .collect();
        paths.push("last.md".to_owned());
        let words = words("zebra");
        assert!(
            search(&space, &paths, &words, 5).is_empty(),
            "no more is read than may be"
        );
        assert_eq!(search(&space, &paths[1..], &words, 5).len(), 1);
    }
}
