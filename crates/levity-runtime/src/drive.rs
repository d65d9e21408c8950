use std::future::pending;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use levity_core::{
    Ask, CancelToken, ChildRun, Command, Decision, Effect, EffectClass, EffectCx, EffectId, EffectKind,
    EffectNote, Ending, Entry, Event, EventKind, Executor, Failure, Limit, Limits, Live, LiveSink, Machine,
    Outcome, Record, RunId, RunLog, Status, World,
};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::control::{Line, Order, What};
use crate::error::{ControlError, Error};
use crate::events::Hub;
use crate::meter::Meter;
use crate::runtime::Shared;
use crate::state::State;

/// Drives one machine to its end.
pub(crate) struct Driver<M> {
    state: State<M>,
    log: Box<dyn RunLog>,
    around: Around,
    line: Option<Line>,
    effects: FuturesUnordered<BoxFuture<'static, (EffectId, Option<Outcome>)>>,
    children: FuturesUnordered<BoxFuture<'static, (EffectId, Option<Outcome>)>>,
    questions: Vec<(EffectId, AbortHandle)>,
    end_children: CancelToken,
    deadline: Option<BoxFuture<'static, ()>>,
}

/// What a run is driven with.
pub(crate) struct Around {
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) hub: Option<Arc<Hub>>,
    pub(crate) cancel: Option<CancelToken>,
}

/// The machine as it was left, and why it was left, if it did not end.
pub(crate) type Driven<M> = Result<M, (Option<M>, Error)>;

/// What to do about records that are there already.
pub(crate) enum Records {
    /// The run is new: there must be none.
    None,
    /// Go on from them, if there are any.
    Continue,
}

