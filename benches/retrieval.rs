//! Measures how well a search finds the relevant texts, on public collections with judgements.
//!
//! `.ci/retrieval-data FOLDER` prepares the collections. Then:
//!
//! ```console
//! $ LEVITY_RETRIEVAL_DATA=FOLDER LEVITY_TEST_WORDLLAMA=TABLE cargo bench --bench retrieval
//! ```
//!
//! `LEVITY_BENCH_CHROMA` names the address of a Chroma server, in which the vectors of documents
//! are then stored for a further row, with the share of the best 8 passages that are the same.
//!
//! `TABLE` is the folder of a static word table, as for the embedder's tests. The figures do not
//! depend on the machine, so `--quick` changes nothing.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use levity_docs::{
    ChromaStore, Document, DocumentIndex, Passage, SearchOptions, SearchResult, TextKind,
};
use levity_llm::StaticEmbedder;
use levity_memory::{Recall, Scope};
use serde_json::Value;
use tokio::runtime::Builder;

/// The number of results for each query.
const RESULTS: usize = 20;

struct Collection {
    name: String,
    documents: Vec<(String, String)>,
    queries: Vec<Query>,
}

struct Query {
    text: String,
    relevant: HashSet<String>,
}

/// The means over all queries.
#[derive(Default)]
struct Quality {
    ndcg_10: f64,
    recall_10: f64,
    recall_20: f64,
}

fn main() {
    let Ok(folder) = std::env::var("LEVITY_RETRIEVAL_DATA") else {
        println!("SKIPPED: LEVITY_RETRIEVAL_DATA names no folder (.ci/retrieval-data makes it)");
        return;
    };
    let embedder = std::env::var("LEVITY_TEST_WORDLLAMA").ok().map(|table| {
        let table = Path::new(&table);
        StaticEmbedder::open(
            table.join("weights/l2_supercat_256.safetensors"),
            table.join("tokenizers/l2_supercat_tokenizer_config.json"),
        )
        .expect("the table of words can be read")
    });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    println!("{:<12} {:<28} nDCG@10  R@10   R@20", "collection", "search");
    for collection in collections(Path::new(&folder)) {
        for kind in ["facts", "documents", "merged queries", "three searches"] {
            let measure = |embedder| match kind {
                "facts" => runtime.block_on(facts(&collection, embedder)),
                "merged queries" => runtime.block_on(merged_queries(&collection, embedder)),
                "three searches" => runtime.block_on(three_searches(&collection, embedder)),
                _ => runtime.block_on(documents(&collection, embedder)),
            };
            let words = measure(None);
            print_row(&collection, &format!("{kind}, words"), &words);
            let Some(embedder) = embedder.clone() else {
                continue;
            };
            let both = measure(Some(embedder));
            print_row(&collection, &format!("{kind}, words and vectors"), &both);
            assert!(
                both.ndcg_10 >= words.ndcg_10,
                "vectors make the search worse"
            );
        }
        let chroma = std::env::var("LEVITY_BENCH_CHROMA");
        if let Some((embedder, address)) = embedder.clone().zip(chroma.ok()) {
            let outside = runtime.block_on(in_chroma(&collection, embedder, &address));
            print_row(&collection, "documents, vectors in Chroma", &outside);
        }
    }
}

fn print_row(collection: &Collection, search: &str, quality: &Quality) {
    let Quality {
        ndcg_10,
        recall_10,
        recall_20,
    } = quality;
    let name = &collection.name;
    println!("{name:<12} {search:<28} {ndcg_10:.3}    {recall_10:.3}  {recall_20:.3}");
}

/// Measures the search of long-term memory, with each text as one fact.
async fn facts(collection: &Collection, embedder: Option<StaticEmbedder>) -> Quality {
    let mut recall = Recall::in_memory().unwrap();
    if let Some(embedder) = embedder {
        recall = recall.with_embedder(embedder);
    }
    let scope = Scope::user("bench");
    for (id, text) in &collection.documents {
        recall.remember(&scope, text, id).await.unwrap();
    }
    recall.embed_missing().await.unwrap();
    let mut quality = Quality::default();
    for query in &collection.queries {
        let found = recall
            .recall(std::slice::from_ref(&scope), &query.text, RESULTS)
            .await
            .unwrap();
        let found: Vec<&str> = found.facts.iter().map(|fact| &*fact.source).collect();
        quality.add(collection, query, &found);
    }
    quality
}

/// Measures the search of documents. A document has the rank of its best passage.
async fn documents(collection: &Collection, embedder: Option<StaticEmbedder>) -> Quality {
    quality_of(collection, &index_of(collection, embedder).await).await
}

async fn quality_of(collection: &Collection, index: &DocumentIndex) -> Quality {
    let options = SearchOptions::new().limit(10 * RESULTS);
    let mut quality = Quality::default();
    for query in &collection.queries {
        let result = index.search(&query.text, &options).await.unwrap();
        quality.add(collection, query, &documents_of(&result));
    }
    quality
}

/// Measures the search of documents with vectors in Chroma, and compares its passages with those of
/// vectors in the file.
async fn in_chroma(collection: &Collection, embedder: StaticEmbedder, address: &str) -> Quality {
    let outside = DocumentIndex::in_memory()
        .unwrap()
        .with_embedder(embedder.clone())
        .with_vector_store(ChromaStore::new(address));
    add_all(collection, &outside).await;
    let inside = index_of(collection, Some(embedder)).await;
    let (mut all, mut same) = (0, 0);
    for query in &collection.queries {
        let [inside, outside] = [&inside, &outside].map(async |index| {
            let result = index
                .search(&query.text, &SearchOptions::new())
                .await
                .unwrap();
            assert!(result.store_error.is_none(), "{:?}", result.store_error);
            let place = |passage: Passage| (passage.document, passage.number);
            result
                .passages
                .into_iter()
                .map(place)
                .collect::<HashSet<_>>()
        });
        let (inside, outside) = (inside.await, outside.await);
        all += inside.len();
        same += inside.intersection(&outside).count();
    }
    println!("the same passages: {same} of {all}");
    quality_of(collection, &outside).await
}

