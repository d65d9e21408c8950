//! Guards check the input and output of an agent before anyone sees it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Content, ControlError, Delta, ErrorKind, Event, EventKind, Guard, GuardCx, GuardSubject, Hints,
    Intervention, Message, ModelErrorKind, Part, RunId, Secrets, SharedError, Stage, ToolErrorKind,
    ToolOutput, Verdict,
};
use levity_loop::{
    Agent, AgentDetails, Answer, Error, GuardFailurePolicy, SecretGuard, SizeGuard, TopicGuard,
};
use levity_memory::InMemory;
use levity_runtime::{MemoryJournal, Runtime, replay};
use levity_test::{ManualWorld, RecordingTool, ScriptedModel, Turn, crash};
use serde_json::json;

mod guarded_executor;
mod messages;
mod programs;
mod topics;

type Judge = Box<dyn Fn(&GuardSubject) -> Verdict + Send + Sync>;

/// The items that guards were shown, in order: guard, stage, and text.
#[derive(Clone, Default)]
struct SeenItems(Arc<Mutex<Vec<(String, Stage, String)>>>);

impl SeenItems {
    fn all(&self) -> Vec<(String, Stage, String)> {
        self.0.lock().unwrap().clone()
    }

    fn texts(&self, stage: Stage) -> Vec<String> {
        self.all()
            .into_iter()
            .filter(|(_, at, _)| *at == stage)
            .map(|(.., text)| text)
            .collect()
    }
}

struct Probe {
    name: &'static str,
    stages: Vec<Stage>,
    seen: SeenItems,
    judge: Judge,
}

/// Creates a guard that checks these stages only.
fn probe(
    name: &'static str,
    stages: &[Stage],
    seen: &SeenItems,
    judge: impl Fn(&GuardSubject) -> Verdict + Send + Sync + 'static,
) -> Probe {
    Probe {
        name,
        stages: stages.to_vec(),
        seen: seen.clone(),
        judge: Box::new(judge),
    }
}

#[async_trait]
impl Guard for Probe {
    fn name(&self) -> &str {
        self.name
    }

    fn watches(&self, stage: Stage) -> bool {
        self.stages.contains(&stage)
    }

    async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
        let seen = (
            self.name.to_owned(),
            subject.stage(),
            subject.text().into_owned(),
        );
        self.seen.0.lock().unwrap().push(seen);
        Ok((self.judge)(subject))
    }
}

const ALL: [Stage; 4] = [Stage::Input, Stage::Call, Stage::Result, Stage::Answer];

/// Replaces one word with another.
fn swap(subject: &GuardSubject, old: &str, new: &str) -> Verdict {
    let told = |text: &str| text.replace(old, new);
    if !subject.text().contains(old) {
        return Verdict::Pass;
    }
    let message = |message: &Message| {
        let parts = message.parts.iter().map(|part| match part {
            Part::Text(text) => Part::text(told(&text.text)),
            part => part.clone(),
        });
        Arc::new(Message::new(message.role, parts))
    };
    Verdict::rewrite(match subject.clone() {
        GuardSubject::Input(said) => GuardSubject::Input(message(&said)),
        GuardSubject::Answer(said) => GuardSubject::Answer(message(&said)),
        GuardSubject::Call(mut call) => {
            call.args = serde_json::from_str(&told(&call.args.to_string())).unwrap();
            GuardSubject::Call(call)
        }
        GuardSubject::Result(mut result) => {
            result.content = vec![Content::Text(told(&result.text()))];
            GuardSubject::Result(result)
        }
        other => other,
    })
}

fn runtime() -> (Runtime, MemoryJournal) {
    let journal = MemoryJournal::new();
    (
        Runtime::new()
            .with_journal(journal.clone())
            .with_world(ManualWorld::auto()),
        journal,
    )
}

fn look_up(text: &'static str) -> RecordingTool {
    RecordingTool::new("look_up", move |_| Ok(ToolOutput::text(text)))
        .with_hints(Hints::new().read_only())
}

