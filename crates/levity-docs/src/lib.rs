//! Documents for agents: a [`DocumentIndex`] splits texts, stores them in one SQLite file, finds
//! passages by their words and meaning, and checks citations of them.
//!
//! ```
//! use levity_docs::{Document, DocumentIndex, SearchOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), levity_docs::DocumentError> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("documents.db");
//! let index = DocumentIndex::open(&path)?;
//! index.add(Document::new("tides.md", "# Harbour\n\nHigh water is at six.")).await?;
//! let found = index.search("high water", &SearchOptions::new()).await?;
//! assert_eq!(found.passages[0].document, "tides.md");
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//! - The text of a passage is unchanged, and its place is that of the document: a quote can be
//!   checked.
//! - A change of the index is atomic, even if the process is killed; several processes can use one
//!   file.
//! - Removed documents are overwritten.
//!
//! # Features
//! - `folder`: enables [`FolderUpdate`], which indexes the files of a workspace, and
//!   [`FolderWatch`], which keeps the index up to date.
//! - `formats`: enables [`FormatReader`], which reads PDF, Office, EPUB and e-mail files, and
//!   archives, in processes of their own.
//! - `chroma`: enables [`ChromaStore`], which stores vectors in a Chroma server.
//!
//! # Where to go next
//! [`DocumentIndex::add`] adds a document, [`search`](DocumentIndex::search) finds passages, and
//! [`check_quote`](DocumentIndex::check_quote) tells whether a quote is in the cited passage, and
//! [`CitationGuard`] checks the answers of an agent. An
//! index is a [`Toolbox`](levity_core::Toolbox): give it to an agent as tools.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "chroma")]
mod chroma;
mod citations;
mod diversity;
mod error;
#[cfg(feature = "folder")]
mod files;
#[cfg(feature = "folder")]
mod folder;
mod index;
mod options;
mod parts;
mod passage;
#[cfg(feature = "formats")]
mod reader;
mod rerank;
mod rewrite;
mod rows;
mod split;
mod store;
mod tables;
mod tools;
mod vectors;
#[cfg(feature = "folder")]
mod watch;

#[cfg(feature = "chroma")]
pub use chroma::ChromaStore;
pub use citations::{Citation, CitationGuard, CitationProblem, citations};
pub use error::{DocumentError, DocumentErrorKind};
#[cfg(feature = "folder")]
pub use folder::{FolderProgress, FolderReport, FolderUpdate, SkippedFile};
pub use index::DocumentIndex;
pub use options::{AddReport, IndexStatus, SearchOptions, SearchResult, VectorRepair};
pub use passage::{Document, DocumentInfo, Passage, PassageId, QuoteCheck};
#[cfg(feature = "formats")]
pub use reader::{FormatReader, FormatReaderBuilder};
pub use rewrite::QueryRewriter;
pub use split::TextKind;
#[cfg(feature = "folder")]
pub use watch::FolderWatch;
