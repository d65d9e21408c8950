//! Calls that go on as tasks: the client polls them, answers their questions and cancels them
//! (SEP-2663).

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

use super::desk::Note;
use super::drive::{Case, Event, Outcome, Product};
use super::{RequestError, wire};
use crate::access::{Caller, TokenScope};
use crate::quota::{Permit, Quota};

/// How often a client is told to ask for the state of a task.
const POLL: Duration = Duration::from_millis(500);
/// Requests about one task that wait for it.
const COMMANDS: usize = 16;
/// The longest status message that is kept, in characters.
const LONGEST_MESSAGE: usize = 512;

/// Whether calls of a [`Handler`](super::Handler) go on as tasks.
///
/// A client that knows tasks (`io.modelcontextprotocol/tasks`, since protocol 2026-07-28) gets the
/// id of a task instead of waiting for the result, and can lose its connection meanwhile. Clients
/// of older versions always wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskSupport {
    /// Every client waits for the result.
    #[default]
    Forbidden,
    /// Clients that know tasks get one.
    Optional,
    /// Clients that know tasks get one, and others on protocol 2026-07-28 are refused.
    Required,
    /// As [`Required`](Self::Required), but a call becomes a task only when its handler calls
    /// [`Client::become_task`](super::Client::become_task). Questions before that are asked in the
    /// result of the call.
    Deferred,
}

impl TaskSupport {
    /// Whether a client that does not know tasks is refused.
    pub(super) fn is_required(self) -> bool {
        matches!(self, Self::Required | Self::Deferred)
    }

    /// Whether a call is a task from its beginning.
    pub(super) fn is_immediate(self) -> bool {
        matches!(self, Self::Optional | Self::Required)
    }
}

/// All tasks of a server.
pub(super) struct Tasks {
    world: Arc<dyn World>,
    places: Arc<Quota>,
    life: Duration,
    all: Mutex<HashMap<String, Entry>>,
    /// Drives them. Each ends when its task is forgotten.
    drivers: Mutex<JoinSet<()>>,
}

struct Entry {
    /// Who started it: nobody else's token reaches it, but the owner's.
    caller: Caller,
    _place: Permit,
    state: Arc<Mutex<State>>,
    commands: mpsc::Sender<Command>,
}

struct State {
    task: Task,
    payload: TaskPayload,
}

/// A request about a task; it is acknowledged once it has been carried out.
enum Command {
    Answer(InputResponses, oneshot::Sender<()>),
    Cancel(oneshot::Sender<()>),
}

impl Tasks {
    pub(super) fn new(world: Arc<dyn World>, places: Arc<Quota>, life: Duration) -> Arc<Self> {
        Arc::new(Self {
            world,
            places,
            life,
            all: Mutex::default(),
            drivers: Mutex::default(),
        })
    }

