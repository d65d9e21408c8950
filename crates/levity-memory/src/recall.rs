//! Long-term recall: facts that remain useful beyond one conversation.
//!
//! A search combines two rankings: by words, with BM25, and by meaning, with vectors. Words work
//! without any model and find names and numbers; vectors find paraphrases. The embedder is optional
//! in every call. If it fails, words are enough to answer.
//!
//! Everything that a fact says is untrusted. A fact was perhaps written by a model that had read a
//! hostile page, so it is shown to models as data with its source.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join;
use levity_core::{
    ConversationId, Embedder, MemoryError, MemoryErrorKind, ModelError, ModelErrorKind, Usage,
    World,
};
use levity_search::{Embedding, fuse};
use levity_sqlite::Store;
use levity_system::SystemWorld;
use rusqlite::Connection;

use crate::sqlite_error::to_memory_error;

mod embedding;
mod fact;
mod rows;
mod scope;
mod sessions;
mod source;
mod tables;
mod tools;
mod vectors;

pub use fact::{EmbeddingReport, FactId, RecallResult, RecalledFact, SavedFact};
pub use scope::Scope;
pub use sessions::RecallSessionNotes;
pub use source::RecallContext;

use rows::Fact;
use tables::FORMAT;

/// The database of facts.
type File = Store<MemoryError>;
/// The reason why a change of facts was not made.
type WriteError = levity_sqlite::WriteError<MemoryError>;

/// The maximum size of a fact, in bytes.
const MAX_FACT_BYTES: usize = 8 << 10;
/// The maximum size of a source name, in bytes.
const MAX_SOURCE_BYTES: usize = 1 << 10;
/// The default maximum number of facts in a scope.
const DEFAULT_MAX_FACTS: usize = 100_000;
/// The maximum number of facts that one call finds or lists.
const MAX_RESULTS: usize = 1_000;
/// The minimum numbers of facts that are ranked by words and by meaning, even for a smaller limit.
const MIN_CANDIDATES_BY_WORDS: usize = 1_000;
const MIN_CANDIDATES_BY_MEANING: usize = 50;
/// The maximum file size, in bytes, for a rewrite after forgetting one fact, and after forgetting a
/// scope.
const VACUUM_AFTER_FACT_BYTES: u64 = 4 << 20;
const VACUUM_AFTER_SCOPE_BYTES: u64 = 64 << 20;
/// The maximum number of scopes in one search.
const MAX_SCOPES: usize = 32;

/// Facts and past sessions in one SQLite file, found by their words and, with an
/// [embedder](Self::with_embedder), by their meaning.
///
/// - A fact belongs to one [`Scope`]. A search covers the given scopes and no others.
/// - A query is plain text; no part of it is interpreted as search syntax.
/// - Forgotten facts are overwritten in the file, and removed from the log beside it.
/// - Several processes may use one file. A change is atomic, even if the process is killed
///   half-way.
/// - The store rejects files of other programs, of newer versions and with damage, and leaves them
///   unchanged.
///
/// Clones share the file. Within a tokio runtime, file access runs where it delays no other task.
/// `docs/recall.md` describes the limits and the tables.
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
/// let other = recall.recall(&[Scope::user("u-18")], "tea", 5).await?;
/// assert!(other.facts.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recall {
    file: Arc<File>,
    world: Arc<dyn World>,
    max_facts: usize,
    embedding: Option<Embedding>,
    min_cosine: f32,
}