/// Returns the arguments of a tool's calls.
fn args(tool: &RecordingTool) -> Vec<serde_json::Value> {
    tool.calls().into_iter().map(|call| call.args).collect()
}

async fn watched(
    mut run: levity_runtime::RunHandle<Agent>,
) -> (Vec<Event>, levity_loop::Result<Answer>) {
    let (mut stream, mut events) = (run.events(), Vec::new());
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    (events, run.await)
}

fn interventions(events: &[Event]) -> Vec<Intervention> {
    let guarded = |event: &Event| match &event.kind {
        EventKind::Guarded { intervention, .. } => Some(intervention.clone()),
        _ => None,
    };
    events.iter().filter_map(guarded).collect()
}

/// Returns all records of a journal, as JSON.
fn written(journal: &MemoryJournal, run: &RunId) -> String {
    serde_json::to_string(&journal.records(run)).unwrap()
}

#[tokio::test]
async fn each_guard_sees_output_of_previous_guard() {
    let seen = SeenItems::default();
    let first = probe("first", &ALL, &seen, |subject| swap(subject, "one", "two"));
    let second = probe("second", &ALL, &seen, |subject| {
        swap(subject, "two", "three")
    });
    let model = ScriptedModel::new()
        .call("look_up", json!({"what": "one"}))
        .reply("one!");
    let tool = look_up("one is found");
    let agent = Agent::builder(model.clone())
        .tool(tool.clone())
        .guard(first)
        .guard(second)
        .build()
        .unwrap();
    let answer = agent.run("Find one").await.unwrap();

    assert_eq!(answer.text(), "three!");
    assert_eq!(args(&tool), [json!({"what": "three"})]);
    let names = seen.all();
    let expected = [
        ("first", Stage::Input, "Find one"),
        ("second", Stage::Input, "Find two"),
        ("first", Stage::Answer, ""),
        ("second", Stage::Answer, ""),
        ("first", Stage::Call, r#"{"what":"one"}"#),
        ("second", Stage::Call, r#"{"what":"two"}"#),
        ("first", Stage::Result, "one is found"),
        ("second", Stage::Result, "two is found"),
        ("first", Stage::Answer, "one!"),
        ("second", Stage::Answer, "two!"),
    ];
    let expected = expected.map(|(name, stage, text)| (name.to_owned(), stage, text.to_owned()));
    assert_eq!(names, expected);
    let sent = serde_json::to_string(&model.requests()[1].history).unwrap();
    assert!(
        !sent.contains("one") && sent.contains("three is found"),
        "{sent}"
    );
}

#[tokio::test]
async fn rewritten_text_appears_nowhere_in_original_form() {
    let (runtime, journal) = runtime();
    let seen = SeenItems::default();
    let guard = probe("words", &ALL, &seen, |subject| {
        swap(subject, "hush", "****")
    });
    let turn = Turn::new()
        .text("hush, I look")
        .call("look_up", json!({"what": "hush"}))
        .pieces(4);
    let model = ScriptedModel::new()
        .turn(turn)
        .turn(Turn::new().text("It is hush.").pieces(3));
    let memory = InMemory::new();
    let builder = Agent::builder(model.clone())
        .tool(look_up("hush, found"))
        .guard(guard);
    let agent = builder
        .memory(memory.clone())
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, answer) = watched(agent.run("What is hush?").conversation("c").start()).await;
    let answer = answer.unwrap();

    assert_eq!(answer.text(), "It is ****.");
    assert!(
        !written(&journal, answer.run()).contains("hush"),
        "{}",
        written(&journal, answer.run())
    );
    assert!(!serde_json::to_string(&events).unwrap().contains("hush"));
    assert!(!format!("{:?} {:?}", answer.history(), model.requests()).contains("hush"));
    let kept = agent
        .conversations()
        .unwrap()
        .open(&"c".into(), 100)
        .await
        .unwrap()
        .take();
    assert_eq!(kept.messages.len(), 4);
    assert!(!format!("{kept:?}").contains("hush"));

    let stages: Vec<_> = interventions(&events)
        .into_iter()
        .map(|by| (by.stage, by.call.is_some()))
        .collect();
    let expected = [
        (Stage::Input, false),
        (Stage::Answer, false),
        (Stage::Call, true),
        (Stage::Result, true),
        (Stage::Answer, false),
    ];
    assert_eq!(stages, expected);
    // A replay gives the same events, and calls no guard.
    let asked = seen.all().len();
    let lasting: Vec<_> = events
        .into_iter()
        .filter(|event| !event.kind.is_transient())
        .collect();
    let records = journal.records(answer.run());
    let again = replay(answer.run(), &records, |_, state| agent.restore(state)).unwrap();
    assert_eq!(again.events, lasting);
    assert_eq!(
        agent.resume(answer.run().clone()).await.unwrap().text(),
        "It is ****."
    );
    assert_eq!(seen.all().len(), asked);
}

#[tokio::test]
async fn blocked_goal_ends_run_and_is_in_no_journal() {
    let (runtime, journal) = runtime();
    let guard = probe("no", &[Stage::Input], &SeenItems::default(), |_| {
        Verdict::block("not today")
    });
    let model = ScriptedModel::new();
    let agent = Agent::builder(model.clone())
        .guard(guard)
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, ended) = watched(agent.run("hush, do it").id("r").start()).await;
    let error = ended.unwrap_err();

    assert!(
        matches!(
            &error,
            Error::Blocked {
                stage: Stage::Input,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(error.kind(), ErrorKind::Blocked);
    assert!(!error.is_retryable());
    assert_eq!(error.to_string(), "`no` blocked the input: not today");
    assert_eq!(
        interventions(&events),
        [Intervention::blocked("no", Stage::Input, "not today")]
    );
    assert_eq!(model.requests().len(), 0);
    assert!(
        error
            .partial()
            .unwrap()
            .downcast::<AgentDetails>()
            .unwrap()
            .history()
            .is_empty()
    );
    let told = format!(
        "{} {} {error:?}",
        written(&journal, &"r".into()),
        serde_json::to_string(&events).unwrap()
    );
    assert!(!told.contains("hush"), "{told}");
    let again = agent.resume("r").await.unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
}

#[tokio::test]
async fn blocked_call_is_answered_and_others_are_made() {
    let (runtime, journal) = runtime();
    let guard = probe(
        "calls",
        &[Stage::Call],
        &SeenItems::default(),
        |subject| match subject {
            GuardSubject::Call(call) if call.args["what"] == "hush" => {
                Verdict::block("nobody may know")
            }
            _ => Verdict::Pass,
        },
    );
    let turn = Turn::new()
        .call("look_up", json!({"what": "hush"}))
        .call("look_up", json!({"what": "else"}));
    let model = ScriptedModel::new()
        .turn(turn)
        .call("look_up", json!({"what": "hush"}))
        .reply("So be it.");
    let tool = look_up("found");
    let agent = Agent::builder(model)
        .tool(tool.clone())
        .guard(guard)
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, answer) = watched(agent.run("Find it").id("r").start()).await;
    let answer = answer.unwrap();

    assert_eq!(args(&tool), [json!({"what": "else"})], "one call was made");
    let results: Vec<_> = answer
        .history()
        .calls()
        .map(|(_, result)| (result.error, result.text().into_owned()))
        .collect();
    let told = "this call is not allowed: `calls` blocked the call: nobody may know";
    let denied = (Some(ToolErrorKind::Denied), told.to_owned());
    assert_eq!(
        results,
        [denied.clone(), (None, "found".to_owned()), denied]
    );
    assert_eq!(
        (answer.stats().tool_calls, answer.stats().failed_calls),
        (3, 2)
    );
    assert_eq!(interventions(&events).len(), 2);
    assert!(
        !written(&journal, &"r".into()).contains("hush"),
        "what was to be called is not kept"
    );
}

#[tokio::test]
async fn call_is_checked_before_approval() {
    let seen = SeenItems::default();
    let guard = probe("calls", &[Stage::Call], &seen, |subject| {
        swap(subject, "hush", "****")
    });
    let model = ScriptedModel::new()
        .call("send", json!({"text": "hush"}))
        .reply("Sent.");
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
        .with_hints(Hints::new().destructive());
    let agent = Agent::builder(model)
        .tool(send.clone())
        .guard(guard)
        .build()
        .unwrap();
    let mut run = agent.start("Send it");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            assert_eq!(ask.call.args, json!({"text": "****"}));
            run.edit(&ask, json!({"text": "hush once more"}))
                .await
                .unwrap();
        }
    }
    run.await.unwrap();
    assert_eq!(
        args(&send),
        [json!({"text": "**** once more"})],
        "what a person put in its place is looked at"
    );
    assert_eq!(
        seen.texts(Stage::Call).len(),
        3,
        "also once more, before the tool is called"
    );
}

