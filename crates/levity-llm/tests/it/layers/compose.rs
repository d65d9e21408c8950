//! Combined layers, and an agent on top of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{
    Capabilities, Delta, EventKind, Finish, Limits, Model, ModelCard, ModelErrorKind, Money, Price,
    ToolOutput, World,
};
use levity_llm::ModelExt;
use levity_llm::layers::{Cache, Rate};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use super::support::{ask, pieces};

const BUSY: ModelErrorKind = ModelErrorKind::Overloaded;

#[tokio::test]
async fn retry_rate_limit_and_fallback_combine() {
    let clock = ManualWorld::auto();
    let world: Arc<dyn World> = Arc::new(clock.clone());
    let first = ScriptedModel::new().fail(BUSY).reply("first");
    let next = ScriptedModel::new().fail(ModelErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(90)),
    });
    let model = first.clone().fallback(next.clone());
    let model = model
        .rate_limit(Rate::gemini_free())
        .key("composed")
        .with_world(world.clone());
    let model = model.retry().with_world(world);
    let (deltas, error) = pieces(&model, ask("?")).await;
    assert_eq!(error, None);
    let names: Vec<String> = deltas
        .iter()
        .map(|delta| match delta {
            Delta::Restart { .. } => "next model".into(),
            Delta::Waiting { reason, .. } => reason.clone(),
            Delta::Text(text) => text.clone(),
            Delta::Usage(usage) => format!("estimated: {}", usage.estimated),
            other => format!("{other:?}"),
        })
        .collect();
    let expected = [
        "next model",
        "attempt 1 of 4 failed: the script says so",
        "first",
        "estimated: true",
    ];
    assert_eq!(names, expected);
    assert!(clock.now().since(ManualWorld::START) >= Duration::from_secs(90));
    assert_eq!(model.cost_bound(&ask("?")).sends, 8);
    first.assert_finished();
    next.assert_finished();
}

#[tokio::test]
async fn outer_cache_skips_inner_layers() {
    let inner = ScriptedModel::new().fail(BUSY).reply("yes");
    let world: Arc<dyn World> = Arc::new(ManualWorld::auto());
    let limited = inner
        .rate_limit(Rate::new().requests(2))
        .key("spared")
        .with_world(world.clone());
    let model: Arc<dyn Model> = Arc::new(limited.retry().with_world(world).cached(Cache::new()));
    for _ in 0..5 {
        assert_eq!(
            model.complete(ask("?")).await.unwrap().message.text(),
            "yes"
        );
    }
}

fn no_tools() -> ModelCard {
    let mut capabilities = Capabilities::default();
    capabilities.tools = false;
    ModelCard::new("test", "plain").with_capabilities(capabilities)
}

#[tokio::test]
async fn agent_works_with_model_without_tools() {
    let expect = |text: &'static str| {
        move |request: &levity_core::Request| {
            let all = serde_json::to_string(request).unwrap();
            if !request.tools.is_empty() || !all.contains(text) {
                Err(format!("no {text}"))
            } else {
                Ok(())
            }
        }
    };
    let calls = "[Thinking: two sums]\nAction: add\nAction Input: {\"a\": 2}\n\
                 <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \
                 5}}</tool_call>\nObservation: 99";
    let cut = Turn::new()
        .text("TOOL_CALL: add\nARGUMENTS: {\"a\": 7")
        .finish(Finish::Length);
    let inner = ScriptedModel::new()
        .with_card(no_tools())
        .turn(
            Turn::new()
                .text(calls)
                .pieces(9)
                .expect(expect("You can call these functions")),
        )
        .turn(cut.expect(expect("sum is 5")))
        .turn(Turn::new().text("It is 7.").expect(expect("sum is 5")));
    let tool = RecordingTool::new("add", |args| {
        Ok(ToolOutput::text(format!("sum is {}", args["a"])))
    });
    let agent = Agent::builder(inner.clone().text_tools())
        .tool(tool.clone())
        .build()
        .unwrap();
    assert_eq!(
        agent.run("What is 2 + 5?").await.unwrap().text(),
        "It is 7."
    );
    let args: Vec<_> = tool.calls().iter().map(|call| call.args.clone()).collect();
    assert_eq!(
        args,
        [json!({"a": 2}), json!({"a": 5})],
        "the broken call never ran"
    );
    inner.assert_finished();
}

#[tokio::test]
async fn agent_works_with_schema_constrained_replies() {
    let inner = ScriptedModel::new()
        .with_card(no_tools())
        .reply(r#"{"reply": {"name": "add", "arguments": {"a": 2}}}"#)
        .reply(r#"{"reply": {"answer": "It is 7."}}"#);
    let tool = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
    let agent = Agent::builder(inner.clone().text_tools().structured())
        .tool(tool.clone())
        .build()
        .unwrap();
    assert_eq!(
        agent.run("What is 2 + 5?").await.unwrap().text(),
        "It is 7."
    );
    assert_eq!(tool.calls().len(), 1);
    let sent = inner.requests();
    assert_eq!(
        sent[0].output, sent[1].output,
        "the same each time, so that it can be cached"
    );
    assert!(sent.iter().all(|request| request.tools.is_empty()));
}

#[tokio::test]
async fn run_events_include_waits() {
    let clock = ManualWorld::auto();
    let inner = ScriptedModel::new().fail(BUSY).reply("yes");
    let model = inner.retry().with_world(Arc::new(clock.clone()));
    let agent = Agent::builder(model)
        .runtime(Runtime::new().with_world(clock))
        .build()
        .unwrap();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let seen = waits.clone();
    let run = agent.run("?").on_event(move |event| {
        if let EventKind::Delta {
            delta: Delta::Waiting { reason, .. },
            ..
        } = &event.kind
        {
            seen.lock()
                .unwrap()
                .push((reason.clone(), event.kind.is_transient()));
        }
    });
    assert_eq!(run.await.unwrap().text(), "yes");
    assert_eq!(
        *waits.lock().unwrap(),
        [("attempt 1 of 4 failed: the script says so".to_owned(), true)]
    );
}

#[tokio::test]
async fn budget_counts_failed_attempts() {
    let card = ModelCard::new("test", "m")
        .with_price(Price::new(1.0, 1.0))
        .with_max_output(100);
    let spent = |first: ModelErrorKind| {
        let card = card.clone();
        async move {
            let clock = ManualWorld::auto();
            let inner = ScriptedModel::new()
                .fail(first)
                .turn(Turn::new().text("yes").usage(10, 1));
            let model = inner
                .with_card(card)
                .retry()
                .attempts(2)
                .with_world(Arc::new(clock.clone()));
            let runtime = Runtime::new()
                .with_world(clock)
                .with_journal(MemoryJournal::new());
            let limits = Limits::new().money(Money::from_dollars(1.0));
            let agent = Agent::builder(model)
                .runtime(runtime)
                .limits(limits)
                .build()
                .unwrap();
            agent.run("?").await.unwrap().usage().cost.unwrap()
        }
    };
    let turned_down = spent(ModelErrorKind::RateLimited { retry_after: None }).await;
    assert_eq!(
        turned_down,
        Money::from_nanos(11_000),
        "the one call that cost something"
    );
    let lost = spent(ModelErrorKind::Timeout).await;
    assert!(
        lost > Money::from_nanos(400_000),
        "all that was reserved for two attempts: {lost}"
    );
}
