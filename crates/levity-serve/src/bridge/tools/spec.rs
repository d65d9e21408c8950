//! Names, descriptions and schemas of the bridge tools, as models read them. Descriptions say what
//! to do next, because a model sees nothing else of the bridge.

use std::time::Duration;

use levity_core::{Hints, ToolSpec};
use serde_json::json;

use super::{BridgeToolKind, MAX_WAIT};

impl BridgeToolKind {
    pub(super) fn spec(self) -> ToolSpec {
        let (name, description, properties, required): (_, _, _, &[&str]) = match self {
            Self::Read => (
                "read_file",
                "Reads a text file of the host's workspace. Long files are rejected; read some \
                    lines of them.",
                json!({
                    "path": {"type": "string", "description": "The file, relative to the \
                        workspace."},
                    "start_line": {"type": "integer", "minimum": 1, "description": "The first line \
                        to read."},
                    "lines": {"type": "integer", "minimum": 1, "description": "The number of lines \
                        to read."},
                }),
                &["path"],
            ),
            Self::Write => (
                "write_file",
                "Writes a whole file of the host's workspace: creates it, or replaces its content.",
                json!({
                    "path": {"type": "string", "description": "The file, relative to the \
                        workspace."},
                    "content": {"type": "string", "description": "The complete content of the \
                        file."},
                }),
                &["path", "content"],
            ),
            Self::List => (
                "list_files",
                "Lists files of the host's workspace, except hidden ones and those that \
                    `.gitignore` names.",
                json!({
                    "path": {"type": "string", "description": "A folder; default: the workspace \
                        itself."},
                    "recursive": {"type": "boolean", "description": "If true, also lists \
                        subfolders; default false."},
                    "pattern": {"type": "string", "description": "Only files that match this glob, \
                        at any depth, such as `*.rs` or `DONE_*`."},
                    "hidden": {"type": "boolean", "description": "If true, also lists hidden \
                        files."},
                    "ignored": {"type": "boolean", "description": "If true, also lists ignored \
                        files."},
                }),
                &[],
            ),
            Self::Dispatch => (
                "dispatch_agent_task",
                "Hands a whole task to the commander, an agent at the host, and returns at once. \
                    The commander answers only through the files that it changes: say in the \
                    prompt which ones you want. A signal file appears when it is done.",
                json!({
                    "prompt": {"type": "string", "description": "The task, complete in itself."},
                    "done": {"type": "string", "description": "The file that appears when it is \
                        done, such as `DONE_plan`; default `DONE_` and the task's id."},
                }),
                &["prompt"],
            ),
            Self::Status => (
                "task_status",
                "Returns the status of a dispatched task: running, waiting, done, failed, \
                    cancelled or stopped.",
                json!({"task": {"type": "string", "description": "The task's id."}}),
                &["task"],
            ),
            Self::Wait => (
                "wait_for_file",
                "Waits until a file exists, such as the signal file of a task. Pass `path` or \
                    `glob`.",
                json!({
                    "path": {"type": "string", "description": "The file, relative to the \
                        workspace."},
                    "glob": {"type": "string", "description": "Any file that matches, such as \
                        `{DONE_plan,FAILED_*}`."},
                    "timeout": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": MAX_WAIT,
                        "description": "The maximum number of seconds to wait; default 45.",
                    },
                }),
                &[],
            ),
        };
        let input = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        ToolSpec::new(name, description)
            .with_input(input)
            .with_hints(self.hints())
    }

    /// A write is idempotent, because it replaces the whole file. A dispatch is not: each call gets
    /// a new id.
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