#[tokio::test]
async fn blocked_result_is_withheld_from_model() {
    let (runtime, journal) = runtime();
    let guard = probe("results", &[Stage::Result], &SeenItems::default(), |_| {
        Verdict::block("private")
    });
    let model = ScriptedModel::new()
        .call("look_up", json!({}))
        .reply("I was not shown it.");
    let builder = Agent::builder(model.clone())
        .tool(look_up("hush"))
        .guard(guard)
        .runtime(runtime);
    let answer = builder.build().unwrap().run("Find it").await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert_eq!(result.error, Some(ToolErrorKind::Denied));
    assert!(
        result
            .text()
            .starts_with("the call was made, and what it returned is withheld"),
        "{}",
        result.text()
    );
    assert!(
        result.guarded.is_empty(),
        "it was told, and is not part of the conversation"
    );
    assert!(
        !format!("{:?} {}", model.requests(), written(&journal, answer.run())).contains("hush")
    );
}

#[tokio::test]
async fn blocked_answer_ends_run_and_counts_its_usage() {
    let (runtime, journal) = runtime();
    let guard = probe(
        "no",
        &[Stage::Answer],
        &SeenItems::default(),
        |subject| match subject.text().contains("hush") {
            true => Verdict::block("not to be said"),
            false => Verdict::Pass,
        },
    );
    let model = ScriptedModel::new()
        .turn(Turn::new().call("look_up", json!({})).usage(10, 1))
        .turn(Turn::new().text("hush").pieces(2).usage(100, 10));
    let builder = Agent::builder(model)
        .tool(look_up("found"))
        .guard(guard)
        .runtime(runtime);
    let agent = builder.build().unwrap();
    let (events, ended) = watched(agent.run("Say it").id("r").start()).await;
    let error = ended.unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Blocked {
                stage: Stage::Answer,
                ..
            }
        ),
        "{error:?}"
    );
    let partial = error.partial().unwrap();
    assert_eq!(
        partial.usage().input,
        Some(110),
        "what was withheld was paid for"
    );
    let partial: Answer = partial.downcast().unwrap();
    assert_eq!(partial.history().len(), 3, "what was before is there");
    let told = format!(
        "{} {} {error:?}",
        written(&journal, &"r".into()),
        serde_json::to_string(&events).unwrap()
    );
    assert!(!told.contains("hush"), "{told}");
}

