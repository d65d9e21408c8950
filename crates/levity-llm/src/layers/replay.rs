//! The model [`Replay`]: answers requests from a recording, for tests without a provider.
//!
//! Replies are found by the digest of the masked request, so the order of different requests does
//! not matter. A run that changes its prompts fails loudly: the error lists the first differing
//! paths of the nearest recorded request.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    CostBound, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Response,
};
use serde_json::Value;

use super::record::{Line, Reply};
use super::{Scrub, canonical};

/// An error of reading or replaying a recording.
///
/// [`Replay::open`] returns the first three variants. A call returns the other two as the source of
/// a [`ModelError`]:
///
/// ```
/// use levity_core::{Message, Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::{Replay, ReplayError};
/// use levity_test::ScriptedModel;
/// use std::error::Error as _;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("calls.jsonl");
/// let ask = |text: &str| Request::new().with_message(Message::user(text));
/// ScriptedModel::new().reply("blue").record(&path)?.complete(ask("The sky?")).await?;
///
/// let error = Replay::open(&path)?.complete(ask("The sea?")).await.unwrap_err();
/// let source = error.source().unwrap().to_string();
/// assert!(source.contains("in line 1, differs in `history"), "{source}");
/// assert!(matches!(Replay::open("missing.jsonl"), Err(ReplayError::Read { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file could not be read.
    #[error("cannot read the recording `{path}`")]
    Read {
        /// The path of the recording.
        path: PathBuf,
        /// The underlying I/O error.
        #[source]
        cause: io::Error,
    },
    /// A line of the file is not a recorded call.
    #[error("line {line} of the recording `{path}` is invalid; record it again")]
    Line {
        /// The path of the recording.
        path: PathBuf,
        /// The line number, starting at 1.
        line: usize,
        /// The underlying JSON error.
        #[source]
        cause: serde_json::Error,
    },
    /// The recording contains no calls.
    #[error("the recording `{path}` is empty; record it again")]
    Empty {
        /// The path of the recording.
        path: PathBuf,
    },
    /// The request is not in the recording.
    #[error(
        "the request was not recorded; the most similar one, in line {line}, differs in {}",
        differs.join(", ")
    )]
    NotRecorded {
        /// The line of the most similar request, starting at 1.
        line: usize,
        /// The paths that differ, such as `history[2].parts[0].text`; at most a few.
        differs: Vec<String>,
    },
    /// All recorded replies to this request have been used.
    #[error(
        "the request was recorded {times} times, but this run sends it more often; record it \
        again"
    )]
    Exhausted {
        /// The number of times that the request was recorded.
        times: usize,
    },
}

/// Answers requests from a file that a [`Record`](super::Record) has written.
///
/// Each request receives the reply that was recorded for the same request. A request that was
/// recorded several times receives its replies in order. Any other request fails with
/// [`BadRequest`](ModelErrorKind::BadRequest). The error's source is a [`ReplayError`] that lists
/// the differences to the most similar recorded request. The card is that of the recorded model.
///
/// Replay is exact: a request that was recorded twice and is sent three times fails at the third,
/// with [`ReplayError::Exhausted`]. Recorded errors are returned as they were.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Replay;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("calls.jsonl");
/// let live = ScriptedModel::new().reply("first").reply("second").record(&path)?;
/// live.complete(Request::new()).await?;
/// live.complete(Request::new()).await?;
///
/// let replay = Replay::open(&path)?;
/// assert_eq!(replay.complete(Request::new()).await?.message.text(), "first");
/// assert_eq!(replay.complete(Request::new()).await?.message.text(), "second");
/// assert!(replay.complete(Request::new()).await.is_err());
/// # Ok(())
/// # }
/// ```
pub struct Replay {
    card: ModelCard,
    scrub: Scrub,
    state: Mutex<State>,
}

/// The recording in memory: the line number and request of each call, for error messages, and the
/// replies by digest.
#[derive(Default)]
struct State {
    lines: Vec<(usize, Value)>,
    replies: HashMap<String, Replies>,
}

/// The replies to one request that are left, and the number that was recorded.
#[derive(Default)]
struct Replies {
    times: usize,
    remaining: VecDeque<Reply>,
}

