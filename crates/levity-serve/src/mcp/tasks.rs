//! Calls that continue as tasks: the client polls them, answers their questions and cancels them
//! (SEP-2663).
//!
//! A task runs on the server, not in a request. Its driver executes the work and the commands of
//! the client, one at a time, and keeps the result until the end of the task's lifetime. Tasks do
//! not survive a restart. Ids have 128 random bits, and a task is reachable only by the token that
//! started it and by the owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{Timestamp, World};
use levity_rpc::mcp::{
    CallToolResponse, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, InputResponses,
    JsonObject, Task, TaskPayload, TaskStatus,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::client_channel::ClientNotification;
use super::work::{CallWork, Event, Outcome, Product};
use super::{RequestError, wire};
use crate::access::{Caller, TokenScope};
use crate::quota::{Permit, Quota};

/// The polling interval that clients are asked to use.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of pending requests about one task.
const MAX_COMMANDS: usize = 16;
/// The maximum length of a stored status message, in characters.
const MAX_STATUS_MESSAGE: usize = 512;

/// Controls how calls of a [`Handler`](super::Handler) use tasks.
///
/// A client that supports tasks (`io.modelcontextprotocol/tasks`, since protocol 2026-07-28) gets
/// the id of a task instead of waiting for the result, and may lose its connection in the meantime.
/// Clients of older versions always wait.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::ToolSpec;
/// use levity_serve::mcp::{Handler, HandlerCall, HandlerReply, RequestError, TaskSupport};
///
/// struct Report(ToolSpec);
///
/// #[async_trait]
/// impl Handler for Report {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     fn task_support(&self) -> TaskSupport {
///         TaskSupport::Optional // takes minutes, so clients should not have to wait
///     }
///
///     async fn call(&self, _: HandlerCall) -> Result<HandlerReply, RequestError> {
///         Ok(HandlerReply::text("All is well."))
///     }
/// }
/// assert_eq!(TaskSupport::default(), TaskSupport::Forbidden);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskSupport {
    /// Every client waits for the result.
    #[default]
    Forbidden,
    /// Clients that support tasks get one.
    Optional,
    /// Clients that support tasks get one, and others on protocol 2026-07-28 are rejected.
    Required,
    /// Same as [`Required`](Self::Required), but a call becomes a task only when its handler calls
    /// [`Client::become_task`](super::Client::become_task). Earlier questions are part of the
    /// result of the call.
    Deferred,
}

impl TaskSupport {
    /// Returns `true` if a client that does not support tasks is rejected.
    pub(super) fn is_required(self) -> bool {
        matches!(self, Self::Required | Self::Deferred)
    }

    /// Returns `true` if a call is a task from its beginning.
    pub(super) fn is_immediate(self) -> bool {
        matches!(self, Self::Optional | Self::Required)
    }
}

/// All tasks of a server.
pub(super) struct Tasks {
    world: Arc<dyn World>,
    quota: Arc<Quota>,
    lifetime: Duration,
    all: Mutex<HashMap<String, Entry>>,
    /// Drives the tasks. Each driver ends when its task is removed.
    drivers: Mutex<JoinSet<()>>,
}

struct Entry {
    /// The caller that started the task. Only this caller's token and the owner's reach it.
    caller: Caller,
    _permit: Permit,
    state: Arc<Mutex<State>>,
    commands: mpsc::Sender<Command>,
}

struct State {
    task: Task,
    payload: TaskPayload,
}

/// A request about a task, which is acknowledged once it has been executed.
enum Command {
    Answer(InputResponses, oneshot::Sender<()>),
    Cancel(oneshot::Sender<()>),
}

impl Tasks {
    pub(super) fn new(world: Arc<dyn World>, quota: Arc<Quota>, lifetime: Duration) -> Arc<Self> {
        Arc::new(Self {
            world,
            quota,
            lifetime,
            all: Mutex::default(),
            drivers: Mutex::default(),
        })
    }

