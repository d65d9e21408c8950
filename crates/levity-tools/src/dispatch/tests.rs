use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use levity_core::{CancelToken, Content, Hints, Media, Tool, ToolCx};
use serde_json::json;

use super::*;
use crate::policy::Rule;
use crate::testing::{Clock, FnTool};

mod changes;
mod find;
mod long;
mod permit;
mod slow;
mod undo;

fn spec(name: &str, hints: Hints) -> ToolSpec {
    ToolSpec::new(name, "").with_hints(hints)
}

fn weather() -> FnTool {
    let input = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    });
    FnTool::ready(ToolSpec::new("weather", "").with_input(input), |args| {
        Ok(ToolOutput::text(format!("sunny in {}", args["city"])))
    })
}

fn dispatcher(tool: FnTool) -> Dispatcher {
    Dispatcher::builder(Registry::builder().tool(tool).build().unwrap())
        .world(Clock::skipping())
        .build()
        .unwrap()
}

fn cx() -> CallCx {
    CallCx::new("run".into(), "run/1")
}

/// Returns the result of a call that does not wait.
#[track_caller]
fn call(dispatcher: &Dispatcher, name: &str, args: Value) -> ToolResult {
    done(dispatcher, &ToolCall::new("c", name, args))
}

#[track_caller]
fn done(dispatcher: &Dispatcher, call: &ToolCall) -> ToolResult {
    let mut future = Box::pin(dispatcher.dispatch(call, false, cx()));
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        std::task::Poll::Ready(Dispatched::Done(result)) => result,
        other => panic!("{other:?}"),
    }
}

/// Returns an immediate decision of the policy.
#[track_caller]
fn permit(dispatcher: &Dispatcher, call: &ToolCall) -> Permit {
    match dispatcher.permit(call) {
        Eventual::Known(permit) => permit,
        Eventual::Later(_) => panic!("nothing blocks here"),
    }
}

#[track_caller]
fn check(result: &ToolResult, error: ToolErrorKind, text: &str) {
    assert_eq!((result.error, &*result.text()), (Some(error), text));
}

#[test]
fn valid_call_gets_a_result() {
    let result = call(&dispatcher(weather()), "weather", json!({"city": "Rome"}));
    assert_eq!((result.error, &*result.text()), (None, "sunny in \"Rome\""));
    assert_eq!((result.call.as_str(), &*result.name), ("c", "weather"));
}

#[test]
fn dispatch_future_is_send() {
    fn is_send(_: &impl Send) {}
    let (dispatcher, call) = (
        dispatcher(weather()),
        ToolCall::new("c", "weather", json!({})),
    );
    is_send(&dispatcher.dispatch(&call, false, cx()));
}

#[test]
fn unknown_tool_is_answered_with_names() {
    let dispatcher = dispatcher(weather());
    let text = "there is no tool `Wether`; did you mean `weather`?\nthe tools are `weather`";
    check(
        &call(&dispatcher, "Wether", json!({})),
        ToolErrorKind::NotFound,
        text,
    );
    let text = "there is no tool `rm`\nthe tools are `weather`";
    check(
        &call(&dispatcher, "rm", json!({})),
        ToolErrorKind::NotFound,
        text,
    );
    assert!(
        call(&dispatcher, &"é".repeat(1 << 20), json!({}))
            .text()
            .len()
            < 200
    );
    assert_eq!(dispatcher.class("rm"), EffectClass::AtMostOnce);
    assert!(!dispatcher.runs_alone("rm"));
}

#[test]
fn no_tools_or_too_many_tools_are_not_listed() {
    let build = |count: usize| {
        let tools = (0..count).fold(Registry::builder(), |all, n| {
            all.tool(FnTool::named(&format!("t{n}")))
        });
        Dispatcher::builder(tools.build().unwrap())
            .world(Clock::skipping())
            .build()
            .unwrap()
    };
    check(
        &call(&build(0), "rm", json!({})),
        ToolErrorKind::NotFound,
        "there is no tool `rm`",
    );
    check(
        &call(&build(21), "rm", json!({})),
        ToolErrorKind::NotFound,
        "there is no tool `rm`",
    );
}

#[test]
fn invalid_arguments_are_explained() {
    let dispatcher = dispatcher(weather());
    let result = done(
        &dispatcher,
        &ToolCall::from_text("c", "weather", "{\"city\": \"Ro"),
    );
    let text = "the arguments are not valid JSON: EOF while parsing a string at line 1 column 12";
    check(&result, ToolErrorKind::InvalidArgs, text);

    let schema = "the schema: {\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\
                  \"required\":[\"city\"],\"additionalProperties\":false}";
    let cases = [
        (
            json!({"city": [5]}),
            "- at `/city`: [5] is not of type \"string\"",
        ),
        (json!(null), "- the property \"city\" is missing"),
        (json!({"city": "a", "x": 1}), "- there is no property \"x\""),
        (json!([1]), "- [1] is not of type \"object\""),
        (json!("city"), "- \"city\" is not of type \"object\""),
    ];
    for (args, problem) in cases {
        let text =
            format!("the arguments do not match the schema of `weather`:\n{problem}\n{schema}");
        check(
            &call(&dispatcher, "weather", args),
            ToolErrorKind::InvalidArgs,
            &text,
        );
    }
}

