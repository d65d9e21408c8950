//! Notices for the operator of a host, as `levity bridge host` prints them.

use std::fmt;

/// A notice for the operator of a host.
///
/// Prompts are cut to 80 characters. Notices contain paths and prompts, so treat them as
/// confidential.
///
/// ```
/// use levity_serve::bridge::Notice;
/// let notice = Notice::Ended {
///     task: "t1".to_owned(),
///     status: "complete".to_owned(),
///     signal: Some("DONE_t1".to_owned()),
/// };
/// assert_eq!(notice.to_string(), "task t1 ended (complete): DONE_t1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A client connected to the host.
    In {
        /// The number of the client.
        client: u64,
    },
    /// A client disconnected from the host.
    Out {
        /// The number of the client.
        client: u64,
        /// The reason of the disconnect.
        why: String,
    },
    /// A client wrote a file.
    Wrote {
        /// The number of the client.
        client: u64,
        /// The file, relative to the workspace.
        path: String,
        /// The size of the file in bytes.
        bytes: usize,
        /// `true` if the file did not exist before.
        created: bool,
    },
    /// A client dispatched a task.
    Dispatched {
        /// The number of the client.
        client: u64,
        /// The id of the task.
        task: String,
        /// The beginning of the prompt.
        prompt: String,
    },
    /// A task of an earlier process was resumed.
    Resumed {
        /// The id of the task.
        task: String,
    },
    /// A task waits for a decision of a person.
    Asks {
        /// The id of the task.
        task: String,
        /// The question of the task.
        question: String,
    },
    /// A task has ended.
    Ended {
        /// The id of the task.
        task: String,
        /// The status of the ended task.
        status: String,
        /// The signal file, if there is one.
        signal: Option<String>,
    },
    /// A problem that the operator should know.
    Problem(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In { client } => write!(f, "client {client} connected"),
            Self::Out { client, why } => write!(f, "client {client} disconnected: {why}"),
            Self::Wrote {
                client,
                path,
                bytes,
                created,
            } => {
                let action = if *created { "created" } else { "changed" };
                write!(f, "client {client} {action} {path} ({bytes} bytes)")
            }
            Self::Dispatched {
                client,
                task,
                prompt,
            } => {
                write!(f, "client {client} dispatched task {task}: {prompt}")
            }
            Self::Resumed { task } => write!(f, "task {task} resumed"),
            Self::Asks { task, question } => {
                write!(f, "task {task} waits for a decision: {question}")
            }
            Self::Ended {
                task,
                status,
                signal: Some(signal),
            } => {
                write!(f, "task {task} ended ({status}): {signal}")
            }
            Self::Ended {
                task,
                status,
                signal: None,
            } => write!(f, "task {task} ended ({status})"),
            Self::Problem(message) => f.write_str(message),
        }
    }
}
