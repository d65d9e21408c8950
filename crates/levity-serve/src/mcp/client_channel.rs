//! The channel between the work for one request and its client.
//!
//! The work and the request run at different speeds, and after a question the next request of the
//! client takes over. The channel separates them: the work holds [`ClientChannel`], the current
//! request holds [`WorkInbox`]. Questions wait for a place in the queue; notifications are dropped
//! when it is full.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_rpc::mcp::InputRequest;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::ask::{AskError, AskErrorKind};
use super::client::{ClientAbilities, ClientInfo, ClientLogLevel};

/// The maximum number of questions that wait to be sent to the client; further ones wait.
const MAX_QUESTIONS: usize = 32;

/// The maximum number of unsent notifications. Further ones are dropped, because late ones are
/// useless.
const MAX_NOTIFICATIONS: usize = 256;

/// The sending side, which the work uses.
pub(super) struct ClientChannel {
    asks: mpsc::Sender<Question>,
    notifications: mpsc::Sender<ClientNotification>,
    early_answers: Mutex<BTreeMap<String, Value>>,
    /// The last reported progress, as the bits of a float.
    progress: AtomicU64,
    /// The minimum level of log messages; shared with the session if the session has one level.
    pub(super) level: Arc<AtomicU8>,
    /// Receives the wish of the work to continue as a task; closed if it cannot.
    task: mpsc::Sender<oneshot::Sender<()>>,
    pub(super) capabilities: ClientAbilities,
    pub(super) info: Option<ClientInfo>,
}

/// The receiving side, which the request uses.
pub(super) struct WorkInbox {
    pub(super) asks: mpsc::Receiver<Question>,
    pub(super) notifications: mpsc::Receiver<ClientNotification>,
    pub(super) task: mpsc::Receiver<oneshot::Sender<()>>,
}

/// A question for the client.
pub(super) struct Question {
    pub(super) name: Option<Arc<str>>,
    /// Boxed, so that a queue of questions is small: most calls ask none.
    pub(super) request: Box<InputRequest>,
    pub(super) reply: oneshot::Sender<Result<Value, AskError>>,
}

/// A notification for the client.
#[derive(Debug)]
pub(super) enum ClientNotification {
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

impl ClientChannel {
    pub(super) fn new(
        capabilities: ClientAbilities,
        info: Option<ClientInfo>,
        level: Arc<AtomicU8>,
        early_answers: BTreeMap<String, Value>,
        can_become_task: bool,
    ) -> (Arc<Self>, WorkInbox) {
        let (asks, asked) = mpsc::channel(MAX_QUESTIONS);
        let (notifications, noted) = mpsc::channel(MAX_NOTIFICATIONS);
        let early_answers = Mutex::new(early_answers);
        let (task, mut task_requests) = mpsc::channel(1);
        if !can_become_task {
            task_requests.close();
        }
        let channel = Self {
            asks,
            notifications,
            early_answers,
            progress: AtomicU64::new(0),
            level,
            task,
            capabilities,
            info,
        };
        (
            Arc::new(channel),
            WorkInbox {
                asks: asked,
                notifications: noted,
                task: task_requests,
            },
        )
    }

    /// Sends a question to the client, and waits for its answer.
    pub(super) async fn ask(
        &self,
        name: Option<Arc<str>>,
        request: InputRequest,
    ) -> Result<Value, AskError> {
        // A client that knows the question may have answered it in advance.
        if let Some(answer) = name
            .as_ref()
            .and_then(|name| self.early_answers().remove(&**name))
        {
            return Ok(answer);
        }
        let (reply, answer) = oneshot::channel();
        let asked = Question {
            name,
            request: Box::new(request),
            reply,
        };
        self.asks.send(asked).await.map_err(|_| AskError::gone())?;
        answer.await.map_err(|_| AskError::gone())?
    }

    /// Waits until the work continues as a task; returns at once if it cannot become one.
    pub(super) async fn become_task(&self) {
        let (done, became) = oneshot::channel();
        if self.task.send(done).await.is_ok() {
            let _ = became.await;
        }
    }

    /// Sends a notification, unless too many are pending.
    pub(super) fn notify(&self, notification: ClientNotification) {
        let _ = self.notifications.try_send(notification);
    }

    /// Reports progress. The value never decreases.
    ///
    /// Without a value, each report counts as one step. The last value is stored as bits in an
    /// atomic, so that reports from several threads stay in order.
    pub(super) fn progress(&self, done: Option<f64>, total: Option<f64>, text: Option<String>) {
        let step = |last: u64| {
            let last = f64::from_bits(last);
            Some(done.unwrap_or(last + 1.0).max(last).to_bits())
        };
        let last = self
            .progress
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        let done = last.ok().and_then(step).map_or(0.0, f64::from_bits);
        self.notify(ClientNotification::Progress { done, total, text });
    }

    /// Returns `true` if the client wants messages of this level. A level above all others turns
    /// messages off.
    pub(super) fn is_enabled(&self, level: ClientLogLevel) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    fn early_answers(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.early_answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// Delivers the client's answer, which is an object in every version.
    pub(super) fn answer(self, answer: Value) {
        let answer = match answer.is_object() {
            true => Ok(answer),
            false => Err(AskError::new(
                AskErrorKind::BadAnswer,
                "the client's answer is not a JSON object",
            )),
        };
        // The work may have stopped waiting.
        let _ = self.reply.send(answer);
    }
}
