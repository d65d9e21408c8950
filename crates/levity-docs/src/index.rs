//! The index: documents in one SQLite file, and the search in them.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use levity_core::__private::sha256;
use levity_core::{Embedder, ModelError, Reranker, World};
use levity_search::{Embedding, fuse, merge, query_words, truncate_question};
use levity_sqlite::Store;
use levity_system::SystemWorld;
use rusqlite::Connection;

use crate::rerank::{OptionalReranker, OptionalRewriter};
use crate::rows::{Allowed, Scores, SplitDocument};
use crate::store::{NewVectors, StoreClient, StoreMatches};
use crate::tables::FORMAT;
use crate::vectors::{VectorCache, Vectors};
use crate::{
    AddReport, Document, DocumentError, DocumentInfo, IndexStatus, Passage, PassageId,
    QueryRewriter, QuoteCheck, SearchOptions, SearchResult, diversity, rerank, rows,
};

/// The maximum size of the name of a document, in bytes.
const MAX_NAME_BYTES: usize = 1 << 10;
/// The maximum size of the text of a document, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// The maximum number of passages that one call returns.
const MAX_PASSAGES: usize = 1_000;
/// The maximum number of questions of one search.
const MAX_QUESTIONS: usize = 9;
/// The maximum number of passages that a reranker orders.
const MAX_RERANKED: usize = 200;
/// The minimum numbers of passages that are ranked by words and by meaning, even for a smaller
/// limit.
const MIN_CANDIDATES_BY_WORDS: usize = 400;
pub(crate) const MIN_CANDIDATES_BY_MEANING: usize = 50;
/// The number of texts in one call to the embedder.
const BATCH: usize = 64;
/// The maximum file size, in bytes, for a rewrite after a removal.
const VACUUM_BYTES: u64 = 4 << 20;

pub(crate) type File = Store<DocumentError>;

/// Documents in one SQLite file, found by their words and, with an
/// [embedder](Self::with_embedder), by their meaning.
///
/// - A document is split into passages. Each keeps its place: lines, page and headings.
/// - Adding a document again replaces it, and does nothing if its text is the same.
/// - Removed documents are overwritten in the file, and removed from the log beside it.
/// - Several processes may use one file. A change is atomic, even if the process is killed
///   half-way.
///
/// Clones share the file. Within a tokio runtime, file access runs where it delays no other task.
///
/// ```
/// use levity_docs::{Document, DocumentIndex, SearchOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_docs::DocumentError> {
/// let index = DocumentIndex::in_memory()?;
/// index.add(Document::new("tides.md", "# Harbour\n\nHigh water is at six.")).await?;
/// index.add(Document::new("tea.md", "Tea is served at four.")).await?;
///
/// let found = index.search("When is high water?", &SearchOptions::new()).await?;
/// assert_eq!(found.passages[0].place(), "tides.md, lines 1 to 3");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DocumentIndex {
    pub(crate) file: Arc<File>,
    pub(crate) world: Arc<dyn World>,
    embedding: Option<Embedding>,
    reranker: Option<OptionalReranker>,
    rewriter: Option<OptionalRewriter>,
    vectors: Arc<VectorCache>,
    /// The outside store of the vectors; without one, they are in the file.
    pub(crate) store: Option<StoreClient>,
}