#[test]
fn arguments_of_wrong_type_are_corrected_with_a_note() {
    let registry = Registry::builder().tool(weather()).build().unwrap();
    let corrects = Dispatcher::builder(registry)
        .world(Clock::still())
        .correct_arguments()
        .build()
        .unwrap();
    let result = call(&corrects, "weather", json!({"city": 5}));
    let text = "(The arguments were corrected: at `/city`, 5 became \"5\".)\nsunny in \"5\"";
    assert_eq!((result.error, &*result.text()), (None, text));
    let refused = call(&dispatcher(weather()), "weather", json!({"city": 5}));
    assert_eq!(refused.error, Some(ToolErrorKind::InvalidArgs));
}

#[test]
fn policy_decides_on_corrected_arguments() {
    let registry = Registry::builder().tool(weather()).build().unwrap();
    let rule = Rule::any()
        .when(|_, args: &Value| args["city"] == "5")
        .deny("not this one");
    let builder = Dispatcher::builder(registry)
        .world(Clock::still())
        .policy(Policy::allow_all().rule(rule));
    let dispatcher = builder.correct_arguments().build().unwrap();
    let call_of_number = ToolCall::new("c", "weather", json!({"city": 5}));
    assert_eq!(
        permit(&dispatcher, &call_of_number),
        Permit::deny("not this one")
    );
    assert_eq!(
        done(&dispatcher, &call_of_number).error,
        Some(ToolErrorKind::Denied)
    );
}

#[test]
fn schema_as_arguments_is_answered_with_an_example() {
    let args =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let text = "the arguments of `weather` are its schema; give values in its place, for example \
        {\"city\":\"text\"}";
    check(
        &call(&dispatcher(weather()), "weather", args),
        ToolErrorKind::InvalidArgs,
        text,
    );
}

#[test]
fn hostile_arguments_make_no_long_message() {
    let input = json!({"type": "object", "description": "d".repeat(100_000), "maxProperties": 0});
    let tool = FnTool::ready(ToolSpec::new("t", "").with_input(input), |_| {
        Ok(ToolOutput::default())
    });
    let dispatcher = dispatcher(tool);
    let deep = (0..5_000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    for args in [
        json!({"a": "x".repeat(1 << 20)}),
        deep,
        json!("y".repeat(1 << 20)),
    ] {
        let result = call(&dispatcher, "t", args);
        assert_eq!(result.error, Some(ToolErrorKind::InvalidArgs));
        assert!(result.text().len() < 2_000);
    }
    let deep = "[".repeat(100_000);
    let result = done(&dispatcher, &ToolCall::from_text("c", "t", &deep));
    assert!(
        result.text().contains("recursion limit exceeded"),
        "{}",
        result.text()
    );
}

#[test]
fn arguments_sent_as_text_are_never_used() {
    let mut hidden = ToolCall::new("c", "weather", json!({"city": "Rome"}));
    hidden.raw = Some("{\"city\": \"Oslo\"}".into());
    assert_eq!(
        done(&dispatcher(weather()), &hidden).error,
        Some(ToolErrorKind::InvalidArgs)
    );
}

#[test]
fn null_means_no_arguments() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |args| Ok(ToolOutput::value(args)));
    assert_eq!(
        call(&dispatcher(tool), "t", json!(null)).value,
        Some(json!({}))
    );
}

#[tokio::test]
async fn policy_asks_and_denies_before_the_tool_runs() {
    let calls = Arc::new(AtomicU32::new(0));
    let tool = |name| {
        let calls = calls.clone();
        FnTool::ready(ToolSpec::new(name, ""), move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            Ok(ToolOutput::text("ran"))
        })
    };
    let registry = Registry::builder()
        .tool(tool("ask"))
        .tool(tool("deny"))
        .build()
        .unwrap();
    let policy = Policy::new()
        .rule(Rule::tool("ask").ask("why not"))
        .rule(Rule::tool("deny").deny("no way"));
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::still())
        .policy(policy)
        .build()
        .unwrap();
    let call = |name: &str| ToolCall::new("c", name, json!({}));

    let asked = dispatcher.dispatch(&call("ask"), false, cx()).await;
    assert_eq!(
        asked,
        Dispatched::NeedsApproval {
            reason: "why not".into()
        }
    );
    for approved in [false, true] {
        let Dispatched::Done(result) = dispatcher.dispatch(&call("deny"), approved, cx()).await
        else {
            panic!()
        };
        check(
            &result,
            ToolErrorKind::Denied,
            "this call is not allowed: no way",
        );
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let Dispatched::Done(result) = dispatcher.dispatch(&call("ask"), true, cx()).await else {
        panic!()
    };
    assert_eq!((&*result.text(), calls.load(Ordering::SeqCst)), ("ran", 1));
}