#[tokio::test]
async fn finish_call_is_checked_as_an_answer() {
    let seen = SeenItems::default();
    let guard = || {
        probe("answers", &[Stage::Answer], &seen, |subject| {
            swap(subject, "hush", "****")
        })
    };
    let model = ScriptedModel::new().call("finish", json!({"answer": "It is hush."}));
    let agent = Agent::builder(model)
        .finish_tool()
        .guard(guard())
        .build()
        .unwrap();
    assert_eq!(agent.run("Say it").await.unwrap().text(), "It is ****.");
    let model = ScriptedModel::new().call("finish", json!({"answer": "no"}));
    let guard = probe("no", &[Stage::Answer], &seen, |subject| {
        match &*subject.text() {
            "no" => Verdict::block("no"),
            _ => Verdict::Pass,
        }
    });
    let agent = Agent::builder(model)
        .finish_tool()
        .guard(guard)
        .build()
        .unwrap();
    assert!(matches!(
        agent.run("Say it").await,
        Err(Error::Blocked {
            stage: Stage::Answer,
            ..
        })
    ));
}

fn pieces(events: &[Event]) -> Vec<String> {
    let piece = |event: &Event| match &event.kind {
        EventKind::Delta {
            delta: Delta::Text(text),
            ..
        } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(piece).collect()
}

#[tokio::test]
async fn replies_are_held_back_only_if_a_guard_watches() {
    let model = || ScriptedModel::new().turn(Turn::new().text("Good morning!").pieces(4));
    let told = async |stages: &[Stage]| {
        let guard = probe("g", stages, &SeenItems::default(), |subject| {
            swap(subject, "Good", "Bad")
        });
        let agent = Agent::builder(model()).guard(guard).build().unwrap();
        pieces(&watched(agent.start("Hello")).await.0)
    };
    assert!(told(&[Stage::Input, Stage::Result]).await.len() > 1);
    assert_eq!(
        told(&[Stage::Answer]).await,
        ["Bad morning!"],
        "in one piece, once it has passed"
    );
    assert_eq!(told(&[Stage::Call]).await, ["Good morning!"]);
}

#[tokio::test]
async fn later_message_is_checked_before_it_is_journaled() {
    let (runtime, journal) = runtime();
    let guard = probe(
        "words",
        &[Stage::Input],
        &SeenItems::default(),
        |subject| match &*subject.text() {
            "never" => Verdict::block("no such word"),
            _ => swap(subject, "hush", "****"),
        },
    );
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .ask_user()
        .guard(guard)
        .runtime(runtime)
        .build()
        .unwrap();
    let mut run = agent.run("Do it").id("r").start();
    let (mut stream, mut events) = (run.events(), Vec::new());
    while let Some(event) = stream.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            run.send_message("and hush").await.unwrap();
            let refused = run.send_message("never").await.unwrap_err();
            assert!(matches!(refused, ControlError::Blocked { .. }), "{refused}");
            assert!(matches!(
                run.answer(ask, "never").await,
                Err(ControlError::Blocked { .. })
            ));
            run.answer(ask, "hush, this one").await.unwrap();
        }
        events.push(event);
    }
    let answer = run.await.unwrap();
    let sent = format!("{:?}", model.requests()[1]);
    assert!(
        sent.contains("and ****") && sent.contains("****, this one"),
        "{sent}"
    );
    let kept = written(&journal, answer.run());
    assert!(!kept.contains("hush") && !kept.contains("never"), "{kept}");
    let blocked: Vec<_> = interventions(&events)
        .into_iter()
        .map(|by| by.blocked.is_some())
        .collect();
    assert_eq!(
        blocked,
        [false, true, true, false],
        "also what was not taken is told"
    );
}

