//! Commands from this process to the runs that it drives.
//!
//! Each run has a bounded queue of orders. [`CommandRouter`] knows the queues of a whole tree of
//! runs, so that a control of the root reaches every child. An order carries a channel for its
//! reply. The driver answers once the command is in the journal, so a caller that got `Ok` knows
//! that a crash does not lose its command.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{
    Ask, ControlCommand, ControlError, Decision, EffectId, Message, Resolution, RunId,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of queued commands of a run; further senders wait.
const WAITING_COMMANDS: usize = 64;

/// Controls a run and its child runs. Clones control the same run.
///
/// Every method returns once the command is in the journal.
///
/// At most 64 commands wait for one run; further senders wait for room.
///
/// ```
/// use levity_core::{ControlError, Decision};
/// use levity_runtime::Control;
///
/// /// Allows calls of `search` and denies all others.
/// async fn decide(control: &Control) -> Result<usize, ControlError> {
///     let asks = control.pending_asks().await?;
///     for ask in &asks {
///         let decision = match ask.call.name.as_str() {
///             "search" => Decision::Allow,
///             _ => Decision::deny("only searches are allowed"),
///         };
///         control.decide(ask, decision).await?;
///     }
///     Ok(asks.len())
/// }
/// ```
#[derive(Clone)]
pub struct Control {
    run: RunId,
    /// The name of the direct child agents to address, if set.
    agent: Option<Arc<str>>,
    board: Arc<CommandRouter>,
}

impl Control {
    pub(crate) fn new(run: RunId, board: Arc<CommandRouter>) -> Self {
        Self {
            run,
            agent: None,
            board,
        }
    }

    /// Returns a control for a run that was not started.
    pub(crate) fn disconnected(run: RunId) -> Self {
        Self::new(run, Arc::default())
    }

    /// Returns the id of the run.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the control of a child of this run, named by the `run` of its events.
    ///
    /// ```
    /// use levity_core::{ControlError, Event};
    /// use levity_runtime::Control;
    ///
    /// /// Cancels the run in which an event occurred, and no other one.
    /// async fn stop(control: &Control, event: &Event) -> Result<(), ControlError> {
    ///     control.child(&event.run).cancel("it takes too long").await
    /// }
    /// ```
    #[must_use]
    pub fn child(&self, run: &RunId) -> Self {
        Self::new(run.clone(), self.board.clone())
    }

    /// Addresses the direct child agents of this name, such as a worker of a swarm.
    ///
    /// Each command goes to all its runs in progress. It fails with
    /// [`ControlError::AgentNotRunning`] if there are none.
    #[must_use]
    pub fn agent(&self, name: &str) -> Self {
        Self {
            agent: Some(name.into()),
            ..self.child(&self.run)
        }
    }

    /// Pauses the run and its children: nothing new starts, and effects in progress continue to
    /// their end.
    ///
    /// # Errors
    /// Returns an error if the run is not running.
    pub async fn pause(&self) -> Result<(), ControlError> {
        self.command(ControlCommand::Pause).await
    }

    /// Resumes the run after a pause.
    ///
    /// # Errors
    /// Returns an error if the run is not running.
    pub async fn resume(&self) -> Result<(), ControlError> {
        self.command(ControlCommand::Resume).await
    }

