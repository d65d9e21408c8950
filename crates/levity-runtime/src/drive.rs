use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::StreamExt;
use levity_core::{
    Approver, Ask, CancelToken, Command, ControlError, Decision, Digest, Divergence, Effect, EffectClass,
    EffectCx, EffectId, EffectKind, EffectNote, Entry, Event, EventKind, Executor, Intervention, Limit,
    Limits, Live, LiveSink, Machine, OpenRun, Opened, Outcome, Permit, Post, Record, Resolution, RunId,
    RunLog, RuntimeError, Spent, Timestamp, Values, World,
};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::control::{Line, Order};
use crate::events::Hub;
use crate::fork::Fork;
use crate::meter::{Meter, Reservation};
use crate::replay::{changes, setup_of};
use crate::runtime::{LaterRestore, Shared};
use crate::state::{ById, State};
use crate::trace::{Above, Trace};

mod audit;
mod budget;
mod child;
mod lost;
mod orders;
mod park;
mod prepare;
pub(crate) mod screen;
mod under_way;

pub(crate) use audit::Audit;
use park::{Next, Resting};
use under_way::UnderWay;

/// How much the host may say before the model is called again.
pub(crate) const MAX_SAID: usize = 256;

/// How many effects are begun, or taken in, before the run looks whether it is to stop.
const BATCH: usize = 256;

/// How many records are folded in before others have the thread.
pub(crate) const AT_ONCE: usize = 4_096;

/// How long it may begin effects, or take them in, before it looks.
const SLICE: Duration = Duration::from_millis(5);

/// Drives one machine to its end.
///
/// Whatever a model asks for, orders and limits are seen soon: the driver works in slices of at most [`BATCH`] effects
/// and about [`SLICE`], and lets others have the thread in between.
pub(crate) struct Driver<M> {
    state: State<M>,
    around: Around,
    line: Option<Line>,
    effects: UnderWay<Performed>,
    children: UnderWay<Performed>,
    questions: ById<Question>,
    lookups: ById<Lookup>,
    preparing: prepare::Preparing,
    screening: screen::Screening,
    resting: Resting,
    end_children: CancelToken,
    deadline: Option<BoxFuture<'static, ()>>,
    /// What was folded in and is not written down yet, and what is to be told once it is.
    staged: Vec<Record>,
    told: Vec<Event>,
    acks: Vec<Ack>,
    /// Whether effects may begin that were left for the next slice.
    more: bool,
    slice: Slice,
    /// How the run is looked over at its end.
    audit: Option<Audit<M>>,
    budget: budget::Budget,
    trace: Trace,
    /// Last, so that what is dropped with the driver has let go of its own logs before this one is free.
    log: Box<dyn RunLog>,
}

/// An effect that was performed, and what came of it. An error is not the effect's: the run cannot be driven
/// on.
type Performed = (EffectId, Result<Came, RuntimeError>);

/// What came of performing an effect.
enum Came {
    /// It has an outcome; a child says what it has used.
    Finished(Outcome, Option<Spent>),
    /// Somebody in this process has decided, and guards may have stepped in on that.
    Decided(Outcome, Vec<Intervention>),
    /// Nobody wants to know any more.
    Withdrawn,
    /// Somebody says what came of it in an earlier process.
    Resolved(Resolution),
}

/// A question that nobody has answered yet.
struct Question {
    ask: Ask,
    /// Withdraws it from the approver, if there is one.
    approver: Option<AbortHandle>,
}

/// A look for what came of an effect in an earlier process.
struct Lookup {
    effect: Effect,
    /// Withdraws the question.
    stop: AbortHandle,
}

/// What a run is driven with.
pub(crate) struct Around {
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) hub: Option<Arc<Hub>>,
    pub(crate) cancel: Option<CancelToken>,
    /// How many runs stand above this one.
    pub(crate) depth: usize,
    /// What tells a child that is this one's from another of the same id.
    pub(crate) origin: Option<Digest>,
    /// Whether the run is left in its journal when all it does is wait.
    pub(crate) park: bool,
    /// Whether the runs below it are looked over at their ends.
    pub(crate) audit: bool,
    /// What earlier processes have used.
    pub(crate) before: budget::Before,
    /// Where a child says that it does nothing but wait, and which child it is.
    pub(crate) rests: Option<(Resting, EffectId)>,
    /// What the agent is called, for those who trace.
    pub(crate) name: Option<Arc<str>>,
    /// The span that the run's is below.
    pub(crate) above: Above,
    /// What the program gave this run and those below it.
    pub(crate) given: Option<Arc<Given>>,
    /// Interventions of guards in the input of a new run.
    pub(crate) guarded: Vec<Intervention>,
}

