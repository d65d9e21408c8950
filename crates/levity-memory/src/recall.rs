//! Long-term recall: what is worth knowing beyond one conversation.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join;
use levity_core::{
    ConversationId, Embedder, MemoryError, MemoryErrorKind, ModelError, ModelErrorKind, Usage,
    World,
};
use levity_system::SystemWorld;
use rusqlite::Connection;

mod fact;
mod file;
mod meaning;
mod rank;
mod rows;
mod scope;
mod sessions;
mod source;
mod tables;
mod tools;
mod vectors;
mod words;

pub use fact::{EmbeddingReport, FactId, RecallResult, Recalled, SavedFact};
pub use scope::Scope;
pub use sessions::RecallSessions;
pub use source::RecallContext;

use file::File;
use meaning::Meaning;
use rows::Fact;

/// The longest fact, in bytes.
const LONGEST_FACT: usize = 8 << 10;
/// The longest name of a source, in bytes.
const LONGEST_SOURCE: usize = 1 << 10;
/// How many facts a scope has at most, unless told otherwise.
const MOST_FACTS: usize = 100_000;
/// How many facts are found or listed at once.
const MOST_FOUND: usize = 1_000;
/// How many facts are ranked at least, however few are wanted.
const POOL: usize = 50;
/// How large a file is at most, in bytes, that is written anew when a fact is forgotten, and when a
/// scope is.
const SMALL: u64 = 4 << 20;
const MIDDLING: u64 = 64 << 20;
/// How many scopes are searched at once.
const MOST_SCOPES: usize = 32;

/// Facts and past sessions, kept in one SQLite file and found again by their words and, with an
/// [embedder](Self::with_embedder), by what they mean.
///
/// - A fact belongs to one [`Scope`]. A search goes over the scopes it is given and never beyond
///   them.
/// - Nothing that is looked for is taken for syntax, whatever stands in it.
/// - What is forgotten is gone: overwritten in the file, and no longer in the log beside it.
/// - Several processes may use one file. A change is whole or not at all, also when the process is
///   killed half-way.
/// - A file of another program, of a newer version or with flaws is refused and left as it is.
///
/// Clones share the file. The work on it is done where it holds up no other task, when there is a
/// Tokio runtime. `docs/recall.md` has the limits and the tables.
///
/// ```
/// # use levity_memory::{Recall, Scope};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let recall = Recall::in_memory()?;
/// let user = Scope::user("u-17");
/// recall.remember(&user, "Prefers tea to coffee.", "chat of Monday").await?;
/// recall.remember(&user, "Lives near the harbour.", "chat of Monday").await?;
///
/// let found = recall.recall(&[user], "Which tea should I bring?", 5).await?;
/// assert_eq!(found.facts[0].text, "Prefers tea to coffee.");
///
/// let nobody = recall.recall(&[Scope::user("u-18")], "tea", 5).await?;
/// assert!(nobody.facts.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recall {
    file: Arc<File>,
    world: Arc<dyn World>,
    most_facts: usize,
    meaning: Option<Meaning>,
    least: f32,
}