    /// Cancels the run now.
    ///
    /// Effects in progress are dropped, and open calls are answered with an error, so that the
    /// history stays valid.
    ///
    /// # Errors
    /// Returns an error if the run is not running.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), ControlError> {
        self.command(ControlCommand::Cancel {
            reason: reason.into(),
        })
        .await
    }

    /// Sends a message, which the run adds before the next model call.
    ///
    /// # Errors
    /// Returns an error if the run is not running, or has too many pending messages.
    pub async fn send_message(&self, message: impl Into<Message>) -> Result<(), ControlError> {
        let message = Arc::new(message.into());
        self.command(ControlCommand::Say { message }).await
    }

    /// Approves the call of a question.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn approve(&self, ask: &Ask) -> Result<(), ControlError> {
        self.decide(ask, Decision::Allow).await
    }

    /// Approves the call of a question, with other arguments.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision, or if the arguments do not
    /// match the schema of the tool ([`ControlError::InvalidArguments`]). The question then stays
    /// open.
    pub async fn edit(&self, ask: &Ask, args: Value) -> Result<(), ControlError> {
        self.decide(ask, Decision::edit(args)).await
    }

    /// Denies the call of a question; the model gets the reason.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn deny(&self, ask: &Ask, reason: impl Into<String>) -> Result<(), ControlError> {
        self.decide(ask, Decision::deny(reason)).await
    }

    /// Answers a question of the model, or gives it this text in place of the result of a call.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn answer(&self, ask: &Ask, text: impl Into<String>) -> Result<(), ControlError> {
        self.decide(ask, Decision::answer(text)).await
    }

    /// Sends a decision on a question.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision, or if edited arguments do not
    /// match the schema of the tool ([`ControlError::InvalidArguments`]).
    pub async fn decide(&self, ask: &Ask, decision: Decision) -> Result<(), ControlError> {
        self.child(&ask.run)
            .order(OrderKind::Decide(ask.effect, decision))
            .await
    }

    /// Reports the outcome of a call that an earlier process started.
    ///
    /// # Errors
    /// Returns an error if the outcome is already known, or the run no longer waits for it.
    ///
    /// Use it for a call that must not be repeated and whose outcome only a person or another
    /// system knows. A call that was not done starts again.
    pub async fn resolve(
        &self,
        effect: EffectId,
        resolution: Resolution,
    ) -> Result<(), ControlError> {
        self.order(OrderKind::Resolve(effect, resolution)).await
    }

    /// Returns the questions of this run and its child runs that wait for a decision.
    ///
    /// # Errors
    /// Returns an error if the run is not running.
    pub async fn pending_asks(&self) -> Result<Vec<Ask>, ControlError> {
        let mut asks = Vec::new();
        let mut sent = SendResult::default();
        for to in self.addressed_runs() {
            let own = to.own_asks().await;
            if let Ok(own) = &own {
                asks.extend(own.iter().cloned());
                for run in to.board.below(&to.run) {
                    asks.extend(to.child(&run).own_asks().await.unwrap_or_default());
                }
            }
            sent.add(own.map(drop))?;
        }
        sent.by(self).map(|()| asks)
    }

    /// Sends a command to each addressed run.
    ///
    /// A command to an agent by name goes to each of its runs in progress and succeeds if at least
    /// one of them received it.
    async fn command(&self, command: ControlCommand) -> Result<(), ControlError> {
        let mut sent = SendResult::default();
        for to in self.addressed_runs() {
            sent.add(match command {
                // A command that pauses a run also pauses its children.
                ControlCommand::Pause | ControlCommand::Resume => to.tell_all(&command).await,
                _ => to.order(OrderKind::Command(command.clone())).await,
            })?;
        }
        sent.by(self)
    }

    fn addressed_runs(&self) -> Vec<Self> {
        match &self.agent {
            None => vec![self.clone()],
            Some(name) => self
                .board
                .named(&self.run, name)
                .iter()
                .map(|run| self.child(run))
                .collect(),
        }
    }

    async fn own_asks(&self) -> Result<Vec<Ask>, ControlError> {
        let (sender, asks) = oneshot::channel();
        self.order(OrderKind::Asks(sender)).await?;
        asks.await
            .map_err(|_| ControlError::NotRunning(self.run.clone()))
    }

    /// The parent receives a pause before its children, so that it starts no further child
    /// meanwhile.
    async fn tell_all(&self, command: &ControlCommand) -> Result<(), ControlError> {
        self.order(OrderKind::Command(command.clone())).await?;
        // A resumed run may start others, so the list is read until it has no new run.
        let mut sent = BTreeSet::new();
        loop {
            let new = self
                .board
                .below(&self.run)
                .into_iter()
                .filter(|run| !sent.contains(run));
            let new: Vec<RunId> = new.collect();
            if new.is_empty() {
                return Ok(());
            }
            for run in new {
                // A child that has ended meanwhile needs no command.
                let _ = self
                    .child(&run)
                    .order(OrderKind::Command(command.clone()))
                    .await;
                sent.insert(run);
            }
        }
    }

    async fn order(&self, what: OrderKind) -> Result<(), ControlError> {
        let not_running = || ControlError::NotRunning(self.run.clone());
        let sender = self.board.find(&self.run).ok_or_else(not_running)?;
        let (done, answer) = oneshot::channel();
        sender
            .send(Order { what, done })
            .await
            .map_err(|_| not_running())?;
        answer.await.map_err(|_| not_running())?
    }
}

/// The result of sending to several runs. A run that has ended meanwhile needs no command.
///
/// The flag is `true` once one run has accepted the command.
#[derive(Default)]
struct SendResult(bool);