/// A guard that fails in a certain way.
struct Faulty(&'static str);

#[async_trait]
impl Guard for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn watches(&self, stage: Stage) -> bool {
        stage == Stage::Answer
    }

    async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
        match self.0 {
            "panics" => panic!("as planned"),
            "hangs" => std::future::pending().await,
            "fails" => Err(SharedError::new("out of order")),
            _ => Ok(Verdict::rewrite(GuardSubject::Failure(
                subject.text().into_owned(),
            ))),
        }
    }
}

#[tokio::test]
async fn failed_guard_blocks_unless_set_to_pass() {
    for (how, reason) in [
        (
            "panics",
            "the guard panicked; this is a bug in the guard's code",
        ),
        ("hangs", "the guard gave no verdict within 1s"),
        ("fails", "the guard failed: out of order"),
        (
            "mixes up",
            "the guard returned a replacement of another kind",
        ),
    ] {
        let build = |then| {
            let (runtime, _) = runtime();
            let builder = Agent::builder(ScriptedModel::new().reply("Yes."))
                .guard(Faulty(how))
                .runtime(runtime);
            builder
                .guard_timeout(Duration::from_secs(1))
                .on_guard_failure(then)
                .build()
                .unwrap()
        };
        match build(GuardFailurePolicy::Block).run("Go").await {
            Err(Error::Blocked {
                guard, reason: why, ..
            }) => {
                assert_eq!((&*guard, &*why), ("faulty", reason));
            }
            other => panic!("{how}: {other:?}"),
        }
        assert_eq!(
            build(GuardFailurePolicy::Pass)
                .run("Go")
                .await
                .unwrap()
                .text(),
            "Yes."
        );
    }
}

