use std::fmt;

/// Something that whoever sits at the host should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A client came in.
    In {
        /// Its number.
        client: u64,
    },
    /// A client left.
    Out {
        /// Its number.
        client: u64,
        /// Why.
        why: String,
    },
    /// A client wrote a file.
    Wrote {
        /// Its number.
        client: u64,
        /// The file, relative to the workspace.
        path: String,
        /// How long it is.
        bytes: usize,
        /// Whether there was no such file before.
        created: bool,
    },
    /// A client dispatched a task.
    Dispatched {
        /// Its number.
        client: u64,
        /// The task.
        task: String,
        /// The beginning of what it is to do.
        prompt: String,
    },
    /// A task that an earlier process left goes on.
    Resumed {
        /// The task.
        task: String,
    },
    /// A task waits for a person.
    Asks {
        /// The task.
        task: String,
        /// What it asks.
        question: String,
    },
    /// A task has ended.
    Ended {
        /// The task.
        task: String,
        /// How.
        status: String,
        /// The file that shows it, if there is one.
        signal: Option<String>,
    },
    /// Something does not work as it should.
    Problem(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In { client } => write!(f, "client {client} came in"),
            Self::Out { client, why } => write!(f, "client {client} left: {why}"),
            Self::Wrote {
                client,
                path,
                bytes,
                created,
            } => {
                let how = if *created { "made" } else { "changed" };
                write!(f, "client {client} {how} {path} ({bytes} bytes)")
            }
            Self::Dispatched {
                client,
                task,
                prompt,
            } => {
                write!(f, "client {client} dispatched task {task}: {prompt}")
            }
            Self::Resumed { task } => write!(f, "task {task} goes on"),
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
            Self::Problem(words) => f.write_str(words),
        }
    }
}