/// What a program gives one run, and no journal keeps.
#[derive(Clone, Default)]
pub(crate) struct Given {
    pub(crate) values: Values,
    /// Answers the questions of the run, in place of the approver of what is run.
    pub(crate) approver: Option<Arc<dyn Approver>>,
}

impl Around {
    fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.given.as_ref()?.approver.clone()
    }
}

/// How much was taken in since others had the thread.
#[derive(Default)]
struct Slice {
    entries: usize,
    since: Timestamp,
    until: Timestamp,
}

impl Slice {
    fn add(&mut self, entries: usize, at: Timestamp) {
        if self.entries == 0 {
            self.since = at;
        }
        self.entries += entries;
        self.until = at;
    }

    /// Whether it is over; then a new one begins.
    fn ends(&mut self) -> bool {
        let over = self.entries >= BATCH || self.until.since(self.since) >= SLICE;
        if over {
            self.entries = 0;
        }
        over
    }
}

/// The machine as it was left, and why it was left, if it did not end.
pub(crate) type Driven<M> = Result<M, (Option<M>, RuntimeError)>;

impl<M: Machine + 'static> Driver<M> {
    /// Folds in what the run's log holds, or what a fork begins with.
    pub(crate) fn new(
        run: RunId,
        machine: M,
        open: OpenRun,
        fork: Option<Box<Fork>>,
        around: Around,
        line: Option<Line>,
    ) -> Result<Box<Self>, (M, RuntimeError)> {
        let mut state = State::new(run, machine);
        let OpenRun { records, log, .. } = open;
        around.count(&state.run, &records);
        let setup = setup_of(&records);
        let folded = match fork {
            Some(fork) => fork.fold(&mut state, records, &*around.executor),
            None => records.into_iter().try_for_each(|record| state.apply(record, None)).map(|()| Vec::new()),
        };
        Self::of(state, folded, &setup, log, around, line)
    }

    /// The same for a run with many records: others have the thread in between.
    pub(crate) async fn load(
        run: RunId,
        machine: M,
        open: OpenRun,
        around: Around,
        line: Option<Line>,
    ) -> Result<Box<Self>, (M, RuntimeError)> {
        let mut state = State::new(run, machine);
        let OpenRun { records, log, .. } = open;
        around.count(&state.run, &records);
        let setup = setup_of(&records);
        let mut folded = Ok(Vec::new());
        for (number, record) in (1..).zip(records) {
            if let Err(divergence) = state.apply(record, None) {
                folded = Err(divergence);
                break;
            }
            if number % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        Self::of(state, folded, &setup, log, around, line)
    }

    /// The driver of a run whose records were folded in.
    fn of(
        mut state: State<M>,
        folded: Result<Vec<Record>, Divergence>,
        setup: &[(String, Digest)],
        log: Box<dyn RunLog>,
        mut around: Around,
        line: Option<Line>,
    ) -> Result<Box<Self>, (M, RuntimeError)> {
        // What a fork begins with is written when it begins.
        let staged = match folded {
            Ok(staged) => staged,
            Err(divergence) => {
                let divergence = divergence.since(&changes(setup, &around.executor.inspect().setup));
                return Err((state.machine, divergence.into()));
            }
        };
        state.take_over();
        let (above, name) = (std::mem::take(&mut around.above), around.name.as_deref());
        let trace = Trace::run(&state.run, &state.machine, name, state.seq > 0, above);
        Ok(Box::new(Self {
            state,
            staged,
            told: Vec::new(),
            acks: Vec::new(),
            more: false,
            slice: Slice::default(),
            log,
            around,
            line,
            effects: UnderWay::new(),
            children: UnderWay::new(),
            questions: ById::default(),
            lookups: ById::default(),
            preparing: prepare::Preparing::default(),
            screening: screen::Screening::default(),
            resting: Resting::default(),
            audit: None,
            end_children: CancelToken::new(),
            deadline: None,
            budget: budget::Budget::default(),
            trace,
        }))
    }

    pub(crate) fn boxed(self: Box<Self>) -> BoxFuture<'static, Driven<M>> {
        self.traced().unwrap_or_else(|driver| Box::pin(driver.drive()))
    }

    /// Drives the run within its span, where somebody wants one. Nobody else pays for another box.
    pub(crate) fn traced(self: Box<Self>) -> Result<BoxFuture<'static, Driven<M>>, Box<Self>> {
        if !self.trace.is_on() {
            return Err(self);
        }
        let span = self.trace.above();
        Ok(span.within(Box::pin(self.drive())))
    }

    /// Has the run looked over once it has ended; `restore` builds its machine again.
    pub(crate) fn audited(mut self: Box<Self>, restore: Option<LaterRestore<M>>) -> Box<Self> {
        self.audit = restore.map(|restore| Audit::new(restore, self.state.seq));
        self
    }

    pub(crate) async fn drive(mut self: Box<Self>) -> Driven<M> {
        let driven = match self.steps().await {
            Ok(()) => self.check().await,
            stopped => stopped,
        };
        match driven {
            Ok(()) => {
                self.trace.ended(self.state.machine.ending());
                Ok(self.state.machine)
            }
            Err(error) => {
                self.trace.left(&error);
                Err((Some(self.state.machine), error))
            }
        }
    }

    async fn steps(&mut self) -> Result<(), RuntimeError> {
        if self.state.ended {
            return Ok(());
        }
        self.begin().await?;
        while self.state.machine.ending().is_none() {
            // A run that is only driven on to be ended begins nothing.
            let cancelled = self.is_cancelled();
            self.more = false;
            let begun = if cancelled { Vec::new() } else { self.start_ready()? };
            self.commit().await?;
            self.trace.begins(&begun);
            begun.into_iter().for_each(|(id, effect)| self.launch(id, effect));
            if self.state.machine.ending().is_some() {
                break;
            }
            if !cancelled && self.is_stuck() {
                return Err(RuntimeError::Stuck(self.state.run.clone()));
            }
            let next = if cancelled { Next::Wait } else { self.leave().await? };
            let (entries, acks) = match next {
                Next::Leave(waiting) => {
                    return Err(RuntimeError::Parked { run: self.state.run.clone(), waiting });
                }
                Next::Take(entries) => (entries, Vec::new()),
                Next::Wait => self.wait().await?,
            };
            self.stir();
            let must_end = entries.iter().any(is_last_word);
            self.stage(entries)?;
            self.acks.extend(acks);
            if must_end && self.state.machine.ending().is_none() {
                self.commit().await?;
                return Err(RuntimeError::Stuck(self.state.run.clone()));
            }
        }
        self.end().await
    }

    /// Whether the run above it, or an order that came before the run could take it, ends the run.
    fn is_cancelled(&self) -> bool {
        let above = self.around.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        above || self.line.as_ref().is_some_and(Line::is_cancelled)
    }

    /// Opens a new run, or goes on with an old one.
    async fn begin(&mut self) -> Result<(), RuntimeError> {
        self.commit().await?;
        self.count_below().await?;
        let old = self.state.seq > 0;
        if !old {
            let state = if self.keeps() { self.state.machine.save() } else { Value::Null };
            let limits = *self.around.meter.limits();
            let mut opened = Opened::new(self.state.machine.kind(), state, limits);
            opened.wrap = self.around.meter.near();
            opened.low = self.around.meter.low();
            opened.origin = self.around.origin;
            if self.keeps() {
                let inspection = self.around.executor.inspect();
                (opened.setup, opened.hears) = (inspection.setup, inspection.screener.is_some());
            }
            let guarded = std::mem::take(&mut self.around.guarded).into_iter().map(screen::stepped_in);
            self.stage(std::iter::once(Entry::Opened(opened)).chain(guarded).collect())?;
        }
        if self.state.machine.ending().is_some() {
            return Ok(());
        }
        // A child is only driven by a run that is not paused, and nobody else can let a run without a line
        // go on.
        if self.state.paused && (self.line.is_none() || self.around.depth > 0) {
            self.record(vec![Entry::Commanded(Command::Resume)]).await?;
        }
        if old {
            self.screen_left().await?;
        }
        if !self.is_cancelled() {
            self.ask_again().await?;
        }
        if let Some(limit) = self.around.meter.limits().wall_time {
            let world = self.around.shared.world.clone();
            let left = limit.saturating_sub(world.now().since(self.state.opened));
            self.deadline = Some(Box::pin(async move { world.sleep(left).await }));
        }
        Ok(())
    }

    /// Asks what an earlier process has asked; also while paused, since an answer begins nothing.
    async fn ask_again(&mut self) -> Result<(), RuntimeError> {
        let asks = self.state.left_under_way().into_iter().filter(|id| self.state.is_question(*id));
        let asks: Vec<EffectId> = asks.collect();
        let picked = asks.into_iter().filter_map(|id| Some((id, self.pick_up(id).ok()?)));
        let (asks, entries): (Vec<EffectId>, Vec<Entry>) = picked.unzip();
        self.record(entries).await?;
        for id in asks {
            if let Some(effect) = self.state.take_left(id) {
                self.launch(id, effect);
            }
        }
        Ok(())
    }

    /// Ends what is under way, lets the children write their ends, and writes this run's.
    async fn end(&mut self) -> Result<(), RuntimeError> {
        self.preparing.clear();
        self.effects.clear();
        self.budget.clear();
        self.end_children.cancel();
        for id in self.state.left_under_way() {
            if let Some(Effect::Child(child)) = self.state.take_left(id) {
                self.children.push(self.child(id, child));
            }
        }
        if !self.children.is_empty() {
            self.commit().await?;
        }
        while self.children.next().await.is_some() {}
        let status = self.state.machine.ending().map(|ending| ending.status.clone());
        self.record(status.map(Entry::Ended).into_iter().collect()).await
    }

    fn keeps(&self) -> bool {
        self.around.shared.journal.keeps()
    }

    fn is_stuck(&self) -> bool {
        let idle = self.effects.is_empty() && self.children.is_empty() && self.state.running.is_empty();
        let idle = idle && self.preparing.is_empty();
        idle && !self.more && !self.state.paused && self.budget.waiting().is_empty()
    }

    /// Folds entries in. They are written down and told with the next [`commit`](Self::commit), and nothing
    /// that follows from them begins before that: what finishes and what begins next are one append.
    fn stage(&mut self, entries: Vec<Entry>) -> Result<(), RuntimeError> {
        if entries.is_empty() {
            return Ok(());
        }
        let (at, keeps) = (self.around.shared.world.now(), self.keeps());
        self.slice.add(entries.len(), at);
        let watched = self.around.hub.as_ref().is_some_and(|hub| hub.is_watched());
        let mut told = (watched || self.audit.is_some()).then_some(&mut self.told);
        for entry in entries {
            let record = Record::new(self.state.seq, at, entry);
            if keeps {
                self.staged.push(record.clone());
            }
            self.state.apply(record, told.as_deref_mut())?;
        }
        Ok(())
    }

    /// Writes down what was folded in, and then tells those who watch and those who wait for it.
    async fn commit(&mut self) -> Result<(), RuntimeError> {
        if !self.staged.is_empty() {
            self.log.append(&self.staged).await?;
            self.staged.clear();
        }
        if let Some(audit) = &mut self.audit {
            audit.hear(&self.told);
        }
        let watched = self.around.hub.as_ref().filter(|hub| hub.is_watched());
        for event in self.told.drain(..) {
            if let Some(hub) = watched {
                hub.publish(event);
            }
        }
        self.acks.drain(..).for_each(|ack| drop(ack.send(Ok(()))));
        Ok(())
    }

    async fn record(&mut self, entries: Vec<Entry>) -> Result<(), RuntimeError> {
        self.stage(entries)?;
        self.commit().await
    }

    /// The effects that may begin, until no more may or the slice is over; they are begun once that is written down.
    fn start_ready(&mut self) -> Result<Vec<(EffectId, Effect)>, RuntimeError> {
        let (mut begun, mut room, mut since) = (Vec::new(), BATCH, None);
        while room > 0 && !self.state.paused && self.state.machine.ending().is_none() {
            self.prepare(room);
            self.budget.reset();
            let mut entries = Vec::new();
            let mut later = Vec::new();
            while entries.len() < room
                && let Some(id) = self.state.next_left()
            {
                match self.pick_up(id) {
                    Ok(entry) => entries.push(entry),
                    Err(Deferred::Again) => later.push(id),
                    Err(Deferred::Elsewhere) => {}
                }
            }
            self.state.look_again(later);
            while entries.len() < room
                && let Some(id) = self.state.next_startable()
            {
                match self.admit(id) {
                    Some(entry) => entries.push(entry),
                    None => self.state.prepare_again(id),
                }
                // A look at the clock for a few of them is enough.
                if entries.len() % 8 == 7 && self.is_late(&mut since) {
                    room = entries.len();
                }
            }
            if entries.is_empty() {
                break;
            }
            room = room.saturating_sub(entries.len());
            self.stage(entries)?;
            begun.extend(std::iter::from_fn(|| self.state.next_to_launch()));
        }
        let goes_on = !self.state.paused && self.state.machine.ending().is_none();
        self.more = goes_on && (self.state.has_more() || (room == 0 && self.state.has_left()));
        Ok(begun)
    }

    /// Whether a slice has lasted long enough since this was first asked.
    fn is_late(&self, since: &mut Option<Timestamp>) -> bool {
        let now = self.around.shared.world.now();
        now.since(*since.get_or_insert(now)) >= SLICE
    }

    /// The entry for an effect that an earlier process left under way: it begins once more if it may be
    /// repeated; otherwise somebody may know what came of it.
    fn pick_up(&mut self, id: EffectId) -> Result<Entry, Deferred> {
        if self.is_lost(id) {
            self.look_up(id);
            return Err(Deferred::Elsewhere);
        }
        let prepared = self.prepare_again(id)?;
        let running = self.state.running.get_mut(id).ok_or(Deferred::Elsewhere)?;
        running.answered = prepared.answered;
        let (effect, mut note) = (running.effect.as_ref().ok_or(Deferred::Elsewhere)?, running.note.clone());
        if nobody_answers(&self.around, self.line.is_some(), effect, prepared.answered) {
            return Ok(Entry::finished(id, nobody_to_ask()));
        }
        let cost = prepared.cost.map(|cost| *cost);
        match self.budget.take(&self.around, id, effect, cost, &mut note) {
            Ok(()) => Ok(Entry::Started { effect: id, note }),
            // A limit keeps it from being undone or made again, so what it did may still be there.
            Err(Some(_)) if note.class != EffectClass::ReadOnly => Ok(Entry::finished(id, Outcome::Unknown)),
            Err(outcome) => Ok(Entry::finished(id, *outcome.ok_or(Deferred::Again)?)),
        }
    }

    /// The entry by which a wanted effect begins, or is finished without having begun.
    fn admit(&mut self, id: EffectId) -> Option<Entry> {
        let keeps = self.keeps();
        let refused = |outcome| Some(Entry::finished(id, outcome));
        let wanted = self.state.queue.get_mut(id)?;
        let effect = &wanted.effect;
        let prepared = wanted.prepared.take().unwrap_or_default();
        wanted.answered = prepared.answered;
        if nobody_answers(&self.around, self.line.is_some(), effect, prepared.answered) {
            return refused(nobody_to_ask());
        }
        match prepared.permit {
            Permit::Ask { reason } if !effect.is_approved() => {
                return refused(Outcome::NeedsApproval { reason });
            }
            Permit::Deny { reason } => return refused(Outcome::Denied { reason }),
            _ => {}
        }
        if effect.kind() == EffectKind::Child && self.around.depth >= self.around.meter.depth() {
            return refused(Outcome::Refused(Limit::Depth));
        }
        let mut note = EffectNote::new(effect.kind(), effect.name(), prepared.class);
        note.alone = prepared.alone;
        note.call = effect.call().cloned();
        if let Effect::Wait(wait) = effect {
            note.until = Some(self.around.shared.world.now().after(wait.time));
        }
        let cost = prepared.cost.map(|cost| *cost);
        if let Err(outcome) = self.budget.take(&self.around, id, effect, cost, &mut note) {
            return refused(*outcome?);
        }
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
            Effect::Wait(wait) => self.sleep(id, wait.time),
            effect => {
                let (executor, cx) = (self.around.executor.clone(), self.effect_cx(id));
                let trace = self.trace.effect(&effect, &*executor, self.around.shared.contents.as_ref());
                let perform =
                    async move { (id, Ok(Came::Finished(executor.execute(effect, cx).await, None))) };
                self.effects.push(trace.around(Box::pin(perform), outcome));
            }
        }
    }

    fn ask(&mut self, id: EffectId, ask: Ask) {
        let approver = self.around.approver();
        if approver.is_none() && !self.state.running.get(id).is_some_and(|running| running.answered) {
            self.questions.insert(id, Question { ask, approver: None });
            return;
        }
        let (executor, cx) = (self.around.executor.clone(), self.effect_cx(id));
        let (handle, registration) = AbortHandle::new_pair();
        self.questions.insert(id, Question { ask: ask.clone(), approver: Some(handle) });
        let answer = async move {
            let (run, call) = (ask.run.clone(), ask.call.clone());
            let decided = match approver {
                Some(approver) => Outcome::Decision(approver.decide(&ask).await),
                None => executor.execute(Effect::Ask(ask), cx).await,
            };
            match decided {
                Outcome::Decision(decision) => screen::decided(&*executor, &run, call, decision).await,
                outcome => Came::Finished(outcome, None),
            }
        };
        let answer = Abortable::new(answer, registration);
        self.effects.push(Box::pin(async move { (id, Ok(answer.await.unwrap_or(Came::Withdrawn))) }));
    }

    /// Waits until the time that was written when the wait began, and never longer than it was to be: the
    /// clock may have been set back since.
    fn sleep(&mut self, id: EffectId, longest: Duration) {
        let world = self.around.shared.world.clone();
        let until = self.state.running.get(id).and_then(|running| running.note.until);
        let left = until.unwrap_or_default().since(world.now()).min(longest);
        self.effects.push(Box::pin(async move {
            world.sleep(left).await;
            (id, Ok(Came::Finished(Outcome::Woken, None)))
        }));
    }

    fn effect_cx(&self, id: EffectId) -> EffectCx {
        let run = self.state.run.clone();
        let running = self.state.running.get(id);
        let (seq, again) = running.map_or((0, false), |running| (running.seq, running.again));
        let key = running.and_then(|running| running.note.key.clone());
        let live = self.around.hub.as_ref().map_or_else(Live::default, |hub| {
            let world = self.around.shared.world.clone();
            Live::new(Arc::new(Tap { hub: hub.clone(), world, run: run.clone(), seq }))
        });
        let reservation = self.budget.reservation(id);
        let values = self.around.given.as_ref().map(|given| given.values.clone());
        EffectCx::new(run, id, live)
            .with_values(values.unwrap_or_default())
            .with_again(again)
            .with_key(key)
            .with_max_output(reservation.map(Reservation::output))
            .with_max_input(reservation.map(Reservation::input))
    }

    /// Waits for the next thing to happen, and takes in all that has happened meanwhile.
    async fn wait(&mut self) -> Result<(Vec<Entry>, Vec<Ack>), RuntimeError> {
        if self.slice.ends() {
            // A time that has passed, and orders, are known only once others had the thread.
            tokio::task::yield_now().await;
        }
        let (keeps, has_children) = (self.keeps(), !self.children.is_empty());
        Ok(tokio::select! {
            biased;
            () = parent_cancelled(self.around.cancel.as_ref()) => {
                let reason = "the run above it ended".to_owned();
                (vec![Entry::Commanded(Command::Cancel { reason })], Vec::new())
            }
            () = passed(&mut self.deadline) => {
                self.deadline = None;
                (vec![Entry::Stopped(Limit::WallTime)], Vec::new())
            }
            order = next_order(&mut self.line) => self.screen_order(order),
            screened = self.screening.next() => self.take_screened(screened),
            posts = next_posts(&mut *self.log, keeps) => (self.screen_posts(posts?).await, Vec::new()),
            prepared = self.preparing.next() => {
                self.take_prepared(prepared);
                (Vec::new(), Vec::new())
            }
            Some(first) = self.effects.next() => (self.finished(first)?, Vec::new()),
            Some(first) = self.children.next() => (self.finished(first)?, Vec::new()),
            () = self.resting.changed(), if has_children => (Vec::new(), Vec::new()),
            () = passed(&mut self.budget.freed) => {
                self.budget.freed = None;
                (Vec::new(), Vec::new())
            }
            () = tokio::task::yield_now(), if self.more => (Vec::new(), Vec::new()),
        })
    }

    /// An effect, or else a child, that has finished.
    fn performed_by_now(&mut self) -> Option<Performed> {
        let effect = self.effects.next().now_or_never().flatten();
        effect.or_else(|| self.children.next().now_or_never().flatten())
    }

    /// The entries for an effect that finished and for others that have finished too, in the order in
    /// which they were asked for; as many as a slice has room for.
    fn finished(&mut self, first: Performed) -> Result<Vec<Entry>, RuntimeError> {
        let (mut done, mut since) = (vec![first], None);
        while done.len() < BATCH
            && let Some(next) = self.performed_by_now()
        {
            done.push(next);
            if self.is_late(&mut since) {
                break;
            }
        }
        done.sort_by_key(|(id, ..)| *id);
        let mut entries = Vec::with_capacity(done.len() + 1);
        for (effect, performed) in done {
            let mut stepped_in = Vec::new();
            let (mut outcome, spent) = match performed? {
                Came::Finished(outcome, spent) => (outcome, spent),
                Came::Decided(outcome, guarded) => {
                    stepped_in = guarded;
                    (outcome, None)
                }
                Came::Withdrawn => continue,
                Came::Resolved(resolution) => {
                    entries.extend(self.resolved(effect, resolution));
                    continue;
                }
            };
            self.questions.remove(effect);
            // An answer that comes after somebody else's is no answer.
            if !self.state.running.contains(effect) {
                continue;
            }
            self.budget.settle(&self.around, effect, &mut outcome);
            entries.extend(stepped_in.into_iter().map(screen::stepped_in));
            entries.push(Entry::Finished { effect, outcome, spent });
        }
        entries.splice(0..0, self.warnings());
        Ok(entries)
    }
}