impl DocumentIndex {
    /// Opens this file, and creates it if it does not exist or is empty.
    ///
    /// The call waits for the disk, and up to 5 seconds for another process that writes.
    ///
    /// # Errors
    /// If the file cannot be opened or created, and if it is not an index of this version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        File::open(path.as_ref(), &FORMAT, DocumentError::of_file).map(Self::with_file)
    }

    /// Creates an index in memory, which lasts until the last clone is dropped.
    ///
    /// # Errors
    /// If there is no memory left.
    pub fn in_memory() -> Result<Self, DocumentError> {
        File::in_memory(&FORMAT, DocumentError::of_file).map(Self::with_file)
    }

    /// Returns the file, for the parts of the index in other modules.
    #[cfg(feature = "folder")]
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns the clock for dates.
    #[cfg(feature = "folder")]
    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    fn with_file(file: File) -> Self {
        Self {
            file: Arc::new(file),
            world: Arc::new(SystemWorld),
            embedding: None,
            reranker: None,
            rewriter: None,
            vectors: Arc::default(),
            store: None,
        }
    }

    /// Returns warnings about the file, for instance that other users of the system can read it.
    pub fn warnings(&self) -> Vec<String> {
        self.file.exposure_warning().into_iter().collect()
    }

    /// Sets the clock for dates; the system clock by default.
    #[must_use]
    pub fn with_world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Finds passages by their meaning as well, regardless of their wording.
    ///
    /// Use one embedder per file: vectors of different embedders cannot be compared. A failure of
    /// the embedder does not fail an operation: documents are then found by their words, and
    /// [`embed_missing`](Self::embed_missing) adds the vectors later.
    #[must_use]
    pub fn with_embedder(mut self, embedder: impl Embedder + 'static) -> Self {
        self.embedding = Some(Embedding::new(Arc::new(embedder)));
        self
    }

    /// Orders the best passages of each search again with a reranker: 30 of them, or the number in
    /// [`SearchOptions::reranked`].
    ///
    /// A failure of the reranker does not fail a search: the passages then have the order of the
    /// search, and [`SearchResult::reranking_error`] states the reason. A call has 30 seconds, and
    /// after a failure, none is made for 30 seconds.
    ///
    /// ```
    /// use levity_docs::{Document, DocumentIndex, SearchOptions};
    /// use levity_test::WordReranker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?.with_reranker(WordReranker::new());
    /// index.add(Document::new("tides.md", "High water is at six.")).await?;
    /// let found = index.search("high water", &SearchOptions::new()).await?;
    /// assert!(found.reranking_error.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_reranker(mut self, reranker: impl Reranker + 'static) -> Self {
        self.reranker = Some(OptionalReranker::new(Arc::new(reranker)));
        self
    }

    /// Searches with the queries that a model writes for each question, in addition to the
    /// question.
    ///
    /// A failure of the model does not fail a search: the question is then searched alone, and
    /// [`SearchResult::rewriting_error`] states the reason. A call has 30 seconds, and after a
    /// failure, none is made for 30 seconds.
    ///
    /// ```
    /// use levity_docs::{Document, DocumentIndex, QueryRewriter, SearchOptions};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let model = ScriptedModel::new().reply(r#"{"queries": ["high water"]}"#);
    /// let index = DocumentIndex::in_memory()?.with_rewriter(QueryRewriter::new(model));
    /// index.add(Document::new("tides.md", "High water is at six.")).await?;
    /// let found = index.search("When is the flood?", &SearchOptions::new()).await?;
    /// assert_eq!(found.passages.len(), 1);
    /// assert_eq!(found.added_queries, ["high water"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_rewriter(mut self, rewriter: QueryRewriter) -> Self {
        self.rewriter = Some(OptionalRewriter::new(rewriter));
        self
    }

    /// Adds a document, or replaces the one with its name.
    ///
    /// # Errors
    /// [`Refused`](crate::DocumentErrorKind::Refused) if its name is empty or longer than 1 KiB, or
    /// its text is longer than 64 MiB; and if the file cannot be written.
    pub async fn add(&self, document: Document) -> Result<AddReport, DocumentError> {
        self.add_all(vec![document]).await
    }

    /// Adds documents in one change of the file, which is much faster than one by one: either all
    /// of them are added, or none.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub async fn add_all(&self, documents: Vec<Document>) -> Result<AddReport, DocumentError> {
        for document in &documents {
            check(document)?;
        }
        let (mut new, unchanged) = self.split_new(documents).await?;
        let mut report = AddReport {
            unchanged,
            passages: new.iter().map(|split| split.chunks.len()).sum(),
            ..AddReport::default()
        };
        if new.is_empty() {
            return Ok(report);
        }
        self.embed_new(&mut new, &mut report).await;
        let new_documents = new.len();
        let (card, now) = (self.card(), self.world.now());
        let (vectors, outside) = (self.vectors.clone(), self.store.is_some());
        let (added, embedder, for_store) = self
            .file
            .run(move |file| {
                file.write(|change| {
                    let embedder = match card {
                        Some(card) => rows::insert_embedder(change, &card)?,
                        None => 0,
                    };
                    let (mut added, mut for_store) = (0, NewVectors::new());
                    for split in &mut new {
                        let outside = outside.then(|| std::mem::take(&mut split.vectors));
                        if rows::put(change, split, embedder, now)? {
                            added += 1;
                            let vectors = outside.into_iter().flatten();
                            for_store.extend(rows::keyed(change, split, vectors)?);
                        }
                    }
                    Ok((added, embedder, for_store))
                })
                .inspect(|_| vectors.clear())
            })
            .await?;
        if let Some(error) = self.update_store(embedder, for_store).await? {
            report.store_error = Some(error);
        }
        // Another process may have added the same texts in the meantime.
        report.unchanged += new_documents - added;
        report.added = added;
        Ok(report)
    }

    /// Splits the documents whose text the index does not have, and counts the others.
    async fn split_new(
        &self,
        documents: Vec<Document>,
    ) -> Result<(Vec<SplitDocument>, usize), DocumentError> {
        let split = move |file: &File| {
            let total = documents.len();
            let mut new: Vec<(Document, String)> = Vec::new();
            file.read(|view| {
                for document in documents {
                    let hash = sha256(document.text.as_bytes());
                    if !rows::has(view, &document, &hash)? {
                        new.push((document, hash));
                    }
                }
                Ok(())
            })?;
            let unchanged = total - new.len();
            let split = new
                .into_iter()
                .map(|(text, hash)| SplitDocument::new(text, hash));
            Ok((split.collect(), unchanged))
        };
        self.file.run(split).await
    }

    /// Embeds the chunks of documents in batches. After a failure, the rest has no vectors.
    async fn embed_new(&self, documents: &mut [SplitDocument], report: &mut AddReport) {
        let Some(embedding) = &self.embedding else {
            return;
        };
        // Vectors for a store that is unavailable would be computed in vain.
        let available = self
            .store
            .as_ref()
            .map(|store| store.check_accepts(&*self.world));
        if let Some(Err(error)) = available {
            report.store_error = Some(error);
            return;
        }
        let texts: Vec<String> = documents.iter().flat_map(SplitDocument::texts).collect();
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            match embedding.embed_documents(&*self.world, batch).await {
                Ok((batch, usage)) => {
                    report.usage += usage;
                    for vector in batch {
                        vectors.push(
                            vector
                                .map_err(|error| report.embedding_error = Some(error))
                                .ok(),
                        );
                    }
                }
                Err(error) => {
                    report.embedding_error = Some(error);
                    break;
                }
            }
        }
        let mut vectors = vectors.into_iter();
        for document in documents {
            document.vectors = vectors.by_ref().take(document.chunks.len()).collect();
        }
    }

    /// Returns the text that identifies the embedder and the place of its vectors in the file.
    pub(crate) fn card(&self) -> Option<Arc<str>> {
        let card = self.embedding.as_ref()?.card();
        Some(match self.store {
            Some(_) => format!("store {card}").into(),
            None => card.clone(),
        })
    }

    /// Removes a document, and returns `true` if the index had it. In a file of up to 4 MiB, no
    /// data of it remains; in a larger one, SQLite may leave copies of moved rows until you call
    /// [`wipe`](Self::wipe).
    ///
    /// # Errors
    /// If the file cannot be written. [`Busy`](crate::DocumentErrorKind::Busy) also if the document
    /// is removed, but another program still reads the old state of the file; then call
    /// [`wipe`](Self::wipe) later. [`VectorStore`](crate::DocumentErrorKind::VectorStore) if the
    /// document is removed, but its vectors remain in the store; then call
    /// [`embed_missing`](Self::embed_missing) later.
    ///
    /// ```
    /// # use levity_docs::{Document, DocumentIndex};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?;
    /// index.add(Document::new("tea.md", "Tea is served at four.")).await?;
    /// assert!(index.remove("tea.md").await?);
    /// assert!(!index.remove("tea.md").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove(&self, name: &str) -> Result<bool, DocumentError> {
        Ok(self.remove_all(vec![name.to_owned()]).await? > 0)
    }

    /// Removes documents in one change of the file, and returns how many the index had.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub async fn remove_all(&self, names: Vec<String>) -> Result<usize, DocumentError> {
        let removed = self.remove_from_file(names).await?;
        match self.clean_store().await? {
            Some(error) => Err(DocumentError::left_in_store(&error)),
            None => Ok(removed),
        }
    }

    /// Removes documents from the file, and notes their vectors for removal from the store.
    pub(crate) async fn remove_from_file(
        &self,
        names: Vec<String>,
    ) -> Result<usize, DocumentError> {
        let vectors = self.vectors.clone();
        let remove = move |file: &File| {
            let removed = file.write(|change| {
                let mut removed = 0;
                for name in &names {
                    removed += usize::from(rows::remove(change, name)?);
                }
                Ok(removed)
            })?;
            vectors.clear();
            if removed > 0 {
                file.wipe(VACUUM_BYTES)?;
            }
            Ok(removed)
        };
        self.file.run(remove).await
    }

    /// Rewrites the file, so that no data of removed documents remains in it.
    ///
    /// # Errors
    /// If the file cannot be written, or another program uses it for too long.
    pub async fn wipe(&self) -> Result<(), DocumentError> {
        self.file.run(|file| file.wipe(u64::MAX)).await
    }

    /// Returns the passages that match a question, best first. The question is plain text; no part
    /// of it is interpreted as search syntax.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn search(
        &self,
        question: &str,
        options: &SearchOptions,
    ) -> Result<SearchResult, DocumentError> {
        let mut result = SearchResult::default();
        if options.limit > 0 {
            self.add_queries(question, &mut result).await;
        }
        let added = std::mem::take(&mut result.added_queries);
        let questions = std::iter::once(question).chain(added.iter().map(String::as_str));
        self.find(questions, options, &mut result).await?;
        result.added_queries = added;
        Ok(result)
    }

    /// Returns the passages that match several questions, such as the same one in other words. The
    /// score of a passage is half its best score and half the mean of its scores for the questions.
    /// A reranker orders the passages by the first question.
    ///
    /// Only the first nine questions count. A [rewriter](Self::with_rewriter) adds none.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    ///
    /// ```
    /// use levity_docs::{Document, DocumentIndex, SearchOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?;
    /// index.add(Document::new("tides.md", "High water is at six.")).await?;
    /// index.add(Document::new("ferry.md", "The ferry leaves at high tide.")).await?;
    ///
    /// let questions = ["time of the flood", "high water", "high tide"];
    /// let found = index.search_many(&questions, &SearchOptions::new()).await?;
    /// assert_eq!(found.passages.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn search_many(
        &self,
        questions: &[&str],
        options: &SearchOptions,
    ) -> Result<SearchResult, DocumentError> {
        let mut result = SearchResult::default();
        self.find(questions.iter().copied(), options, &mut result)
            .await?;
        Ok(result)
    }

    /// Asks the rewriter for queries.
    async fn add_queries(&self, question: &str, result: &mut SearchResult) {
        let Some(rewriter) = &self.rewriter else {
            return;
        };
        match rewriter.rewrite(&*self.world, question).await {
            Ok((queries, usage)) => {
                result.usage += usage;
                result.added_queries = queries;
            }
            Err(error) => result.rewriting_error = Some(error),
        }
    }

    async fn find(
        &self,
        questions: impl Iterator<Item = &str> + Send,
        options: &SearchOptions,
        result: &mut SearchResult,
    ) -> Result<(), DocumentError> {
        let limit = options.limit.min(MAX_PASSAGES);
        let mut distinct: Vec<String> = Vec::new();
        for question in questions {
            let question = truncate_question(question);
            let is_new = !distinct.iter().any(|known| known == question);
            if is_new && distinct.len() < MAX_QUESTIONS && !query_words(question, 1).is_empty() {
                distinct.push(question.to_owned());
            }
        }
        if limit == 0 || distinct.is_empty() {
            return Ok(());
        }
        let reranked = match &self.reranker {
            Some(_) => options.reranked.min(MAX_RERANKED),
            None => 0,
        };
        let mut search = Search {
            meaning: self.embed_questions(&distinct, result).await,
            questions: distinct,
            options: options.clone(),
            limit,
            candidates: limit.max(reranked),
        };
        let matches = match &self.store {
            Some(_) => self.search_store(&mut search, result).await?,
            None => Vec::new(),
        };
        let search = Arc::new(search);
        let reading = search.clone();
        result.passages = if reranked > 0 {
            let ranked = self.rerank(&search, matches, reranked, result).await?;
            let read = move |view: &Connection| reading.passages(view, ranked);
            self.file.run(move |file| file.read(read)).await?
        } else {
            let vectors = self.vectors.clone();
            let read = move |view: &Connection| {
                let ranked = reading.best(view, &vectors, matches)?;
                reading.passages(view, ranked)
            };
            self.file.run(move |file| file.read(read)).await?
        };
        Ok(())
    }

    /// Returns the best chunks, the first ones in the order of the reranker.
    async fn rerank(
        &self,
        search: &Arc<Search>,
        matches: Vec<Option<StoreMatches>>,
        reranked: usize,
        result: &mut SearchResult,
    ) -> Result<Ranked, DocumentError> {
        let (vectors, searching) = (self.vectors.clone(), search.clone());
        let read = move |view: &Connection| {
            let ranked = searching.best(view, &vectors, matches)?;
            let mut texts = Vec::new();
            for (key, _) in ranked.best.iter().take(reranked) {
                texts.extend(rows::text(view, *key)?.map(|text| (*key, text)));
            }
            Ok((ranked, texts))
        };
        let (mut ranked, texts) = self.file.run(move |file| file.read(read)).await?;
        let (keys, texts): (Vec<i64>, Vec<String>) = texts.into_iter().unzip();
        let Some(reranker) = self.reranker.as_ref().filter(|_| !keys.is_empty()) else {
            return Ok(ranked);
        };
        match reranker
            .rerank(&*self.world, &search.questions[0], &texts)
            .await
        {
            Ok(found) => {
                result.usage += found.usage;
                let scores: Vec<(i64, f32)> = keys.into_iter().zip(found.scores).collect();
                rerank::reorder(&mut ranked.best, &scores);
            }
            Err(error) => result.reranking_error = Some(error),
        }
        Ok(ranked)
    }

    async fn embed_questions(
        &self,
        questions: &[String],
        result: &mut SearchResult,
    ) -> Option<(Arc<str>, Vec<Vec<f32>>)> {
        let embedding = self.embedding.as_ref()?;
        let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
        match embedding.embed_queries(&*self.world, &questions).await {
            Ok((vectors, usage)) => {
                result.usage += usage;
                Some((self.card()?, vectors))
            }
            Err(error) => {
                result.embedding_error = Some(error);
                None
            }
        }
    }

    /// Returns a passage and up to `around` neighbors before and after it, in the order of the
    /// document. The list is empty if the index has no such passage.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn fetch(&self, id: PassageId, around: u32) -> Result<Vec<Passage>, DocumentError> {
        let fetch = move |view: &Connection| rows::neighbors(view, id.0, around);
        self.file.run(move |file| file.read(fetch)).await
    }

    /// Returns the passages of a document from the one with number `first`, at most `limit`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn passages(
        &self,
        name: &str,
        first: u32,
        limit: usize,
    ) -> Result<Vec<Passage>, DocumentError> {
        let (name, limit) = (name.to_owned(), limit.min(MAX_PASSAGES));
        let read = move |view: &Connection| rows::passages(view, &name, first, limit);
        self.file.run(move |file| file.read(read)).await
    }

    /// Returns at most `limit` documents in the order of their names, after the name `after`. The
    /// maximum limit is 1,000.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn documents(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<Vec<DocumentInfo>, DocumentError> {
        let (after, limit) = (after.to_owned(), limit.min(MAX_PASSAGES));
        let list = move |view: &Connection| rows::list(view, &after, limit);
        self.file.run(move |file| file.read(list)).await
    }

    /// Returns the document with this name, if the index has it.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// ```
    /// # use levity_docs::{Document, DocumentIndex};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?;
    /// index.add(Document::new("tea.md", "Tea is served at four.")).await?;
    /// assert_eq!(index.document("tea.md").await?.map(|info| info.passages), Some(1));
    /// assert_eq!(index.document("coffee.md").await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn document(&self, name: &str) -> Result<Option<DocumentInfo>, DocumentError> {
        let name = name.to_owned();
        let find = move |view: &Connection| rows::document(view, &name);
        self.file.run(move |file| file.read(find)).await
    }

    /// Returns the size of the index.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn status(&self) -> Result<IndexStatus, DocumentError> {
        let card = self.card();
        let count = move |view: &Connection| {
            let embedder = match card {
                Some(card) => rows::embedder(view, &card)?,
                None => None,
            };
            rows::totals(view, embedder.unwrap_or(0))
        };
        let [documents, passages, bytes, vectors] =
            self.file.run(move |file| file.read(count)).await?;
        Ok(IndexStatus {
            documents,
            passages,
            bytes,
            vectors,
        })
    }

    /// Checks whether a passage contains a quote. White space may differ, words and signs may not.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// ```
    /// use levity_docs::{Document, DocumentIndex, QuoteCheck, SearchOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?;
    /// index.add(Document::new("tides.md", "High water is at six.")).await?;
    /// let id = index.search("water", &SearchOptions::new()).await?.passages[0].id;
    /// assert!(matches!(index.check_quote(id, "water is at six").await?, QuoteCheck::Found(_)));
    /// let wrong = index.check_quote(id, "water is at seven").await?;
    /// assert!(matches!(wrong, QuoteCheck::NotInPassage(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_quote(
        &self,
        id: PassageId,
        quote: &str,
    ) -> Result<QuoteCheck, DocumentError> {
        let passage = self.fetch(id, 0).await?.pop().map(Box::new);
        Ok(match passage {
            Some(passage) if passage.contains_quote(quote) => QuoteCheck::Found(passage),
            Some(passage) => QuoteCheck::NotInPassage(passage),
            None => QuoteCheck::NoPassage,
        })
    }

    /// Embeds every passage that has no vector of this embedder yet, and returns their number. It
    /// has no effect without an embedder.
    ///
    /// A failure of the embedder ends the call; vectors that were already written remain.
    ///
    /// With a [vector store](Self::with_vector_store), the call first removes vectors of removed
    /// passages, and finds vectors that the store has lost. A failure of the store ends the call;
    /// [`AddReport::store_error`] states it.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub async fn embed_missing(&self) -> Result<AddReport, DocumentError> {
        let mut report = AddReport::default();
        let (Some(embedding), Some(card)) = (&self.embedding, self.card()) else {
            return Ok(report);
        };
        report.store_error = self.check_store().await?;
        let mut after = 0;
        while report.store_error.is_none() {
            let card = card.clone();
            let next = move |file: &File| {
                file.write(|change| {
                    let embedder = rows::insert_embedder(change, &card)?;
                    Ok((embedder, rows::missing(change, embedder, after, BATCH)?))
                })
            };
            let (embedder, chunks) = self.file.run(next).await?;
            let Some((last, _)) = chunks.last() else {
                report.store_error = self.remove_unused(embedder).await?;
                break;
            };
            after = *last;
            let (keys, texts): (Vec<i64>, Vec<String>) = chunks.into_iter().unzip();
            let (vectors, usage) = match embedding.embed_documents(&*self.world, &texts).await {
                Ok(embedded) => embedded,
                Err(error) => {
                    report.embedding_error = Some(error);
                    return Ok(report);
                }
            };
            report.usage += usage;
            let embedded = vectors.iter().filter(|vector| vector.is_ok()).count();
            if self.store.is_some() {
                let vectors = keys.into_iter().zip(vectors).collect();
                report.store_error = self.update_store(embedder, vectors).await?;
            } else {
                self.save_vectors(embedder, keys, vectors).await?;
            }
            if report.store_error.is_none() {
                report.passages += embedded;
            }
        }
        Ok(report)
    }

    async fn save_vectors(
        &self,
        embedder: i64,
        keys: Vec<i64>,
        vectors: Vec<Result<Vec<f32>, ModelError>>,
    ) -> Result<(), DocumentError> {
        let cache = self.vectors.clone();
        let save = move |file: &File| {
            file.write(|change| {
                for (key, vector) in keys.iter().zip(&vectors) {
                    rows::put_vector(change, *key, embedder, vector.as_deref().ok())?;
                }
                Ok(())
            })
            .inspect(|()| cache.clear())
        };
        self.file.run(save).await
    }
}

