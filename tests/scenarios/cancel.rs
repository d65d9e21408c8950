//! A run that is dropped at any await point can be resumed, and leaves no task running.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use levity::core::{
    Deltas, Journal, JournalError, Model, ModelCard, ModelError, OpenRun, Record, Request, RunId,
    RunLog, RunQuery, RunSummary,
};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{ManualWorld, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{Counter, assert_complete};

/// Adds an await point at which the task can be dropped.
async fn await_point() {
    tokio::task::yield_now().await;
}

/// A journal with an await point before and after each operation.
struct YieldingJournal<J>(J);

struct YieldingLog(Box<dyn RunLog>);

#[async_trait]
impl<J: Journal> Journal for YieldingJournal<J> {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        await_point().await;
        let open = self.0.open(run).await?;
        let open = OpenRun::new(open.records, YieldingLog(open.log));
        await_point().await;
        Ok(open)
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.0.list(query).await
    }
}

#[async_trait]
impl RunLog for YieldingLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        await_point().await;
        self.0.append(records).await?;
        await_point().await;
        Ok(())
    }
}

/// A model with an await point before its reply.
struct YieldingModel<M>(M);

#[async_trait]
impl<M: Model> Model for YieldingModel<M> {
    fn card(&self) -> &ModelCard {
        self.0.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        await_point().await;
        self.0.stream(request).await
    }
}

/// Tools that yield a few times, and count their calls and the calls in progress.
struct YieldingTools {
    called: Counter,
    alive: Arc<()>,
}

#[tool]
impl YieldingTools {
    /// Reads something.
    #[tool(read_only)]
    async fn read(&self) -> String {
        self.work().await
    }

    /// Does something that must not be done twice.
    #[tool]
    async fn act(&self) -> String {
        self.called.increment();
        self.work().await
    }

    async fn work(&self) -> String {
        let _alive = self.alive.clone();
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        "done".into()
    }
}

struct Setup {
    agent: Agent,
    called: Counter,
    alive: Arc<()>,
    journal: MemoryJournal,
}

/// Builds an agent whose model replies depending on the history, so that any number of resumes
/// works.
fn setup(journal: MemoryJournal) -> Setup {
    let (called, alive) = (Counter::default(), Arc::new(()));
    let turns = |model: ScriptedModel| {
        model
            .turn(
                Turn::new()
                    .text("I look.")
                    .call("read", json!({}))
                    .call("read", json!({})),
            )
            .turn(Turn::new().call("act", json!({})))
            .reply("All done.")
    };
    let script = turns(ScriptedModel::new());
    let replies: Vec<_> = {
        let model = script;
        (0..3)
            .map(|_| {
                let request = levity::core::Request::new();
                poll_all(async { levity::core::Model::complete(&model, request).await }).unwrap()
            })
            .collect()
    };
    let model = levity::test::FunctionModel::new(move |request| {
        let turn = request
            .history
            .messages()
            .iter()
            .filter(|m| m.role == levity::core::Role::Tool)
            .count();
        Ok(replies[turn.min(2)].clone())
    });
    let runtime = Runtime::new()
        .with_journal(YieldingJournal(journal.clone()))
        .with_world(ManualWorld::new());
    let tools = YieldingTools {
        called: called.clone(),
        alive: alive.clone(),
    };
    let agent = Agent::builder(YieldingModel(model))
        .tools(tools)
        .runtime(runtime)
        .build()
        .unwrap();
    Setup {
        agent,
        called,
        alive,
        journal,
    }
}

fn poll_all<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
}

/// Polls a run `polls` times and drops it. Returns `true` if the run ended before that.
async fn run_for(agent: &Agent, run: &RunId, polls: usize) -> bool {
    let mut future = agent.run("Do it").id(run.clone()).into_future();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if future.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        // Tasks that yielded inside the run wake up when this task yields.
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn run_dropped_at_any_await_point_resumes_to_same_answer() {
    let mut polls: usize = 0;
    let mut unknown = 0;
    loop {
        let first = setup(MemoryJournal::new());
        let run = RunId::new(format!("run-{polls}"));
        let ended = run_for(&first.agent, &run, polls).await;
        // The setup and the tool hold one reference each, so no call is in progress.
        assert_eq!(
            Arc::strong_count(&first.alive),
            2,
            "a call still runs after {polls} polls"
        );

        if first.journal.records(&run).is_empty() {
            polls += 1;
            continue;
        }
        let second = setup(first.journal.clone());
        let answer = second.agent.resume(run.clone()).await.unwrap();
        assert_eq!(answer.text(), "All done.", "after {polls} polls");
        assert_complete(answer.history());

        let acted = first.called.get() + second.called.get();
        let reported_unknown = answer
            .history()
            .calls()
            .any(|(_, result)| result.error == Some(levity::core::ToolErrorKind::Unknown));
        assert!(acted <= 1, "executed {acted} times after {polls} polls");
        assert!(
            acted == 1 || reported_unknown,
            "the call was lost without a report after {polls} polls"
        );
        unknown += usize::from(reported_unknown);
        if ended {
            break;
        }
        polls += 1;
        assert!(polls < 200, "the run does not end");
    }
    assert!(polls > 20, "only {polls} points were tried");
    assert!(
        unknown > 0,
        "no await point was inside the call that must not be repeated"
    );
}

#[tokio::test]
async fn dropping_run_handle_stops_its_task() {
    let Setup { agent, alive, .. } = setup(MemoryJournal::new());
    let mut run = agent.start("Do it");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if matches!(event.kind, EventKind::ToolStarted { .. }) {
            break;
        }
    }
    drop(run);
    while events.next().await.is_some() {}
    assert_eq!(Arc::strong_count(&alive), 2, "a call is still in progress");
}

/// The methods of a handle can be awaited in a task that another thread may continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_of_run_handle_can_be_awaited_in_spawned_task() {
    let Setup { agent, .. } = setup(MemoryJournal::new());
    let run = agent.start("Do it");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        run.pause().await.expect("the run is in progress");
        run.cancel("not needed any more")
            .await
            .expect("the run is paused");
        run.await
    });
    let ended = tasks
        .join_next()
        .await
        .expect("one task")
        .expect("the task ends");
    assert_eq!(
        ended.expect_err("cancelled").kind(),
        levity::ErrorKind::Cancelled
    );
}
