//! The suite for models.
//!
//! Each check makes its own model, since a scripted one answers only once. Unusual requests carry a
//! secret, and no error may repeat it: errors reach logs and other people.

use levity_core::{
    History, Media, Message, Model, ModelError, ModelErrorKind, Options, OutputSchema, Part,
    ProviderState, Request, Response, Role, ToolCall, ToolChoice, ToolError, ToolOutput,
    ToolResult, ToolSpec,
};
use serde_json::json;

use super::check::{abandon, expect_ok, no_panic, no_panic_sync, same};
use super::samples::{ODD_TEXT, history};

/// Checks a [`Model`] against its contract.
///
/// `make` returns a model that answers its first request, whatever it is, each time with the same
/// reply: a scripted one, or a provider with a recorded exchange.
///
/// The suite checks:
/// - the card is always the same and names a provider and an id;
/// - `complete` returns the same as folding `stream`, for every request that one of them answers,
///   and the reply has the role of the model;
/// - a future that is dropped before it was polled has sent nothing: the model still answers;
/// - dropping a future or a stream half-way is harmless;
/// - no request makes `stream` or `complete` panic: empty, unusual, with tool calls and their
///   results, calls that were cut off, media, foreign provider data, unknown tools;
/// - media are answered or, if the card does not offer images, rejected with
///   [`BadRequest`](ModelErrorKind::BadRequest);
/// - `cost_bound` is the same each time, and higher for more input;
/// - an error does not repeat the request.
///
/// Not checked, since it cannot be observed from here: that a dropped call is cancelled at the
/// provider, and that each request is sent once.
///
/// # Panics
/// Panics if a promise is broken.
pub async fn model<M: Model>(make: impl Fn() -> M) {
    check_card(&make);
    let whole = check_complete(&make).await;
    check_unpolled(&make, &whole).await;
    check_dropped(&make).await;
    for request in odd_requests() {
        check_odd(&make, request).await;
    }
}

fn check_card<M: Model>(make: &impl Fn() -> M) {
    let model = make();
    let card = model.card();
    assert!(
        !card.provider.is_empty(),
        "model: the card names a provider"
    );
    assert!(!card.id.is_empty(), "model: the card names the model's id");
    same(model.card(), card, "model: the card is always the same");
    same(make().card(), card, "model: the card is always the same");
}

const SAME_REPLY: &str = "model: `complete` gives what folding `stream` gives";

/// Returns the reply that the pieces of `stream` form, even if the model overrides `complete`.
async fn fold(model: &impl Model, request: Request) -> Result<Response, ModelError> {
    model.stream(request).await?.fold().await
}

async fn check_complete<M: Model>(make: &impl Fn() -> M) -> Response {
    let folded = expect_ok(
        fold(&make(), plain()).await,
        "model: `make` returns a model that answers its first request",
    );
    let whole = expect_ok(make().complete(plain()).await, SAME_REPLY);
    same(&whole, &folded, SAME_REPLY);
    same(
        &whole.message.role,
        &Role::Assistant,
        "model: a reply's role is `Assistant`",
    );
    assert!(
        whole.message.results().next().is_none(),
        "model: a reply holds no tool results"
    );
    whole
}

async fn check_unpolled<M: Model>(make: &impl Fn() -> M, whole: &Response) {
    let promise = "model: nothing is sent before the future is polled";
    let model = make();
    drop(model.stream(plain()));
    drop(model.complete(plain()));
    same(
        &expect_ok(model.complete(plain()).await, promise),
        whole,
        promise,
    );
}

async fn check_dropped<M: Model>(make: &impl Fn() -> M) {
    let promise = "model: dropping a call is harmless";
    let model = make();
    no_panic(async { drop(abandon(model.stream(plain()))) }, promise).await;
    let half_way = async {
        let mut deltas = make().stream(plain()).await?;
        deltas.next().await.transpose()
    };
    expect_ok(no_panic(half_way, promise).await, promise);
    expect_ok(
        make().complete(plain()).await,
        "model: a dropped call does not disturb the next",
    );
}

fn check_worst(model: &impl Model, request: &Request) {
    let worst = |request| {
        no_panic_sync(
            || model.cost_bound(request),
            "model: `cost_bound` does not panic",
        )
    };
    let first = worst(request);
    same(
        &worst(request),
        &first,
        "model: `cost_bound` is the same each time",
    );
    let more = request
        .clone()
        .with_message(Message::user("And what is 2 + 6?"));
    assert!(
        worst(&more).input >= first.input,
        "model: more input never lowers the cost bound"
    );
}

