//! Spans as any subscriber sees them.

use levity_core::{Message, ModelErrorKind, Response, Secrets};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{FunctionModel, ScriptedModel, Turn};
use serde_json::json;
use tracing::Instrument as _;

use crate::support::{Spans, lead, with, within};

#[test]
fn spans_of_run_are_nested_and_named_by_conventions() {
    let spans = Spans::default();
    within(&with(spans.clone()), async {
        let agent = lead().build().unwrap();
        agent
            .run("Weather and sum")
            .conversation("talk")
            .await
            .unwrap();
    });
    let run = spans.named("invoke_agent lead");
    assert_eq!((run.parent.as_deref(), run.closed), (None, true));
    for (field, value) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "lead"),
        ("gen_ai.conversation.id", "talk"),
        ("otel.kind", "internal"),
        ("levity.status", "complete"),
        ("gen_ai.usage.input_tokens", "480"),
        ("gen_ai.usage.output_tokens", "37"),
        ("levity.turns", "3"),
    ] {
        assert_eq!(run.get(field), Some(value), "{field}");
    }
    let chat = spans.named("chat big");
    assert_eq!(chat.parent.as_deref(), Some("invoke_agent lead"));
    for (field, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "anthropic"),
        ("gen_ai.request.model", "big"),
        ("gen_ai.conversation.id", "talk"),
        ("gen_ai.response.finish_reasons", "tool_calls"),
        ("gen_ai.usage.input_tokens", "100"),
        ("gen_ai.usage.output_tokens", "20"),
        ("otel.kind", "client"),
    ] {
        assert_eq!(chat.get(field), Some(value), "{field}");
    }
    let tool = spans.named("execute_tool weather");
    assert_eq!(tool.parent.as_deref(), Some("invoke_agent lead"));
    assert_eq!(tool.get("gen_ai.tool.name"), Some("weather"));
    assert_eq!(tool.get("gen_ai.tool.call.id"), Some("c-1"));
    assert_eq!(tool.get("error.type"), None);
    assert_eq!(
        tool.logged,
        ["looked at the sky"],
        "also from the tool's own thread"
    );
    let broken = spans.named("execute_tool broken");
    assert_eq!(
        (broken.get("error.type"), broken.get("otel.status_code")),
        (Some("failed"), Some("ERROR"))
    );
    let child = spans.named("invoke_agent adder");
    assert_eq!(child.parent.as_deref(), Some("invoke_agent lead"));
    assert_eq!(
        spans.named("chat small").parent.as_deref(),
        Some("invoke_agent adder")
    );
    assert!(
        spans.all().iter().all(|span| span.closed),
        "nothing stays open"
    );
    let recorded = format!("{:?}", spans.all());
    assert!(
        !recorded.contains("Paris") && !recorded.contains("Sunny"),
        "contents are not told unless asked for"
    );
}

#[test]
fn spawned_run_is_child_of_starting_span() {
    let spans = Spans::default();
    within(&with(spans.clone()), async {
        let agent = Agent::builder(ScriptedModel::new().reply("Hi."))
            .build()
            .unwrap();
        let request = tracing::info_span!("request");
        let run = request.in_scope(|| agent.start("Hello"));
        run.await.unwrap();
        async { agent.run("Hello").await.unwrap_err() }
            .instrument(request)
            .await;
    });
    let runs: Vec<_> = spans
        .all()
        .into_iter()
        .filter(|span| span.name == "run")
        .collect();
    assert_eq!(runs.len(), 2);
    assert!(
        runs.iter()
            .all(|run| run.parent.as_deref() == Some("request")),
        "{runs:#?}"
    );
}

#[test]
fn failing_model_marks_its_span_and_run_as_error() {
    let spans = Spans::default();
    within(&with(spans.clone()), async {
        let agent = Agent::builder(ScriptedModel::new().fail(ModelErrorKind::Auth))
            .build()
            .unwrap();
        agent.run("Hello").await.unwrap_err();
    });
    let (chat, run) = (spans.named("chat scripted"), spans.named("invoke_agent"));
    assert_eq!(chat.get("error.type"), Some("auth"));
    assert_eq!(
        (run.get("error.type"), run.get("levity.status")),
        (Some("auth"), Some("failed"))
    );
}

#[test]
fn span_has_response_model_name_of_provider() {
    let spans = Spans::default();
    within(&with(spans.clone()), async {
        let model = FunctionModel::new(|_| {
            Ok(Response::new(Message::assistant("Hi.")).with_model(Some("big-2026-11-16".into())))
        });
        Agent::builder(model)
            .build()
            .unwrap()
            .run("Hello")
            .await
            .unwrap();
        let silent = ScriptedModel::new().reply("Hi.");
        Agent::builder(silent)
            .build()
            .unwrap()
            .run("Hello")
            .await
            .unwrap();
    });
    let recorded: Vec<_> = spans
        .all()
        .into_iter()
        .filter(|span| span.name == "chat")
        .collect();
    let named: Vec<_> = recorded
        .iter()
        .map(|chat| chat.get("gen_ai.response.model"))
        .collect();
    assert_eq!(named, [Some("big-2026-11-16"), None]);
}

#[test]
fn recorded_contents_are_redacted() {
    let spans = Spans::default();
    within(&with(spans.clone()), async {
        let runtime = Runtime::new().trace_contents(Secrets::new().known("hunter2hunter2"));
        let model = ScriptedModel::new()
            .turn(Turn::new().call("look", json!({"word": "hunter2hunter2", "city": "Paris"})))
            .reply("It is hunter2hunter2 in Paris.");
        let tool = levity_test::RecordingTool::new("look", |_| {
            Ok(levity_core::ToolOutput::text(
                "hunter2hunter2 is the word in Lyon",
            ))
        });
        let agent = Agent::builder(model)
            .instructions("Be kind.")
            .tool(tool)
            .runtime(runtime)
            .build()
            .unwrap();
        agent.run("What is it?").await.unwrap();
    });
    let recorded = format!("{:?}", spans.all());
    assert!(!recorded.contains("hunter2"), "{recorded}");
    let chat = spans.named("chat scripted");
    assert!(
        chat.get("gen_ai.input.messages")
            .unwrap()
            .contains("What is it?")
    );
    assert!(
        chat.get("gen_ai.system_instructions")
            .unwrap()
            .contains("Be kind.")
    );
    assert!(
        chat.get("gen_ai.output.messages")
            .unwrap()
            .contains("\"tool_call\"")
    );
    let tool = spans.named("execute_tool look");
    assert!(
        tool.get("gen_ai.tool.call.arguments")
            .unwrap()
            .contains("Paris")
    );
    assert!(
        tool.get("gen_ai.tool.call.result")
            .unwrap()
            .contains("Lyon")
    );
}

#[test]
fn resumed_run_span_is_marked_as_resumed() {
    let spans = Spans::default();
    within(&with(spans.clone()), async {
        let runtime = Runtime::new().with_journal(MemoryJournal::new());
        let agent = Agent::builder(ScriptedModel::new().reply("Hi."))
            .runtime(runtime)
            .build()
            .unwrap();
        agent.run("Hello").id("r1").await.unwrap();
        agent.resume("r1").await.unwrap();
    });
    let resumed: Vec<_> = spans
        .all()
        .iter()
        .filter_map(|span| span.get("levity.resumed").map(str::to_owned))
        .collect();
    assert_eq!(resumed, ["false", "true"]);
}
