use std::io;

/// Why a path of a workspace cannot be used.
///
/// The path in it is the one that was asked for, never one that a link leads to. What lies outside
/// the workspace gives the same error whether it is there or not, and so does what nobody may
/// touch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It leads out of the workspace, by `..`, from `/` or by a link.
    #[error("`{0}` leads out of the workspace; use a path below its folder, such as `src/main.rs`")]
    Outside(String),
    /// It is one of those that nobody may touch.
    #[error(
        "`{0}` is kept from tools, as keys, secrets and the insides of version control are; do \
            without it"
    )]
    Denied(String),
    /// There is nothing of this name.
    #[error("there is no `{0}`; list the folder above it to see what is there")]
    NotFound(String),
    /// It is there, and it is no file that can be read or written: a folder, a device, a pipe or a
    /// socket.
    #[error("`{0}` is no regular file; use the path of one")]
    NotAFile(String),
    /// It is no folder, or something on the way to it is none.
    #[error("`{0}` is no folder or leads through a file; use the path of a folder")]
    NotADirectory(String),
    /// Something of this name is there already.
    #[error("`{0}` is there already; use another name, or remove it first")]
    Exists(String),
    /// The folder is not empty.
    #[error("the folder `{0}` is not empty; remove what is in it first")]
    NotEmpty(String),
    /// The file is longer than may be read at once.
    #[error("`{path}` has {size} bytes, and at most {max} may be read at once; read a part of it")]
    TooLarge {
        /// The file.
        path: String,
        /// How long it is.
        size: u64,
        /// How long it may be.
        max: u64,
    },
    /// The workspace is open for reading only.
    #[error("`{0}` may not be changed: the workspace is read-only")]
    ReadOnly(String),
    /// The file itself may not be written.
    #[error("`{0}` may not be changed: the file is marked read-only; write to another one")]
    Locked(String),
    /// The file has several names, and one of them may lie outside.
    #[error(
        "`{0}` has several hard links and may be shared with a place outside; work on a copy of it"
    )]
    HardLink(String),
    /// It is no path that a workspace can use.
    #[error("`{path}` cannot be used as a path: {reason}")]
    Invalid {
        /// The path; its beginning if it is long.
        path: String,
        /// What is wrong with it, and the way out.
        reason: &'static str,
    },
    /// Somebody else is changing what the path leads to.
    #[error("`{0}` is being changed by somebody else; try again")]
    Busy(String),
    /// The system refused.
    #[error("`{path}` cannot be used now")]
    Io {
        /// The path.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A glob that says what is denied or allowed does not parse.
    #[error("the glob `{glob}` of the workspace does not parse; mend or remove it")]
    Glob {
        /// The glob.
        glob: String,
        /// What is wrong with it.
        #[source]
        source: globset::Error,
    },
    /// This system has no way to open files relative to a folder.
    #[error(
        "a workspace needs a Unix system; on this one files cannot be opened safely below a folder"
    )]
    Unsupported,
}

impl PathError {
    /// Whether the same call may succeed later by itself.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy(_) => true,
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy
                )
            }
            _ => false,
        }
    }

    pub(super) fn invalid(path: &str, reason: &'static str) -> Self {
        Self::Invalid {
            path: short(path),
            reason,
        }
    }
}

/// As much of a path as an error shows.
fn short(path: &str) -> String {
    const MOST: usize = 120;
    match path.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &path[..at]),
        None => path.to_owned(),
    }
}

impl From<PathError> for levity_core::Error {
    fn from(error: PathError) -> Self {
        Self::other(error)
    }
}