/// Sends an unusual request with `stream` and with `complete`, because a model that overrides
/// `complete` may convert requests in two places.
async fn check_odd<M: Model>(make: &impl Fn() -> M, request: Request) {
    let model = make();
    check_worst(&model, &request);
    let must_reject = has_media(&request) && !model.card().capabilities.images;
    let promise = "model: no request makes it panic";
    let folded = no_panic(fold(&make(), request.clone()), promise).await;
    let whole = no_panic(model.complete(request), promise).await;
    for error in [&folded, &whole]
        .into_iter()
        .filter_map(|reply| reply.as_ref().err())
    {
        check_silent(error);
        // A retry cannot help, and nothing was charged.
        assert!(
            !must_reject || error.kind() == ModelErrorKind::BadRequest,
            "model: media that the card does not offer are answered or rejected with \
             `BadRequest`\nfound: {error:?}"
        );
    }
    if folded.is_ok() || whole.is_ok() {
        let folded = expect_ok(
            folded,
            "model: `stream` answers every request that `complete` answers",
        );
        let whole = expect_ok(
            whole,
            "model: `complete` answers every request that `stream` answers",
        );
        same(&whole, &folded, SAME_REPLY);
    }
}

/// Returns `true` if a message contains media outside a tool's result.
fn has_media(request: &Request) -> bool {
    let messages = request.history.messages().iter();
    let mut parts = messages.flat_map(|message| &message.parts);
    parts.any(|part| matches!(part, Part::Media(_)))
}

/// The text that no error may repeat; it is part of every unusual request.
const SECRET: &str = "s3cret-payl0ad";

fn check_silent(error: &ModelError) {
    let shown = format!("{error} {error:?}");
    assert!(
        !shown.contains(SECRET),
        "model: an error does not repeat the request\nfound: {shown}"
    );
    assert!(
        !error.to_string().is_empty(),
        "model: an error describes the problem"
    );
}

fn plain() -> Request {
    Request::new()
        .with_system("Be brief.")
        .with_message(Message::user("What is 2 + 5?"))
}

/// Returns a history with two calls, of which the second was cut off, and with their results: the
/// output of the tool and an error.
///
/// It contains no media in messages, because a model that rejects media would not read the calls.
fn history_with_calls(output: ToolOutput) -> History {
    let calls = [
        ToolCall::new("c1", "add", json!({"a": SECRET, "b": [5.25, null]})),
        ToolCall::from_text("c2", "add", &format!("{{\"a\": \"{SECRET}")),
    ];
    let outcomes = [Ok(output), Err(ToolError::failed(SECRET))];
    let results: Vec<Part> = calls
        .iter()
        .zip(outcomes)
        .map(|(call, outcome)| Part::ToolResult(ToolResult::new(call, outcome)))
        .collect();
    let messages = vec![
        Message::user("What is 2 + 5.25?"),
        Message::new(Role::Assistant, calls.map(Part::ToolCall)),
        Message::new(Role::Tool, results),
    ];
    History::try_from(messages).unwrap_or_default()
}

/// Returns requests that providers reject or misread: empty, huge, with unknown tools and invalid
/// options.
fn odd_requests() -> Vec<Request> {
    let said = |message| {
        Request::new()
            .with_message(Message::user(SECRET))
            .with_message(message)
    };
    let image = Part::Media(Media::bytes("image/png", Vec::new()));
    let foreign = Part::Opaque(ProviderState::new("nobody", json!({"state": [SECRET]})));
    let mut choice = plain().with_tools([ToolSpec::new("add", SECRET).into()]);
    choice.tool_choice = ToolChoice::Tool("no_such_tool".into());
    let mut options = Options::new();
    options.temperature = Some(f64::NAN);
    options.max_tokens = Some(u64::MAX);
    options.stop = vec![String::new(), ODD_TEXT.into()];
    options
        .extra
        .insert("stream".into(), json!({"odd": SECRET}));
    let shape = OutputSchema::new("", json!({"type": "no such type"}));
    let chart = Media::bytes("image/png", vec![0, 255, 7]);
    let called = |output| {
        plain()
            .with_tools([ToolSpec::new("add", "Adds two numbers.").into()])
            .with_history(history_with_calls(output))
    };
    vec![
        Request::new(),
        Request::new().with_system(""),
        plain().with_history(history()),
        called(ToolOutput::value(json!({"sum": 7.25}))),
        called(ToolOutput::text(SECRET).with_media(chart)),
        said(Message::new(Role::User, [])),
        said(Message::new(Role::User, [image, Part::text("")])),
        said(Message::new(Role::Assistant, [Part::thinking(""), foreign])),
        said(Message::system(ODD_TEXT)),
        said(Message::user("x".repeat(1 << 20))),
        choice,
        plain().with_tools([ToolSpec::new("", "").with_input(json!(null)).into()]),
        plain().with_output(shape),
        plain().with_options(options),
    ]
}
