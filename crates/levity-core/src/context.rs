mod cut;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{CancelToken, ConversationId, FileChange, History, SharedError};

/// Contributes named blocks to the system prompt.
///
/// # Contract
/// - The texts of the blocks together have no more than `ask.budget` tokens, counted as a quarter
///   of their bytes. The caller also counts the names, like [`ContextBlock::tokens`], and cuts the
///   excess.
/// - The same sources return the same blocks in the same order, so that providers can cache them.
/// - No two blocks have the same name.
///
/// A [`ContextBlock`] implements this trait and returns itself.
///
/// Use `levity_test::conformance::context_source` to check an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{ContextBlock, ContextError, ContextRequest, ContextSource};
///
/// /// Shows the rules that apply to the goal.
/// struct Rules;
///
/// #[async_trait]
/// impl ContextSource for Rules {
///     async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
///         let rules = if ask.goal.contains("refund") { "Ask a person first." } else { "None." };
///         Ok(ContextBlock::new("rules", rules).cut_to(ask.budget).into_iter().collect())
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ContextError> {
/// let blocks = Rules.blocks(&ContextRequest::new(100).for_goal("a refund")).await?;
/// assert_eq!(blocks[0].text, "Ask a person first.");
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait ContextSource: Send + Sync {
    /// Returns the blocks in their current state.
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError>;
}

macro_rules! forward_source {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: ContextSource + ?Sized> ContextSource for $pointer {
            async fn blocks(
                &self,
                ask: &ContextRequest,
            ) -> Result<Vec<ContextBlock>, ContextError> {
                (**self).blocks(ask).await
            }
        }
    )*};
}

forward_source!(Arc<S>, Box<S>);

#[async_trait]
impl ContextSource for ContextBlock {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        Ok(self.clone().cut_to(ask.budget).into_iter().collect())
    }
}

/// The purpose and the limits of a request for context.
///
/// ```
/// # use levity_core::ContextRequest;
/// let ask = ContextRequest::new(2_000).for_goal("Tidy up").in_conversation(Some("c1".into()));
/// assert_eq!((ask.budget, ask.goal.as_str()), (2_000, "Tidy up"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextRequest {
    /// The maximum number of tokens, counted as a quarter of the bytes.
    pub budget: usize,
    /// The goal of the run; empty if it is not known.
    pub goal: String,
    /// The conversation that the run is part of, if any.
    pub conversation: Option<ConversationId>,
}

impl ContextRequest {
    /// Creates a request for context within this many tokens.
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            goal: String::new(),
            conversation: None,
        }
    }

    /// Sets the goal of the run.
    #[must_use]
    pub fn for_goal(mut self, goal: impl Into<String>) -> Self {
        self.goal = goal.into();
        self
    }

    /// Sets the conversation that the run is part of.
    #[must_use]
    pub fn in_conversation(mut self, id: Option<ConversationId>) -> Self {
        self.conversation = id;
        self
    }
}

/// A named piece of context.
///
/// ```
/// # use levity_core::{ContextBlock, ContextLifetime};
/// let block = ContextBlock::new("git status", "clean").lasting(ContextLifetime::Run);
/// assert_eq!(block.tokens(), 7); // the text, the name and the lines around them
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContextBlock {
    /// The name of the block, such as a file name.
    pub name: String,
    /// The text of the block.
    pub text: String,
    /// The lifetime of the block. Blocks that change often are placed last, so that
    /// providers can cache the text before them.
    #[serde(default)]
    pub lasts: ContextLifetime,
}

impl ContextBlock {
    /// Creates a block that seldom changes.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            lasts: ContextLifetime::Long,
        }
    }

    /// Sets how long the block stays unchanged.
    #[must_use]
    pub fn lasting(mut self, lasts: ContextLifetime) -> Self {
        self.lasts = lasts;
        self
    }
}

