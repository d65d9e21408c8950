use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Digest, Options, ToolChoice, WorkspaceSource, WorkspaceView};
use levity_memory::Window;
use levity_tools::Arguments;

use crate::reads;
use crate::strategy::{Low, NoPlan, NoReflection, Planner, Reflector};

/// A tool by which the model tells something to whoever runs it.
#[derive(Clone, Debug)]
pub(crate) struct SignalTool {
    pub(crate) arguments: Arguments,
    /// Whether the run ends with it.
    pub(crate) is_last: bool,
}

/// What an agent's machine goes by, the same for all its runs.
#[derive(Clone)]
pub(crate) struct AgentSpec {
    pub(crate) instructions: Option<Arc<str>>,
    pub(crate) max_turns: u64,
    pub(crate) max_calls: usize,
    pub(crate) single_tool: bool,
    pub(crate) has_tools: bool,
    pub(crate) output_retries: u32,
    pub(crate) options: Arc<Options>,
    /// Which tool the first turn may or must call.
    pub(crate) tool_choice: ToolChoice,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) reflector: Arc<dyn Reflector>,
    /// Agents that are called like tools and run as children.
    pub(crate) delegates: BTreeSet<String>,
    pub(crate) workspace: WorkspaceView,
    /// What lists the files of the workspace, where nobody said what is in it.
    pub(crate) workspace_source: Option<Arc<dyn WorkspaceSource>>,
    /// What to do once little is left.
    pub(crate) when_low: Low,
    /// How long the model may wait at a time, if it may.
    pub(crate) longest_wait: Option<Duration>,
    /// Whether the model may ask the user.
    pub(crate) asks_user: bool,
    /// Whether the model ends the run by a tool.
    pub(crate) finishes: bool,
    /// The tools that are signals.
    pub(crate) signals: BTreeMap<String, SignalTool>,
    /// How much the model is shown.
    pub(crate) window: Window,
    /// How much it is shown in a conversation.
    pub(crate) talk_window: Window,
    /// Whether a model is asked for summaries, and of how many tokens it may make one.
    pub(crate) summaries: bool,
    pub(crate) summary_room: u64,
    /// About how many tokens the tools have.
    pub(crate) tool_tokens: u64,
    /// What the tool that reads earlier results is called.
    pub(crate) reader: &'static str,
    /// How many bytes of a result it reads at a time.
    pub(crate) max_piece: usize,
    /// What the tool that finds others is called, where not all are offered.
    pub(crate) finder: Option<&'static str>,
}

impl AgentSpec {
    /// Fingerprints of what can be told apart, by name.
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
            reader: reads::OWN,
            max_piece: 32 << 10,
            finder: None,
            when_low: Low::default(),
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
