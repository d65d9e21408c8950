//! An embedder without a model: a table that has one vector for each piece of a word.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Embedded, Embedder, EmbedderCard, ModelError, ModelErrorKind, Purpose, Usage};

use crate::Error;

mod table;
mod tokens;

use table::Table;
use tokens::Tokens;

/// The largest table that is read: 1 GiB.
const LARGEST_TABLE: u64 = 1 << 30;
/// The largest tokeniser that is read: 64 MiB.
const LARGEST_TOKENS: u64 = 64 << 20;
/// How much of a text counts, in bytes.
const LONGEST: usize = 64 << 10;
/// How many bytes of text are done at once; for more, another thread is asked.
const AT_ONCE: usize = 512;

/// An embedder that needs no server, no model and no accelerator: the vector of a text is the mean
/// of those of its tokens, which stand in a table. It is less apt than a model, and takes
/// microseconds.
///
/// The table is a file in the safetensors format with one matrix, the tokeniser a `tokenizer.json`
/// of a byte-pair encoding; other kinds are refused. What is in them is not trusted: a file that is
/// damaged or made to do harm is an error, and what is read is bounded (1 GiB and 64 MiB). Only the
/// first 64 KiB of a text count.
///
/// Its name on the card is that of the table, with a number that stands for what is in both files.
///
/// ```no_run
/// use levity_core::{Embedder as _, Purpose};
/// use levity_llm::StaticEmbedder;
///
/// # async fn embed() -> Result<(), Box<dyn std::error::Error>> {
/// let embedder = StaticEmbedder::open("l2_supercat_256.safetensors", "tokenizer.json")?;
/// let embedded = embedder.embed(&["Good morning".to_owned()], Purpose::Document).await?;
/// println!("{} components", embedded.vectors[0].len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StaticEmbedder {
    card: EmbedderCard,
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    table: Table,
    tokens: Tokens,
}

impl StaticEmbedder {
    /// Reads a table and its tokeniser. It takes as much memory as the files have bytes, and some
    /// more.
    ///
    /// # Errors
    /// When a file cannot be read, is too large, or is none of its kind.
    pub fn open(table: impl AsRef<Path>, tokenizer: impl AsRef<Path>) -> Result<Self, Error> {
        let (table_path, tokens_path) = (table.as_ref(), tokenizer.as_ref());
        let bytes = read(table_path, LARGEST_TABLE)?;
        let mut digest = fnv(FNV, &bytes);
        let table = Table::read(bytes).map_err(|problem| wrong(table_path, problem))?;
        let bytes = read(tokens_path, LARGEST_TOKENS)?;
        digest = fnv(digest, &bytes);
        let tokens = Tokens::read(&bytes).map_err(|problem| wrong(tokens_path, problem))?;
        if tokens.count() > table.rows() {
            let problem = format!(
                "it has tokens up to {}, and the table {} rows",
                tokens.count(),
                table.rows()
            );
            return Err(wrong(tokens_path, problem));
        }
        let name = table_path.file_stem().unwrap_or_default().to_string_lossy();
        let card = EmbedderCard::new("static", format!("{name}-{digest:016x}"))
            .with_dimensions(table.columns());
        Ok(Self {
            card,
            parts: Arc::new(Parts { table, tokens }),
        })
    }
}

impl Parts {
    fn embed(&self, texts: &[String]) -> Embedded {
        let mut all = 0_usize;
        let vectors = texts.iter().map(|text| {
            let tokens = self.tokens.of(head(text));
            all += tokens.len();
            self.table.mean(&tokens)
        });
        let vectors = vectors.collect();
        let mut usage = Usage::default();
        usage.input = u64::try_from(all).ok();
        Embedded::new(vectors).with_usage(usage)
    }
}

#[async_trait]
impl Embedder for StaticEmbedder {
    fn card(&self) -> &EmbedderCard {
        &self.card
    }

    async fn embed(&self, texts: &[String], _: Purpose) -> Result<Embedded, ModelError> {
        let bytes: usize = texts.iter().map(String::len).sum();
        let runtime = tokio::runtime::Handle::try_current();
        let Some(runtime) = runtime.ok().filter(|_| bytes > AT_ONCE) else {
            return Ok(self.parts.embed(texts));
        };
        let (parts, texts) = (self.parts.clone(), texts.to_vec());
        runtime
            .spawn_blocking(move || parts.embed(&texts))
            .await
            .map_err(|gone| {
                ModelError::new(
                    ModelErrorKind::Transport,
                    "the runtime ended before the texts were embedded",
                )
                .with_source(gone)
            })
    }
}

fn head(text: &str) -> &str {
    let mut end = LONGEST.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn read(path: &Path, largest: u64) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let there = file.metadata().map_err(failed)?;
    if !there.is_file() {
        return Err(wrong(path, "it is not a plain file"));
    }
    let mut bytes = Vec::new();
    file.take(largest + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > largest {
        return Err(wrong(path, format!("it has more than {largest} bytes")));
    }
    Ok(bytes)
}

fn wrong(path: &Path, problem: impl Into<String>) -> Error {
    Error::Table {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// Tells files apart that have the same name (FNV-1a, eight bytes at a time).
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |hash: u64, word: u64| {
        (hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(5)
    };
    let hash = words
        .iter()
        .fold(start, |hash, word| step(hash, u64::from_le_bytes(*word)));
    rest.iter()
        .fold(hash, |hash, byte| step(hash, u64::from(*byte)))
}
