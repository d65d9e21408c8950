//! The shared types and traits of the levity crates.
//!
//! ```
//! use levity_core::{History, Message, Request};
//!
//! let mut history = History::new();
//! history.push(Message::user("What is 2 + 5?"))?;
//! let request = Request::new().with_system("Be brief.").with_history(history);
//! assert_eq!(request.history.messages()[0].text(), "What is 2 + 5?");
//! # Ok::<(), levity_core::HistoryError>(())
//! ```
//!
//! One idea carries all of it: **a run is a fold over its events.** A [`Machine`] makes the
//! decisions and performs no I/O. It names an [`Effect`], receives the [`Outcome`], and names the
//! next effect. A runtime performs effects through an [`Executor`] and writes a [`Record`] of each
//! to a [`Journal`]. Observers receive [`Event`]s.
//!
//! This crate deliberately has no runtime, network, clock, file access or environment access. Time
//! and randomness are passed in through [`World`].
//!
//! No function in this crate panics on input from a model, a server, a file or a user.
//!
//! # Where to go next
//!
//! | You want to | Start at |
//! |---|---|
//! | add a model provider | [`Model`], [`Deltas`], [`ModelError`] |
//! | add a tool | [`Tool`], [`ToolSpec`], [`ToolOutput`], [`ToolError`] |
//! | store runs or conversations elsewhere | [`Journal`], [`MemoryStore`] |
//! | check or rewrite messages | [`Guard`], [`Secrets`] |
//! | decide about calls | [`Approver`], [`Permit`], [`Decision`] |
//! | write your own kind of run | [`Machine`], [`Executor`], [`Program`] |
//! | search with other models | [`Embedder`], [`Reranker`] |
//! | bound the cost of a run | [`Limits`], [`Price`], [`CostBound`] |
//!
//! Programs usually depend on the facade `levity`, which re-exports these names. Libraries that
//! only implement a trait can depend on this crate alone.
//!
//! # Features
//! This crate has no features. Its types are always complete, so data that one crate writes can be
//! read by every other.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod any_error;
mod approve;
mod cancel;
mod context;
mod cost_bound;
mod durability;
mod effect;
mod embed;
mod error;
mod event;
mod eventual;
mod executor;
mod guard;
mod history;
mod id;
mod interrupted;
mod journal;
mod limits;
mod machine;
mod memory;
mod message;
mod model;
mod money;
mod program;
mod request;
mod rerank;
mod response;
mod run_result;
mod runs;
mod runtime_error;
mod secret;
pub mod text;
mod tokens;
mod tool;
mod values;
mod vector_store;
mod world;

pub use any_error::{Error, ErrorKind, Result};
pub use approve::{Approver, ArgumentProblem, Ask, AskKind, Decision};
pub use cancel::{CancelGuard, CancelToken};
pub use context::{
    Context, ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource,
    ContextStep, WorkspaceSnapshot, WorkspaceSource, WorkspaceView,
};
pub use cost_bound::{CostBound, ReservedCost};
pub use durability::Durability;
pub use effect::{
    ChildRun, Digest, Effect, EffectKind, EffectNote, ModelCall, Offer, Outcome, Save, ToolRun,
    Wait, idempotency_key,
};
pub use embed::{Embedder, EmbedderCard, Embeddings, Purpose};
pub use error::{ModelError, ModelErrorKind, SharedError, ToolError, ToolErrorKind};
pub use event::{CompactionReport, Event, EventKind, Phase};
pub use eventual::Eventual;
pub use executor::{
    Child, ChildLease, EffectCx, Executor, Inspection, LiveEvents, LiveSink, Permit, PrepareCx,
    Prepared,
};
pub use guard::{
    Guard, GuardCx, GuardSubject, Intervention, ScreenVerdict, Screener, Stage, Verdict,
};
pub use history::{Exchange, History, HistoryError};
pub use id::{CallId, ConversationId, EffectId, RunId};
pub use interrupted::{LostCall, Resolution, Resolver};
pub use journal::{
    ControlCommand, Entry, ForkPoint, Journal, JournalError, JournalErrorKind, OpenRun, Record,
    RunHeader, RunLog, Snapshot, Spending,
};
pub use limits::{Limit, Limits};
pub use machine::{
    ConversationEnd, Ending, Failure, Input, Machine, MachineKind, MachineOutput, Signal, Stats,
    Status,
};
pub use memory::{
    ConversationChange, ConversationInfo, ConversationQuery, Lease, LoadedConversation,
    MemoryError, MemoryErrorKind, MemoryStore, Summary,
};
pub use message::{
    Bytes, Content, Media, MediaSource, Message, Part, ProviderState, Role, Text, Thinking,
    ToolCall, ToolResult,
};
pub use model::{Capabilities, Model, ModelCard};
pub use money::{Fees, LongPrice, Money, Price};
pub use program::Program;
pub use request::{Options, OutputSchema, Request, ThinkingMode, ToolChoice};
pub use rerank::{Reranker, RerankerCard, Reranking};
pub use response::{Delta, Deltas, Finish, Fold, Response, Usage};
pub use run_result::{Partial, RunOutput, StoppedRun};
pub use runs::{RunQuery, RunRequest, RunState, RunSummary, Waiting};
pub use runtime_error::{ControlError, Divergence, RuntimeError};
pub use secret::{FoundSecret, SecretKind, Secrets};
pub use tokens::estimate_tokens;
pub use tool::{
    ChangeRecorder, Deadline, EffectClass, FileChange, FileChangeKind, Hints, LinkedTool, Progress,
    Tool, ToolCx, ToolOutput, ToolReport, ToolSource, ToolSpec, Toolbox,
};
pub use values::Values;
pub use vector_store::{
    VectorEntry, VectorFilter, VectorKeys, VectorMatch, VectorStore, VectorStoreError,
    VectorStoreErrorKind,
};
pub use world::{Timestamp, World};

#[doc(hidden)]
pub mod __private;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