impl fmt::Debug for DocumentIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentIndex")
            .field("file", &self.file)
            .field("embedder", &self.embedding)
            .field("reranker", &self.reranker)
            .field("rewriter", &self.rewriter)
            .finish_non_exhaustive()
    }
}

/// A search that has all it needs to run on the file.
#[derive(Clone)]
pub(crate) struct Search {
    /// The questions, at least one.
    pub(crate) questions: Vec<String>,
    pub(crate) options: SearchOptions,
    limit: usize,
    /// The number of chunks that are wanted before a reranker and diversity.
    pub(crate) candidates: usize,
    /// The card of the embedder, and the vectors of the questions.
    pub(crate) meaning: Option<(Arc<str>, Vec<Vec<f32>>)>,
}

/// The chunks that a search found.
struct Ranked {
    /// The keys and the scores, best first.
    best: Vec<(i64, f32)>,
    /// The vectors of the chunks, for diversity.
    vectors: Option<Arc<Vectors>>,
}

impl Search {
    /// Returns the best chunks with their scores. `matches` are what a store returned for each
    /// question; without a store, there are none.
    fn best(
        &self,
        view: &Connection,
        cache: &VectorCache,
        matches: Vec<Option<StoreMatches>>,
    ) -> rusqlite::Result<Ranked> {
        let allowed = rows::allowed(view, &self.options)?;
        if !matches.is_empty() {
            return self.best_of_store(view, allowed.as_ref(), matches);
        }
        let vectors = self.vectors(view, cache)?;
        let mut results = Vec::with_capacity(self.questions.len());
        for at in 0..self.questions.len() {
            results.push(self.best_of(at, view, allowed.as_ref(), vectors.as_deref())?);
        }
        Ok(Ranked {
            best: merge(results),
            vectors,
        })
    }