#[tokio::test]
async fn verdict_is_reused_after_crash() {
    let report = crash::after_every_record(MemoryJournal::new, async |life| {
        let world = life.world.clone();
        let guard = probe("words", &ALL, &SeenItems::default(), move |subject| {
            // A text is checked once in a run, and these are all different.
            world.record_action(format!("{} {}", subject.stage(), subject.text()));
            match subject {
                GuardSubject::Call(call) if call.args["what"] == "two" => Verdict::block("no"),
                _ => swap(subject, "hush", "****"),
            }
        });
        let turn = Turn::new()
            .call("look_up", json!({"what": "one"}))
            .call("look_up", json!({"what": "two"}));
        let model = ScriptedModel::new().by_history().turn(turn).reply("hush.");
        let runtime = Runtime::new()
            .with_journal(life.journal.clone())
            .with_world(ManualWorld::auto());
        let builder = Agent::builder(model)
            .tool(look_up("hush, found"))
            .guard(guard)
            .runtime(runtime);
        let agent = builder.build().unwrap();
        let answer = match life.knows("r").await {
            true => agent.resume("r").await.unwrap(),
            false => agent.run("hush?").id("r").await.unwrap(),
        };
        let results: Vec<_> = answer
            .history()
            .calls()
            .map(|(_, result)| result.text().into_owned())
            .collect();
        (answer.text().to_owned(), results)
    })
    .await;
    report.assert_same();
    for end in &report.stops {
        for (what, times) in end.world.all() {
            // Only the item in progress when the process ended is checked again.
            assert!(times <= 2, "{end}: {what} {times} times");
        }
        let twice = end
            .world
            .all()
            .into_values()
            .filter(|times| *times == 2)
            .count();
        assert!(twice <= 3, "{end}: {:?}", end.world.all());
    }
    let ended: Vec<_> = report
        .stops
        .iter()
        .filter(|end| end.to_string().contains("`ended`"))
        .collect();
    assert!(!ended.is_empty());
    for end in ended {
        assert!(
            end.world.all().into_values().all(|times| times == 1),
            "{end}: {:?}",
            end.world.all()
        );
    }
}

#[tokio::test]
async fn child_agent_has_own_guards_and_returns_through_parents() {
    let (runtime, journal) = runtime();
    let seen = SeenItems::default();
    let below = Agent::builder(ScriptedModel::new().reply("hush and mum"));
    let below = below.guard(probe("below", &[Stage::Answer], &seen, |subject| {
        swap(subject, "mum", "***")
    }));
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "hush?"}))
        .reply("So.");
    let guard = probe("above", &ALL, &seen, |subject| {
        swap(subject, "hush", "****")
    });
    let builder = Agent::builder(model).agent("helper", "Helps.", below.build().unwrap());
    let agent = builder.guard(guard).runtime(runtime).build().unwrap();
    let (events, answer) = watched(agent.start("Go")).await;
    let answer = answer.unwrap();
    assert_eq!(
        answer.history().calls().next().unwrap().1.text(),
        "**** and ***"
    );
    assert!(
        !written(&journal, answer.run()).contains("hush"),
        "{}",
        written(&journal, answer.run())
    );
    let who: Vec<_> = interventions(&events)
        .into_iter()
        .map(|by| format!("{} {}", by.guard, by.stage))
        .collect();
    assert_eq!(who, ["above call", "below answer", "above result"]);
    assert_eq!(
        seen.texts(Stage::Input),
        ["Go"],
        "the guards above are not those below"
    );
}

#[tokio::test]
async fn blocked_child_agent_lets_parent_continue() {
    let no = probe("no", &[Stage::Input], &SeenItems::default(), |_| {
        Verdict::block("not my job")
    });
    let below = Agent::builder(ScriptedModel::new())
        .guard(no)
        .build()
        .unwrap();
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "Do it"}))
        .reply("Nobody does it.");
    let agent = Agent::builder(model)
        .agent("helper", "Helps.", below)
        .build()
        .unwrap();
    let answer = agent.run("Go").await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert_eq!(
        result.text(),
        "`helper` failed: `no` blocked the input: not my job"
    );
}