/// The time for which a piece of context stays unchanged.
///
/// Blocks of one lifetime form one stretch of the request, so the order of the variants is the
/// order in the prompt.
///
/// ```
/// # use levity_core::ContextLifetime;
/// assert!(ContextLifetime::Long < ContextLifetime::Run);
/// assert_eq!(ContextLifetime::default(), ContextLifetime::Long);
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContextLifetime {
    /// The block is the same in most runs; it is placed before the instructions.
    #[default]
    Long,
    /// The block differs in most runs, such as the state of a repository or memories recalled for
    /// the goal. It is placed beside the goal.
    Run,
}

/// The error of a context source that could not be read.
///
/// ```
/// # use levity_core::{ContextError, text::chain};
/// let error = ContextError::new("rules.md", "permission denied");
/// assert_eq!(chain(&error), "context source `rules.md` could not be read: permission denied");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error("context source `{name}` could not be read")]
#[non_exhaustive]
pub struct ContextError {
    /// The name of the source.
    pub name: String,
    /// The underlying error of the source.
    #[source]
    cause: SharedError,
}

impl ContextError {
    /// Creates an error of the source `name`.
    pub fn new(name: impl Into<String>, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            name: name.into(),
            cause: SharedError::new(cause),
        }
    }
}

/// The complete context of an agent as one value: its intent, workspace, history and memory.
///
/// ```
/// # use levity_core::{Context, WorkspaceView};
/// let context = Context::new("Tidy up").with_workspace(WorkspaceView::new(".", ["notes.txt"]));
/// assert_eq!(serde_json::to_value(&context)?["workspace"]["files"][0], "notes.txt");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Context {
    /// The intent of the user.
    pub intent: String,
    /// The folder that the agent works in.
    pub workspace: WorkspaceView,
    /// The actions taken and their observations.
    pub history: Vec<ContextStep>,
    /// The memories from earlier runs, as an object.
    pub memory: Value,
}

impl Default for Context {
    fn default() -> Self {
        let (intent, workspace) = Default::default();
        Self {
            intent,
            workspace,
            history: Vec::new(),
            memory: json!({}),
        }
    }
}

impl Context {
    /// Creates a context with this intent and nothing else.
    pub fn new(intent: impl Into<String>) -> Self {
        Self {
            intent: intent.into(),
            ..Self::default()
        }
    }

    /// Sets the folder that the agent works in.
    #[must_use]
    pub fn with_workspace(mut self, workspace: WorkspaceView) -> Self {
        self.workspace = workspace;
        self
    }

    /// Sets the memories from earlier runs.
    #[must_use]
    pub fn with_memory(mut self, memory: Value) -> Self {
        self.memory = memory;
        self
    }

    /// Lists the calls of `history` as steps, numbered from 1.
    #[must_use]
    pub fn with_history(mut self, history: &History) -> Self {
        self.history = (1..)
            .zip(history.calls())
            .map(|(step, (call, result))| ContextStep {
                step,
                action: json!({"tool": call.name, "args": call.args}),
                observation: json!({"ok": !result.is_error(), "output": observation(result)}),
            })
            .collect();
        self
    }
}

fn observation(result: &crate::ToolResult) -> Value {
    result
        .value
        .clone()
        .unwrap_or_else(|| Value::String(result.text().into_owned()))
}

/// The folder that an agent works in, as its context shows it.
///
/// ```
/// # use levity_core::WorkspaceView;
/// let view = WorkspaceView::new("/srv/project", ["Cargo.toml", "src/lib.rs"]);
/// assert_eq!(view.files.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkspaceView {
    /// The path of the folder.
    pub root: String,
    /// The files in it, relative to the folder.
    pub files: Vec<String>,
}

impl WorkspaceView {
    /// Creates a view of a folder with these files.
    pub fn new(
        root: impl Into<String>,
        files: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            root: root.into(),
            files: files.into_iter().map(Into::into).collect(),
        }
    }
}

/// Lists the files of the folder that an agent works in, for its [`Context`].
///
/// # Contract
/// - Paths are relative to the folder and use `/`.
/// - A folder that cannot be read gives a view without files, never a panic.
/// - Each call lists the folder again, so the view is current.
///
/// ```
/// use levity_core::{WorkspaceSource, WorkspaceView};
///
/// struct Fixed;
///
/// impl WorkspaceSource for Fixed {
///     fn view_now(&self) -> WorkspaceView {
///         WorkspaceView::new("/srv/project", ["Cargo.toml"])
///     }
/// }
/// assert_eq!(Fixed.view_now().files, ["Cargo.toml"]);
/// ```
pub trait WorkspaceSource: Send + Sync {
    /// Returns the folder and its current files; no files if they cannot be listed. It may read
    /// from the disk and block meanwhile.
    fn view_now(&self) -> WorkspaceView;

