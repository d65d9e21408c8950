//! A search by meaning in a store.
//!
//! The words are ranked first, so that one round of concurrent calls suffices: for the nearest
//! vectors, for the farthest ones, whose cosine is the lowest of the scale, and for the vectors of
//! the passages that the words found. The results are untrusted: only those that the file confirms
//! count.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join3;
use levity_core::{VectorFilter, VectorMatch, VectorStoreError};
use levity_search::Cosines;
use rusqlite::Connection;

use super::{StoreClient, rows};
use crate::index::{MIN_CANDIDATES_BY_MEANING, Search};
use crate::rows::{Allowed, Scores};
use crate::{DocumentError, DocumentIndex, SearchOptions, SearchResult, TextKind};

/// The minimum number of passages found by words whose meaning is compared as well.
const MIN_COMPARED: usize = 100;
/// The maximum number of names in a filter, and of matches of a search.
const MAX_LISTED: usize = 1_000;
/// The number of farthest vectors; more than one, because some may be unknown.
const FARTHEST: usize = 5;
/// The tolerance for cosines.
const SLACK: f32 = 1e-2;

/// A vector with the key of its chunk.
type KeyedVector = (i64, Vec<f32>);

/// The results of the store for one question.
pub(crate) struct StoreMatches {
    /// The scores by words, from the file.
    words: Scores,
    /// The vector of the question.
    question: Vec<f32>,
    /// The vectors with the highest cosines.
    nearest: Vec<VectorMatch>,
    /// The vectors nearest to the opposite of the question.
    farthest: Vec<VectorMatch>,
    /// The vectors of passages that the words found, and, for diversity, of the nearest ones.
    vectors: Vec<KeyedVector>,
}

/// The parameters of a search in the store.
struct Plan {
    /// The namespace of the vectors of this embedder.
    namespace: String,
    /// The scores by words, which decide whose vectors are requested.
    words: Scores,
    /// The documents to search, as far as the store can tell.
    filter: VectorFilter,
    /// The number of nearest vectors.
    limit: usize,
}

impl DocumentIndex {
    /// Asks the store for vectors near each question. A question for which that is impossible is
    /// answered by words.
    pub(crate) async fn search_store(
        &self,
        search: &mut Search,
        result: &mut SearchResult,
    ) -> Result<Vec<Option<StoreMatches>>, DocumentError> {
        let (Some(client), Some((card, questions))) = (&self.store, search.meaning.take()) else {
            return Ok(Vec::new());
        };
        if let Err(error) = client.check_available(&*self.world) {
            result.store_error = Some(error);
            return Ok(Vec::new());
        }
        let mut matches = Vec::with_capacity(questions.len());
        for (at, question) in questions.into_iter().enumerate() {
            matches.push(None);
            // The store has failed, and a further call would take as long.
            if result.store_error.is_some() {
                continue;
            }
            let (planned, card) = (search.clone(), card.clone());
            let plan = move |view: &Connection| Plan::new(view, &planned, at, &card);
            let Some(plan) = self.file.run(move |file| file.read(plan)).await? else {
                continue;
            };
            let asked = plan.ask(client, question, search);
            match client.search(&*self.world, asked).await {
                Ok(found) => matches[at] = Some(found),
                Err(error) => result.store_error = Some(error),
            }
        }
        Ok(matches)
    }
}

impl Plan {
    /// Ranks the words and chooses a filter; `None` if there are no vectors to compare.
    fn new(
        view: &Connection,
        search: &Search,
        at: usize,
        card: &str,
    ) -> rusqlite::Result<Option<Self>> {
        let embedder = crate::rows::embedder(view, card)?;
        let namespace = match embedder {
            Some(embedder) => rows::namespace(view, embedder)?,
            None => None,
        };
        let allowed = crate::rows::allowed(view, &search.options)?;
        let nothing = allowed.as_ref().is_some_and(Allowed::is_empty);
        let Some(namespace) = namespace.filter(|_| !nothing) else {
            return Ok(None);
        };
        let words = search.by_words(at, view, allowed.as_ref())?;
        let (filter, share) = filter(view, &search.options)?;
        let limit = search.candidates.max(MIN_CANDIDATES_BY_MEANING);
        Ok(Some(Self {
            namespace,
            words,
            filter,
            limit: limit.saturating_mul(share).min(MAX_LISTED),
        }))
    }