    /// Lets a case go on as a task.
    ///
    /// # Errors
    /// When there are too many tasks already, of this caller or of all.
    pub(super) fn start(
        self: &Arc<Self>,
        caller: Caller,
        case: Case,
    ) -> Result<CallToolResponse, RequestError> {
        let id = new_id()
            .ok_or_else(|| RequestError::failed("the system has no randomness for a task id"))?;
        let now = self.world.now();
        let life = u64::try_from(self.life.as_millis()).unwrap_or(u64::MAX);
        let task = Task::new(&id, TaskStatus::Working, now.to_string(), now.to_string())
            .with_ttl_ms(life)
            .with_poll_interval_ms(u64::try_from(POLL.as_millis()).unwrap_or(u64::MAX));
        let state = Arc::new(Mutex::new(State {
            task: task.clone(),
            payload: TaskPayload::Working,
        }));
        let (commands, commanded) = mpsc::channel(COMMANDS);
        let full = |_| RequestError::busy("too many tasks are under way or kept; try again later");
        let place = self.places.take(&caller).map_err(full)?;
        self.all().insert(
            id.clone(),
            Entry {
                caller,
                _place: place,
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
        drivers.spawn(driver.run(id, case, commanded, self.life));
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    /// Returns the state of a task.
    ///
    /// # Errors
    /// When there is no such task.
    pub(super) fn get(&self, caller: &Caller, id: &str) -> Result<GetTaskResult, RequestError> {
        let state = self.find(caller, id, |entry| entry.state.clone())?;
        let state = lock(&state);
        Ok(GetTaskResult::new(DetailedTask::new(
            state.task.clone(),
            state.payload.clone(),
        )))
    }

    /// Hands answers of the client to a task.
    ///
    /// # Errors
    /// When there is no such task, or an answer is no object.
    pub(super) async fn update(
        &self,
        caller: &Caller,
        id: &str,
        answers: InputResponses,
    ) -> Result<(), RequestError> {
        if answers.values().any(|answer| !answer.is_object()) {
            return Err(RequestError::invalid(
                "an answer in `inputResponses` is no object",
            ));
        }
        self.command(caller, id, |done| Command::Answer(answers, done))
            .await
    }

    /// Cancels a task; one that has ended stays as it is.
    ///
    /// # Errors
    /// When there is no such task.
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
        let (done, carried_out) = oneshot::channel();
        // A driver whose time is over takes no commands, and its task is about to be forgotten.
        if commands.send(command(done)).await.is_ok() {
            let _ = carried_out.await;
        }
        Ok(())
    }

    /// Takes something of a task that this caller reaches.
    fn find<T>(
        &self,
        caller: &Caller,
        id: &str,
        take: impl FnOnce(&Entry) -> T,
    ) -> Result<T, RequestError> {
        let all = self.all();
        let reached =
            |entry: &&Entry| caller.may(TokenScope::Admin) || entry.caller.name() == caller.name();
        all.get(id)
            .filter(reached)
            .map(take)
            .ok_or_else(|| unknown(id))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.all)
    }
}

/// Carries one task on.
struct Driver {
    tasks: std::sync::Weak<Tasks>,
    world: Arc<dyn World>,
    state: Arc<Mutex<State>>,
}

impl Driver {
    async fn run(
        self,
        id: String,
        case: Case,
        mut commands: mpsc::Receiver<Command>,
        life: Duration,
    ) {
        let end = self.world.sleep(life);
        tokio::select! {
            () = self.drive(case, &mut commands) => {}
            () = end => {}
        }
        drop(commands);
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.all().remove(&id);
        }
    }

    /// Carries the case on to its end, and answers commands for as long as the task is kept.
    async fn drive(&self, case: Case, commands: &mut mpsc::Receiver<Command>) {
        let mut case = Some(case);
        loop {
            let event = async {
                match &mut case {
                    Some(case) => case.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(command) = commands.recv() => match command {
                    Command::Cancel(done) => {
                        // Dropping the work cancels it.
                        if case.take().is_some() {
                            self.set(TaskPayload::Cancelled);
                        }
                        let _ = done.send(());
                    }
                    Command::Answer(answers, done) => {
                        if let Some(case) = &mut case {
                            case.answer(answers);
                            self.set(waits(case));
                        }
                        let _ = done.send(());
                    }
                },
                event = event => match event {
                    Event::Done(outcome) => {
                        case = None;
                        self.set(ended(outcome));
                    }
                    Event::Asked => {
                        if let Some(case) = &mut case {
                            self.set(waits(case));
                        }
                    }
                    Event::Note(Note::Progress { text: Some(text), .. }) => self.tell(&text),
                    Event::Note(_) => {}
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

    fn tell(&self, text: &str) {
        let now = self.world.now();
        let mut state = lock(&self.state);
        state.task.status_message = Some(text.chars().take(LONGEST_MESSAGE).collect());
        touch(&mut state.task, now);
    }
}

fn touch(task: &mut Task, now: Timestamp) {
    task.last_updated_at = now.to_string();
}

/// The state of a case that is under way.
fn waits(case: &mut Case) -> TaskPayload {
    let input_requests = case.open_requests();
    match input_requests.is_empty() {
        true => TaskPayload::Working,
        false => TaskPayload::InputRequired { input_requests },
    }
}

fn ended(outcome: Outcome) -> TaskPayload {
    let failed = |error: &ErrorData| TaskPayload::Failed {
        error: object(error),
    };
    match outcome {
        Ok(Product::Tool(reply)) => TaskPayload::Completed {
            result: object(&wire::replied(reply)),
        },
        Ok(_) => failed(
            &RequestError::failed("the task ended with what another request asked for")
                .into_error(true),
        ),
        Err(fault) => match fault.into_tool_error(true) {
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

/// An id that nobody can guess: whoever knows it may see the result.
fn new_id() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unknown(id: &str) -> RequestError {
    let id: String = id.chars().take(64).collect();
    RequestError::invalid(format!(
        "there is no task `{id}`; it may have been kept for as long as its `ttlMs` said"
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