impl Recall {
    /// Keeps facts in this file, which is made if it is not there or empty.
    ///
    /// It waits for the disk, and up to 5 seconds for another process that writes.
    ///
    /// # Errors
    /// When the file cannot be opened or made, and when it is none that this version can read:
    /// [`Version`](MemoryErrorKind::Version) or [`Damaged`](MemoryErrorKind::Damaged).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MemoryError> {
        Ok(Self::over(File::open(path.as_ref())?))
    }

    /// What is wrong with how the facts are kept: other users of the system can read them, for
    /// instance. A new file can be read by its owner alone, and one that is there stays as it is.
    pub fn problems(&self) -> Vec<String> {
        self.file.exposed().into_iter().collect()
    }

    /// Keeps facts until the last clone is dropped.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn in_memory() -> Result<Self, MemoryError> {
        Ok(Self::over(File::in_memory()?))
    }

    fn over(file: File) -> Self {
        let world = Arc::new(SystemWorld);
        Self {
            file: Arc::new(file),
            world,
            most_facts: MOST_FACTS,
            meaning: None,
            least: 0.0,
        }
    }

    /// The clock for dates; the system's by default.
    #[must_use]
    pub fn with_world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// How many facts a scope may have; 100,000 by default.
    #[must_use]
    pub fn with_max_facts(mut self, facts: usize) -> Self {
        self.most_facts = facts;
        self
    }

    /// Also finds facts by what they mean, however they are worded.
    ///
    /// The vectors are in the file, with the embedder's card; one embedder's cannot be compared
    /// with another's, so a file is best used with one. An embedder that fails, or takes longer
    /// than 20 seconds, is no failure of this: facts are then kept without a vector and found by
    /// their words, which [`SavedFact::unembedded`] and [`RecallResult::words_only`] say, and it is
    /// asked again after 30 seconds. Facts without a vector get theirs later, some with everything
    /// that is remembered or recalled, or all by [`embed_missing`](Self::embed_missing).
    #[must_use]
    pub fn with_embedder(mut self, embedder: impl Embedder + 'static) -> Self {
        self.meaning = Some(Meaning::new(Arc::new(embedder)));
        self
    }

    /// Leaves out what only an embedder finds and whose vector lies farther from the question's
    /// than this cosine; 0 by default. What is far and what is near differs from embedder to
    /// embedder.
    #[must_use]
    pub fn with_min_cosine(mut self, cosine: f32) -> Self {
        self.least = cosine;
        self
    }

    /// Keeps a fact: a short text, and where it comes from. The same text again in the same scope
    /// is the same fact, with the new source and date. White space around it is no part of it.
    ///
    /// # Errors
    /// [`Refused`](MemoryErrorKind::Refused) when the text is empty or longer than 8 KiB, or its
    /// source longer than 1 KiB; [`Full`](MemoryErrorKind::Full) when the scope has as many facts
    /// as it may; and when the file cannot be written.
    pub async fn remember(
        &self,
        scope: &Scope,
        text: &str,
        source: &str,
    ) -> Result<SavedFact, MemoryError> {
        self.keep(scope, text, source, None).await
    }

    /// Keeps the summary of a session. There is one for each conversation in a scope; a new one
    /// takes its place.
    ///
    /// # Errors
    /// As [`remember`](Self::remember).
    pub async fn remember_session(
        &self,
        scope: &Scope,
        conversation: &ConversationId,
        summary: &str,
    ) -> Result<SavedFact, MemoryError> {
        let source = format!("conversation {conversation}");
        self.keep(scope, summary, &source, Some(conversation.clone()))
            .await
    }

    /// At most `limit` facts of these scopes that have to do with `query`, best first. 1,000 is the
    /// most.
    ///
    /// # Errors
    /// When there are more than 32 scopes, and when the file cannot be read.
    pub async fn recall(
        &self,
        scopes: &[Scope],
        query: &str,
        limit: usize,
    ) -> Result<RecallResult, MemoryError> {
        check_scopes(scopes)?;
        let limit = limit.min(MOST_FOUND);
        if limit == 0 || query.trim().is_empty() {
            return Ok(RecallResult::default());
        }
        let (near, usage) = self.near(scopes, query).await;
        let (vector, words_only) = match near {
            Some(Ok((card, vector))) => (Some((card, vector, self.least)), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let (scopes, query) = (scopes.to_vec(), query.to_owned());
        let facts = self
            .work(move |file| {
                file.read(|view| search(view, &scopes, &query, vector.as_ref(), limit))
            })
            .await?;
        Ok(RecallResult {
            facts,
            words_only,
            usage,
        })
    }

    /// What is looked for as a vector, if there is an embedder, and the vectors of some facts that
    /// have none yet.
    async fn near(&self, scopes: &[Scope], query: &str) -> (Option<Asked>, Usage) {
        let Some(meaning) = &self.meaning else {
            return (None, Usage::default());
        };
        let (asked, some) = join(
            meaning.query(&*self.world, query),
            self.embed_some(scopes, None),
        )
        .await;
        // A file that cannot be written just now can still be read; if not, the search says so.
        let some = some.unwrap_or_else(|_| Ok(Usage::default()));
        match asked {
            Ok((vector, mut usage)) => {
                let more = some.ok().and_then(|usage| usage.input);
                usage.input = usage
                    .input
                    .map(|input| input.saturating_add(more.unwrap_or(0)))
                    .or(more);
                (Some(Ok((meaning.card.clone(), vector))), usage)
            }
            Err(error) => (Some(Err(error)), some.unwrap_or_default()),
        }
    }

    /// Removes a fact, if it is in one of these scopes, and says whether it was. Nothing of it is
    /// left in a file of up to 4 MiB; in a larger one, SQLite may leave copies of moved rows until
    /// it is [wiped](Self::wipe).
    ///
    /// # Errors
    /// When the file cannot be written. [`Busy`](MemoryErrorKind::Busy) also when the fact is gone,
    /// but another program still reads the file as it was: then forget it once more later.
    pub async fn forget(&self, scopes: &[Scope], id: FactId) -> Result<bool, MemoryError> {
        check_scopes(scopes)?;
        let scopes = scopes.to_vec();
        let forget = move |file: &File| {
            let forgotten = file.write(|change| {
                let keys: Vec<_> = rows::scope_keys(change, &scopes)?
                    .into_iter()
                    .map(|(key, _)| key)
                    .collect();
                rows::forget(change, &keys, id)
            })?;
            file.wipe(SMALL).map(|()| forgotten)
        };
        self.work(forget).await
    }

    /// Removes everything of a scope, and says how many facts there were. Nothing of them is left
    /// in a file of up to 64 MiB; see [`wipe`](Self::wipe) for larger ones.
    ///
    /// # Errors
    /// As [`forget`](Self::forget).
    pub async fn forget_scope(&self, scope: &Scope) -> Result<usize, MemoryError> {
        let scope = scope.clone();
        let forget = move |file: &File| {
            let forgotten = file.write(|change| {
                let keys = rows::scope_keys(change, std::slice::from_ref(&scope))?;
                keys.first()
                    .map_or(Ok(0), |(key, _)| rows::forget_scope(change, *key))
            })?;
            file.wipe(MIDDLING).map(|()| forgotten)
        };
        self.work(forget).await
    }

    /// Writes the file anew, so that nothing is left in it of what was forgotten.
    ///
    /// What is forgotten is overwritten at once. But SQLite leaves copies behind when it moves rows
    /// from page to page, and those go only in this way. Small files are wiped whenever something
    /// is forgotten; a large one takes some ten milliseconds and as much memory for each MiB, in
    /// which nobody else can write.
    ///
    /// # Errors
    /// When the file cannot be written, and [`Busy`](MemoryErrorKind::Busy) when another program
    /// uses it for too long.
    pub async fn wipe(&self) -> Result<(), MemoryError> {
        self.work(|file| file.wipe(u64::MAX)).await
    }

    /// At most `limit` facts of a scope behind the fact `after`, oldest first. 1,000 is the most.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn list(
        &self,
        scope: &Scope,
        after: Option<FactId>,
        limit: usize,
    ) -> Result<Vec<Recalled>, MemoryError> {
        let scope = scope.clone();
        let limit = limit.min(MOST_FOUND);
        self.work(move |file| file.read(|view| rows::list(view, &scope, after, limit)))
            .await
    }

    async fn keep(
        &self,
        scope: &Scope,
        text: &str,
        source: &str,
        conversation: Option<ConversationId>,
    ) -> Result<SavedFact, MemoryError> {
        scope.check()?;
        let text = text.trim();
        check_text("a fact", text, LONGEST_FACT)?;
        check_text("the source of a fact", source, LONGEST_SOURCE)?;
        let fact = Fact {
            scope: scope.clone(),
            text: text.to_owned(),
            source: source.to_owned(),
            conversation,
            date: self.world.now(),
        };
        let most = self.most_facts;
        let (id, new) = self
            .work(move |file| file.write(|change| rows::keep(change, &fact, most)))
            .await?;
        // Whatever comes of its vector, the fact is kept.
        let embedded = self
            .embed_some(std::slice::from_ref(scope), Some(id))
            .await
            .unwrap_or_else(|error| {
                let message = "its vector could not be written into the file";
                Err(ModelError::new(ModelErrorKind::Transport, message).with_source(error))
            });
        match embedded {
            Ok(usage) => Ok(SavedFact {
                id,
                new,
                unembedded: None,
                usage,
            }),
            Err(error) => Ok(SavedFact {
                id,
                new,
                unembedded: Some(error),
                usage: Usage::default(),
            }),
        }
    }

    /// Does what may wait for the disk where it holds up nobody.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let file = self.file.clone();
        let turn = file.turn.clone().acquire_owned().await;
        let work = move || {
            let done = work(&file);
            drop(turn);
            done
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => handle.spawn_blocking(work).await.unwrap_or_else(|gone| {
                let message = "the runtime ended before the facts were read or written";
                Err(MemoryError::new(MemoryErrorKind::Io, message).with_source(gone))
            }),
            // Without a runtime there are no other tasks to hold up.
            Err(_) => work(),
        }
    }
}

