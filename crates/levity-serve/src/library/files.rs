//! Text files of a workspace as documents. The id of a file is `file:PATH`.
//!
//! A search reads files directly instead of an index: nothing has to be kept up to date, and the
//! limits bound the work to 10,000 files and 64 MiB. At most four searches run at once, one per
//! tenant, because each occupies a thread until it ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use levity_context::WorkspaceFiles;
use levity_core::text::{clipped, head};
use levity_sandbox::{PathError, Workspace};
use serde_json::json;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::{Document, Hit, Library, LibraryError, file_path, file_url};

/// A library of the text files of a workspace, without those that `.gitignore` names.
///
/// A search matches words in file names and in text. Rare words have more weight, and so do matches
/// in names.
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
    /// Limits the number of concurrent searches; further ones wait.
    permits: Arc<SearchPermits>,
}

/// The permits of concurrent searches: a limit for all, and a lower one per tenant.
#[derive(Debug)]
struct SearchPermits {
    all: Arc<Semaphore>,
    /// The semaphores of tenants that search or wait.
    by_tenant: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

/// The permit of a search, held by the thread that runs it.
struct SearchPermit {
    _all: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl SearchPermits {
    /// Waits for a permit of this tenant, and then for one of the total. The owner waits only for
    /// the second.
    async fn take(&self, tenant: &str) -> Result<SearchPermit, AcquireError> {
        let own = match tenant {
            "" => None,
            tenant => Some(self.of(tenant).acquire_owned().await?),
        };
        Ok(SearchPermit {
            _all: self.all.clone().acquire_owned().await?,
            _own: own,
        })
    }

    /// Returns the semaphore of a tenant. Weak references let the table shrink: entries of tenants
    /// that no longer search are removed when a new one is added.
    fn of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut permits = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = permits.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        permits.retain(|_, permits| permits.strong_count() > 0);
        let new = Arc::new(Semaphore::new(MAX_SEARCHES_PER_TENANT));
        permits.insert(tenant.into(), Arc::downgrade(&new));
        new
    }
}

/// The prefix of file ids.
const ID: &str = "file:";
/// The maximum number of files that a search reads.
const MAX_FILES: usize = 10_000;
/// The maximum number of bytes that a search reads of one file.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// The maximum number of bytes that a search reads in total.
const MAX_TOTAL_BYTES: u64 = 64 << 20;
/// The maximum number of concurrent searches. Each occupies a thread until it ends, even if its
/// caller no longer waits.
const MAX_SEARCHES: usize = 4;
/// The maximum number of concurrent searches of one tenant.
const MAX_SEARCHES_PER_TENANT: usize = 1;
/// The maximum number of words of a query that are used.
const MAX_WORDS: usize = 16;
/// The length of the excerpt around a match.
const EXCERPT_LENGTH: usize = 200;

impl WorkspaceLibrary {
    /// The default maximum number of bytes that `fetch` returns of a file: 1 MiB.
    pub const DEFAULT_MAX_FETCH: u64 = 1 << 20;

    /// Creates a library of the files of this workspace.
    ///
    /// Clones share the limit of concurrent searches.
    pub fn new(workspace: Workspace) -> Self {
        let permits = Arc::new(SearchPermits {
            all: Arc::new(Semaphore::new(MAX_SEARCHES)),
            by_tenant: Mutex::default(),
        });
        Self {
            space: workspace,
            max_fetch: Self::DEFAULT_MAX_FETCH,
            permits,
        }
    }

    /// Sets the maximum number of bytes that `fetch` returns of a file;
    /// [`DEFAULT_MAX_FETCH`](Self::DEFAULT_MAX_FETCH) by default.
    ///
    /// A longer file is cut at a whole character, and its metadata says `"complete": false`.
    ///
    /// ```
    /// use levity_sandbox::Workspace;
    /// use levity_serve::{Library, WorkspaceLibrary};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("log.txt"), "0123456789")?;
    /// let library = WorkspaceLibrary::new(Workspace::open(folder.path())?).max_fetch(4);
    /// let cut = library.fetch("file:log.txt").await?.unwrap();
    /// assert_eq!(cut.text, "0123");
    /// assert_eq!(cut.metadata.unwrap()["complete"], false);
    /// # Ok(())
    /// # }
    /// ```
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
        let permit = self.permits.take(tenant).await;
        let permit = permit.map_err(|error| {
            failed("the search was cancelled because the library is closed").with_source(error)
        })?;
        let listed = WorkspaceFiles::new(&self.space)
            .max_files(MAX_FILES)
            .view()
            .await;
        let files = listed
            .map_err(|error| failed("cannot list the files of the workspace").with_source(error))?
            .files;
        let space = self.space.clone();
        let searched = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            search(&space, &files, &words, limit)
        });
        searched
            .await
            .map_err(|error| failed("the search was interrupted").with_source(error))
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
            .map_err(|error| failed("reading the file was interrupted").with_source(error))?
    }
}

