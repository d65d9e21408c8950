//! Parts of a search by words and by meaning, for the stores of levity: [recall] and documents.
//!
//! ```
//! use levity_search::{Cosines, fuse, query_words};
//!
//! // The words to look for, safe inside of a full-text query.
//! assert_eq!(query_words("When is \"low\" water?", 64), ["\"low\"", "\"water\""]);
//! // Without cosines, the scores of words decide.
//! assert_eq!(fuse(&[(7, 2.0), (9, 1.0)], None), [(7, 1.0), (9, 0.5)]);
//! ```
//!
//! [recall]: https://docs.rs/levity-memory
//!
//! - No part of a question is interpreted as search syntax.
//! - A failing embedder never fails a search: a call has 20 seconds, and after a failure none is
//!   made for 30 seconds. Vectors with infinite components are rejected.
//! - In our measurements on public sets of questions, the fusion was not below words alone
//!   (`docs/recall.md`).
//!
//! This crate deliberately stores nothing: each store has its own tables.
//!
//! # Features
//! This crate has no features.
//!
//! # Where to go next
//! [`query_words`] and [`spaced`] are for a full-text index, [`Presence`] and [`WordScores`] for
//! its results, [`quantize`] and [`Nearest`] for vectors, [`Embedding`] for embedders, and
//! [`CircuitBreaker`] for other services. [`fuse`] and [`merge`] merge the results.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod breaker;
mod embedding;
mod fusion;
mod scores;
mod vectors;
mod words;

pub use breaker::CircuitBreaker;
pub use embedding::{Embedding, Vector, add_usage};
pub use fusion::{Cosines, fuse, merge};
pub use scores::{Presence, WordScores, word_weight};
pub use vectors::{Nearest, QueryVector, quantize};
pub use words::{query_words, spaced, truncate_question};