#[test]
fn invalid_arguments_are_reported_before_approval() {
    let registry = Registry::builder().tool(weather()).build().unwrap();
    let builder = Dispatcher::builder(registry)
        .world(Clock::still())
        .policy(Policy::ask_all());
    let result = call(&builder.build().unwrap(), "weather", json!({"city": [1]}));
    assert_eq!(result.error, Some(ToolErrorKind::InvalidArgs));
}

#[test]
fn output_is_validated_against_schema() {
    let output =
        json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    let answer = |output: Value, answer: ToolOutput| {
        let spec = ToolSpec::new("t", "").with_output(output);
        call(
            &dispatcher(FnTool::ready(spec, move |_| Ok(answer.clone()))),
            "t",
            json!({}),
        )
    };
    assert_eq!(
        answer(output.clone(), ToolOutput::value(json!({"sum": 7}))).error,
        None
    );
    check(
        &answer(output.clone(), ToolOutput::value(json!({"sum": "x"}))),
        ToolErrorKind::InvalidOutput,
        "the tool ran, but its output does not match its schema:\n- at `/sum`: \"x\" is not of \
            type \"integer\"",
    );
    check(
        &answer(output, ToolOutput::text("7")),
        ToolErrorKind::InvalidOutput,
        "the tool ran, but returned no value, which its output schema requires",
    );
    check(
        &answer(json!(false), ToolOutput::value(json!(1))),
        ToolErrorKind::InvalidOutput,
        "the tool ran, but its output does not match its schema:\n- nothing is allowed here",
    );
}

#[test]
fn deeply_nested_output_is_rejected() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| {
        Ok(ToolOutput::value(
            (0..5_000).fold(json!(1), |inner, _| Value::Array(vec![inner])),
        ))
    });
    let text = "the tool ran, but its output is nested deeper than 100 levels";
    check(
        &call(&dispatcher(tool), "t", json!({})),
        ToolErrorKind::InvalidOutput,
        text,
    );
}

#[test]
fn too_much_media_is_rejected() {
    let tool = |bytes: usize| {
        FnTool::ready(ToolSpec::new("t", ""), move |_| {
            let media = Media::bytes("image/png", vec![0; bytes]);
            Ok(ToolOutput::text("look")
                .with_media(media)
                .with_media(Media::url("image/png", "x")))
        })
    };
    let most = (10 << 20) - 1;
    assert_eq!(
        call(&dispatcher(tool(most)), "t", json!({})).content.len(),
        3
    );
    let text = "the tool ran, but returned 10485761 bytes of media; the limit is 10485760";
    check(
        &call(&dispatcher(tool(most + 1)), "t", json!({})),
        ToolErrorKind::InvalidOutput,
        text,
    );
}

#[test]
fn scheduling_follows_the_hints() {
    let hints = [
        ("a", Hints::new()),
        ("r", Hints::new().read_only()),
        ("p", Hints::new().parallel()),
    ];
    let tools = hints
        .into_iter()
        .fold(Registry::builder(), |all, (name, hints)| {
            all.tool(FnTool::ready(spec(name, hints), |_| {
                Ok(ToolOutput::default())
            }))
        });
    let dispatcher = Dispatcher::builder(tools.build().unwrap())
        .world(Clock::still())
        .build()
        .unwrap();
    assert!(
        dispatcher.runs_alone("a") && !dispatcher.runs_alone("r") && !dispatcher.runs_alone("p")
    );
    assert_eq!(dispatcher.class("r"), EffectClass::ReadOnly);
    assert_eq!(dispatcher.class("a"), EffectClass::AtMostOnce);
}

#[test]
fn dispatcher_without_concurrency_is_rejected() {
    let registry = Registry::builder().build().unwrap();
    let error = Dispatcher::builder(registry)
        .world(Clock::still())
        .max_concurrent(0)
        .build()
        .unwrap_err();
    assert_eq!(error, crate::Error::NoConcurrency);
}

#[test]
fn tool_gets_context_of_its_call() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tool = FnTool::new(ToolSpec::new("t", ""), |_, cx| async move {
        cx.progress.report("half");
        let deadline = cx.deadline.at.map(levity_core::Timestamp::as_millis);
        Ok(ToolOutput::text(format!(
            "{} {} {} {} {deadline:?}",
            cx.run, cx.call, cx.key, cx.attempt
        )))
    });
    let (dispatcher, listener) = (dispatcher(tool), heard.clone());
    let progress = Progress::new(move |text| listener.lock().unwrap().push(text.to_owned()));
    let call = ToolCall::new("c7", "t", json!({}));
    let mut future = Box::pin(dispatcher.dispatch(&call, false, cx().with_progress(progress)));
    let std::task::Poll::Ready(Dispatched::Done(result)) = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!()
    };
    assert_eq!(result.text(), "run c7 run/1 1 Some(60000)");
    assert_eq!(*heard.lock().unwrap(), ["half"]);
}