    /// Calls the store. The replies are cut to the sizes that were requested.
    async fn ask(
        self,
        client: &StoreClient,
        question: Vec<f32>,
        search: &Search,
    ) -> Result<StoreMatches, VectorStoreError> {
        let (store, namespace) = (&client.store, &*self.namespace);
        let compared = search.candidates.max(MIN_COMPARED);
        let keys = self.words.iter().take(compared).map(|(key, _)| *key);
        let keys: Vec<i64> = keys.collect();
        let opposite: Vec<f32> = question.iter().map(|part| -part).collect();
        let (mut nearest, mut farthest, mut vectors) = try_join3(
            store.nearest(namespace, &question, &self.filter, self.limit),
            store.nearest(namespace, &opposite, &self.filter, FARTHEST),
            store.get(namespace, &keys),
        )
        .await?;
        nearest.truncate(self.limit);
        farthest.truncate(FARTHEST);
        vectors.truncate(keys.len());
        if search.options.diversity > 0.0 {
            let found: Vec<i64> = nearest.iter().map(|found| found.key).collect();
            let mut more = store.get(namespace, &found).await?;
            more.truncate(found.len());
            vectors.extend(more);
        }
        Ok(StoreMatches {
            words: self.words,
            question,
            nearest,
            farthest,
            vectors,
        })
    }
}

/// Returns a filter for the store, and how many times more vectors to request, because the store
/// cannot compare patterns: a few documents are listed by their names, and many are checked
/// afterwards.
fn filter(view: &Connection, options: &SearchOptions) -> rusqlite::Result<(VectorFilter, usize)> {
    let mut filter = VectorFilter::new();
    filter.kind = options.kind.map(|kind| TextKind::name(kind).to_owned());
    filter.changed_after = options.changed_after;
    if options.path.is_none() {
        return Ok((filter, 1));
    }
    let names = crate::rows::allowed_names(view, options, MAX_LISTED + 1)?;
    if names.len() <= MAX_LISTED {
        return Ok((filter.documents(names), 1));
    }
    let allowed = crate::rows::allowed_documents(view, options)?;
    Ok((filter, rows::documents(view)?.div_ceil(allowed.max(1))))
}

impl StoreMatches {
    /// Returns the scores by words, the cosines of passages that the file has and the search
    /// allows, and their vectors.
    pub(crate) fn confirm(
        self,
        view: &Connection,
        allowed: Option<&Allowed>,
        limit: usize,
    ) -> rusqlite::Result<(Scores, Cosines, Vec<KeyedVector>)> {
        let is_allowed = |key: i64| {
            let fits = allowed.is_none_or(|allowed| allowed.contains(key));
            Ok::<_, rusqlite::Error>(fits && rows::has_chunk(view, key)?)
        };
        let mut known: HashMap<i64, f32> = HashMap::new();
        let mut found = Vec::new();
        for found_one in &self.nearest {
            let (key, cosine) = (found_one.key, found_one.cosine);
            // A cosine that is not a number is not in the range.
            if (-1.0 - SLACK..=1.0 + SLACK).contains(&cosine)
                && !known.contains_key(&key)
                && is_allowed(key)?
            {
                known.insert(key, cosine);
                found.push((key, cosine));
            }
        }
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        found.retain(|(_, cosine)| *cosine > 0.0);
        found.truncate(limit.max(MIN_CANDIDATES_BY_MEANING));
        let wanted: HashSet<i64> = self.words.iter().map(|(key, _)| *key).collect();
        let mut vectors = Vec::new();
        for (key, vector) in self.vectors {
            if let Some(cosine) = cosine(&self.question, &vector) {
                if wanted.contains(&key) {
                    known.entry(key).or_insert(cosine);
                }
                vectors.push((key, vector));
            }
        }
        let mut lowest = f32::INFINITY;
        for found_one in &self.farthest {
            let cosine = -found_one.cosine;
            if (-1.0 - SLACK..=1.0 + SLACK).contains(&cosine) && is_allowed(found_one.key)? {
                lowest = lowest.min(cosine);
            }
        }
        let mut cosines = Cosines::default();
        let highest = known.values().copied().fold(f32::NEG_INFINITY, f32::max);
        let lowest = known.values().copied().fold(lowest, f32::min);
        cosines.range = (lowest <= highest).then_some((lowest, highest));
        cosines.found = found.into_iter().map(|(key, _)| key).collect();
        cosines.known = known;
        Ok((self.words, cosines, vectors))
    }
}

/// Returns the cosine of two vectors, or `None` if they cannot be compared.
fn cosine(one: &[f32], other: &[f32]) -> Option<f32> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    let cosine = dot(one, other) / lengths;
    (one.len() == other.len() && cosine.is_finite()).then_some(cosine)
}