impl WorkspaceLibrary {
    /// Reads a file on the current thread. The workspace rejects paths that lead out of it.
    fn read(&self, path: &str) -> Result<Option<Document>, LibraryError> {
        let excerpt = match self.space.read_prefix(path, self.max_fetch) {
            Ok(excerpt) => excerpt,
            Err(PathError::NotFound(_)) => return Ok(None),
            Err(error) => {
                return Err(failed(format!("cannot read `{path}`")).with_source(error));
            }
        };
        let (size, cut) = (excerpt.size, excerpt.truncated);
        let Some(text) = text_of(excerpt.bytes) else {
            return Err(failed(format!("cannot return `{path}`: it is not text")));
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

/// Returns the words of a query that are used: those of three characters or more, or all words if
/// there are none.
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
    words.retain(|word| seen.len() < MAX_WORDS && seen.insert(word.clone()));
    words
}

/// Returns the bytes as text, cut at the last whole character; `None` if they are not text.
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

/// A file that contains some of the words.
struct Candidate {
    path: String,
    /// The weighted number of occurrences by word; matches in names weigh more.
    counts: BTreeMap<usize, f64>,
    excerpt: Option<String>,
}

/// Reads the files one by one until the byte limit is reached. The names of later files still
/// count, and files that cannot be read are skipped.
fn search(space: &Workspace, files: &[String], words: &[String], limit: usize) -> Vec<Hit> {
    let mut read = 0;
    let mut found = Vec::new();
    for path in files {
        let bytes = match read < MAX_TOTAL_BYTES {
            true => space
                .read_prefix(path, MAX_FILE_BYTES)
                .map_or_else(|_| Vec::new(), |excerpt| excerpt.bytes),
            false => Vec::new(),
        };
        // Files that are not text count towards the limit as well.
        read += bytes.len() as u64;
        found.extend(match_file(path, &text_of(bytes).unwrap_or_default(), words));
    }
    ranked(found, words.len(), files.len(), limit)
}

/// Counts the words in one file. A match in the name counts four times, because `tides.md` is more
/// about tides than a file that mentions them once.
fn match_file(path: &str, text: &str, words: &[String]) -> Option<Candidate> {
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
        excerpt: first.map(|at| excerpt_at(&lower, text, at)),
    })
}

/// Returns the text around a position. Lower-casing may change the length of the text, in which
/// case the position is approximate.
fn excerpt_at(lower: &str, text: &str, at: usize) -> String {
    let source = if lower.len() == text.len() {
        text
    } else {
        lower
    };
    let start = head(source, at).rfind('\n').map_or(0, |end| end + 1);
    clipped(source[start..].trim(), EXCERPT_LENGTH).into_owned()
}

/// Sorts by score and converts the best files to results. A word weighs more if few files contain
/// it, and further matches in one file add less and less: `n / (n + 1.5)`. Equal scores are sorted
/// by path, so the order is stable.
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
        match found.excerpt {
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
    fn words_keeps_the_first_words_of_a_query() {
        let long = "zebra yak zebra of the a b c one two three four five six seven eight nine ten \
            eleven twelve alpha beta";
        let words = words(long);
        assert_eq!(words.len(), MAX_WORDS);
        assert_eq!(words[..3], ["zebra", "yak", "the"]);
        assert_eq!(
            super::words("a b a"),
            ["a", "b"],
            "short words are used if there are no others"
        );
    }

    #[tokio::test]
    async fn searches_of_one_tenant_leave_permits_for_others() {
        use futures_util::FutureExt as _;
        let folder = tempfile::tempdir().unwrap();
        let permits = WorkspaceLibrary::new(Workspace::open(folder.path()).unwrap()).permits;
        let take = |tenant: &'static str| permits.take(tenant).now_or_never().and_then(Result::ok);
        let ann = take("ann").unwrap();
        assert!(take("ann").is_none(), "one tenant has one permit");
        let (_bob, _owner, _again) = (take("bob").unwrap(), take("").unwrap(), take("").unwrap());
        assert!(
            take("eye").is_none() && take("").is_none(),
            "there are four permits"
        );
        drop(ann);
        let _eye = take("eye").unwrap();
        assert!(take("ann").is_none());
        drop((_eye, _bob));
        for number in 0..100 {
            drop(permits.take(&format!("t{number}")).await.unwrap());
        }
        assert!(
            permits.by_tenant.lock().unwrap().len() < 4,
            "idle tenants are removed"
        );
    }

    #[test]
    fn binary_files_count_towards_the_read_limit() {
        let folder = tempfile::tempdir().unwrap();
        let files = usize::try_from(MAX_TOTAL_BYTES / MAX_FILE_BYTES).unwrap();
        let noise = vec![0; usize::try_from(MAX_FILE_BYTES).unwrap()];
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
            "the search stops at its byte limit"
        );
        assert_eq!(search(&space, &paths[1..], &words, 5).len(), 1);
    }
}
