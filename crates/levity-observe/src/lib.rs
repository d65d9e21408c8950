//! Views of runs, built from their events.
//!
//! ```
//! # #[cfg(feature = "dag")]
//! # {
//! use levity_dag::{Plan, Step, StepInput, Team};
//! use levity_observe::{PlanView, SessionFolder, TreeOptions};
//! use serde_json::json;
//! # use std::sync::{Arc, Mutex};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_dag::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! let sessions = SessionFolder::open(folder.path());
//! let team = Team::builder()
//!     .function("fetch", |_: StepInput| async { Ok(json!("high water at six")) })
//!     .observe(sessions.clone())
//!     .build()?;
//! let view = Arc::new(Mutex::new(PlanView::new()));
//! let seen = view.clone();
//! let plan = Plan::new().step(Step::new("fetch", "fetch").writes(["page"]));
//! team.run(plan).id("monday").on_event(move |event| seen.lock().unwrap().apply(event)).await?;
//! println!("{}", view.lock().unwrap().tree(TreeOptions::new()));
//! assert_eq!(sessions.load("monday").await?.status, "completed");
//! # Ok(())
//! # }
//! # main().unwrap();
//! # }
//! ```
//!
//! Each type here is a fold over the event stream of a run. It has no clock, changes nothing in the
//! run, and gives the same result for a live run and for a replay.
//!
//! - [`Artifacts`] lists the files that a run wrote, with the calls that wrote them.
//! - [`Lineage`] names the agent and tool that an event comes from, in any tree of runs.
//! - [`RunView`] contains a run of any kind as a page shows it: the chat, the graph, the questions.
//! - `PlanView` (`dag`) renders a run of a plan as a tree, a summary or a diagram.
//! - `SessionFolder` (`dag`) writes a file for each run that NetworkX can read. `Session` reads it,
//!   and provides the starting point for another run.
//!
//! This crate deliberately has no way to control a run. Use `levity_runtime::RunHandle` for that.
//!
//! # Features
//! - `dag`: views of runs of a plan, and their session files.
//!
//! # Where to go next
//! - `PlanView` lists the renderings of a run: `tree`, `summary`, `mermaid`, `dot`, `svg` and the
//!   log.
//! - `SessionFolder` describes the layout of session files on disk, and `Session` their content.
//! - `levity_dag::PlanNotice` and `levity_core::EventKind` are the events behind the views.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod artifacts;
mod lineage;
mod run_view;
#[cfg(feature = "dag")]
mod session;
mod svg;
#[cfg(feature = "dag")]
mod view;
mod visible;

pub use artifacts::{Artifact, Artifacts};
pub use lineage::{Lineage, Origin};
pub use run_view::{
    CallStatus, ItemChange, ItemKind, ItemProgressView, NodeKind, NodeStatus, RunView,
    ViewArtifact, ViewAsk, ViewCall, ViewChanges, ViewItem, ViewMedia, ViewNode, ViewState,
};
#[cfg(feature = "dag")]
pub use session::{
    Session, SessionError, SessionFilter, SessionFolder, SessionInfo, SessionProblem, SessionStep,
    SessionWriter,
};
#[cfg(feature = "dag")]
pub use view::{
    Activity, ItemProgress, LogLine, PlanStage, PlanView, Preparation, StepView, Totals,
    TreeOptions, one_line,
};