/// Measures one search with several queries: the three thirds of a query.
async fn merged_queries(collection: &Collection, embedder: Option<StaticEmbedder>) -> Quality {
    let index = index_of(collection, embedder).await;
    let options = SearchOptions::new().limit(10 * RESULTS);
    let mut quality = Quality::default();
    for query in &collection.queries {
        let thirds = thirds(&query.text);
        let thirds: Vec<&str> = thirds.iter().map(String::as_str).collect();
        let result = index.search_many(&thirds, &options).await.unwrap();
        quality.add(collection, query, &documents_of(&result));
    }
    quality
}

/// Returns the documents of the passages, in the order of their best passages.
fn documents_of(result: &SearchResult) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for passage in &result.passages {
        if !found.contains(&&*passage.document) {
            found.push(&passage.document);
        }
    }
    found
}

fn thirds(query: &str) -> Vec<String> {
    let sentences: Vec<&str> = query.split_inclusive(['.', '!', '?']).collect();
    let thirds = sentences.chunks(sentences.len().div_ceil(3));
    thirds.map(<[&str]>::concat).collect()
}

async fn index_of(collection: &Collection, embedder: Option<StaticEmbedder>) -> DocumentIndex {
    let mut index = DocumentIndex::in_memory().unwrap();
    if let Some(embedder) = embedder {
        index = index.with_embedder(embedder);
    }
    add_all(collection, &index).await;
    index
}

async fn add_all(collection: &Collection, index: &DocumentIndex) {
    let documents = collection.documents.iter();
    let documents = documents.map(|(id, text)| Document::new(id, text).kind(TextKind::Markdown));
    let report = index.add_all(documents.collect()).await.unwrap();
    assert!(report.store_error.is_none(), "{:?}", report.store_error);
}

/// Measures how many relevant documents an agent sees that searches three times, each time with a
/// third of the query. Only the recall of 20 documents for each search has a meaning.
async fn three_searches(collection: &Collection, embedder: Option<StaticEmbedder>) -> Quality {
    let index = index_of(collection, embedder).await;
    let options = SearchOptions::new().limit(10 * RESULTS);
    let mut quality = Quality::default();
    for query in &collection.queries {
        let mut found: Vec<String> = Vec::new();
        for part in thirds(&query.text) {
            let result = index.search(&part, &options).await.unwrap();
            let mut own: Vec<String> = Vec::new();
            for passage in result.passages {
                if !own.contains(&passage.document) && own.len() < RESULTS {
                    own.push(passage.document);
                }
            }
            found.extend(own);
        }
        let found: HashSet<&str> = found.iter().map(|name| &**name).collect();
        let relevant = query
            .relevant
            .iter()
            .filter(|name| found.contains(&***name));
        let count = collection.queries.len() as f64;
        quality.recall_20 += relevant.count() as f64 / query.relevant.len() as f64 / count;
    }
    quality
}

impl Quality {
    /// Adds the share of one query to the means.
    fn add(&mut self, collection: &Collection, query: &Query, found: &[&str]) {
        let count = collection.queries.len() as f64;
        self.ndcg_10 += ndcg(found, &query.relevant, 10) / count;
        self.recall_10 += recalled(found, &query.relevant, 10) / count;
        self.recall_20 += recalled(found, &query.relevant, 20) / count;
    }
}

/// Returns the discounted gain of the first results, relative to the best possible order.
fn ndcg(found: &[&str], relevant: &HashSet<String>, results: usize) -> f64 {
    let gain = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
    let found = found.iter().take(results).enumerate();
    let gained: f64 = found
        .filter(|(_, id)| relevant.contains(**id))
        .map(|(rank, _)| gain(rank))
        .sum();
    gained / (0..relevant.len().min(results)).map(gain).sum::<f64>()
}

fn recalled(found: &[&str], relevant: &HashSet<String>, results: usize) -> f64 {
    let found = found.iter().take(results);
    found.filter(|id| relevant.contains(**id)).count() as f64 / relevant.len() as f64
}

/// Reads each folder of the given folder as one collection.
fn collections(folder: &Path) -> Vec<Collection> {
    let mut folders: Vec<_> = fs::read_dir(folder)
        .expect("the folder of collections can be read")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders.iter().map(|folder| collection(folder)).collect()
}

fn collection(folder: &Path) -> Collection {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let mut relevant: HashMap<String, HashSet<String>> = HashMap::new();
    for row in rows(&folder.join("judgements.jsonl")) {
        relevant
            .entry(text(&row, "query"))
            .or_default()
            .insert(text(&row, "document"));
    }
    let documents = rows(&folder.join("documents.jsonl"));
    let queries = rows(&folder.join("queries.jsonl"));
    Collection {
        name: folder.file_name().unwrap().to_string_lossy().into_owned(),
        documents: documents
            .iter()
            .map(|row| (text(row, "id"), text(row, "text")))
            .collect(),
        queries: queries
            .iter()
            .filter_map(|row| {
                let relevant = relevant.remove(&text(row, "id"))?;
                let text = text(row, "text");
                Some(Query { text, relevant })
            })
            .collect(),
    }
}

fn rows(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{path:?}: {error}")))
        .collect()
}
