//! An embedder without a model: a table with one vector for each token.
//!
//! The files are downloaded by users, so they are not trusted: sizes are limited before memory is
//! used, offsets are checked, and components that are not finite are rejected. Embedding itself
//! cannot fail.

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

/// The table and the tokenizer, shared by all clones.
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
    ///
    /// Reading blocks the thread. Open the files once and clone the embedder: clones share the
    /// table.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use levity_core::{Embedder as _, Purpose};
    /// # use levity_llm::StaticEmbedder;
    /// # let folder = tempfile::tempdir()?;
    /// // A table of two tokens with two components each.
    /// let header = r#"{"table": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}"#;
    /// let mut table = (header.len() as u64).to_le_bytes().to_vec();
    /// table.extend_from_slice(header.as_bytes());
    /// table.extend([3.0_f32, 4.0, 0.0, 1.0].iter().flat_map(|number| number.to_le_bytes()));
    /// let tokenizer = r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}"#;
    /// let (table_path, path) = (folder.path().join("tiny"), folder.path().join("tokenizer.json"));
    /// std::fs::write(&table_path, table)?;
    /// std::fs::write(&path, tokenizer)?;
    ///
    /// let embedder = StaticEmbedder::open(table_path, path)?;
    /// let embedded = embedder.embed(&["a".to_owned(), "b".to_owned()], Purpose::Query).await?;
    /// assert_eq!(embedded.vectors, [[0.6, 0.8], [0.0, 1.0]]);
    /// assert_eq!(embedder.card().dimensions, Some(2));
    /// # Ok(())
    /// # }
    /// ```
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
    /// Embeds texts one after the other; the usage is the number of tokens.
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

/// Returns the first 64 KiB of a text, up to a whole character.
fn head(text: &str) -> &str {
    let mut end = MAX_TEXT_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Reads a regular file of limited size. The size is checked while reading, because metadata of a
/// file can change.
///
/// # Errors
/// Returns [`Error::File`] if the file cannot be read, and [`Error::InvalidTable`] if it is not a
/// regular file or too large.
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

/// Creates the error for a file with the wrong content.
fn table_error(path: &Path, problem: impl Into<String>) -> Error {
    Error::InvalidTable {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

/// The start value of the hash.
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