impl Replay {
    /// Reads a recording from a file.
    ///
    /// The whole file is read into memory. Empty lines are ignored. The first line determines the
    /// card, so a recording belongs to one model.
    ///
    /// # Errors
    /// Returns [`ReplayError::Read`], [`ReplayError::Line`] or [`ReplayError::Empty`] if the file
    /// cannot be read, has an invalid line, or has no calls.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReplayError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|cause| ReplayError::Read {
            path: path.into(),
            cause,
        })?;
        let (mut state, mut card) = (State::default(), None);
        for (line, text) in (1..)
            .zip(text.lines())
            .filter(|(_, text)| !text.trim().is_empty())
        {
            let parsed: Line = serde_json::from_str(text).map_err(|cause| ReplayError::Line {
                path: path.into(),
                line,
                cause,
            })?;
            card.get_or_insert(parsed.model);
            let replies = state.replies.entry(parsed.digest).or_default();
            replies.times += 1;
            replies.remaining.push_back(parsed.reply);
            state.lines.push((line, parsed.request));
        }
        let card = card.ok_or_else(|| ReplayError::Empty { path: path.into() })?;
        Ok(Self {
            card,
            scrub: Scrub::new(),
            state: Mutex::new(state),
        })
    }

    /// Sets the scrubber that masks secrets; use the one from the recording.
    #[must_use]
    pub fn scrub(mut self, scrub: Scrub) -> Self {
        self.scrub = scrub;
        self
    }

    /// Takes the next recorded reply to a request, or explains why there is none.
    fn answer(&self, request: &Request) -> Result<Response, ModelError> {
        let request = self.scrub.value(canonical::canonical(request));
        let digest = canonical::key(&self.card, &request);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let error = match state.replies.get_mut(&digest) {
            Some(replies) => match replies.remaining.pop_front() {
                Some(Reply::Response(response)) => return Ok(response),
                Some(Reply::Error(error)) => return Err(error),
                None => ReplayError::Exhausted {
                    times: replies.times,
                },
            },
            None => state.nearest(&request),
        };
        let message = "the recording has no reply to this request; record it again";
        Err(ModelError::new(ModelErrorKind::BadRequest, message).with_source(error))
    }
}

impl State {
    /// Finds the most similar recorded request and lists the differences to it.
    ///
    /// Requests are compared by the number of differing leaves, up to 50 per request. Of equally
    /// similar requests, the first one is reported.
    fn nearest(&self, request: &Value) -> ReplayError {
        let compared = self.lines.iter().map(|(line, recorded)| {
            let mut differs = Vec::new();
            compare("", recorded, request, &mut differs);
            (differs.len(), *line, differs)
        });
        let nearest = compared.min_by_key(|(count, ..)| *count);
        let (_, line, mut differs) = nearest.unwrap_or_default();
        differs.truncate(MAX_REPORTED);
        ReplayError::NotRecorded {
            line,
            differs: differs.iter().map(|path| format!("`{path}`")).collect(),
        }
    }
}

/// The number of differences that are counted and reported.
const MAX_COUNTED: usize = 50;
const MAX_REPORTED: usize = 5;

/// Collects the paths at which two values differ.
///
/// A key that only one side has counts as one difference, with null on the other side. Paths look
/// like `history[2].parts[0].text`.
fn compare(path: &str, a: &Value, b: &Value, differs: &mut Vec<String>) {
    if a == b || differs.len() >= MAX_COUNTED {
        return;
    }
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                let inner = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                compare(
                    &inner,
                    a.get(key).unwrap_or(&Value::Null),
                    b.get(key).unwrap_or(&Value::Null),
                    differs,
                );
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for at in 0..a.len().max(b.len()) {
                let (a, b) = (
                    a.get(at).unwrap_or(&Value::Null),
                    b.get(at).unwrap_or(&Value::Null),
                );
                compare(&format!("{path}[{at}]"), a, b, differs);
            }
        }
        _ => differs.push(path.to_owned()),
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for Replay {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.answer(&request)
            .map(|response| Deltas::from_response(&response))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.answer(&request)
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        CostBound::of(&self.card, request)
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("model", &self.card.id)
            .finish_non_exhaustive()
    }
}

impl From<ReplayError> for levity_core::Error {
    fn from(error: ReplayError) -> Self {
        Self::other(error)
    }
}