/// The outcome, for those who trace.
fn outcome((_, performed): &Performed) -> Option<&Outcome> {
    match performed {
        Ok(Came::Finished(outcome, _) | Came::Decided(outcome, _)) => Some(outcome),
        _ => None,
    }
}

/// Whether a machine must end when it learns of this.
fn is_last_word(entry: &Entry) -> bool {
    matches!(entry, Entry::Stopped(_) | Entry::Commanded(Command::Cancel { .. }))
}

type Ack = oneshot::Sender<Result<(), ControlError>>;

/// Why an effect that an earlier process left under way does not begin now.
enum Deferred {
    /// It is looked at again.
    Again,
    /// Somebody is asked about it, or it is over.
    Elsewhere,
}

/// Whether an effect is a question that nobody can answer.
fn nobody_answers(around: &Around, has_line: bool, effect: &Effect, answered: bool) -> bool {
    let alone = !has_line && !around.park && !answered;
    alone && matches!(effect, Effect::Ask(_)) && around.approver().is_none()
}

/// Whether an effect that began in a process that is gone may be performed now. Asking again and going
/// on with a child repeat nothing, and what can be undone is undone first by the executor.
fn may_repeat(effect: &Effect, class: EffectClass) -> bool {
    match effect {
        Effect::Ask(_) | Effect::Child(_) | Effect::Model(_) | Effect::Wait(_) | Effect::Save(_) => true,
        _ => class.may_repeat() || class.needs_undo(),
    }
}

fn nobody_to_ask() -> Outcome {
    let reason = "nobody is there to ask: the run was started without a handle or an approver";
    Outcome::Decision(Decision::deny(reason))
}

async fn parent_cancelled(cancel: Option<&CancelToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => pending().await,
    }
}

async fn next_order(line: &mut Option<Line>) -> Order {
    match line {
        Some(line) => line.next().await,
        None => pending().await,
    }
}

/// What others have left for the run; a journal that keeps nothing has nothing.
async fn next_posts(log: &mut dyn RunLog, keeps: bool) -> Result<Vec<Post>, RuntimeError> {
    if keeps { Ok(log.posted().await?) } else { pending().await }
}

async fn passed(moment: &mut Option<BoxFuture<'static, ()>>) {
    match moment {
        Some(moment) => moment.await,
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