impl SendResult {
    fn add(&mut self, sent: Result<(), ControlError>) -> Result<(), ControlError> {
        match sent {
            Ok(()) => self.0 = true,
            Err(ControlError::NotRunning(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn by(&self, control: &Control) -> Result<(), ControlError> {
        match &control.agent {
            _ if self.0 => Ok(()),
            Some(name) => Err(ControlError::AgentNotRunning(name.clone())),
            None => Err(ControlError::NotRunning(control.run.clone())),
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control")
            .field(&self.run)
            .field(&self.agent)
            .finish()
    }
}

/// A command on its way to a run, with the channel for its reply.
pub(crate) struct Order {
    pub(crate) what: OrderKind,
    pub(crate) done: oneshot::Sender<Result<(), ControlError>>,
}

impl Order {
    /// Returns the reason, if the order is a cancel.
    fn cancels(&self) -> Option<&str> {
        match &self.what {
            OrderKind::Command(ControlCommand::Cancel { reason }) => Some(reason),
            _ => None,
        }
    }
}

pub(crate) enum OrderKind {
    Command(ControlCommand),
    Decide(EffectId, Decision),
    Resolve(EffectId, Resolution),
    Asks(oneshot::Sender<Vec<Ask>>),
}

/// The runs of a tree that can receive commands now.
///
/// The map is ordered by id, and the ids of children begin with the id of their parent. So the
/// descendants of a run are one range of the map.
#[derive(Default)]
pub(crate) struct CommandRouter(Mutex<BTreeMap<RunId, CommandTarget>>);

/// A run that accepts commands.
struct CommandTarget {
    sender: mpsc::Sender<Order>,
    /// The agent's name, for a child.
    agent: Option<Arc<str>>,
}

impl CommandRouter {
    /// Accepts the commands of a run until the line is dropped.
    pub(crate) fn connect(
        self: &Arc<Self>,
        run: &RunId,
        agent: Option<Arc<str>>,
    ) -> CommandReceiver {
        let (sender, orders) = mpsc::channel(WAITING_COMMANDS);
        self.runs()
            .insert(run.clone(), CommandTarget { sender, agent });
        CommandReceiver {
            run: run.clone(),
            board: self.clone(),
            orders,
            early: VecDeque::new(),
        }
    }

    fn find(&self, run: &RunId) -> Option<mpsc::Sender<Order>> {
        self.runs()
            .get(run)
            .map(|connected| connected.sender.clone())
    }

    /// The run itself is not included.
    fn below(&self, run: &RunId) -> Vec<RunId> {
        let prefix = format!("{run}.");
        let runs = self.runs();
        let from = runs.range(RunId::from(&*prefix)..).map(|(other, _)| other);
        from.take_while(|other| other.as_str().starts_with(&prefix))
            .cloned()
            .collect()
    }

    /// Returns the runs of an agent directly below a run.
    fn named(&self, run: &RunId, agent: &str) -> Vec<RunId> {
        let runs = self.runs();
        let is_meant = |(below, connected): &(&RunId, &CommandTarget)| {
            connected.agent.as_deref() == Some(agent) && below.parent().as_ref() == Some(run)
        };
        runs.iter()
            .filter(is_meant)
            .map(|(below, _)| below.clone())
            .collect()
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, CommandTarget>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end of a run's orders; dropping it makes the run unreachable.
pub(crate) struct CommandReceiver {
    run: RunId,
    board: Arc<CommandRouter>,
    orders: mpsc::Receiver<Order>,
    /// The orders that arrived before the run could accept them.
    early: VecDeque<Order>,
}

impl CommandReceiver {
    /// Returns the next order; pending forever when all senders are gone.
    pub(crate) async fn next(&mut self) -> Order {
        match self.early.pop_front() {
            Some(order) => order,
            None => self.arriving().await,
        }
    }

    /// Waits for a cancel, and queues all other orders. The cancel is then the first in the queue.
    pub(crate) async fn cancelled(&mut self) {
        loop {
            let order = self.arriving().await;
            if order.cancels().is_some() {
                return self.early.push_front(order);
            }
            self.early.push_back(order);
        }
    }

    /// Returns `true` if the next order is a cancel that arrived before the run could accept it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.early
            .front()
            .is_some_and(|order| order.cancels().is_some())
    }

    /// Accepts that cancel in place of the run, and returns its reason.
    pub(crate) fn take_cancel(&mut self) -> Option<String> {
        let reason = self.early.front()?.cancels()?.to_owned();
        let order = self.early.pop_front()?;
        let _ = order.done.send(Ok(()));
        Some(reason)
    }

    async fn arriving(&mut self) -> Order {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn board(&self) -> &Arc<CommandRouter> {
        &self.board
    }
}

impl Drop for CommandReceiver {
    fn drop(&mut self) {
        self.board.runs().remove(&self.run);
    }
}