    /// Returns the current version of each file, or `None` if this source cannot tell versions
    /// apart or has too many files. It may block.
    ///
    /// A dispatcher takes a snapshot before a call that may change files. Return `None` soon after
    /// the token is cancelled: nobody waits for the result then.
    fn snapshot(&self, _cancel: &CancelToken) -> Option<WorkspaceSnapshot> {
        None
    }

    /// Returns the files that changed since an earlier snapshot. It may block.
    ///
    /// Implement it to add the size and the hash of each file. Return soon after the token is
    /// cancelled.
    fn changes_since(&self, before: &WorkspaceSnapshot, cancel: &CancelToken) -> Vec<FileChange> {
        let now = self.snapshot(cancel);
        now.map_or_else(Vec::new, |now| before.changes_to(&now))
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: WorkspaceSource + ?Sized> WorkspaceSource for Arc<S> {
    fn view_now(&self) -> WorkspaceView {
        (**self).view_now()
    }

    fn snapshot(&self, cancel: &CancelToken) -> Option<WorkspaceSnapshot> {
        (**self).snapshot(cancel)
    }

    fn changes_since(&self, before: &WorkspaceSnapshot, cancel: &CancelToken) -> Vec<FileChange> {
        (**self).changes_since(before, cancel)
    }
}

/// The versions of a workspace's files at one moment.
///
/// ```
/// use levity_core::{FileChange, WorkspaceSnapshot};
///
/// let before = WorkspaceSnapshot::new([("a.txt", 1), ("b.txt", 1), ("c.txt", 1)]);
/// let after = WorkspaceSnapshot::new([("a.txt", 1), ("b.txt", 2), ("d.txt", 1)]);
/// let written = |path| FileChange::written(path);
/// let expected = [written("b.txt"), FileChange::removed("c.txt"), written("d.txt")];
/// assert_eq!(before.changes_to(&after), expected);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceSnapshot(BTreeMap<String, u64>);

impl WorkspaceSnapshot {
    /// Creates a snapshot from paths and versions. Two versions of a file must differ, for example
    /// hashes of its metadata.
    pub fn new<P: Into<String>>(files: impl IntoIterator<Item = (P, u64)>) -> Self {
        let files = files.into_iter();
        Self(
            files
                .map(|(path, version)| (path.into(), version))
                .collect(),
        )
    }

    /// Returns the changes that lead to a later snapshot, sorted by path.
    pub fn changes_to(&self, later: &Self) -> Vec<FileChange> {
        let written = later.0.iter().filter_map(|(path, version)| {
            let is_same = self.0.get(path) == Some(version);
            (!is_same).then(|| FileChange::written(path))
        });
        let gone = self.0.keys().filter(|path| !later.0.contains_key(*path));
        let mut changes: Vec<_> = written.chain(gone.map(FileChange::removed)).collect();
        changes.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        changes
    }
}

/// One action of an agent and its observation.
///
/// ```
/// use levity_core::{Context, History, Message, Part, Role, ToolCall, ToolError};
/// use serde_json::json;
///
/// let call = ToolCall::new("c1", "add", json!({"a": 2}));
/// let reply = Message::new(Role::Assistant, [Part::ToolCall(call)]);
/// let mut history = History::new();
/// let exchange = history.open(reply.into())?;
/// history.close(exchange, &ToolError::failed("`b` is missing"));
/// let step = Context::new("Add").with_history(&history).history.remove(0);
/// assert_eq!((step.step, &step.observation["ok"]), (1, &json!(false)));
/// # Ok::<(), levity_core::HistoryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContextStep {
    /// The number of the step, from 1.
    pub step: u64,
    /// The tool and its arguments.
    pub action: Value,
    /// The result of the action.
    pub observation: Value,
}
