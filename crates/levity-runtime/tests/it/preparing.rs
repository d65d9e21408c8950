//! Executors that take time to prepare an effect.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Ask, Child, ChildRun, CostBound, Decision, Effect, EffectClass, EffectCx, EffectId, Ending,
    Eventual, Executor, Input, Limit, Limits, Machine, MachineKind, MachineOutput, Message,
    ModelCall, Offer, Outcome, Permit, PrepareCx, Prepared, Request, Response, RunId, RuntimeError,
    Status, ToolCall, ToolError, ToolOutput, ToolResult,
};
use levity_runtime::{MachineRun, MemoryJournal, Runtime};
use levity_test::{FaultyJournal, ManualWorld};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use crate::driving::Calls;

/// An executor that answers for some effects only on request, and records the performed ones.
struct Hesitant {
    /// The effects that it does not answer for at once.
    slow: fn(&Effect) -> bool,
    prepared: Prepared,
    /// A notification for each pending answer.
    asked: Arc<Notify>,
    /// The permits for answers.
    go: Arc<Semaphore>,
    /// The number of questions.
    looks: AtomicUsize,
    seen: Mutex<Vec<EffectId>>,
}

impl Hesitant {
    fn new(slow: fn(&Effect) -> bool, prepared: Prepared) -> Arc<Self> {
        let (asked, go) = (Arc::default(), Arc::new(Semaphore::new(0)));
        Arc::new(Self {
            slow,
            prepared,
            asked,
            go,
            looks: AtomicUsize::new(0),
            seen: Mutex::default(),
        })
    }

    fn seen(&self) -> Vec<u64> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|id| id.get())
            .collect()
    }
}

#[async_trait]
impl Executor for Hesitant {
    fn prepare(&self, effect: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let prepared = self.prepared.clone();
        if !(self.slow)(effect) {
            return prepared.into();
        }
        let (asked, go) = (self.asked.clone(), self.go.clone());
        Eventual::later(async move {
            asked.notify_one();
            go.acquire().await.unwrap().forget();
            prepared
        })
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        self.seen.lock().unwrap().push(cx.effect);
        match effect {
            Effect::Tool(run) => {
                Outcome::Tool(ToolResult::new(&run.call, Ok(ToolOutput::text("ok"))))
            }
            Effect::Ask(_) => Outcome::Decision(Decision::Allow),
            Effect::Model(_) => Outcome::Model(Ok(Response::new(Message::assistant("Well.")))),
            _ => Outcome::Unknown,
        }
    }

    async fn child(&self, _: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
        Err(ToolError::failed("there are no children here"))
    }
}

fn parallel() -> Prepared {
    Prepared::new(EffectClass::ReadOnly)
}

/// Returns `true` if an effect is the call with this number.
fn is_call(effect: &Effect, number: u64) -> bool {
    matches!(effect, Effect::Tool(run) if run.call.args == json!(number))
}

fn runtime(journal: &MemoryJournal) -> Runtime {
    Runtime::new()
        .with_journal(journal.clone())
        .with_world(ManualWorld::new())
}

