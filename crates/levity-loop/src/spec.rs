//! The settings that the machine of an agent depends on.
//!
//! They are separate from the executor, because a replay needs them without models and tools. Their
//! fingerprints are stored with each run, so that a divergence can name the setting that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Digest, Options, ToolChoice, WorkspaceSource, WorkspaceView};
use levity_memory::Window;
use levity_tools::ArgumentValidator;

use crate::result_reader;
use crate::strategy::{LowBudgetAction, NoPlan, NoReflection, Planner, Reflector};

/// A tool by which the model sends a signal to the caller of the run.
#[derive(Clone, Debug)]
pub(crate) struct SignalTool {
    pub(crate) arguments: ArgumentValidator,
    /// `true` if it ends the run.
    pub(crate) is_last: bool,
}

/// The settings of an agent's machine, the same for all its runs.
#[derive(Clone)]
pub(crate) struct AgentSpec {
    pub(crate) instructions: Option<Arc<str>>,
    pub(crate) max_turns: u64,
    pub(crate) max_calls: usize,
    pub(crate) single_tool: bool,
    pub(crate) has_tools: bool,
    pub(crate) output_retries: u32,
    pub(crate) options: Arc<Options>,
    /// The tool that the first turn may or must call.
    pub(crate) tool_choice: ToolChoice,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) reflector: Arc<dyn Reflector>,
    /// Agents that are called like tools and run as children.
    pub(crate) delegates: BTreeSet<String>,
    pub(crate) workspace: WorkspaceView,
    /// The source of the workspace's files, unless the workspace was given.
    pub(crate) workspace_source: Option<Arc<dyn WorkspaceSource>>,
    /// The reaction once little remains of a limit.
    pub(crate) when_low: LowBudgetAction,
    /// The maximum time that the model may wait at once, if it may wait.
    pub(crate) longest_wait: Option<Duration>,
    /// `true` if the model may ask the user.
    pub(crate) asks_user: bool,
    /// `true` if the model can end the run by a tool.
    pub(crate) finishes: bool,
    /// The tools that are signals.
    pub(crate) signals: BTreeMap<String, SignalTool>,
    /// The window of a run without a conversation.
    pub(crate) window: Window,
    /// The window of a run in a conversation.
    pub(crate) talk_window: Window,
    /// `true` if a model is asked for summaries, and the maximum tokens of the text that it
    /// summarises.
    pub(crate) summaries: bool,
    pub(crate) summary_room: u64,
    /// The approximate number of tokens of the tools.
    pub(crate) tool_tokens: u64,
    /// The name of the tool that reads earlier results.
    pub(crate) reader: &'static str,
    /// The number of bytes of a result that it reads at a time.
    pub(crate) max_piece: usize,
    /// The name of the tool that finds others, if not all are offered.
    pub(crate) finder: Option<&'static str>,
}

impl AgentSpec {
    /// Returns the fingerprints of the settings that can be distinguished, by name.
    pub(crate) fn settings(&self) -> Vec<(String, Digest)> {
        let turns = Digest::of(&(
            self.max_turns,
            self.max_calls,
            self.single_tool,
            self.output_retries,
        ));
        let mut settings = vec![
            (
                "the instructions".to_owned(),
                Digest::of(&self.instructions),
            ),
            ("the limits of a turn".to_owned(), turns),
            ("the options".to_owned(), Digest::of(&self.options)),
            (
                "the choice of a tool".to_owned(),
                Digest::of(&self.tool_choice),
            ),
            (
                "the agents it hands work to".to_owned(),
                Digest::of(&self.delegates),
            ),
        ];
        if !self.signals.is_empty() {
            let signals: Vec<_> = self
                .signals
                .iter()
                .map(|(name, tool)| (name, tool.is_last))
                .collect();
            settings.push(("the signals".to_owned(), Digest::of(&signals)));
        }
        settings
    }
}

impl Default for AgentSpec {
    fn default() -> Self {
        Self {
            instructions: None,
            max_turns: 10,
            max_calls: 64,
            single_tool: false,
            has_tools: false,
            output_retries: 2,
            options: Arc::default(),
            tool_choice: ToolChoice::Auto,
            planner: Arc::new(NoPlan),
            reflector: Arc::new(NoReflection),
            delegates: BTreeSet::new(),
            workspace: WorkspaceView::default(),
            workspace_source: None,
            longest_wait: None,
            asks_user: false,
            finishes: false,
            signals: BTreeMap::new(),
            window: Window::new().all_messages(),
            talk_window: Window::new(),
            summaries: true,
            summary_room: 8_000,
            tool_tokens: 0,
            reader: result_reader::RESERVED_NAME,
            max_piece: 32 << 10,
            finder: None,
            when_low: LowBudgetAction::default(),
        }
    }
}

impl fmt::Debug for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSpec")
            .field("max_turns", &self.max_turns)
            .finish_non_exhaustive()
    }
}
