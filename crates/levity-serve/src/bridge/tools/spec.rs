use std::time::Duration;

use levity_core::{Hints, ToolSpec};
use serde_json::json;

use super::{MAX_WAIT, What};

impl What {
    pub(super) fn spec(self) -> ToolSpec {
        let (name, about, properties, required): (_, _, _, &[&str]) = match self {
            Self::Read => (
                "read_file",
                "Reads a text file of the host's workspace. Long files are refused; read some \
                    lines of them.",
                json!({
                    "path": {"type": "string", "description": "The file, relative to the \
                        workspace."},
                    "start_line": {"type": "integer", "minimum": 1, "description": "Read from this \
                        line on."},
                    "lines": {"type": "integer", "minimum": 1, "description": "Read so many \
                        lines."},
                }),
                &["path"],
            ),
            Self::Write => (
                "write_file",
                "Writes a file of the host's workspace whole: a new one, or in place of what was \
                    there.",
                json!({
                    "path": {"type": "string", "description": "The file, relative to the \
                        workspace."},
                    "content": {"type": "string", "description": "All that is to be in it."},
                }),
                &["path", "content"],
            ),
            Self::List => (
                "list_files",
                "Lists files of the host's workspace but those that `.gitignore` names, and hidden \
                    ones.",
                json!({
                    "path": {"type": "string", "description": "A folder; default: the workspace \
                        itself."},
                    "recursive": {"type": "boolean", "description": "Whether to list folders below \
                        it, too; default false."},
                    "pattern": {"type": "string", "description": "Only what matches this glob, at \
                        any depth, such as `*.rs` or `DONE_*`."},
                    "hidden": {"type": "boolean", "description": "Whether to list hidden files, \
                        too."},
                    "ignored": {"type": "boolean", "description": "Whether to list ignored files, \
                        too."},
                }),
                &[],
            ),
            Self::Dispatch => (
                "dispatch_agent_task",
                "Hands a whole task to the commander, an agent at the host, and returns at once. \
                    The commander answers only by files that it changes: say in the prompt which \
                    ones you want. A signal file appears when it is done.",
                json!({
                    "prompt": {"type": "string", "description": "What is to be done, complete in \
                        itself."},
                    "done": {"type": "string", "description": "The file that appears when it is \
                        done, such as `DONE_plan`; default `DONE_` and the task's id."},
                }),
                &["prompt"],
            ),
            Self::Status => (
                "task_status",
                "Says how a dispatched task is: running, waiting, done, failed, cancelled or \
                    stopped.",
                json!({"task": {"type": "string", "description": "The task's id."}}),
                &["task"],
            ),
            Self::Wait => (
                "wait_for_file",
                "Waits until a file is there, such as the signal file of a task. Give `path` or \
                    `glob`.",
                json!({
                    "path": {"type": "string", "description": "The file, relative to the \
                        workspace."},
                    "glob": {"type": "string", "description": "Any file that matches, such as \
                        `{DONE_plan,FAILED_*}`."},
                    "timeout": {"type": "number", "minimum": 0, "maximum": MAX_WAIT, "description": "How many seconds to wait at most; default 45."},
                }),
                &[],
            ),
        };
        let input = json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        ToolSpec::new(name, about)
            .with_input(input)
            .with_hints(self.hints())
    }

    fn hints(self) -> Hints {
        match self {
            Self::Write => Hints::new().idempotent(),
            Self::Dispatch => Hints::new(),
            Self::Wait => Hints::new()
                .read_only()
                .timeout(Duration::from_secs_f64(MAX_WAIT + 60.0)),
            Self::Read | Self::List | Self::Status => Hints::new().read_only(),
        }
    }
}