#[tokio::test]
async fn size_guard_applies_only_the_set_limits() {
    let run = async |guard: SizeGuard| {
        let model = ScriptedModel::new()
            .call("look_up", json!({"what": "it"}))
            .reply("Found.");
        let agent = Agent::builder(model)
            .tool(look_up("something long"))
            .guard(guard)
            .build()
            .unwrap();
        agent.run("Find it").await.map(|answer| {
            answer
                .history()
                .calls()
                .next()
                .unwrap()
                .1
                .text()
                .into_owned()
        })
    };
    assert_eq!(
        run(SizeGuard::new().input(7).call(13).result(14).answer(6))
            .await
            .unwrap(),
        "something long"
    );
    assert!(matches!(
        run(SizeGuard::new().input(6)).await,
        Err(Error::Blocked {
            stage: Stage::Input,
            ..
        })
    ));
    assert!(
        run(SizeGuard::new().call(12))
            .await
            .unwrap()
            .contains("it has 13 bytes, but the limit is 12")
    );
    assert!(
        run(SizeGuard::new().result(13))
            .await
            .unwrap()
            .contains("withheld")
    );
    assert!(matches!(
        run(SizeGuard::new().answer(5)).await,
        Err(Error::Blocked {
            stage: Stage::Answer,
            ..
        })
    ));
}

#[tokio::test]
async fn secret_guard_can_block_or_skip_stages() {
    let key = "sk-0123456789abcdef";
    let model = || ScriptedModel::new().reply(format!("It is {key}."));
    let run = async |guard: SecretGuard| {
        Agent::builder(model())
            .guard(guard)
            .build()
            .unwrap()
            .run("Say it")
            .await
    };
    assert_eq!(
        run(SecretGuard::new()).await.unwrap().text(),
        "It is [secret: api key]."
    );
    let error = run(SecretGuard::new().blocking()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`secrets` blocked the answer: it contains a secret"
    );
    assert!(
        run(SecretGuard::new().skip_stage(Stage::Answer))
            .await
            .unwrap()
            .text()
            .contains(key)
    );
    let known = SecretGuard::new().secrets(Secrets::new().known("It is").known_only());
    assert_eq!(
        run(known).await.unwrap().text(),
        format!("[secret: known] {key}.")
    );
}

#[tokio::test]
async fn redacted_thinking_loses_its_signature() {
    let signature = levity_core::ProviderState::new("p", json!({"signature": "s"}));
    let turn = Turn::new()
        .thinking("the key is sk-0123456789abcdef")
        .opaque(signature)
        .text("Done.");
    let agent = Agent::builder(ScriptedModel::new().turn(turn))
        .guard(SecretGuard::new())
        .build()
        .unwrap();
    let answer = agent.run("Go").await.unwrap();
    let said = answer.history().messages().last().unwrap();
    assert_eq!(said.thinking(), "the key is [secret: api key]");
    assert!(said.parts[0].opaque().is_none());
}

#[tokio::test]
async fn provider_error_is_redacted() {
    let error = levity_core::ModelError::new(ModelErrorKind::BadRequest, "no: sk-0123456789abcdef")
        .with_source("sk-0123456789abcdef again");
    let model = ScriptedModel::new().fail_with(error);
    let (runtime, journal) = runtime();
    let agent = Agent::builder(model)
        .guard(SecretGuard::new().blocking())
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, ended) = watched(agent.run("Go").id("r").start()).await;
    assert_eq!(
        interventions(&events),
        [Intervention::rewrote("secrets", Stage::Answer)]
    );
    let error = ended.unwrap_err();
    let told = format!("{error} {error:?} {}", written(&journal, &"r".into()));
    assert!(
        !told.contains("sk-0") && told.contains("[secret: api key]"),
        "{told}"
    );
}