impl<M: Machine + 'static> Driver<M> {
    /// Opens the run's log and folds in what it holds.
    pub(crate) async fn open(
        run: RunId,
        machine: M,
        around: Around,
        line: Option<Line>,
        records: Records,
    ) -> Result<Self, (M, Error)> {
        let open = match around.shared.journal.open(&run).await {
            Ok(open) => open,
            Err(error) => return Err((machine, error.into())),
        };
        if matches!(records, Records::None) && !open.records.is_empty() {
            return Err((machine, Error::Exists(run)));
        }
        let mut state = State::new(run, machine);
        for record in open.records {
            recount(&around.meter, &record.entry);
            if let Err(divergence) = state.apply(record, None) {
                return Err((state.machine, divergence.into()));
            }
        }
        Ok(Self {
            state,
            log: open.log,
            around,
            line,
            effects: FuturesUnordered::new(),
            children: FuturesUnordered::new(),
            questions: Vec::new(),
            end_children: CancelToken::new(),
            deadline: None,
        })
    }

    pub(crate) fn boxed(self) -> BoxFuture<'static, Driven<M>> {
        Box::pin(self.drive())
    }

    pub(crate) async fn drive(mut self) -> Driven<M> {
        match self.steps().await {
            Ok(()) => Ok(self.state.machine),
            Err(error) => Err((Some(self.state.machine), error)),
        }
    }

    async fn steps(&mut self) -> Result<(), Error> {
        self.begin().await?;
        while self.state.machine.ending().is_none() {
            self.start_ready().await?;
            if self.state.machine.ending().is_some() {
                break;
            }
            if self.is_stuck() {
                return Err(Error::Stuck(self.state.run.clone()));
            }
            let (entries, acks) = self.wait().await;
            let must_end = entries.iter().any(is_last_word);
            self.record(entries).await?;
            if must_end && self.state.machine.ending().is_none() {
                return Err(Error::Stuck(self.state.run.clone()));
            }
            acks.into_iter().for_each(|ack| drop(ack.send(Ok(()))));
        }
        self.end().await
    }

    /// Opens a new run, or picks up what an old one left under way.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.state.seq == 0 {
            let state = if self.keeps() { self.state.machine.save() } else { Value::Null };
            let (machine, wrap) = (self.state.machine.kind(), self.around.meter.near());
            self.record(vec![Entry::Opened { machine, state, wrap }]).await?;
        }
        if let Some(limit) = self.around.meter.limits().wall_time {
            let world = self.around.shared.world.clone();
            let left = limit.saturating_sub(world.now().since(self.state.opened));
            self.deadline = Some(Box::pin(async move { world.sleep(left).await }));
        }
        self.pick_up().await
    }

    /// Performs again what may be repeated of the effects that an earlier process left under way; of
    /// the others, nobody knows what came of them.
    async fn pick_up(&mut self) -> Result<(), Error> {
        let mut entries = Vec::new();
        if self.state.paused && self.line.is_none() {
            entries.push(Entry::Commanded(Command::Resume));
        }
        let left: Vec<_> =
            self.state.running.iter_mut().map(|r| (r.id, r.effect.take(), r.note.class)).collect();
        for (id, effect, class) in left {
            let finished = |outcome| Entry::Finished { effect: id, outcome };
            match effect {
                Some(effect) if self.nobody_answers(&effect) => entries.push(finished(nobody_to_ask())),
                Some(effect) if may_repeat(&effect, class) => self.launch(id, effect),
                _ => entries.push(finished(Outcome::Unknown)),
            }
        }
        self.record(entries).await
    }

    fn nobody_answers(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Ask(ask) => self.line.is_none() && !self.around.executor.answers(ask),
            _ => false,
        }
    }

    /// Ends what is under way, lets the children write their ends, and writes this run's.
    async fn end(&mut self) -> Result<(), Error> {
        self.effects.clear();
        self.end_children.cancel();
        while self.children.next().await.is_some() {}
        let status = self.state.machine.ending().map(|ending| ending.status.clone());
        self.record(status.map(Entry::Ended).into_iter().collect()).await
    }

    fn keeps(&self) -> bool {
        self.around.shared.journal.keeps()
    }

    fn is_stuck(&self) -> bool {
        let idle = self.effects.is_empty() && self.children.is_empty() && self.state.running.is_empty();
        idle && !self.state.paused && self.state.queue.is_empty()
    }

    /// Writes entries down, then folds them in, then tells those who watch.
    async fn record(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let at = self.around.shared.world.now();
        let records: Vec<Record> =
            (self.state.seq..).zip(entries).map(|(seq, entry)| Record::new(seq, at, entry)).collect();
        self.log.append(&records).await?;
        let watched = self.around.hub.as_ref().filter(|hub| hub.is_watched());
        let mut told = watched.map(|_| Vec::new());
        for record in records {
            self.state.apply(record, told.as_mut())?;
        }
        if let Some(hub) = watched {
            told.into_iter().flatten().for_each(|event| hub.publish(event));
        }
        Ok(())
    }

    /// Begins what may begin, until nothing more may.
    async fn start_ready(&mut self) -> Result<(), Error> {
        while !self.state.paused && self.state.machine.ending().is_none() {
            for wanted in self.state.queue.iter_mut().filter(|wanted| wanted.prepared.is_none()) {
                wanted.prepared = Some(self.around.executor.prepare(&wanted.effect));
            }
            let entries: Vec<Entry> =
                self.state.startable().into_iter().filter_map(|id| self.admit(id)).collect();
            if entries.is_empty() {
                return Ok(());
            }
            self.record(entries).await?;
            let taken: Vec<_> = self
                .state
                .running
                .iter_mut()
                .filter_map(|running| Some((running.id, running.effect.take()?)))
                .collect();
            taken.into_iter().for_each(|(id, effect)| self.launch(id, effect));
        }
        Ok(())
    }

    /// The entry by which a wanted effect begins, or is finished without having begun.
    fn admit(&mut self, id: EffectId) -> Option<Entry> {
        let keeps = self.keeps();
        let at = self.state.queue.iter().position(|wanted| wanted.id == id)?;
        let refused = |outcome| Some(Entry::Finished { effect: id, outcome });
        if self.nobody_answers(&self.state.queue.get(at)?.effect) {
            return refused(nobody_to_ask());
        }
        let wanted = self.state.queue.get_mut(at)?;
        let effect = &wanted.effect;
        if effect.kind() == EffectKind::Child && self.state.run.depth() >= self.around.meter.limits().depth {
            return refused(Outcome::Refused(Limit::Depth));
        }
        if let Err(limit) = self.around.meter.admit(effect.kind()) {
            return refused(Outcome::Refused(limit));
        }
        let prepared = wanted.prepared.take().unwrap_or_default();
        let mut note = EffectNote::new(effect.kind(), effect.name(), prepared.class);
        note.alone = prepared.alone;
        if keeps {
            note.inputs = self.state.fingerprint.inputs(effect);
            note.inputs.extend(prepared.inputs);
        }
        Some(Entry::Started { effect: id, note })
    }

    fn launch(&mut self, id: EffectId, effect: Effect) {
        match effect {
            Effect::Child(child) => self.children.push(self.child(id, child)),
            Effect::Ask(ask) => self.ask(id, ask),
            effect => {
                let (executor, cx) = (self.around.executor.clone(), self.effect_cx(id));
                self.effects.push(Box::pin(async move { (id, Some(executor.execute(effect, cx).await)) }));
            }
        }
    }

    fn ask(&mut self, id: EffectId, ask: Ask) {
        if !self.around.executor.answers(&ask) {
            return;
        }
        let (executor, cx) = (self.around.executor.clone(), self.effect_cx(id));
        let (handle, registration) = AbortHandle::new_pair();
        let answer = async move { executor.execute(Effect::Ask(ask), cx).await };
        let answer = Abortable::new(answer, registration);
        self.questions.push((id, handle));
        self.effects.push(Box::pin(async move { (id, answer.await.ok()) }));
    }

    fn effect_cx(&self, id: EffectId) -> EffectCx {
        let run = self.state.run.clone();
        let live = self.around.hub.as_ref().map_or_else(Live::default, |hub| {
            let world = self.around.shared.world.clone();
            Live::new(Arc::new(Tap { hub: hub.clone(), world, run: run.clone(), seq: self.state.seq }))
        });
        EffectCx::new(run, id, live)
    }

    fn child(&self, id: EffectId, child: ChildRun) -> BoxFuture<'static, (EffectId, Option<Outcome>)> {
        let run = self.state.run.child(id);
        let parent = &self.around;
        let (executor, shared, hub) = (parent.executor.clone(), parent.shared.clone(), parent.hub.clone());
        let (meter, cancel) = (parent.meter.clone(), self.end_children.clone());
        let line = self.line.as_ref().map(|line| line.board().connect(&run));
        Box::pin(async move {
            let ending = match executor.child(&child) {
                Err(error) => failed(error.explain()),
                Ok(child) => {
                    let meter = Arc::new(Meter::new(child.limits, Some(meter)));
                    let around =
                        Around { shared, executor: child.executor, meter, hub, cancel: Some(cancel) };
                    match Driver::open(run, child.machine, around, line, Records::Continue).await {
                        Ok(driver) => child_ending(driver.boxed().await),
                        Err((machine, error)) => child_ending(Err((Some(machine), error))),
                    }
                }
            };
            (id, Some(Outcome::Child(Box::new(ending))))
        })
    }

    /// Waits for the next thing to happen, and takes in all that has happened meanwhile.
    async fn wait(&mut self) -> (Vec<Entry>, Vec<Ack>) {
        tokio::select! {
            biased;
            () = parent_cancelled(self.around.cancel.as_ref()) => {
                let reason = "the run above it ended".to_owned();
                (vec![Entry::Commanded(Command::Cancel { reason })], Vec::new())
            }
            order = next_order(&mut self.line) => self.take_order(order),
            Some(first) = self.effects.next() => (self.finished(first), Vec::new()),
            Some(first) = self.children.next() => (self.finished(first), Vec::new()),
            () = passed(&mut self.deadline) => {
                self.deadline = None;
                (vec![Entry::Stopped(Limit::WallTime)], Vec::new())
            }
        }
    }

    fn take_order(&mut self, order: Order) -> (Vec<Entry>, Vec<Ack>) {
        match order.what {
            What::Command(command) => (vec![Entry::Commanded(command)], vec![order.done]),
            What::Decide(effect, decision) => {
                let open = |running: &crate::state::Running| {
                    running.id == effect && running.note.kind == EffectKind::Ask
                };
                if !self.state.running.iter().any(open) {
                    let run = self.state.run.clone();
                    let _ = order.done.send(Err(ControlError::NotAsked { run, effect }));
                    return (Vec::new(), Vec::new());
                }
                self.withdraw(effect);
                let outcome = Outcome::Decision(decision);
                (vec![Entry::Finished { effect, outcome }], vec![order.done])
            }
        }
    }

    /// Stops asking the approver: somebody else has answered.
    fn withdraw(&mut self, effect: EffectId) {
        if let Some(at) = self.questions.iter().position(|(id, _)| *id == effect) {
            self.questions.swap_remove(at).1.abort();
        }
    }

    /// The entries for an effect that finished and all others that have finished too, in the order in
    /// which they were asked for.
    fn finished(&mut self, first: (EffectId, Option<Outcome>)) -> Vec<Entry> {
        let mut done = vec![first];
        while let Some(Some(next)) = self.effects.next().now_or_never() {
            done.push(next);
        }
        while let Some(Some(next)) = self.children.next().now_or_never() {
            done.push(next);
        }
        done.sort_by_key(|(id, _)| *id);
        let mut entries = Vec::with_capacity(done.len() + 1);
        for (effect, outcome) in done {
            self.questions.retain(|(id, _)| *id != effect);
            // An answer that comes after somebody else's is no answer.
            let Some(outcome) = outcome else { continue };
            if !self.state.running.iter().any(|running| running.id == effect) {
                continue;
            }
            let entry = Entry::Finished { effect, outcome };
            settle(&self.around.meter, &entry);
            entries.push(entry);
        }
        // The machine must know before it asks for the next call.
        if let Some(limit) = self.around.meter.near().filter(|_| !self.state.wrapped) {
            entries.insert(0, Entry::Wrapped(limit));
        }
        entries
    }
}