#[tokio::test]
async fn cancel_ends_run_with_pending_prepare() {
    let executor = Hesitant::new(|_| true, parallel());
    let run =
        runtime(&MemoryJournal::new()).start(MachineRun::new(Calls::at_once(3), executor.clone()));
    executor.asked.notified().await;
    run.control().cancel("enough").await.unwrap();
    let done = run.await.unwrap();
    assert!(matches!(
        done.machine.ending().unwrap().status,
        Status::Cancelled { .. }
    ));
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn wall_time_ends_run_with_pending_prepare() {
    let (world, executor) = (ManualWorld::new(), Hesitant::new(|_| true, parallel()));
    let limits = Limits::new().wall_time(Duration::from_secs(2));
    let runtime = Runtime::new()
        .with_journal(MemoryJournal::new())
        .with_world(world.clone());
    let run = runtime.start(MachineRun::new(Calls::one_by_one(1), executor.clone()).limits(limits));
    executor.asked.notified().await;
    world.advance(Duration::from_secs(3));
    let done = run.await.unwrap();
    assert_eq!(
        done.machine.ending().unwrap().status,
        Status::Partial(Limit::WallTime)
    );
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn pause_during_pending_prepare_starts_nothing_until_resume() {
    let executor = Hesitant::new(|_| true, parallel());
    let run = runtime(&MemoryJournal::new())
        .start(MachineRun::new(Calls::one_by_one(1), executor.clone()));
    executor.asked.notified().await;
    let control = run.control().clone();
    control.pause().await.unwrap();
    executor.go.add_permits(1);
    // The run handles the answer before it accepts another order.
    control.pause().await.unwrap();
    assert!(executor.seen().is_empty());
    control.resume().await.unwrap();
    run.await.unwrap();
    assert_eq!(executor.seen(), [0]);
}

#[tokio::test]
async fn calls_after_pending_prepare_keep_their_order() {
    for (prepared, together) in [(parallel(), true), (parallel().alone(), false)] {
        let executor = Hesitant::new(|effect| is_call(effect, 0), prepared);
        let journal = MemoryJournal::new();
        let job = MachineRun::new(Calls::at_once(4), executor.clone()).id(RunId::new("r"));
        let run = runtime(&journal).start(job);
        executor.asked.notified().await;
        executor.go.add_permits(1);
        assert_eq!(run.await.unwrap().machine.done.len(), 4);
        assert_eq!(executor.seen(), [0, 1, 2, 3], "together: {together}");
        let records = journal.records(&RunId::new("r"));
        let again =
            levity_runtime::replay(&RunId::new("r"), &records, |_, _| Ok(Calls::at_once(4)));
        assert_eq!(again.unwrap().machine.done.len(), 4);
    }
}

#[tokio::test]
async fn call_denied_later_is_answered_and_others_are_made() {
    let executor = Hesitant::new(|effect| is_call(effect, 1), parallel());
    let denied = Hesitant {
        slow: |_| true,
        prepared: parallel().permit(Permit::deny("not now")),
        asked: Arc::default(),
        go: executor.go.clone(),
        looks: AtomicUsize::new(0),
        seen: Mutex::default(),
    };
    executor.go.add_permits(3);
    let job = MachineRun::new(Calls::at_once(3), executor.clone());
    let done = runtime(&MemoryJournal::new()).run(job).await.unwrap();
    assert_eq!((done.machine.done.len(), executor.seen().len()), (3, 3));
    executor.go.add_permits(3);
    let done = runtime(&MemoryJournal::new())
        .run(MachineRun::new(Calls::at_once(3), Arc::new(denied)))
        .await
        .unwrap();
    let denied = Outcome::Denied {
        reason: "not now".to_owned(),
    };
    assert_eq!(done.machine.done, [denied.clone(), denied.clone(), denied]);
}

/// A machine that asks one question.
#[derive(Debug, Default)]
struct Asks(Option<Ending>);

impl Machine for Asks {
    fn kind(&self) -> MachineKind {
        MachineKind::new("asks", 1)
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        let id = EffectId::new(0);
        match input {
            Input::Begin { run, .. } => {
                let ask = Ask::new(run, id, ToolCall::new("c", "tool", json!({})), "why not");
                step.request(id, Effect::Ask(ask));
            }
            Input::Finished {
                outcome: Outcome::Decision(decision),
                ..
            } => {
                let mut ending = Ending::new(Status::Complete);
                ending.text = format!("{decision:?}");
                self.0 = Some(ending);
            }
            Input::Cancel { reason } => self.0 = Some(Ending::new(Status::Cancelled { reason })),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.0.as_ref()
    }
}

#[tokio::test]
async fn old_question_is_answered_once_executor_answers_it() {
    let (journal, id) = (MemoryJournal::new(), RunId::new("r"));
    let nobody = Hesitant::new(|_| true, parallel());
    nobody.go.add_permits(1);
    let job = MachineRun::new(Asks::default(), nobody.clone())
        .id(id.clone())
        .park();
    let parked = runtime(&journal).run(job).await.unwrap_err();
    assert!(
        matches!(parked.error, RuntimeError::Parked { .. }),
        "{}",
        parked.error
    );
    // The resuming process has to wait to know who answers.
    let somebody = Hesitant::new(|_| true, parallel().answered(true));
    let resume = |executor: &Arc<Hesitant>| {
        MachineRun::resume(id.clone(), executor.clone(), |_, _| Ok(Asks::default()))
    };
    let run = runtime(&journal).start(resume(&somebody));
    somebody.asked.notified().await;
    somebody.go.add_permits(1);
    assert_eq!(run.await.unwrap().machine.0.unwrap().text, "Allow");
    assert_eq!((somebody.seen(), nobody.seen()), (vec![0], vec![]));
    assert_eq!(somebody.looks.load(Ordering::SeqCst), 1);
}

/// A machine that calls a model once.
#[derive(Debug, Default)]
struct CallsModel(Option<Ending>);

impl Machine for CallsModel {
    fn kind(&self) -> MachineKind {
        MachineKind::new("calls_model", 1)
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } => {
                let call = ModelCall::new("main", Request::new(), Offer::None);
                step.request(EffectId::new(0), Effect::Model(call));
            }
            Input::Finished { outcome, .. } => {
                let done = matches!(outcome, Outcome::Model(Ok(_)));
                self.0 = Some(Ending::new(if done {
                    Status::Complete
                } else {
                    Status::Partial(Limit::Tokens)
                }));
            }
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.0.as_ref()
    }
}

#[tokio::test]
async fn old_model_call_waits_for_its_cost_under_token_limit() {
    let prepared = || parallel().cost(CostBound::new(10).with_output(10));
    let resume = |executor: &Arc<Hesitant>, limits| {
        let job = MachineRun::resume(RunId::new("r"), executor.clone(), |_, _| {
            Ok(CallsModel::default())
        });
        job.limits(limits)
    };
    for (tokens, status) in [(Some(1_000), Status::Complete), (None, Status::Complete)] {
        let limits = tokens.map_or(Limits::new(), |tokens| Limits::new().tokens(tokens));
        let journal = MemoryJournal::new();
        let quick = Hesitant::new(|_| false, prepared());
        let stopping = FaultyJournal::new(journal.clone()).stop_after_records(2);
        let job = MachineRun::new(CallsModel::default(), quick)
            .id(RunId::new("r"))
            .limits(limits);
        let stopped = Runtime::new()
            .with_journal(stopping)
            .with_world(ManualWorld::new())
            .run(job)
            .await;
        assert!(stopped.is_err());
        let slow = Hesitant::new(|_| true, prepared());
        slow.go.add_permits(1);
        let done = runtime(&journal).run(resume(&slow, limits)).await.unwrap();
        assert_eq!(done.machine.0.unwrap().status, status);
        let looks = slow.looks.load(Ordering::SeqCst);
        assert_eq!(
            looks,
            usize::from(tokens.is_some()),
            "it is asked only where something is limited"
        );
    }
}

#[tokio::test]
async fn old_question_can_be_decided_during_pending_prepare() {
    let (journal, id) = (MemoryJournal::new(), RunId::new("r"));
    let nobody = Hesitant::new(|_| false, parallel());
    let job = MachineRun::new(Asks::default(), nobody.clone())
        .id(id.clone())
        .park();
    runtime(&journal).run(job).await.unwrap_err();
    let slow = Hesitant::new(|_| true, parallel().answered(true));
    let run = runtime(&journal).start(MachineRun::resume(id.clone(), slow.clone(), |_, _| {
        Ok(Asks::default())
    }));
    slow.asked.notified().await;
    let ask = Ask::new(
        id,
        EffectId::new(0),
        ToolCall::new("c", "tool", json!({})),
        "why not",
    );
    run.control().decide(&ask, Decision::Allow).await.unwrap();
    assert_eq!(run.await.unwrap().machine.0.unwrap().text, "Allow");
    assert!(slow.seen().is_empty(), "nobody else was asked");
}

#[tokio::test]
async fn question_without_approver_and_handle_is_denied() {
    let executor = Hesitant::new(|_| true, parallel());
    executor.go.add_permits(1);
    let done = runtime(&MemoryJournal::new())
        .run(MachineRun::new(Asks::default(), executor))
        .await
        .unwrap();
    assert!(
        done.machine
            .0
            .unwrap()
            .text
            .contains("no one can be asked for approval")
    );
}
