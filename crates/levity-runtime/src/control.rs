use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{Ask, Command, Decision, EffectId, Message, Resolution, RunId};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::error::ControlError;

/// How many commands may wait for a run; whoever sends one more waits.
const WAITING_COMMANDS: usize = 64;

/// Tells a run, and the runs below it, what to do. Clones tell the same run.
///
/// Every method returns once the command is in the journal.
#[derive(Clone)]
pub struct Control {
    run: RunId,
    board: Arc<Switchboard>,
}

impl Control {
    pub(crate) fn new(run: RunId, board: Arc<Switchboard>) -> Self {
        Self { run, board }
    }

    /// Tells a child of this run, named by the `run` of its events.
    #[must_use]
    pub fn child(&self, run: &RunId) -> Self {
        Self { run: run.clone(), board: self.board.clone() }
    }

    /// Begins nothing new, here and in the children; what has begun goes on to its end.
    ///
    /// # Errors
    /// When the run is not running.
    pub async fn pause(&self) -> Result<(), ControlError> {
        self.tell_all(&Command::Pause).await
    }

    /// Goes on after a pause.
    ///
    /// # Errors
    /// When the run is not running.
    pub async fn resume(&self) -> Result<(), ControlError> {
        self.tell_all(&Command::Resume).await
    }

    /// Ends the run now. What is under way is dropped, and open calls are answered with an error, so
    /// that the history stays whole.
    ///
    /// # Errors
    /// When the run is not running.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), ControlError> {
        self.order(What::Command(Command::Cancel { reason: reason.into() })).await
    }

    /// Says something, to be taken in before the next call of a model.
    ///
    /// # Errors
    /// When the run is not running, or has a lot to take in already.
    pub async fn say(&self, message: impl Into<Message>) -> Result<(), ControlError> {
        let message = Arc::new(message.into());
        self.order(What::Command(Command::Say { message })).await
    }

    /// Allows what was asked.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn approve(&self, ask: &Ask) -> Result<(), ControlError> {
        self.decide(ask, Decision::Allow).await
    }

    /// Allows what was asked, with other arguments.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn edit(&self, ask: &Ask, args: Value) -> Result<(), ControlError> {
        self.decide(ask, Decision::edit(args)).await
    }

    /// Forbids what was asked; the model is told why.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn deny(&self, ask: &Ask, reason: impl Into<String>) -> Result<(), ControlError> {
        self.decide(ask, Decision::deny(reason)).await
    }

    /// Answers a question of the model's, or tells it this in place of what a call would return.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn answer(&self, ask: &Ask, text: impl Into<String>) -> Result<(), ControlError> {
        self.decide(ask, Decision::answer(text)).await
    }

    /// Decides on what was asked.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn decide(&self, ask: &Ask, decision: Decision) -> Result<(), ControlError> {
        self.child(&ask.run).order(What::Decide(ask.effect, decision)).await
    }

    /// Says what came of a call that an earlier process had begun.
    ///
    /// # Errors
    /// When that is known, or nobody waits for it any more.
    pub async fn resolve(&self, effect: EffectId, resolution: Resolution) -> Result<(), ControlError> {
        self.order(What::Resolve(effect, resolution)).await
    }

    /// The questions of this run and the runs below it that wait for a decision.
    ///
    /// # Errors
    /// When the run is not running.
    pub async fn asks(&self) -> Result<Vec<Ask>, ControlError> {
        let mut asks = self.own_asks().await?;
        for run in self.board.below(&self.run) {
            asks.extend(self.child(&run).own_asks().await.unwrap_or_default());
        }
        Ok(asks)
    }

    async fn own_asks(&self) -> Result<Vec<Ask>, ControlError> {
        let (sender, asks) = oneshot::channel();
        self.order(What::Asks(sender)).await?;
        asks.await.map_err(|_| ControlError::NotRunning(self.run.clone()))
    }

    async fn tell_all(&self, command: &Command) -> Result<(), ControlError> {
        self.order(What::Command(command.clone())).await?;
        // A run that is told to go on may begin others, so the list is looked at until it has nobody new.
        let mut told = BTreeSet::new();
        loop {
            let new = self.board.below(&self.run).into_iter().filter(|run| !told.contains(run));
            let new: Vec<RunId> = new.collect();
            if new.is_empty() {
                return Ok(());
            }
            for run in new {
                // A child that has ended meanwhile needs no telling.
                let _ = self.child(&run).order(What::Command(command.clone())).await;
                told.insert(run);
            }
        }
    }

    async fn order(&self, what: What) -> Result<(), ControlError> {
        let gone = || ControlError::NotRunning(self.run.clone());
        let sender = self.board.find(&self.run).ok_or_else(gone)?;
        let (done, answer) = oneshot::channel();
        sender.send(Order { what, done }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.run).finish()
    }
}

/// A command on its way to a run, and the way back for the answer.
pub(crate) struct Order {
    pub(crate) what: What,
    pub(crate) done: oneshot::Sender<Result<(), ControlError>>,
}

pub(crate) enum What {
    Command(Command),
    Decide(EffectId, Decision),
    Resolve(EffectId, Resolution),
    Asks(oneshot::Sender<Vec<Ask>>),
}

/// Which runs of a tree can be told something now.
#[derive(Default)]
pub(crate) struct Switchboard(Mutex<BTreeMap<RunId, mpsc::Sender<Order>>>);

impl Switchboard {
    /// Takes a run's commands until the line is dropped.
    pub(crate) fn connect(self: &Arc<Self>, run: &RunId) -> Line {
        let (sender, orders) = mpsc::channel(WAITING_COMMANDS);
        self.runs().insert(run.clone(), sender);
        Line { run: run.clone(), board: self.clone(), orders, early: VecDeque::new() }
    }

    fn find(&self, run: &RunId) -> Option<mpsc::Sender<Order>> {
        self.runs().get(run).cloned()
    }

    fn below(&self, run: &RunId) -> Vec<RunId> {
        let prefix = format!("{run}.");
        let runs = self.runs();
        let from = runs.range(RunId::from(&*prefix)..).map(|(other, _)| other);
        from.take_while(|other| other.as_str().starts_with(&prefix)).cloned().collect()
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, mpsc::Sender<Order>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Line {
    run: RunId,
    board: Arc<Switchboard>,
    orders: mpsc::Receiver<Order>,
    /// What came before the run could take it.
    early: VecDeque<Order>,
}

impl Line {
    /// The next order; there is none any more when everybody has hung up.
    pub(crate) async fn next(&mut self) -> Order {
        match self.early.pop_front() {
            Some(order) => order,
            None => self.arriving().await,
        }
    }

    /// Waits for a cancel, and keeps all other orders for later.
    pub(crate) async fn cancelled(&mut self) -> String {
        loop {
            let order = self.arriving().await;
            match order.what {
                What::Command(Command::Cancel { reason }) => {
                    let _ = order.done.send(Ok(()));
                    return reason;
                }
                _ => self.early.push_back(order),
            }
        }
    }

    async fn arriving(&mut self) -> Order {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn board(&self) -> &Arc<Switchboard> {
        &self.board
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.board.runs().remove(&self.run);
    }
}
