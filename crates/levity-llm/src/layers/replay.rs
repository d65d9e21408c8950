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

/// Why a recording is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file could not be read.
    #[error("the recording `{path}` could not be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        cause: io::Error,
    },
    /// A line of it is not one of a recording.
    #[error("line {line} of the recording `{path}` cannot be understood; record it again")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What was found.
        #[source]
        cause: serde_json::Error,
    },
    /// It has no calls.
    #[error("the recording `{path}` is empty")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// This request was not recorded.
    #[error("the request was not recorded; the nearest, in line {line}, differs in {}", differs.join(", "))]
    Differs {
        /// The line of the nearest request, from 1.
        line: usize,
        /// Where it differs, such as `history[2].parts[0].text`; a few at most.
        differs: Vec<String>,
    },
    /// This request was recorded, and every reply to it was given already.
    #[error("the request was recorded {times} times and is made once more")]
    UsedUp {
        /// How often it was recorded.
        times: usize,
    },
}

/// Answers from a file that a [`Record`](super::Record) has written.
///
/// A request gets the reply that was recorded for the same request; one that was made several times
/// gets its replies in order. Any other fails with [`BadRequest`](ModelErrorKind::BadRequest),
/// whose source is a [`ReplayError`] that says where it differs from the nearest recorded one. The
/// card is the recorded model's.
pub struct Replay {
    card: ModelCard,
    scrub: Scrub,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: Vec<(usize, Value)>,
    replies: HashMap<String, Replies>,
}

#[derive(Default)]
struct Replies {
    times: usize,
    left: VecDeque<Reply>,
}

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// When the file cannot be read, has no calls, or a line of it cannot be understood.
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
            replies.left.push_back(parsed.reply);
            state.lines.push((line, parsed.request));
        }
        let card = card.ok_or_else(|| ReplayError::Empty { path: path.into() })?;
        Ok(Self {
            card,
            scrub: Scrub::new(),
            state: Mutex::new(state),
        })
    }

    /// Sets what is masked; the same as when it was recorded.
    #[must_use]
    pub fn scrub(mut self, scrub: Scrub) -> Self {
        self.scrub = scrub;
        self
    }

    fn answer(&self, request: &Request) -> Result<Response, ModelError> {
        let request = self.scrub.value(canonical::canonical(request));
        let digest = canonical::key(&self.card, &request);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let error = match state.replies.get_mut(&digest) {
            Some(replies) => match replies.left.pop_front() {
                Some(Reply::Response(response)) => return Ok(response),
                Some(Reply::Error(error)) => return Err(error),
                None => ReplayError::UsedUp {
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
    /// Says where a request differs from the recorded one that is most like it.
    fn nearest(&self, request: &Value) -> ReplayError {
        let compared = self.lines.iter().map(|(line, recorded)| {
            let mut differs = Vec::new();
            compare("", recorded, request, &mut differs);
            (differs.len(), *line, differs)
        });
        let nearest = compared.min_by_key(|(count, ..)| *count);
        let (_, line, mut differs) = nearest.unwrap_or_default();
        differs.truncate(SHOWN);
        ReplayError::Differs {
            line,
            differs: differs.iter().map(|path| format!("`{path}`")).collect(),
        }
    }
}

/// How many differences are looked for, and told.
const LOOKED_FOR: usize = 50;
const SHOWN: usize = 5;

/// Collects the places where two values differ.
fn compare(path: &str, a: &Value, b: &Value, differs: &mut Vec<String>) {
    if a == b || differs.len() >= LOOKED_FOR {
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