    /// Returns the best chunks by words and by what a store returned. A question for which the
    /// store failed is answered by words alone.
    fn best_of_store(
        &self,
        view: &Connection,
        allowed: Option<&Allowed>,
        matches: Vec<Option<StoreMatches>>,
    ) -> rusqlite::Result<Ranked> {
        let (mut results, mut vectors) = (Vec::with_capacity(matches.len()), Vec::new());
        for (at, matches) in matches.into_iter().enumerate() {
            results.push(match matches {
                Some(matches) => {
                    let (words, cosines, found) =
                        matches.confirm(view, allowed, self.candidates)?;
                    vectors.extend(found);
                    fuse(&words, Some(&cosines))
                }
                None => self.best_of(at, view, allowed, None)?,
            });
        }
        Ok(Ranked {
            best: merge(results),
            vectors: Some(Arc::new(Vectors::from_list(vectors))),
        })
    }

    /// Returns the vectors in the file.
    fn vectors(
        &self,
        view: &Connection,
        cache: &VectorCache,
    ) -> rusqlite::Result<Option<Arc<Vectors>>> {
        let key = match &self.meaning {
            Some((card, _)) => rows::embedder(view, card)?,
            None => None,
        };
        key.map(|key| cache.get(view, key)).transpose()
    }

    /// Returns the best chunks for one of the questions.
    fn best_of(
        &self,
        at: usize,
        view: &Connection,
        allowed: Option<&Allowed>,
        vectors: Option<&Vectors>,
    ) -> rusqlite::Result<Vec<(i64, f32)>> {
        let (words, cosines) = self.words_and_cosines(at, view, allowed, vectors)?;
        let cosines = vectors.zip(cosines).map(|(vectors, cosines)| {
            let wanted: HashSet<i64> = words.iter().map(|(key, _)| *key).collect();
            let limit = self.candidates.max(MIN_CANDIDATES_BY_MEANING);
            vectors.nearest(&cosines, allowed, &wanted, limit)
        });
        Ok(fuse(&words, cosines.as_ref()))
    }

