//! Where the work for one request leaves what it wants the client to know or to answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_rpc::mcp::InputRequest;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::ask::{AskError, AskErrorKind};
use super::client::{ClientAbilities, ClientInfo, ClientLogLevel};

/// How many questions wait to be put to the client; more wait for their turn.
const ASKS: usize = 32;

/// How much the client has not been told yet. What comes beside that is left out: it is of no use
/// late.
const NOTES: usize = 256;

/// One side: the work's.
pub(super) struct Desk {
    asks: mpsc::Sender<Asked>,
    notes: mpsc::Sender<Note>,
    early: Mutex<BTreeMap<String, Value>>,
    /// The last progress that was told, as the bits of a float.
    progress: AtomicU64,
    /// Below this level nothing is told; shared with the session where it has one for all.
    pub(super) level: Arc<AtomicU8>,
    /// Told when the work wants to go on as a task; nobody listens where it cannot.
    task: mpsc::Sender<oneshot::Sender<()>>,
    pub(super) able: ClientAbilities,
    pub(super) info: Option<ClientInfo>,
}

/// The other side: the request's.
pub(super) struct Inbox {
    pub(super) asks: mpsc::Receiver<Asked>,
    pub(super) notes: mpsc::Receiver<Note>,
    pub(super) task: mpsc::Receiver<oneshot::Sender<()>>,
}

/// A question for the client.
pub(super) struct Asked {
    pub(super) name: Option<Arc<str>>,
    /// Aside, so that a queue of questions is small: nearly always nobody asks any.
    pub(super) request: Box<InputRequest>,
    pub(super) reply: oneshot::Sender<Result<Value, AskError>>,
}

/// Word for the client.
#[derive(Debug)]
pub(super) enum Note {
    Log {
        level: ClientLogLevel,
        logger: Option<String>,
        data: Value,
    },
    Progress {
        done: f64,
        total: Option<f64>,
        text: Option<String>,
    },
}

impl Desk {
    pub(super) fn new(
        able: ClientAbilities,
        info: Option<ClientInfo>,
        level: Arc<AtomicU8>,
        early: BTreeMap<String, Value>,
        can_become_task: bool,
    ) -> (Arc<Self>, Inbox) {
        let (asks, asked) = mpsc::channel(ASKS);
        let (notes, noted) = mpsc::channel(NOTES);
        let early = Mutex::new(early);
        let (task, mut wanted) = mpsc::channel(1);
        if !can_become_task {
            wanted.close();
        }
        let desk = Self {
            asks,
            notes,
            early,
            progress: AtomicU64::new(0),
            level,
            task,
            able,
            info,
        };
        (
            Arc::new(desk),
            Inbox {
                asks: asked,
                notes: noted,
                task: wanted,
            },
        )
    }

    /// Puts a question to the client, and waits for its answer.
    pub(super) async fn ask(
        &self,
        name: Option<Arc<str>>,
        request: InputRequest,
    ) -> Result<Value, AskError> {
        // A client that knows what it will be asked may say it beforehand.
        if let Some(answer) = name.as_ref().and_then(|name| self.early().remove(&**name)) {
            return Ok(answer);
        }
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            name,
            request: Box::new(request),
            reply,
        };
        self.asks.send(asked).await.map_err(|_| AskError::gone())?;
        answer.await.map_err(|_| AskError::gone())?
    }

    /// Waits until the work goes on as a task; returns at once where it cannot become one.
    pub(super) async fn become_task(&self) {
        let (done, became) = oneshot::channel();
        if self.task.send(done).await.is_ok() {
            let _ = became.await;
        }
    }

    /// Leaves word, unless there is too much already.
    pub(super) fn note(&self, note: Note) {
        let _ = self.notes.try_send(note);
    }

    /// How far the work is. It only ever grows.
    pub(super) fn progress(&self, done: Option<f64>, total: Option<f64>, text: Option<String>) {
        let step = |last: u64| {
            let last = f64::from_bits(last);
            Some(done.unwrap_or(last + 1.0).max(last).to_bits())
        };
        let last = self
            .progress
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        let done = last.ok().and_then(step).map_or(0.0, f64::from_bits);
        self.note(Note::Progress { done, total, text });
    }

    pub(super) fn tells(&self, level: ClientLogLevel) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    fn early(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Hands over what the client said; the answer to a question is an object in every version.
    pub(super) fn answer(self, answer: Value) {
        let answer = match answer.is_object() {
            true => Ok(answer),
            false => Err(AskError::new(
                AskErrorKind::BadAnswer,
                "the client's answer is no object",
            )),
        };
        // Who asked may have stopped waiting.
        let _ = self.reply.send(answer);
    }
}
