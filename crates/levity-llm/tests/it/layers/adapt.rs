//! Servers that reject tools, ignore them, or do not support JSON Schema.

use std::sync::{Arc, Mutex};

use levity_core::{Delta, Model, ModelCard, ModelError, ModelErrorKind, Price, Request, ToolSpec};
use levity_llm::ModelExt;
use levity_llm::layers::ToolMode;
use levity_test::{ScriptedModel, Turn};
use serde_json::json;

use super::support::{self, ask};

const CALL: &str = r#"{"name": "get_weather", "arguments": {"city": "Rome"}}"#;

fn tools() -> [Arc<ToolSpec>; 1] {
    let about = "The name of the city, in the language of the country that it is in; no \
        abbreviations, no numbers.";
    let city = json!({"type": "string", "description": about});
    let schema = json!({"type": "object", "properties": {"city": city}, "required": ["city"]});
    [ToolSpec::new(
        "get_weather",
        "Tells the weather of today in a city, with the chance of rain and the wind.",
    )
    .with_input(schema)
    .into()]
}

fn offered() -> Request {
    ask("How is the weather in Rome?").with_tools(tools())
}

fn server() -> ScriptedModel {
    let mut card = ModelCard::new("compatible", "small");
    card.capabilities.output_schema = true;
    ScriptedModel::new().with_card(card)
}

fn refusal(text: &str) -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, text)
}

async fn pieces(model: &dyn Model, request: Request) -> Vec<Delta> {
    let (pieces, error) = support::pieces(model, request).await;
    assert!(error.is_none(), "{error:?}");
    pieces
}