    /// Returns the first passages, after those that say the same moved behind.
    fn passages(&self, view: &Connection, ranked: Ranked) -> rusqlite::Result<Vec<Passage>> {
        let mut best = ranked.best;
        if self.options.diversity > 0.0
            && let Some(vectors) = ranked.vectors
        {
            best = diversity::spread(best, &vectors, self.options.diversity, self.limit);
        }
        let mut passages = Vec::new();
        for (key, score) in best.into_iter().take(self.limit) {
            passages.extend(rows::passage(view, key, score)?);
        }
        Ok(passages)
    }

    /// Returns the scores by words for one of the questions.
    pub(crate) fn by_words(
        &self,
        at: usize,
        view: &Connection,
        allowed: Option<&Allowed>,
    ) -> rusqlite::Result<Scores> {
        let candidates = self.candidates.max(MIN_CANDIDATES_BY_WORDS);
        rows::by_words(view, &self.questions[at], allowed, candidates)
    }

    /// Returns the scores by words and the cosines of all vectors. With many vectors, both are
    /// computed at the same time.
    fn words_and_cosines(
        &self,
        at: usize,
        view: &Connection,
        allowed: Option<&Allowed>,
        vectors: Option<&Vectors>,
    ) -> rusqlite::Result<(Scores, Option<Vec<f32>>)> {
        let by_words = || self.by_words(at, view, allowed);
        let query = self.meaning.as_ref().and_then(|(_, all)| all.get(at));
        let Some((vectors, query)) = vectors.zip(query) else {
            return Ok((by_words()?, None));
        };
        if !vectors.are_many() {
            return Ok((by_words()?, Some(vectors.cosines(query))));
        }
        std::thread::scope(|scope| {
            let cosines = scope.spawn(|| vectors.cosines(query));
            let words = by_words()?;
            // The thread cannot panic; without its result, words alone decide.
            Ok((words, cosines.join().ok()))
        })
    }
}

/// Checks the name and the size of a document.
pub(crate) fn check(document: &Document) -> Result<(), DocumentError> {
    let (name, text) = (&document.name, &document.text);
    if name.trim().is_empty() {
        return Err(DocumentError::refused("a document must have a name"));
    }
    if name.len() > MAX_NAME_BYTES {
        let message = format!(
            "the name of a document has {} bytes, but the limit is {MAX_NAME_BYTES}; shorten it",
            name.len()
        );
        return Err(DocumentError::refused(message));
    }
    if text.len() > MAX_TEXT_BYTES {
        let message = format!(
            "the text of {name:?} has {} bytes, but the limit is {MAX_TEXT_BYTES}; divide it into \
             several documents",
            text.len()
        );
        return Err(DocumentError::refused(message));
    }
    Ok(())
}
