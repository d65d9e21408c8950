//! Measures an index of documents: adding, opening, searching, and its memory.
//!
//! ```console
//! $ LEVITY_TEST_WORDLLAMA=TABLE cargo bench --bench documents -- 100000
//! ```
//!
//! `TABLE` is the folder of a static word table; without it, the index has no vectors. The texts
//! are made of words whose frequencies are like those of English. The number is that of passages;
//! 2,000 with `--quick`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use levity_docs::{Document, DocumentIndex, SearchOptions};
use levity_llm::StaticEmbedder;
use tokio::runtime::Builder;

/// The number of passages of each document.
const PASSAGES: usize = 20;
/// The number of words of each passage.
const WORDS: usize = 150;
/// The number of documents that are added together.
const TOGETHER: usize = 50;
const QUERIES: usize = 200;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = args.iter().find_map(|arg| arg.parse().ok());
    let quick = args.iter().any(|arg| arg == "--quick");
    let passages: usize = number.unwrap_or(if quick { 2_000 } else { 100_000 });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(passages));
}

async fn measure(passages: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("documents.db");
    let mut texts = Texts::new();

    let index = open(&path);
    let (mut added, mut time, mut number) = (0, Duration::ZERO, 0);
    while added < passages {
        let documents: Vec<_> = (0..TOGETHER)
            .map(|_| {
                number += 1;
                Document::new(format!("{number}.txt"), texts.document())
            })
            .collect();
        let start = now();
        added += index.add_all(documents).await.unwrap().passages;
        time += start.elapsed();
    }
    println!("passages:            {added}");
    println!(
        "added per second:    {:.0}",
        added as f64 / time.as_secs_f64()
    );
    println!("size of the file:    {:.1} MB", size(&path));
    drop(index);

    let start = now();
    let index = open_at(&path);
    println!("opened in:           {:.1} ms", millis(start.elapsed()));
    let index = with_table(index);

    // The first search reads the vectors.
    let mut times = search(&index, &mut texts, &SearchOptions::new(), 1).await;
    println!("first search:        {:.1} ms", millis(times.remove(0)));
    for (name, path) in [
        ("search", None),
        ("filter, 1 document", Some("7.txt")),
        ("filter, about 1%", Some("*77.txt")),
        ("filter, all", Some("*.txt")),
    ] {
        let mut options = SearchOptions::new().limit(10);
        options.path = path.map(str::to_owned);
        let times = search(&index, &mut texts, &options, QUERIES).await;
        let [median, most] = [50, 95].map(|share| millis(times[QUERIES * share / 100]));
        println!(
            "{:<20} {median:.1} ms median, {most:.1} ms 95%",
            format!("{name}:")
        );
    }
    println!(
        "memory:              {:.0} MB resident, {:.0} MB at most",
        memory("VmRSS"),
        memory("VmHWM")
    );
}

/// Returns the times of searches in increasing order. Each must find something.
async fn search(
    index: &DocumentIndex,
    texts: &mut Texts,
    options: &SearchOptions,
    queries: usize,
) -> Vec<Duration> {
    let mut times = Vec::with_capacity(queries);
    for _ in 0..queries {
        let question = texts.question();
        let start = now();
        let found = index.search(&question, options).await.unwrap();
        times.push(start.elapsed());
        assert!(
            !found.passages.is_empty(),
            "nothing is found for {question:?}"
        );
    }
    times.sort();
    times
}

#[expect(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn open(path: &Path) -> DocumentIndex {
    with_table(open_at(path))
}

fn open_at(path: &Path) -> DocumentIndex {
    DocumentIndex::open(path).unwrap()
}

fn with_table(index: DocumentIndex) -> DocumentIndex {
    let Ok(table) = std::env::var("LEVITY_TEST_WORDLLAMA") else {
        return index;
    };
    let table = Path::new(&table);
    let embedder = StaticEmbedder::open(
        table.join("weights/l2_supercat_256.safetensors"),
        table.join("tokenizers/l2_supercat_tokenizer_config.json"),
    );
    index.with_embedder(embedder.expect("the table of words can be read"))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn size(path: &Path) -> f64 {
    fs::metadata(path).unwrap().len() as f64 / 1e6
}

/// Returns a figure of this process in MB; 0 where the system does not tell.
fn memory(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0 / 1e6
}

/// A source of texts that is the same in each run.
struct Texts {
    state: u64,
    words: Vec<String>,
    /// The sums of the frequencies up to each word.
    sums: Vec<f64>,
}

/// Words that a search ignores, which are the most frequent ones.
const COMMON: [&str; 20] = [
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "was", "on", "as", "with",
    "be", "by", "at", "this", "from", "are",
];

impl Texts {
    fn new() -> Self {
        let syllables = [
            "ka", "mo", "ri", "te", "sul", "ven", "pa", "lor", "di", "gan", "fe", "nu",
        ];
        let mut words: Vec<String> = COMMON.map(str::to_owned).into();
        for n in words.len()..50_000 {
            let (mut rest, mut word) = (n * 7 + 150, String::new());
            while rest > 0 {
                word += syllables[rest % syllables.len()];
                rest /= syllables.len();
            }
            words.push(word);
        }
        let mut sum = 0.0;
        let sums = (0..words.len()).map(|rank| {
            sum += 1.0 / (rank as f64 + 2.7).powf(1.07);
            sum
        });
        Self {
            state: 4_711,
            sums: sums.collect(),
            words,
        }
    }

    fn random(&mut self) -> f64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn word(&mut self) -> &str {
        let at = self.random() * self.sums[self.sums.len() - 1];
        &self.words[self
            .sums
            .partition_point(|sum| *sum < at)
            .min(self.words.len() - 1)]
    }

    fn document(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..PASSAGES {
            for n in 1..=WORDS {
                text.push_str(self.word());
                text.push_str(if n % 15 == 0 { ".\n" } else { " " });
            }
            text.push('\n');
        }
        text
    }

    /// A question with twelve words, as they occur in texts.
    fn question(&mut self) -> String {
        let mut words: Vec<_> = (0..12).map(|_| self.word().to_owned()).collect();
        words.push(self.words[500].clone());
        words.join(" ")
    }
}
