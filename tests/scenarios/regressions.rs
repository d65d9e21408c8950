//! Faults that were found once, and must not come back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity::agent::{PlanByModel, ReflectByModel};
use levity::core::{
    ContextBlock, ContextError, ContextSource, Delta, Deltas, Effect, EffectId, Ending, Entry, Input,
    Journal, Limit, Machine, MachineKind, ModelCard, ModelError, ModelErrorKind, Record, Request, Status,
    Step, ToolCall, ToolRun, ToolSpec,
};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, replay};
use levity::test::{FaultyJournal, ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::{Value, json};

use crate::support::{add, assert_whole, runtime, watch};

fn t(name: &str, hints: Hints) -> RecordingTool {
    RecordingTool::new(name, |_: &Value| Ok(ToolOutput::text("ok")))
        .with_input(json!({"type":"object"}))
        .with_hints(hints)
}

#[tokio::test]
async fn policy_holds_for_delegates() {
    let helper_model = ScriptedModel::looping(Turn::new().text("did it"));
    let helper = Agent::builder(helper_model.clone()).build().unwrap();
    let model = ScriptedModel::new().call("helper", json!({"task": "x"})).reply("ok");
    let agent = Agent::builder(model)
        .agent("helper", "d", helper)
        .policy(Policy::new().rule(Rule::tool("helper").deny("never")))
        .build()
        .unwrap();
    agent.run("go").await.unwrap();
    assert_eq!(helper_model.requests().len(), 0, "a denied delegate ran");
}

#[tokio::test]
async fn an_approved_call_counts_once() {
    let tool = t("del", Hints::new().destructive());
    let model = ScriptedModel::new().call("del", json!({})).reply("ok");
    let agent = Agent::builder(model).tool(tool.clone()).limits(Limits::new().tool_calls(1)).build().unwrap();
    let mut run = agent.start("go");
    let mut ev = run.events();
    while let Some(e) = ev.next().await {
        if let EventKind::Asked(a) = e.kind {
            run.approve(&a).await.unwrap();
        }
    }
    let _ = run.await;
    assert_eq!(tool.calls().len(), 1, "approved, and not made");
}

#[tokio::test]
async fn resuming_an_ended_run_writes_nothing() {
    let (rt, journal) = runtime();
    let agent = Agent::builder(ScriptedModel::new().reply("x")).runtime(rt).build().unwrap();
    let a = agent.run("go").await.unwrap();
    let before = journal.records(a.run()).len();
    agent.resume(a.run().clone()).await.unwrap();
    agent.resume(a.run().clone()).await.unwrap();
    assert_eq!(journal.records(a.run()).len(), before);
}

#[tokio::test]
async fn resuming_a_cancelled_run_writes_nothing_to_child() {
    let (rt, journal) = runtime();
    let helper = Agent::builder(ScriptedModel::new().hang()).build().unwrap();
    let agent = Agent::builder(ScriptedModel::new().call("helper", json!({"task":"x"})))
        .agent("helper", "d", helper)
        .runtime(rt)
        .build()
        .unwrap();
    let mut run = agent.start("go");
    let id = run.id().clone();
    let mut ev = run.events();
    while let Some(e) = ev.next().await {
        if e.run != id && matches!(e.kind, EventKind::ModelStarted { .. }) {
            run.cancel("x").await.unwrap();
        }
    }
    let _ = run.await;
    let child = journal.list().await.unwrap().into_iter().find(|s| s.run != id).unwrap().run;
    let (p, c) = (journal.records(&id).len(), journal.records(&child).len());
    let _ = agent.resume(id.clone()).await;
    assert_eq!((journal.records(&id).len(), journal.records(&child).len()), (p, c));
}

struct Traced {
    spec: ToolSpec,
    log: Arc<Mutex<Vec<String>>>,
}
#[async_trait]
impl Tool for Traced {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }
    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.log.lock().unwrap().push(format!("+{}", self.spec.name));
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.log.lock().unwrap().push(format!("-{}", self.spec.name));
        Ok(ToolOutput::text("ok"))
    }
}
#[tokio::test]
async fn a_later_alone_call_does_not_overtake_an_asked_one() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mk = |n: &str, h| Traced {
        spec: ToolSpec::new(n, "x").with_input(json!({"type":"object"})).with_hints(h),
        log: log.clone(),
    };
    let turn = Turn::new().call("r", json!({})).call("w", json!({}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("done"))
        .tool(mk("r", Hints::new().read_only()))
        .tool(mk("w", Hints::new()))
        .policy(Policy::ask_all())
        .build()
        .unwrap();
    let mut run = agent.start("go");
    let mut ev = run.events();
    while let Some(e) = ev.next().await {
        if let EventKind::Asked(a) = e.kind {
            run.approve(&a).await.unwrap();
        }
    }
    run.await.unwrap();
    assert_eq!(log.lock().unwrap().join(" "), "+r -r +w -w");
}
#[tokio::test]
async fn deciding_one_after_the_other_does_not_hang() {
    let turn = Turn::new().call("r", json!({})).call("w", json!({}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("done"))
        .tool(t("r", Hints::new().read_only()))
        .tool(t("w", Hints::new()))
        .policy(Policy::ask_all())
        .build()
        .unwrap();
    let mut run = agent.start("go");
    let mut ev = run.events();
    let mut asks = std::collections::VecDeque::new();
    let mut busy = false;
    let done = tokio::time::timeout(Duration::from_secs(2), async {
        while let Some(e) = ev.next().await {
            match e.kind {
                EventKind::Asked(a) => asks.push_back(a),
                EventKind::ToolFinished { .. } => busy = false,
                _ => {}
            }
            if !busy && let Some(a) = asks.pop_front() {
                run.approve(&a).await.unwrap();
                busy = true;
            }
        }
    })
    .await;
    assert!(done.is_ok(), "hang: the approved call waits for the undecided one");
}
#[tokio::test]
async fn alone_waits_for_undecided_earlier() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mk = |n: &str, h| Traced {
        spec: ToolSpec::new(n, "x").with_input(json!({"type":"object"})).with_hints(h),
        log: log.clone(),
    };
    let turn = Turn::new().call("r", json!({})).call("w", json!({}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("done"))
        .tool(mk("r", Hints::new().read_only()))
        .tool(mk("w", Hints::new()))
        .policy(Policy::new().rule(Rule::tool("r").ask("x")))
        .build()
        .unwrap();
    let mut run = agent.start("go");
    let mut ev = run.events();
    while let Some(e) = ev.next().await {
        if let EventKind::Asked(a) = e.kind {
            run.approve(&a).await.unwrap();
        }
    }
    run.await.unwrap();
    assert_eq!(log.lock().unwrap().join(" "), "+r -r +w -w");
}
#[tokio::test]
async fn delegate_waits_for_alone_tool() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mk = |n: &str, h| Traced {
        spec: ToolSpec::new(n, "x").with_input(json!({"type":"object"})).with_hints(h),
        log: log.clone(),
    };
    let helper = Agent::builder(ScriptedModel::new().call("c", json!({})).reply("x"))
        .tool(mk("c", Hints::new()))
        .build()
        .unwrap();
    let turn = Turn::new().call("w", json!({})).call("helper", json!({"task":"read what w wrote"}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("done"))
        .tool(mk("w", Hints::new()))
        .agent("helper", "d", helper)
        .build()
        .unwrap();
    agent.run("go").await.unwrap();
    assert_eq!(log.lock().unwrap().join(" "), "+w -w +c -c");
}
#[tokio::test]
async fn wall_time_holds_with_ready_effects() {
    let world = ManualWorld::new();
    let w = world.clone();
    let tool = RecordingTool::new("slow", move |_: &Value| {
        w.advance(Duration::from_secs(10));
        Ok(ToolOutput::text("ok"))
    })
    .with_input(json!({"type":"object"}));
    let model = (0..5).fold(ScriptedModel::new(), |m, _| m.call("slow", json!({}))).reply("done");
    let agent = Agent::builder(model)
        .tool(tool.clone())
        .limits(Limits::new().wall_time(Duration::from_secs(5)))
        .runtime(Runtime::new().with_world(world))
        .build()
        .unwrap();
    let end = agent.run("go").await;
    assert!(end.is_err(), "50 s of work within a limit of 5 s; {} calls", tool.calls().len());
}
#[tokio::test]
async fn planner_leaves_the_last_call() {
    let model = ScriptedModel::new().reply("plan").reply("answer");
    let agent = Agent::builder(model)
        .planner(PlanByModel::new())
        .limits(Limits::new().model_calls(1))
        .build()
        .unwrap();
    assert!(agent.run("go").await.is_ok());
}
#[tokio::test]
async fn reflector_leaves_the_last_call() {
    let model = ScriptedModel::new().call("add", json!({"a":1,"b":1})).reply("r").reply("answer");
    let agent = Agent::builder(model)
        .tool(add)
        .reflector(ReflectByModel::new())
        .limits(Limits::new().model_calls(2))
        .build()
        .unwrap();
    assert!(agent.run("go").await.is_ok());
}
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Host {
    #[allow(dead_code)]
    addr: std::net::IpAddr,
}
#[tokio::test]
async fn typed_run_replays() {
    let (rt, journal) = runtime();
    let agent =
        Agent::builder(ScriptedModel::new().reply(r#"{"addr":"nope"}"#).reply(r#"{"addr":"127.0.0.1"}"#))
            .runtime(rt)
            .build()
            .unwrap();
    let (_, answer) = agent.run("go").typed::<Host>().with_answer().await.unwrap();
    let records = journal.records(answer.run());
    replay(answer.run(), &records, |_, s| agent.restore_typed::<Host>(s)).unwrap();
}
#[tokio::test]
async fn typed_run_resumes() {
    let (rt, journal) = runtime();
    let agent =
        Agent::builder(ScriptedModel::new().reply(r#"{"addr":"nope"}"#).reply(r#"{"addr":"127.0.0.1"}"#))
            .runtime(rt)
            .build()
            .unwrap();
    let (_, answer) = agent.run("go").typed::<Host>().with_answer().await.unwrap();
    assert!(!journal.records(answer.run()).is_empty());
    let error = agent.resume(answer.run().clone()).await.unwrap_err();
    assert!(matches!(error, levity::Error::Runtime { .. }), "the type is missing");
    let again = agent.resume(answer.run().clone()).typed::<Host>().await.unwrap();
    assert_eq!(again.text(), answer.text());
}
#[tokio::test]
async fn limits_survive_resume() {
    let journal = MemoryJournal::new();
    let mk = |j: Arc<dyn Fn(Runtime) -> Runtime>, model| {
        Agent::builder(model).tool(add).runtime(j(Runtime::new())).build().unwrap()
    };
    let faulty = FaultyJournal::new(journal.clone()).stop_after_records(3);
    let m = || ScriptedModel::looping(Turn::new().text("hm").call("add", json!({"a":1,"b":1})));
    let a1 = mk(Arc::new(move |r| r.with_journal(faulty.clone())), m());
    let _ = a1.run("go").id("r9").limits(Limits::new().model_calls(2)).await;
    let m2 = m();
    let j = journal.clone();
    let a2 = mk(Arc::new(move |r| r.with_journal(j.clone())), m2.clone());
    let _ = a2.resume("r9").await;
    assert!(m2.requests().len() <= 1, "{} more calls under a limit of 2", m2.requests().len());
}
#[tokio::test]
async fn childs_calls_count_after_resume() {
    let journal = MemoryJournal::new();
    let run = |j: Runtime, lead: ScriptedModel, help: ScriptedModel| {
        let helper = Agent::builder(help).tool(add).build().unwrap();
        Agent::builder(lead)
            .tool(add)
            .agent("helper", "d", helper)
            .limits(Limits::new().model_calls(8))
            .runtime(j)
            .build()
            .unwrap()
    };
    // lead: 1 call -> child: 3 calls -> crash after Finished(child)
    let call = || Turn::new().call("add", json!({"a":1,"b":1}));
    let help = ScriptedModel::new().turn(call()).turn(call()).reply("x");
    let full = run(
        Runtime::new().with_journal(journal.clone()),
        ScriptedModel::new().call("helper", json!({"task":"x"})).hang(),
        help,
    );
    let mut h = full.run("go").id("r10").start();
    let mut ev = h.events();
    while let Some(e) = ev.next().await {
        if matches!(e.kind, EventKind::TurnStarted { turn: 2, .. }) && e.run.as_str() == "r10" {
            break;
        }
    }
    drop(h);
    while ev.next().await.is_some() {}
    let m2 = ScriptedModel::looping(call());
    let again = run(Runtime::new().with_journal(journal.clone()), m2.clone(), ScriptedModel::new());
    let _ = again.resume("r10").await;
    assert!(m2.requests().len() <= 4, "{} calls after 4 of 8 were used", m2.requests().len());
}
#[tokio::test]
async fn parents_depth_binds_grandchildren() {
    let gm = ScriptedModel::looping(Turn::new().text("deep"));
    let grand = Agent::builder(gm.clone()).build().unwrap();
    let child = Agent::builder(ScriptedModel::new().call("g", json!({"task":"x"})).reply("c"))
        .agent("g", "d", grand)
        .build()
        .unwrap();
    let top = Agent::builder(ScriptedModel::new().call("c", json!({"task":"x"})).reply("t"))
        .agent("c", "d", child)
        .limits(Limits::new().depth(1))
        .build()
        .unwrap();
    let _ = top.run("go").await;
    assert_eq!(gm.requests().len(), 0, "a grandchild under a depth of 1");
}
#[tokio::test]
async fn a_run_id_may_have_dots() {
    let hm = ScriptedModel::looping(Turn::new().text("x"));
    let helper = Agent::builder(hm.clone()).build().unwrap();
    let agent = Agent::builder(ScriptedModel::new().call("h", json!({"task":"x"})).reply("t"))
        .agent("h", "d", helper)
        .build()
        .unwrap();
    agent.run("go").id("2025.01.02.03.04.05.06.07.08").await.unwrap();
    assert_eq!(hm.requests().len(), 1);
}
#[tokio::test]
async fn a_policy_that_panics_denies() {
    let agent = Agent::builder(ScriptedModel::new().call("add", json!({"a":1,"b":1})).reply("x"))
        .tool(add)
        .policy(
            Policy::new()
                .rule(Rule::tool("add").when(|_, a| a["path"].as_str().unwrap().is_empty()).deny("x")),
        )
        .build()
        .unwrap();
    let end = agent.start("go").await;
    assert!(end.is_ok(), "{end:?}");
}
#[tokio::test]
async fn partial_keeps_open_turn() {
    let tool = t("act", Hints::new());
    // opened, started model, finished model, started tool | finished tool fails
    let journal = FaultyJournal::new(MemoryJournal::new()).stop_after_records(4);
    let agent = Agent::builder(ScriptedModel::new().call("act", json!({})).reply("x"))
        .tool(tool.clone())
        .runtime(Runtime::new().with_journal(journal))
        .build()
        .unwrap();
    let e = agent.run("go").await.unwrap_err();
    assert_eq!(tool.calls().len(), 1);
    let h = e.partial().unwrap().history().clone();
    assert_whole(&h);
    assert_eq!(h.calls().count(), 1, "the call that was made is not in the history");
}
#[tokio::test]
async fn replay_notices_another_end() {
    let (rt, journal) = runtime();
    let agent = Agent::builder(ScriptedModel::new().reply("x")).runtime(rt).build().unwrap();
    let a = agent.run("go").await.unwrap();
    let mut recs = journal.records(a.run());
    recs.last_mut().unwrap().entry = Entry::Ended(Status::Partial(Limit::Tokens));
    assert!(replay(a.run(), &recs, |_, s| agent.restore(s)).is_err());
}
#[tokio::test]
async fn replay_notices_an_end_before_the_end() {
    let (rt, journal) = runtime();
    let agent = Agent::builder(ScriptedModel::new().reply("x")).runtime(rt).build().unwrap();
    let a = agent.run("go").await.unwrap();
    let mut recs = journal.records(a.run());
    recs.truncate(2);
    recs.push(Record::new(2, recs[1].at, Entry::Ended(Status::Complete)));
    assert!(replay(a.run(), &recs, |_, s| agent.restore(s)).is_err());
}
struct Src;
#[async_trait]
impl ContextSource for Src {
    async fn blocks(&self, _: usize) -> Result<Vec<ContextBlock>, ContextError> {
        Ok(vec![ContextBlock::new("rules", "No jokes.")])
    }
}
#[tokio::test]
async fn a_delegate_has_its_context() {
    let hm = ScriptedModel::looping(Turn::new().text("x"));
    let helper = Agent::builder(hm.clone()).context(Src).build().unwrap();
    let agent = Agent::builder(ScriptedModel::new().call("h", json!({"task":"x"})).reply("t"))
        .agent("h", "d", helper)
        .build()
        .unwrap();
    agent.run("go").await.unwrap();
    assert!(
        hm.requests()[0].system.as_deref().unwrap_or("").contains("No jokes"),
        "{:?}",
        hm.requests()[0].system
    );
}
#[tokio::test]
async fn a_resumed_child_keeps_its_instructions() {
    let journal = MemoryJournal::new();
    let mk = |lead: ScriptedModel, hm: ScriptedModel, ins: &str| {
        let helper = Agent::builder(hm).instructions(ins).tool(add).build().unwrap();
        Agent::builder(lead)
            .instructions(ins)
            .agent("h", "d", helper)
            .runtime(Runtime::new().with_journal(journal.clone()))
            .build()
            .unwrap()
    };
    let a = mk(ScriptedModel::new().call("h", json!({"task":"x"})), ScriptedModel::new().hang(), "old");
    let mut h = a.run("go").id("r17").start();
    let mut ev = h.events();
    while let Some(e) = ev.next().await {
        if e.run.as_str() != "r17" && matches!(e.kind, EventKind::ModelStarted { .. }) {
            break;
        }
    }
    drop(h);
    while ev.next().await.is_some() {}
    let (lm, hm) = (ScriptedModel::new().reply("t"), ScriptedModel::new().reply("x"));
    mk(lm.clone(), hm.clone(), "new").resume("r17").await.unwrap();
    assert_eq!(
        (lm.requests()[0].system.as_deref(), hm.requests()[0].system.as_deref()),
        (Some("old"), Some("old"))
    );
}
#[tokio::test]
async fn a_call_without_tools_is_no_limit() {
    let agent = Agent::builder(ScriptedModel::new().call("x", json!({})).reply("fine")).build().unwrap();
    let end = agent.run("go").await;
    assert!(!matches!(end, Err(levity::Error::Limit { .. })), "{}", end.unwrap_err());
}
// 19: paused tree picks up
#[tokio::test]
async fn debug_of_an_error_has_no_payload() {
    let agent =
        Agent::builder(ScriptedModel::new().fail(ModelErrorKind::Auth)).instructions("sys").build().unwrap();
    let e = agent.run("my secret prompt").await.unwrap_err();
    assert!(!format!("{e:?}").contains("secret prompt"));
}
#[tokio::test]
async fn deltas_follow_from_a_record_that_exists() {
    let agent = Agent::builder(ScriptedModel::new().reply("x")).build().unwrap();
    let (events, _) = watch(agent.start("go")).await;
    let started = events.iter().find(|e| matches!(e.kind, EventKind::ModelStarted { .. })).unwrap().seq;
    let delta = events.iter().find(|e| matches!(e.kind, EventKind::Delta { .. })).unwrap().seq;
    assert_eq!(started, delta);
}
// 26 blocking resume
// 27 drop + resume
// 28 length
// 29 aside after resume
// 31 usage of a cancelled run's children
#[tokio::test]
async fn scattered_empty_replies() {
    let m = (0..3)
        .fold(ScriptedModel::new(), |m, _| m.turn(Turn::new()).call("add", json!({"a":1,"b":1})))
        .reply("done");
    let agent = Agent::builder(m).tool(add).max_turns(20).build().unwrap();
    assert!(agent.run("go").await.is_ok());
}
// 33 crash loop of model calls is not counted
/// A model that waits at a gate.
struct Gate(ModelCard, Arc<tokio::sync::Notify>);

#[async_trait]
impl Model for Gate {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    async fn stream(&self, _: Request) -> Result<Deltas, ModelError> {
        self.1.notified().await;
        Ok(Deltas::ready([Delta::Text("x".into())]))
    }
}

#[tokio::test]
async fn what_was_said_is_kept() {
    let n = Arc::new(tokio::sync::Notify::new());
    let agent = Agent::builder(Gate(ModelCard::new("a", "b"), n.clone())).max_turns(1).build().unwrap();
    let run = agent.start("go");
    run.say("wait!").await.unwrap();
    n.notify_one();
    let a = run.await.unwrap();
    assert!(a.history().messages().iter().any(|m| m.text() == "wait!"), "acknowledged and lost");
}
struct Never;
#[async_trait]
impl ContextSource for Never {
    async fn blocks(&self, _: usize) -> Result<Vec<ContextBlock>, ContextError> {
        std::future::pending().await
    }
}
#[tokio::test]
async fn cancel_while_context_is_gathered() {
    let agent = Agent::builder(ScriptedModel::new().reply("x"))
        .context(Never)
        .limits(Limits::new().wall_time(Duration::from_millis(100)))
        .build()
        .unwrap();
    let run = agent.start("go");
    let c = tokio::time::timeout(Duration::from_millis(500), run.cancel("x")).await;
    assert!(c.is_ok(), "cancel never returns, and a wall_time of 100 ms is long over");
}
struct GivesUp(Option<Ending>, u8);
impl Machine for GivesUp {
    fn kind(&self) -> MachineKind {
        MachineKind::new("g", 1)
    }
    fn save(&self) -> Value {
        Value::Null
    }
    fn apply(&mut self, input: Input, step: &mut Step) {
        match input {
            Input::Begin { .. } => {
                for n in 0..2u64 {
                    step.want(
                        EffectId::new(n),
                        Effect::Tool(ToolRun::new(ToolCall::new(format!("c{n}"), "w", json!({})))),
                    );
                }
            }
            Input::Finished { .. } => {
                self.1 += 1;
                if self.1 == 2 {
                    self.0 = Some(Ending::new(Status::Complete));
                }
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
async fn a_machine_that_takes_no_approval() {
    let agent = Agent::builder(ScriptedModel::new())
        .tool(t("w", Hints::new()))
        .policy(Policy::ask_all())
        .build()
        .unwrap();
    let job = levity::runtime::Job::new(GivesUp(None, 0), agent.executor());
    let end = tokio::time::timeout(Duration::from_millis(500), Runtime::new().run(job)).await;
    assert!(end.is_ok(), "neither ends nor is called stuck");
}

#[tokio::test]
async fn words_without_end_are_refused_and_not_piled_up() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let agent = Agent::builder(Gate(ModelCard::new("a", "b"), gate.clone())).build().unwrap();
    let run = agent.start("go");
    let mut taken = 0;
    while run.say("x").await.is_ok() {
        taken += 1;
        assert!(taken < 10_000, "it takes everything");
    }
    assert!(matches!(run.say("x").await, Err(levity::runtime::ControlError::Full(_))));
    gate.notify_one();
    gate.notify_one();
}

/// Waits until a started run calls its model, or ends.
async fn until_model(run: &mut levity::agent::AgentRun) {
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if matches!(event.kind, EventKind::ModelStarted { .. }) {
            return;
        }
    }
}

#[tokio::test]
async fn a_paused_run_that_is_resumed_begins_nothing() {
    let journal = MemoryJournal::new();
    let agent =
        |model| Agent::builder(model).runtime(Runtime::new().with_journal(journal.clone())).build().unwrap();
    let mut run = agent(ScriptedModel::new().hang()).run("go").id("r").start();
    until_model(&mut run).await;
    run.pause().await.unwrap();
    run.stop().await;

    let model = ScriptedModel::new().reply("x");
    let run = agent(model.clone()).resume("r").start();
    // An answer to this shows that the run has begun all that it would begin.
    run.control().asks().await.unwrap();
    assert_eq!(model.requests().len(), 0, "a paused run called its model");
    run.resume().await.unwrap();
    assert_eq!(run.await.unwrap().text(), "x");
}

#[tokio::test]
async fn a_model_call_that_begins_again_counts() {
    let journal = MemoryJournal::new();
    let mut sent = 0;
    for turn in 0..5 {
        let model = ScriptedModel::new().hang();
        let runtime = Runtime::new().with_journal(journal.clone());
        let agent = Agent::builder(model.clone()).limits(Limits::new().model_calls(2)).runtime(runtime);
        let agent = agent.build().unwrap();
        let mut run = if turn == 0 { agent.run("go").id("r").start() } else { agent.resume("r").start() };
        until_model(&mut run).await;
        if run.control().asks().await.is_ok() {
            sent += model.requests().len();
        }
        run.stop().await;
    }
    assert_eq!(sent, 2, "requests under a limit of 2");
}

#[test]
fn a_run_is_resumed_without_async_too() {
    let (runtime, _) = runtime();
    let agent = Agent::builder(ScriptedModel::new().reply("x")).runtime(runtime).build().unwrap();
    let answer = levity::blocking::run(agent.run("go")).unwrap();
    assert_eq!(levity::blocking::run(agent.resume(answer.run().clone())).unwrap().text(), "x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_was_stopped_can_be_resumed_at_once() {
    for number in 0..50 {
        let id = format!("r{number}");
        let model = ScriptedModel::new().hang().reply("x");
        let runtime = Runtime::new().with_journal(MemoryJournal::new());
        let agent = Agent::builder(model).runtime(runtime).build().unwrap();
        let mut run = agent.run("go").id(id.clone()).start();
        until_model(&mut run).await;
        run.stop().await;
        assert!(agent.resume(id).await.is_ok());
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_short_says_so() {
    let cut = Turn::new().text("The answer is").finish(levity::core::Finish::Length);
    let agent = Agent::builder(ScriptedModel::new().turn(cut)).build().unwrap();
    assert_eq!(agent.run("go").await.unwrap().finish(), Some(&levity::core::Finish::Length));
}
