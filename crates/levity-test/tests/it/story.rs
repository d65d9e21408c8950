use std::sync::Arc;

use levity_core::{
    Ask, Decision, Delta, EffectId, Ending, Event, EventKind, Finish, Limit, MachineKind, Media,
    Message, ModelError, ModelErrorKind, Part, Phase, ProviderState, Role, RunId, Status,
    Timestamp, ToolCall, ToolError, ToolOutput, ToolResult, Usage,
};
use levity_test::story;
use serde_json::json;

#[track_caller]
fn check(kind: EventKind, expected: &str) {
    let event = |at| {
        Event::new(
            RunId::new("r1"),
            at,
            Timestamp::from_millis(at),
            kind.clone(),
        )
    };
    assert_eq!(story(&[event(3)]), format!("r1 {expected}\n"));
    assert_eq!(
        story(&[event(4)]),
        story(&[event(3)]),
        "a story has no times"
    );
}

fn call() -> ToolCall {
    ToolCall::new("c1", "add", json!({"a": 2}))
}

fn ending() -> Box<Ending> {
    let mut ending = Ending::new(Status::Complete);
    ending.text = "two\nlines".into();
    ending.usage = Usage::new(10, 3);
    ending.value = Some(json!({"sum": 7}));
    Box::new(ending)
}

#[test]
fn story_of_run_events() {
    check(
        EventKind::RunStarted {
            machine: MachineKind::new("agent", 1),
        },
        "started: agent/1",
    );
    check(
        EventKind::Goal {
            text: "a\nb".into(),
        },
        r#"goal "a\nb""#,
    );
    check(EventKind::Phase(Phase::Act), "phase act");
    check(EventKind::TurnStarted { turn: 1, of: 10 }, "turn 1 of 10");
    check(
        EventKind::Plan {
            steps: vec!["look".into(), "answer".into()],
        },
        r#"plan ["look", "answer"]"#,
    );
    check(
        EventKind::Note {
            text: "last turn".into(),
        },
        r#"note "last turn""#,
    );
    check(
        EventKind::MessageReceived {
            message: Arc::new(Message::user("hi")),
        },
        r#"said "hi""#,
    );
    check(EventKind::Paused, "paused");
    check(EventKind::Resumed, "resumed");
    check(EventKind::LimitNear(Limit::Tokens), "limit near: tokens");
    check(
        EventKind::LimitPassed(Limit::WallTime),
        "limit passed: time",
    );
    check(
        EventKind::RunEnded(ending()),
        r#"ended: complete "two\nlines" {"sum":7}; 10 tokens in, 3 out"#,
    );
    check(
        EventKind::Custom {
            name: "handoff".into(),
            data: json!({"to": "b"}),
        },
        r#"handoff {"to":"b"}"#,
    );
}

#[test]
fn story_of_model_calls() {
    let effect = EffectId::new(1);
    let parts = [
        Part::thinking("hm"),
        Part::text("so"),
        Part::ToolCall(call()),
        Part::ToolCall(ToolCall::from_text("c2", "add", "{\n")),
        Part::Media(Media::bytes("image/png", vec![1])),
        Part::Opaque(ProviderState::new("test", json!(1))),
    ];
    let finished = |parts: &[Part], usage| EventKind::ModelFinished {
        effect,
        message: Arc::new(Message::new(Role::Assistant, parts.to_vec())),
        finish: Finish::ToolCalls,
        usage,
    };
    check(
        EventKind::ModelStarted {
            effect,
            slot: "main".into(),
        },
        "#1 model main",
    );
    check(
        finished(&parts, Usage::new(10, 3)),
        "#1 model: thinks \"hm\", \"so\", calls c1 add {\"a\":2}, calls c2 add not JSON: \"{\\n\", \
            media image/png, \
         Opaque(Opaque(test)) [ToolCalls; 10 tokens in, 3 out]",
    );
    check(
        finished(&[], Usage::default()),
        "#1 model: nothing [ToolCalls]",
    );
    let error = ModelError::new(ModelErrorKind::Auth, "the key is wrong");
    check(
        EventKind::ModelFailed { effect, error },
        "#1 model failed: Auth: the key is wrong",
    );
}

#[test]
fn story_of_tools_questions_and_children() {
    let effect = EffectId::new(2);
    let done = |outcome| EventKind::ToolFinished {
        effect,
        result: ToolResult::new(&call(), outcome),
    };
    let decided = |decision| EventKind::Decided { effect, decision };
    check(
        EventKind::ToolStarted {
            effect,
            call: call(),
        },
        r#"#2 tool c1 add {"a":2}"#,
    );
    check(
        done(Ok(ToolOutput::text("7\n"))),
        r#"#2 tool c1 add: "7\n""#,
    );
    check(
        done(Err(ToolError::failed("no"))),
        r#"#2 tool c1 add failed: Failed: "no""#,
    );
    let picture = ToolOutput::text("see").with_media(Media::bytes("image/png", vec![1]));
    check(done(Ok(picture)), r#"#2 tool c1 add: "see" and 1 media"#);
    let ask = Ask::new(RunId::new("r1"), effect, call(), "it may destroy");
    check(
        EventKind::Asked(ask),
        r#"#2 asked c1 add {"a":2}: "it may destroy""#,
    );
    check(decided(Decision::Allow), "#2 decided: allow");
    check(decided(Decision::edit(json!({}))), "#2 decided: edit {}");
    check(decided(Decision::deny("no")), r#"#2 decided: deny "no""#);
    let child = RunId::new("r1.2");
    check(
        EventKind::ChildStarted {
            effect,
            child,
            agent: "b".into(),
        },
        "#2 child b is r1.2",
    );
    let ending = Box::new(Ending::new(Status::Cancelled {
        reason: "enough".into(),
    }));
    check(
        EventKind::ChildFinished { effect, ending },
        r#"#2 child: cancelled: enough """#,
    );
    check(
        EventKind::Refused {
            effect,
            limit: Limit::ToolCalls,
        },
        "#2 refused: tool calls",
    );
    check(EventKind::OutcomeUnknown { effect }, "#2 outcome unknown");
}

#[test]
fn story_of_transient_events() {
    let effect = EffectId::new(1);
    let delta = |delta| EventKind::Delta { effect, delta };
    check(delta(Delta::Text("a\n".into())), r#"~ #1 text "a\n""#);
    check(delta(Delta::Thinking("a".into())), r#"~ #1 thinking "a""#);
    check(
        delta(Delta::CallStart {
            index: 0,
            id: "c1".into(),
            name: "add".into(),
        }),
        "~ #1 call 0 is c1: add",
    );
    check(
        delta(Delta::CallArgs {
            index: 0,
            text: "{".into(),
        }),
        r#"~ #1 call 0 args "{""#,
    );
    check(
        delta(Delta::Finish(Finish::Stop)),
        r#"~ #1 {"finish":"stop"}"#,
    );
    let progress = EventKind::Progress {
        effect,
        call: "c1".into(),
        text: "half".into(),
    };
    check(progress, r#"~ #1 c1: "half""#);
    check(EventKind::Lagged { missed: 3 }, "~ missed 3");
}
