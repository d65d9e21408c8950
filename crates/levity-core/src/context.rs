mod cut;

use std::error::Error;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{ConversationId, History, SharedError};

/// Contributes named blocks to the system prompt.
///
/// # Contract
/// - The texts of the blocks together have no more than `ask.budget` tokens, counted as a quarter
///   of their bytes. Whoever shows them counts the names as well, as [`ContextBlock::tokens`] does,
///   and cuts what is too much.
/// - The same sources give the same blocks in the same order, so that providers can cache them.
/// - No two blocks have the same name.
///
/// A [`ContextBlock`] is a source of itself.
///
/// `levity_test::conformance::context_source` checks an implementation.
#[async_trait]
pub trait ContextSource: Send + Sync {
    /// The blocks, as they are now.
    async fn blocks(&self, ask: &ContextAsk) -> Result<Vec<ContextBlock>, ContextError>;
}

macro_rules! forward_source {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: ContextSource + ?Sized> ContextSource for $pointer {
            async fn blocks(&self, ask: &ContextAsk) -> Result<Vec<ContextBlock>, ContextError> {
                (**self).blocks(ask).await
            }
        }
    )*};
}

forward_source!(std::sync::Arc<S>, Box<S>);

#[async_trait]
impl ContextSource for ContextBlock {
    async fn blocks(&self, ask: &ContextAsk) -> Result<Vec<ContextBlock>, ContextError> {
        Ok(self.clone().cut_to(ask.budget).into_iter().collect())
    }
}

/// What context is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextAsk {
    /// How many tokens there is room for, counted as a quarter of the bytes.
    pub budget: usize,
    /// What the run is to do, in words; empty when that is not known.
    pub goal: String,
    /// The conversation that the run is part of, if it is.
    pub conversation: Option<ConversationId>,
}

impl ContextAsk {
    /// Context within so many tokens.
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            goal: String::new(),
            conversation: None,
        }
    }

    /// Says what the run is to do.
    #[must_use]
    pub fn for_goal(mut self, goal: impl Into<String>) -> Self {
        self.goal = goal.into();
        self
    }

    /// Says which conversation the run is part of.
    #[must_use]
    pub fn in_conversation(mut self, id: Option<ConversationId>) -> Self {
        self.conversation = id;
        self
    }
}

/// A piece of context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContextBlock {
    /// What it is called, such as a file's name.
    pub name: String,
    /// Its text.
    pub text: String,
    /// How long it stays as it is. What changes often goes last, so that providers can cache what
    /// stands before.
    #[serde(default)]
    pub lasts: ContextLifetime,
}

impl ContextBlock {
    /// A named piece that seldom changes.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            lasts: ContextLifetime::Long,
        }
    }

    /// Says how long it stays as it is.
    #[must_use]
    pub fn lasting(mut self, lasts: ContextLifetime) -> Self {
        self.lasts = lasts;
        self
    }
}

/// How long a piece of context stays as it is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContextLifetime {
    /// It is the same in most runs: it stands before the instructions.
    #[default]
    Long,
    /// It is another in most runs, such as the state of a repository or what is recalled for the
    /// goal: it stands beside the goal.
    Run,
}

/// Why a source of context has nothing to give.
#[derive(Clone, Debug, thiserror::Error)]
#[error("context source `{name}` could not be read")]
#[non_exhaustive]
pub struct ContextError {
    /// The source.
    pub name: String,
    /// What was found.
    #[source]
    cause: SharedError,
}

impl ContextError {
    /// The source `name` failed.
    pub fn new(name: impl Into<String>, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            name: name.into(),
            cause: SharedError::new(cause),
        }
    }
}

/// Everything an agent goes by, as one value: what it is to do, where, what it did, what it knows.
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
    /// What the user wants.
    pub intent: String,
    /// Where the agent works.
    pub workspace: WorkspaceView,
    /// What was done, and what came of it.
    pub history: Vec<ContextStep>,
    /// What is remembered from before, as an object.
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
    /// A context with this intent and nothing else.
    pub fn new(intent: impl Into<String>) -> Self {
        Self {
            intent: intent.into(),
            ..Self::default()
        }
    }

    /// Sets the workspace.
    #[must_use]
    pub fn with_workspace(mut self, workspace: WorkspaceView) -> Self {
        self.workspace = workspace;
        self
    }

    /// Sets what is remembered from before.
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
                observation: json!({"ok": !result.is_error(), "output": observed(result)}),
            })
            .collect();
        self
    }
}

fn observed(result: &crate::ToolResult) -> Value {
    result
        .value
        .clone()
        .unwrap_or_else(|| Value::String(result.text().into_owned()))
}

/// Where an agent works, as its context shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkspaceView {
    /// The folder.
    pub root: String,
    /// The files in it, relative to the folder.
    pub files: Vec<String>,
}

impl WorkspaceView {
    /// A folder with these files.
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
pub trait WorkspaceSource: Send + Sync {
    /// The folder and its files as they are now; no files when they cannot be listed. It may read
    /// from the disk, and blocks meanwhile.
    fn view_now(&self) -> WorkspaceView;
}

/// One thing an agent did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContextStep {
    /// Its number, from 1.
    pub step: u64,
    /// The tool and its arguments.
    pub action: Value,
    /// What came of it.
    pub observation: Value,
}