    /// Continues a call as a task.
    ///
    /// # Errors
    /// Fails if there are too many tasks already, of this caller or in total.
    pub(super) fn start(
        self: &Arc<Self>,
        caller: Caller,
        call: CallWork,
    ) -> Result<CallToolResponse, RequestError> {
        let id = new_id().ok_or_else(|| {
            RequestError::failed(
                "cannot create a task id: the system provides no \
                randomness",
            )
        })?;
        let now = self.world.now();
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        let task = Task::new(&id, TaskStatus::Working, now.to_string(), now.to_string())
            .with_ttl_ms(lifetime)
            .with_poll_interval_ms(u64::try_from(POLL_INTERVAL.as_millis()).unwrap_or(u64::MAX));
        let state = Arc::new(Mutex::new(State {
            task: task.clone(),
            payload: TaskPayload::Working,
        }));
        let (commands, receiver) = mpsc::channel(MAX_COMMANDS);
        let full = |_| {
            RequestError::busy(
                "too many tasks are running or retained; try again \
            later",
            )
        };
        let permit = self.quota.take(&caller).map_err(full)?;
        self.all().insert(
            id.clone(),
            Entry {
                caller,
                _permit: permit,
                state: state.clone(),
                commands,
            },
        );
        let driver = Driver {
            tasks: Arc::downgrade(self),
            world: self.world.clone(),
            state,
        };
        let mut drivers = lock(&self.drivers);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(driver.run(id, call, receiver, self.lifetime));
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    /// Returns the state of a task.
    ///
    /// # Errors
    /// Fails if there is no such task.
    pub(super) fn get(&self, caller: &Caller, id: &str) -> Result<GetTaskResult, RequestError> {
        let state = self.find(caller, id, |entry| entry.state.clone())?;
        let state = lock(&state);
        Ok(GetTaskResult::new(DetailedTask::new(
            state.task.clone(),
            state.payload.clone(),
        )))
    }

    /// Delivers the client's answers to a task.
    ///
    /// # Errors
    /// Fails if there is no such task, or if an answer is not an object.
    pub(super) async fn update(
        &self,
        caller: &Caller,
        id: &str,
        answers: InputResponses,
    ) -> Result<(), RequestError> {
        if answers.values().any(|answer| !answer.is_object()) {
            return Err(RequestError::invalid(
                "an answer in `inputResponses` is not a JSON object",
            ));
        }
        self.command(caller, id, |done| Command::Answer(answers, done))
            .await
    }

    /// Cancels a task; one that has ended does not change.
    ///
    /// # Errors
    /// Fails if there is no such task.
    pub(super) async fn cancel(&self, caller: &Caller, id: &str) -> Result<(), RequestError> {
        self.command(caller, id, Command::Cancel).await
    }

    async fn command(
        &self,
        caller: &Caller,
        id: &str,
        command: impl FnOnce(oneshot::Sender<()>) -> Command,
    ) -> Result<(), RequestError> {
        let commands = self.find(caller, id, |entry| entry.commands.clone())?;
        let (done, executed) = oneshot::channel();
        // A driver whose time is over accepts no commands, and its task is about to be removed.
        if commands.send(command(done)).await.is_ok() {
            let _ = executed.await;
        }
        Ok(())
    }

    /// Reads something from a task that this caller may reach.
    fn find<T>(
        &self,
        caller: &Caller,
        id: &str,
        take: impl FnOnce(&Entry) -> T,
    ) -> Result<T, RequestError> {
        let all = self.all();
        let may_reach = |entry: &&Entry| {
            caller.has_scope(TokenScope::Admin) || entry.caller.name() == caller.name()
        };
        all.get(id)
            .filter(may_reach)
            .map(take)
            .ok_or_else(|| unknown(id))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.all)
    }
}

/// Drives one task until the end of its lifetime.
///
/// It ends when the lifetime of the task is over, and removes the task.
struct Driver {
    tasks: std::sync::Weak<Tasks>,
    world: Arc<dyn World>,
    state: Arc<Mutex<State>>,
}

impl Driver {
    async fn run(
        self,
        id: String,
        call: CallWork,
        mut commands: mpsc::Receiver<Command>,
        lifetime: Duration,
    ) {
        let end = self.world.sleep(lifetime);
        tokio::select! {
            () = self.drive(call, &mut commands) => {}
            () = end => {}
        }
        drop(commands);
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.all().remove(&id);
        }
    }

    /// Drives the call to its end, and executes commands for as long as the task is retained.
    async fn drive(&self, call: CallWork, commands: &mut mpsc::Receiver<Command>) {
        let mut call = Some(call);
        loop {
            let event = async {
                match &mut call {
                    Some(call) => call.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(command) = commands.recv() => match command {
                    Command::Cancel(done) => {
                        // Dropping the work cancels it.
                        if call.take().is_some() {
                            self.set(TaskPayload::Cancelled);
                        }
                        let _ = done.send(());
                    }
                    Command::Answer(answers, done) => {
                        if let Some(call) = &mut call {
                            call.answer(answers);
                            self.set(current_state(call));
                        }
                        let _ = done.send(());
                    }
                },
                event = event => match event {
                    Event::Done(outcome) => {
                        call = None;
                        self.set(final_state(outcome));
                    }
                    Event::Question => {
                        if let Some(call) = &mut call {
                            self.set(current_state(call));
                        }
                    }
                    Event::Notification(ClientNotification::Progress {
                        text: Some(text), ..
                    }) => self.set_message(&text),
                    Event::Notification(_) => {}
                },
            }
        }
    }

    fn set(&self, payload: TaskPayload) {
        let now = self.world.now();
        let mut state = lock(&self.state);
        state.payload = payload;
        touch(&mut state.task, now);
    }

    fn set_message(&self, text: &str) {
        let now = self.world.now();
        let mut state = lock(&self.state);
        state.task.status_message = Some(text.chars().take(MAX_STATUS_MESSAGE).collect());
        touch(&mut state.task, now);
    }
}

fn touch(task: &mut Task, now: Timestamp) {
    task.last_updated_at = now.to_string();
}

/// Returns the state of a call in progress.
fn current_state(call: &mut CallWork) -> TaskPayload {
    let input_requests = call.open_requests();
    match input_requests.is_empty() {
        true => TaskPayload::Working,
        false => TaskPayload::InputRequired { input_requests },
    }
}

/// A failed tool is a completed task whose result is an error; only errors for the calling program
/// make the task fail.
fn final_state(outcome: Outcome) -> TaskPayload {
    let failed = |error: &ErrorData| TaskPayload::Failed {
        error: object(error),
    };
    match outcome {
        Ok(Product::Tool(reply)) => TaskPayload::Completed {
            result: object(&wire::replied(reply)),
        },
        Ok(_) => failed(
            &RequestError::failed("the task ended with the result of another request")
                .into_error(true),
        ),
        Err(error) => match error.into_tool_error(true) {
            Ok(error) => TaskPayload::Completed {
                result: object(&wire::failed(&error)),
            },
            Err(error) => failed(&error),
        },
    }
}

fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => JsonObject::new(),
    }
}

/// Generates an id that cannot be guessed, because knowing it gives access to the result.
fn new_id() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unknown(id: &str) -> RequestError {
    let id: String = id.chars().take(64).collect();
    RequestError::invalid(format!(
        "no task has the id `{id}`; it may have expired after its `ttlMs`"
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