fn notices(pieces: &[Delta]) -> Vec<&str> {
    let texts = pieces.iter().filter_map(|delta| match delta {
        Delta::Notice { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn capable_server_gets_request_unchanged() {
    let inner = server()
        .call("get_weather", json!({"city": "Rome"}))
        .reply("Sunny.");
    let model = inner.clone().adapt_tools();
    assert_eq!(model.mode(), None);
    for _ in 0..2 {
        let seen = pieces(&model, offered()).await;
        assert!(notices(&seen).is_empty(), "{seen:?}");
    }
    assert_eq!(inner.requests(), [offered(), offered()]);
    assert_eq!(model.mode(), Some(ToolMode::Native));
}

#[tokio::test]
async fn server_rejecting_tools_gets_them_in_prompt() {
    for text in [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        "tools param requires --jinja flag",
        "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
        "No endpoints found that support tool use",
        "Unrecognized request argument supplied: tools",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'tools'), 'msg': 'Extra inputs are not \
            permitted'}]",
    ] {
        let inner = server().fail_with(refusal(text)).reply(CALL).reply(CALL);
        let learned = Arc::new(Mutex::new(Vec::new()));
        let kept = learned.clone();
        let model = inner
            .clone()
            .adapt_tools()
            .on_mode_detected(move |mode| kept.lock().unwrap().push(mode));
        let seen = pieces(&model, offered()).await;
        assert!(
            seen.iter().any(
                |delta| matches!(delta, Delta::CallStart { name, .. } if name == "get_weather")
            ),
            "{text}"
        );
        let notices = notices(&seen);
        assert!(
            notices[0].contains("does not accept tools") && notices[0].contains("JSON Schema"),
            "{notices:?}"
        );
        assert!(
            !seen
                .iter()
                .any(|delta| matches!(delta, Delta::Restart { .. })),
            "nothing was shown"
        );
        // Later requests use the mode at once, also without streaming.
        let reply = model.complete(offered()).await.unwrap();
        assert_eq!(reply.message.calls().count(), 1);
        let requests = inner.requests();
        assert_eq!(requests.len(), 3);
        assert!(requests[1].tools.is_empty() && requests[1].output.is_some());
        assert!(requests[1].system.as_ref().unwrap().contains("get_weather"));
        assert_eq!(*learned.lock().unwrap(), [ToolMode::Structured]);
    }
}

#[tokio::test]
async fn call_that_server_cannot_parse_is_requested_again() {
    for text in [
        "The model produced output that does not match the expected peg-native format",
        "Failed to parse input at pos 31: <tool_call>",
        "error parsing tool call: raw='{\"name\": }', err=invalid character '}'",
    ] {
        let error = ModelError::new(ModelErrorKind::Server, text);
        let inner = server()
            .turn(Turn::new().text("I will").break_off(error.clone()))
            .reply(CALL)
            .fail_with(error)
            .reply(CALL)
            .call("get_weather", json!({"city": "Rome"}));
        let model = inner.clone().adapt_tools();
        let seen = pieces(&model, offered()).await;
        let named =
            |delta: &Delta| matches!(delta, Delta::CallStart { name, .. } if name == "get_weather");
        let restart = |delta: &Delta| matches!(delta, Delta::Restart { .. });
        let restarted = seen.iter().position(restart).expect("text was shown");
        assert!(seen[restarted..].iter().any(named), "{seen:?}");
        let notices = notices(&seen);
        assert!(
            notices[0].contains("cannot parse") && notices[0].contains("for this reply"),
            "{notices:?}"
        );
        let reply = model.complete(offered()).await.unwrap();
        assert_eq!(reply.message.calls().count(), 1);
        // The next request has its tools as before.
        model.complete(offered()).await.unwrap();
        let requests = inner.requests();
        let native: Vec<_> = requests
            .iter()
            .map(|request| !request.tools.is_empty())
            .collect();
        assert_eq!(native, [true, false, true, false, true]);
        assert_eq!(model.mode(), Some(ToolMode::Native));
    }
}

#[tokio::test]
async fn server_with_price_is_not_asked_again_after_content() {
    let text = "The model produced output that does not match the expected peg-native format";
    let error = ModelError::new(ModelErrorKind::Server, text);
    let mut card = ModelCard::new("compatible", "paid");
    card.price = Some(Price::new(1.0, 2.0));
    let inner = ScriptedModel::new()
        .with_card(card)
        .turn(Turn::new().text("I will").break_off(error));
    let model = inner.clone().adapt_tools();
    let (_, error) = support::pieces(&model, offered()).await;
    assert!(error.unwrap().may_cost());
    assert_eq!(inner.requests().len(), 1);
}

#[tokio::test]
async fn whole_reply_is_adapted_as_well() {
    let inner = server()
        .fail_with(refusal("this model does not support tools"))
        .reply(CALL);
    let reply = inner.adapt_tools().complete(offered()).await.unwrap();
    assert_eq!(reply.message.calls().count(), 1);
}

#[tokio::test]
async fn unrelated_error_is_passed_on() {
    for error in [
        refusal(
            "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        ),
        refusal("this model does not support images"),
        ModelError::new(
            ModelErrorKind::Auth,
            "tools are not supported with this key",
        ),
        ModelError::new(ModelErrorKind::Transport, "connection refused"),
    ] {
        let inner = server().fail_with(error.clone());
        let model = inner.clone().adapt_tools();
        let got = model.complete(offered()).await.unwrap_err();
        assert_eq!(
            (got.to_string(), inner.requests().len(), model.mode()),
            (error.to_string(), 1, None)
        );
    }
}

#[tokio::test]
async fn server_ignoring_tools_is_retried_and_both_calls_count() {
    let dropped = Turn::new().text("I cannot know the weather.").usage(18, 7);
    let mut card = ModelCard::new("compatible", "small").with_price(Price::new(1.0, 1.0));
    card.capabilities.output_schema = true;
    let inner = server()
        .with_card(card)
        .turn(dropped)
        .turn(Turn::new().text(CALL).usage(150, 20));
    let model = inner.clone().adapt_tools();
    assert_eq!(
        model.cost_bound(&offered()).sends,
        2,
        "the second request is paid, too"
    );
    let seen = pieces(&model, offered()).await;
    let restart = seen
        .iter()
        .position(|delta| matches!(delta, Delta::Restart { .. }))
        .unwrap();
    assert!(
        seen[..restart].contains(&Delta::Text("I cannot know the weather.".into())),
        "{seen:?}"
    );
    assert!(
        notices(&seen)[0].contains("does not show the tools"),
        "{seen:?}"
    );
    let usage = seen.iter().rev().find_map(|delta| match delta {
        Delta::Usage(usage) => Some(*usage),
        _ => None,
    });
    let usage = usage.unwrap();
    assert_eq!(
        (usage.input, usage.output, usage.estimated),
        (Some(168), Some(27), false)
    );
    assert!(usage.cost.is_some());
    assert_eq!(model.cost_bound(&offered()).sends, 1, "now it is known");
}

#[tokio::test]
async fn inconclusive_token_counts_change_nothing() {
    let inner = server().turn(Turn::new().text("Sunny.").usage(18, 2));
    let model = inner.clone().adapt_tools().ignore_token_counts();
    assert_eq!(
        model.complete(offered()).await.unwrap().message.text(),
        "Sunny."
    );
    assert_eq!(inner.requests().len(), 1);
    // The tools were counted; a long conversation; a server that counts nothing, or incorrectly.
    let long = "The weather was fine that day. ".repeat(60);
    for (request, counted) in [
        (offered(), 140),
        (ask(&long).with_tools(tools()), 300),
        (ask(&long).with_tools(tools()), 3),
    ] {
        let inner = server().turn(Turn::new().text("Sunny.").usage(counted, 2));
        let model = inner.clone().adapt_tools();
        assert_eq!(
            model.complete(request).await.unwrap().message.text(),
            "Sunny."
        );
        assert_eq!(
            (inner.requests().len(), model.mode()),
            (1, Some(ToolMode::Native)),
            "{counted}"
        );
    }
}

#[tokio::test]
async fn server_without_schemas_gets_instructions() {
    // The server reports it.
    let inner = server()
        .fail_with(refusal("the model does not support tools"))
        .fail_with(refusal("response_format json_schema is not supported"))
        .reply(CALL);
    let model = inner.clone().adapt_tools();
    assert_eq!(
        model
            .complete(offered())
            .await
            .unwrap()
            .message
            .calls()
            .count(),
        1
    );
    assert_eq!(
        (inner.requests().len(), model.mode()),
        (3, Some(ToolMode::Text))
    );
    assert!(inner.requests()[2].output.is_none());

    // The reply shows it.
    let inner = server()
        .fail_with(refusal("the model does not support tools"))
        .reply("It is sunny.")
        .reply(CALL);
    let model = inner.clone().adapt_tools();
    let seen = pieces(&model, offered()).await;
    assert!(
        notices(&seen)[1].contains("does not match its JSON Schema"),
        "{seen:?}"
    );
    assert_eq!(model.mode(), Some(ToolMode::Text));
    assert_eq!(
        model
            .complete(offered())
            .await
            .unwrap()
            .message
            .calls()
            .count(),
        1
    );

    // The model card states it.
    let mut card = ModelCard::new("ollama", "old");
    card.capabilities.output_schema = false;
    let model = ScriptedModel::new().with_card(card);
    let model = model
        .fail_with(refusal("old does not support tools"))
        .reply(CALL)
        .adapt_tools();
    model.complete(offered()).await.unwrap();
    assert_eq!(model.mode(), Some(ToolMode::Text));
}

#[tokio::test]
async fn learned_mode_is_used_at_once() {
    let inner = server().reply(CALL);
    let model = inner.clone().adapt_tools().with_mode(ToolMode::Structured);
    assert_eq!(
        model
            .complete(offered())
            .await
            .unwrap()
            .message
            .calls()
            .count(),
        1
    );
    assert!(inner.requests()[0].tools.is_empty());
}

#[tokio::test]
async fn check_reports_mode_of_server() {
    use levity_llm::{CallFormat, SchemaSupport, ToolVisibility, check_tools};
    let seat = r#"{"seat_letter": "A", "row_number": 3}"#;
    let ready = || Turn::new().text("ready").usage(20, 1);
    let call = json!({"city": "Rome"});
    let native = server().turn(ready()).call("get_weather", call).reply(seat);
    let found = check_tools(&native).await.unwrap();
    assert_eq!(
        (found.tools, found.calls, found.schema, found.mode),
        (
            ToolVisibility::Yes,
            CallFormat::Native,
            SchemaSupport::Enforced,
            ToolMode::Native
        )
    );

    let drops = server()
        .turn(ready())
        .turn(Turn::new().text("I do not know.").usage(28, 5))
        .reply(seat);
    let found = check_tools(&drops).await.unwrap();
    assert_eq!(
        (found.tools, found.mode),
        (ToolVisibility::Dropped, ToolMode::Structured)
    );

    let silent = server()
        .turn(ready())
        .turn(Turn::new().text("I do not know.").usage(128, 5))
        .reply("12 B");
    let found = check_tools(&silent).await.unwrap();
    assert_eq!(
        (found.tools, found.calls, found.schema),
        (
            ToolVisibility::Yes,
            CallFormat::None,
            SchemaSupport::Ignored
        )
    );
    assert_eq!(found.mode, ToolMode::Native);

    let bare = server()
        .turn(ready())
        .fail_with(refusal("small does not support tools"))
        .fail_with(refusal("unknown field `response_format`"));
    let found = check_tools(&bare).await.unwrap();
    assert!(
        matches!(found.tools, ToolVisibility::Refused(_))
            && matches!(found.schema, SchemaSupport::Refused(_)),
        "{found:?}"
    );
    assert_eq!(found.mode, ToolMode::Text);

    let dead = server().fail_with(ModelError::new(
        ModelErrorKind::Transport,
        "connection refused",
    ));
    assert_eq!(
        check_tools(&dead).await.unwrap_err().kind(),
        ModelErrorKind::Transport
    );
}
