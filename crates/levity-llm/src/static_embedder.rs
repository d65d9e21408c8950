//! An embedder without a model: a table with one vector for each token.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Embedder, EmbedderCard, Embeddings, ModelError, ModelErrorKind, Purpose, Usage};

use crate::Error;

mod table;
mod tokens;

use table::Table;
use tokens::Tokenizer;

/// The maximum size of a table: 1 GiB.
const MAX_TABLE_BYTES: u64 = 1 << 30;
/// The maximum size of a tokenizer: 64 MiB.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
/// The number of bytes of a text that are embedded.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The number of bytes that are embedded inline; more run on a blocking thread.
const INLINE_BYTES: usize = 512;

/// An embedder that needs no server, no model and no accelerator. The vector of a text is the mean
/// of the vectors of its tokens, which come from a table. It is less accurate than a model, and
/// takes microseconds.
///
/// The table is a file in the safetensors format with one matrix. The tokenizer is a
/// `tokenizer.json` with a byte-pair encoding; other kinds are rejected. The content of the files
/// is not trusted: a damaged or malicious file causes an error, and the sizes are limited (1 GiB
/// and 64 MiB). Only the first 64 KiB of a text are embedded.
///
/// The name on the card is that of the table, with a hash of both files.
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
    tokens: Tokenizer,
}

impl StaticEmbedder {
    /// Reads a table and its tokenizer. The memory use is slightly larger than the files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, is too large, or has the wrong format.
    pub fn open(table: impl AsRef<Path>, tokenizer: impl AsRef<Path>) -> Result<Self, Error> {
        let (table_path, tokens_path) = (table.as_ref(), tokenizer.as_ref());
        let bytes = read(table_path, MAX_TABLE_BYTES)?;
        let mut digest = fnv(FNV, &bytes);
        let table = Table::read(bytes).map_err(|problem| table_error(table_path, problem))?;
        let bytes = read(tokens_path, MAX_TOKENIZER_BYTES)?;
        digest = fnv(digest, &bytes);
        let tokens =
            Tokenizer::read(&bytes).map_err(|problem| table_error(tokens_path, problem))?;
        if tokens.count() > table.rows() {
            let problem = format!(
                "it has tokens up to {}, but the table has {} rows",
                tokens.count(),
                table.rows()
            );
            return Err(table_error(tokens_path, problem));
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
    fn embed(&self, texts: &[String]) -> Embeddings {
        let mut all = 0_usize;
        let vectors = texts.iter().map(|text| {
            let tokens = self.tokens.of(head(text));
            all += tokens.len();
            self.table.mean(&tokens)
        });
        let vectors = vectors.collect();
        let mut usage = Usage::default();
        usage.input = u64::try_from(all).ok();
        Embeddings::new(vectors).with_usage(usage)
    }
}

#[async_trait]
impl Embedder for StaticEmbedder {
    fn card(&self) -> &EmbedderCard {
        &self.card
    }

    async fn embed(&self, texts: &[String], _: Purpose) -> Result<Embeddings, ModelError> {
        let bytes: usize = texts.iter().map(String::len).sum();
        let runtime = tokio::runtime::Handle::try_current();
        let Some(runtime) = runtime.ok().filter(|_| bytes > INLINE_BYTES) else {
            return Ok(self.parts.embed(texts));
        };
        let (parts, texts) = (self.parts.clone(), texts.to_vec());
        runtime
            .spawn_blocking(move || parts.embed(&texts))
            .await
            .map_err(|error| {
                ModelError::new(
                    ModelErrorKind::Transport,
                    "the runtime ended before the texts were embedded",
                )
                .with_source(error)
            })
    }
}

fn head(text: &str) -> &str {
    let mut end = MAX_TEXT_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(table_error(path, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > max_bytes {
        return Err(table_error(
            path,
            format!("it is larger than {max_bytes} bytes"),
        ));
    }
    Ok(bytes)
}

fn table_error(path: &Path, problem: impl Into<String>) -> Error {
    Error::InvalidTable {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns a hash that distinguishes files of the same name (FNV-1a, eight bytes at a time).
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