impl Recall {
    /// Opens this file, and creates it if it does not exist or is empty.
    ///
    /// The call waits for the disk, and up to 5 seconds for another process that writes.
    ///
    /// # Errors
    /// If the file cannot be opened or created, and if this version cannot read it:
    /// [`Version`](MemoryErrorKind::Version) or [`Damaged`](MemoryErrorKind::Damaged).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MemoryError> {
        Ok(Self::with_file(File::open(
            path.as_ref(),
            &FORMAT,
            to_memory_error,
        )?))
    }

    /// Returns warnings about the file, for instance that other users of the system can read it. A
    /// new file is readable by its owner only; an existing file keeps its permissions.
    pub fn warnings(&self) -> Vec<String> {
        self.file.exposure_warning().into_iter().collect()
    }

    /// Creates a store in memory, which lasts until the last clone is dropped.
    ///
    /// # Errors
    /// If there is no memory left.
    pub fn in_memory() -> Result<Self, MemoryError> {
        Ok(Self::with_file(File::in_memory(&FORMAT, to_memory_error)?))
    }

    fn with_file(file: File) -> Self {
        let world = Arc::new(SystemWorld);
        Self {
            file: Arc::new(file),
            world,
            max_facts: DEFAULT_MAX_FACTS,
            embedding: None,
            min_cosine: 0.0,
        }
    }

    /// Sets the clock for dates; the system clock by default.
    #[must_use]
    pub fn with_world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Sets the maximum number of facts in a scope; 100,000 by default.
    #[must_use]
    pub fn with_max_facts(mut self, facts: usize) -> Self {
        self.max_facts = facts;
        self
    }

    /// Finds facts by their meaning as well, regardless of their wording.
    ///
    /// The file stores the vectors together with the embedder's card. Vectors of different
    /// embedders cannot be compared, so use one embedder per file.
    ///
    /// A failure of the embedder, or a call that exceeds 20 seconds, does not fail the operation.
    /// Facts are then stored without a vector and found by their words;
    /// [`SavedFact::embedding_error`] and [`RecallResult::embedding_error`] report it. The store
    /// retries the embedder after 30 seconds. Facts without a vector get one later: a few with
    /// every `remember` or `recall`, or all by [`embed_missing`](Self::embed_missing).
    ///
    /// ```
    /// use levity_memory::{Recall, Scope};
    /// use levity_test::WordEmbedder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let embedder = WordEmbedder::new().synonyms(["tea", "infusion"]);
    /// let (recall, user) = (Recall::in_memory()?.with_embedder(embedder), Scope::user("u-17"));
    /// recall.remember(&user, "Prefers tea.", "chat of Monday").await?;
    /// let found = recall.recall(&[user], "infusion", 5).await?;
    /// assert_eq!(found.facts[0].text, "Prefers tea."); // no word in common
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_embedder(mut self, embedder: impl Embedder + 'static) -> Self {
        self.embedding = Some(Embedding::new(Arc::new(embedder)));
        self
    }

    /// Sets the minimum cosine for facts that only the embedder finds; 0 by default. The cosine
    /// between the vectors of related texts differs from embedder to embedder.
    #[must_use]
    pub fn with_min_cosine(mut self, cosine: f32) -> Self {
        self.min_cosine = cosine;
        self
    }

    /// Saves a fact: a short text and its source.
    ///
    /// Saving the same text again in the same scope updates the source and date of the existing
    /// fact. Surrounding white space is removed.
    ///
    /// # Errors
    /// [`Refused`](MemoryErrorKind::Refused) if the text is empty or longer than 8 KiB, or its
    /// source is empty or longer than 1 KiB; [`Full`](MemoryErrorKind::Full) if the scope has
    /// reached its maximum number of facts; and if the file cannot be written.
    ///
    /// ```
    /// use levity_core::MemoryErrorKind;
    /// use levity_memory::{Recall, Scope};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let (recall, user) = (Recall::in_memory()?, Scope::user("u-17"));
    /// let first = recall.remember(&user, "Prefers tea.", "chat of Monday").await?;
    /// let again = recall.remember(&user, " Prefers tea. ", "chat of Tuesday").await?;
    /// assert!(first.new && !again.new && first.id == again.id);
    /// let error = recall.remember(&user, "  ", "chat").await.unwrap_err();
    /// assert_eq!(error.kind(), MemoryErrorKind::Refused);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remember(
        &self,
        scope: &Scope,
        text: &str,
        source: &str,
    ) -> Result<SavedFact, MemoryError> {
        self.save_fact(scope, text, source, None).await
    }

    /// Saves the summary of a session. Each conversation has one summary in a scope; a new one
    /// replaces it.
    ///
    /// # Errors
    /// As [`remember`](Self::remember).
    ///
    /// ```
    /// # use levity_core::ConversationId;
    /// # use levity_memory::{Recall, Scope};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let (recall, ada) = (Recall::in_memory()?, Scope::user("ada"));
    /// let chat = ConversationId::new("monday");
    /// recall.remember_session(&ada, &chat, "They planned a trip to Rome.").await?;
    /// recall.remember_session(&ada, &chat, "They booked a trip to Rome.").await?;
    /// assert_eq!(recall.forget_scope(&ada).await?, 1); // the second replaced the first
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remember_session(
        &self,
        scope: &Scope,
        conversation: &ConversationId,
        summary: &str,
    ) -> Result<SavedFact, MemoryError> {
        let source = format!("conversation {conversation}");
        self.save_fact(scope, summary, &source, Some(conversation.clone()))
            .await
    }

    /// Returns at most `limit` facts of these scopes that match `query`, best first. The maximum
    /// limit is 1,000.
    ///
    /// # Errors
    /// If there are more than 32 scopes, and if the file cannot be read.
    pub async fn recall(
        &self,
        scopes: &[Scope],
        query: &str,
        limit: usize,
    ) -> Result<RecallResult, MemoryError> {
        check_scopes(scopes)?;
        let limit = limit.min(MAX_RESULTS);
        if limit == 0 || query.trim().is_empty() {
            return Ok(RecallResult::default());
        }
        let (query_vector, usage) = self.query_vector(scopes, query).await;
        let (vector, words_only) = match query_vector {
            Some(Ok((card, vector))) => (Some((card, vector, self.min_cosine)), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let (scopes, query) = (scopes.to_vec(), query.to_owned());
        let facts = self
            .file
            .run(move |file| {
                file.read(|view| search(view, &scopes, &query, vector.as_ref(), limit))
            })
            .await?;
        Ok(RecallResult {
            facts,
            embedding_error: words_only,
            usage,
        })
    }

    /// Returns the query as a vector, if there is an embedder, and embeds some facts that have no
    /// vector yet.
    async fn query_vector(&self, scopes: &[Scope], query: &str) -> (Option<QueryVector>, Usage) {
        let Some(embedding) = &self.embedding else {
            return (None, Usage::default());
        };
        let (query_embedded, backlog) = join(
            embedding.embed_query(&*self.world, query),
            self.embed_backlog(scopes, None),
        )
        .await;
        // A file that cannot be written now may still be readable; if not, the search reports it.
        let backlog = backlog.unwrap_or_else(|_| Ok(Usage::default()));
        match query_embedded {
            Ok((vector, mut usage)) => {
                let more = backlog.ok().and_then(|usage| usage.input);
                usage.input = usage
                    .input
                    .map(|input| input.saturating_add(more.unwrap_or(0)))
                    .or(more);
                (Some(Ok((embedding.card().clone(), vector))), usage)
            }
            Err(error) => (Some(Err(error)), backlog.unwrap_or_default()),
        }
    }

    /// Removes a fact if it is in one of these scopes, and returns `true` if it was. In a file of
    /// up to 4 MiB, no data of it remains; in a larger one, SQLite may leave copies of moved rows
    /// until you call [`wipe`](Self::wipe).
    ///
    /// # Errors
    /// If the file cannot be written. [`Busy`](MemoryErrorKind::Busy) also if the fact is removed,
    /// but another program still reads the old state of the file; then call `forget` again later.
    ///
    /// ```
    /// use levity_memory::{Recall, Scope};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let (recall, user) = (Recall::in_memory()?, Scope::user("u-17"));
    /// let tea = recall.remember(&user, "Prefers tea.", "chat of Monday").await?.id;
    /// assert!(!recall.forget(&[Scope::user("u-18")], tea).await?, "another scope");
    /// assert!(recall.forget(&[user], tea).await?);
    /// # Ok(())
    /// # }
    /// ```
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
            file.wipe(VACUUM_AFTER_FACT_BYTES).map(|()| forgotten)
        };
        self.file.run(forget).await
    }

    /// Removes all facts of a scope, and returns their number. In a file of up to 64 MiB, no data
    /// of them remains; see [`wipe`](Self::wipe) for larger ones.
    ///
    /// # Errors
    /// As [`forget`](Self::forget).
    ///
    /// ```
    /// # use levity_memory::{Recall, Scope};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let recall = Recall::in_memory()?;
    /// let ada = Scope::user("ada");
    /// recall.remember(&ada, "Ada drinks tea.", "a chat").await?;
    /// assert_eq!(recall.forget_scope(&ada).await?, 1);
    /// assert_eq!(recall.forget_scope(&ada).await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn forget_scope(&self, scope: &Scope) -> Result<usize, MemoryError> {
        let scope = scope.clone();
        let forget = move |file: &File| {
            let forgotten = file.write(|change| {
                let keys = rows::scope_keys(change, std::slice::from_ref(&scope))?;
                keys.first()
                    .map_or(Ok(0), |(key, _)| rows::forget_scope(change, *key))
            })?;
            file.wipe(VACUUM_AFTER_SCOPE_BYTES).map(|()| forgotten)
        };
        self.file.run(forget).await
    }

    /// Rewrites the file, so that no data of forgotten facts remains in it.
    ///
    /// Forgetting overwrites a fact at once. But SQLite leaves copies behind when it moves rows
    /// from page to page, and only a rewrite removes those. The store rewrites a small file
    /// whenever a fact is forgotten. A large file takes some ten milliseconds and as much memory
    /// for each MiB, during which no other process can write.
    ///
    /// # Errors
    /// If the file cannot be written, and [`Busy`](MemoryErrorKind::Busy) if another program uses
    /// it for too long.
    pub async fn wipe(&self) -> Result<(), MemoryError> {
        self.file.run(|file| file.wipe(u64::MAX)).await
    }

    /// Returns at most `limit` facts of a scope after the fact `after`, oldest first. The maximum
    /// limit is 1,000.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// ```
    /// use levity_memory::{Recall, Scope};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let (recall, user) = (Recall::in_memory()?, Scope::user("u-17"));
    /// for fact in ["Prefers tea.", "Lives near the harbour."] {
    ///     recall.remember(&user, fact, "chat of Monday").await?;
    /// }
    /// let first = recall.list(&user, None, 1).await?;
    /// let rest = recall.list(&user, Some(first[0].id), 10).await?;
    /// assert_eq!((first.len(), rest[0].text.as_str()), (1, "Lives near the harbour."));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(
        &self,
        scope: &Scope,
        after: Option<FactId>,
        limit: usize,
    ) -> Result<Vec<RecalledFact>, MemoryError> {
        let scope = scope.clone();
        let limit = limit.min(MAX_RESULTS);
        self.file
            .run(move |file| file.read(|view| rows::list(view, &scope, after, limit)))
            .await
    }

    async fn save_fact(
        &self,
        scope: &Scope,
        text: &str,
        source: &str,
        conversation: Option<ConversationId>,
    ) -> Result<SavedFact, MemoryError> {
        scope.check()?;
        let text = text.trim();
        check_text("a fact", text, MAX_FACT_BYTES)?;
        check_text("the source of a fact", source, MAX_SOURCE_BYTES)?;
        let fact = Fact {
            scope: scope.clone(),
            text: text.to_owned(),
            source: source.to_owned(),
            conversation,
            date: self.world.now(),
        };
        let max_facts = self.max_facts;
        let (id, new) = self
            .file
            .run(move |file| file.write(|change| rows::save(change, &fact, max_facts)))
            .await?;
        // The fact is saved, whatever happens to its vector.
        let embedded = self
            .embed_backlog(std::slice::from_ref(scope), Some(id))
            .await
            .unwrap_or_else(|error| {
                let message = "cannot write the vector of the fact to the file";
                Err(ModelError::new(ModelErrorKind::Transport, message).with_source(error))
            });
        match embedded {
            Ok(usage) => Ok(SavedFact {
                id,
                new,
                embedding_error: None,
                usage,
            }),
            Err(error) => Ok(SavedFact {
                id,
                new,
                embedding_error: Some(error),
                usage: Usage::default(),
            }),
        }
    }
}