/// Whether a machine must end when it learns of this.
fn is_last_word(entry: &Entry) -> bool {
    matches!(entry, Entry::Stopped(_) | Entry::Commanded(Command::Cancel { .. }))
}

type Ack = oneshot::Sender<Result<(), ControlError>>;

/// Whether an effect that began in a process that is gone may be performed now. Asking again and going
/// on with a child repeat nothing.
fn may_repeat(effect: &Effect, class: EffectClass) -> bool {
    match effect {
        Effect::Ask(_) | Effect::Child(_) | Effect::Model(_) => true,
        _ => class.may_repeat(),
    }
}

fn nobody_to_ask() -> Outcome {
    let reason = "nobody is there to ask: the run was started without a handle or an approver";
    Outcome::Decision(Decision::deny(reason))
}

fn settle(meter: &Meter, entry: &Entry) {
    if let Entry::Finished { outcome: Outcome::Model(Ok(response)), .. } = entry {
        meter.settle(&response.usage);
    }
}

/// Counts again what an earlier process has used.
fn recount(meter: &Meter, entry: &Entry) {
    if let Entry::Started { note, .. } = entry {
        let _ = meter.admit(note.kind);
    }
    settle(meter, entry);
}

fn child_ending<M: Machine>(driven: Driven<M>) -> Ending {
    match driven {
        Ok(machine) => machine.ending().cloned().unwrap_or_else(|| failed("the child did not end")),
        Err((_, error)) => failed(format!("the child could not be driven: {error}")),
    }
}

fn failed(reason: impl Into<String>) -> Ending {
    Ending::new(Status::Failed(Failure::Internal(reason.into())))
}

async fn parent_cancelled(cancel: Option<&CancelToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => pending().await,
    }
}

async fn next_order(line: &mut Option<Line>) -> Order {
    if let Some(line) = line {
        if let Some(order) = line.orders.recv().await {
            return order;
        }
    }
    pending().await
}

async fn passed(deadline: &mut Option<BoxFuture<'static, ()>>) {
    match deadline {
        Some(deadline) => deadline.await,
        None => pending().await,
    }
}

/// Where an effect sends its fleeting events.
struct Tap {
    hub: Arc<Hub>,
    world: Arc<dyn World>,
    run: RunId,
    seq: u64,
}

impl LiveSink for Tap {
    fn is_watched(&self) -> bool {
        self.hub.is_watched()
    }

    fn send(&self, event: EventKind) {
        self.hub.publish(Event::new(self.run.clone(), self.seq, self.world.now(), event));
    }
}

/// The limits of a run that has none of its own.
pub(crate) fn meter(limits: Limits) -> Arc<Meter> {
    Arc::new(Meter::new(limits, None))
}