/// What is looked for: the embedder and its vector, or why there is none.
type Asked = Result<(Arc<str>, Vec<f32>), ModelError>;

/// The best facts by their words and, where there is a vector, by what they mean.
fn search(
    view: &Connection,
    scopes: &[Scope],
    query: &str,
    vector: Option<&(Arc<str>, Vec<f32>, f32)>,
    limit: usize,
) -> rusqlite::Result<Vec<Recalled>> {
    let scopes = rows::scope_keys(view, scopes)?;
    let pool = limit.max(POOL);
    let mut lists = Vec::new();
    if let Some((card, vector, least)) = vector
        && let Some(embedder) = vectors::embedder(view, card)?
    {
        lists.push(vectors::near(
            view,
            embedder,
            &scopes,
            (vector, *least),
            pool,
        )?);
    }
    lists.push(rows::by_words(view, &scopes, query, pool)?);
    let mut facts = Vec::new();
    for (id, score) in rank::fuse(&lists).into_iter().take(limit) {
        facts.extend(rows::fact(view, &scopes, id, score)?);
    }
    Ok(facts)
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall")
            .field("embedder", &self.meaning)
            .finish_non_exhaustive()
    }
}

fn check_scopes(scopes: &[Scope]) -> Result<(), MemoryError> {
    if scopes.len() <= MOST_SCOPES {
        return Ok(());
    }
    let message = format!(
        "there are {} scopes, and at most {MOST_SCOPES} are searched at once",
        scopes.len()
    );
    Err(MemoryError::new(MemoryErrorKind::Refused, message))
}

fn check_text(what: &str, text: &str, longest: usize) -> Result<(), MemoryError> {
    let why = match text.len() {
        0 => "is empty".to_owned(),
        length if length > longest => {
            format!("has {length} bytes, and may have {longest}; say it in fewer words")
        }
        _ => return Ok(()),
    };
    Err(MemoryError::new(
        MemoryErrorKind::Refused,
        format!("{what} {why}"),
    ))
}