/// The embedder's card and the query vector, or the reason why there is none.
type QueryVector = Result<(Arc<str>, Vec<f32>), ModelError>;

/// Finds the best facts by their words and, with a vector, by their meaning.
///
/// At least 1,000 candidates by words and 50 by meaning are fused, even for a small limit: a fact
/// that is tenth in both may be the best overall.
fn search(
    view: &Connection,
    scopes: &[Scope],
    query: &str,
    vector: Option<&(Arc<str>, Vec<f32>, f32)>,
    limit: usize,
) -> rusqlite::Result<Vec<RecalledFact>> {
    let scopes = rows::scope_keys(view, scopes)?;
    let words = rows::by_words(view, &scopes, query, limit.max(MIN_CANDIDATES_BY_WORDS))?;
    let embedder = match vector {
        Some((card, ..)) => vectors::embedder(view, card)?,
        None => None,
    };
    let cosines = match vector.zip(embedder) {
        Some(((_, vector, min_cosine), embedder)) => Some(vectors::nearest(
            view,
            embedder,
            &scopes,
            (vector, *min_cosine),
            (
                &words.iter().map(|(id, _)| *id).collect(),
                limit.max(MIN_CANDIDATES_BY_MEANING),
            ),
        )?),
        None => None,
    };
    let mut facts = Vec::new();
    for (id, score) in fuse(&words, cosines.as_ref()).into_iter().take(limit) {
        facts.extend(rows::fact(view, &scopes, id, score)?);
    }
    Ok(facts)
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall")
            .field("embedder", &self.embedding)
            .finish_non_exhaustive()
    }
}

fn check_scopes(scopes: &[Scope]) -> Result<(), MemoryError> {
    if scopes.len() <= MAX_SCOPES {
        return Ok(());
    }
    let message = format!(
        "cannot search {} scopes at once; the limit is {MAX_SCOPES}",
        scopes.len()
    );
    Err(MemoryError::new(MemoryErrorKind::Refused, message))
}

fn check_text(subject: &str, text: &str, max_bytes: usize) -> Result<(), MemoryError> {
    let reason = match text.len() {
        0 => "is empty".to_owned(),
        length if length > max_bytes => {
            format!("has {length} bytes, but the limit is {max_bytes}; shorten it")
        }
        _ => return Ok(()),
    };
    Err(MemoryError::new(
        MemoryErrorKind::Refused,
        format!("{subject} {reason}"),
    ))
}
