use proptest::prelude::*;
use serde_json::json;

use super::{Delta, Deltas, Finish, Fold, Response, Usage};
use crate::{Media, Message, ModelError, ModelErrorKind, Part, ProviderState, Role, ToolCall};

fn fold(deltas: impl IntoIterator<Item = Delta>) -> Result<Response, ModelError> {
    let mut fold = Fold::new();
    deltas.into_iter().try_for_each(|delta| fold.push(delta))?;
    Ok(fold.finish())
}

#[track_caller]
fn check(deltas: Vec<Delta>, expected: impl IntoIterator<Item = Part>) {
    let message = Message::new(Role::Assistant, expected);
    assert_eq!(*fold(deltas).unwrap().message, message);
}

fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

fn thinking(text: &str) -> Delta {
    Delta::Thinking(text.into())
}

fn start(index: u32, id: &str) -> Delta {
    Delta::CallStart {
        index,
        id: id.into(),
        name: "add".into(),
    }
}

fn args(index: u32, text: &str) -> Delta {
    Delta::CallArgs {
        index,
        text: text.into(),
    }
}

fn data(n: u64) -> ProviderState {
    ProviderState::new("test", json!({"n": n}))
}

fn opaque(n: u64) -> Delta {
    Delta::Opaque(data(n))
}

fn with(mut part: Part, n: u64) -> Part {
    part.set_opaque(data(n));
    part
}

fn call(id: &str, args: &str) -> Part {
    Part::ToolCall(ToolCall::from_text(id, "add", args))
}

/// Returns a text cut at these positions, counted in characters.
fn cut(text: &str, cuts: &[usize]) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for (n, c) in text.chars().enumerate() {
        let full = pieces.last().is_some_and(|piece| !piece.is_empty());
        if cuts.contains(&n) && full {
            pieces.push(String::new());
        }
        pieces.last_mut().unwrap().push(c);
    }
    pieces
}

proptest! {
    #[test]
    fn fold_is_independent_of_piece_boundaries(
        words in "[a-zä🪁\\n ]{1,30}",
        thought in "[a-z ]{1,20}",
        cuts in prop::collection::vec(0usize..40, 0..12),
        order in prop::collection::vec(any::<bool>(), 40),
    ) {
        let whole = json!({"text": words, "n": [1, 2.5]}).to_string();
        let expected = fold([
            thinking(&thought), opaque(1), text(&words), start(0, "a"), start(7, "b"),
            args(0, &whole), args(7, &whole),
        ]).unwrap();

        let mut deltas: Vec<Delta> =
            cut(&thought, &cuts).into_iter().map(Delta::Thinking).collect();
        deltas.push(opaque(1));
        deltas.extend(cut(&words, &cuts).into_iter().map(Delta::Text));
        deltas.extend([start(0, "a"), start(7, "b")]);
        // The arguments of both calls arrive alternately.
        let pieces = || cut(&whole, &cuts).into_iter();
        let (mut first, mut second) = (pieces(), pieces());
        for side in order {
            let (index, next) = if side { (0, first.next()) } else { (7, second.next()) };
            deltas.extend(next.map(|text| Delta::CallArgs { index, text }));
        }
        deltas.extend(first.map(|text| Delta::CallArgs { index: 0, text }));
        deltas.extend(second.map(|text| Delta::CallArgs { index: 7, text }));
        prop_assert_eq!(fold(deltas).unwrap(), expected);
    }

    #[test]
    fn fold_limit_counts_all_text(sizes in prop::collection::vec(1usize..50, 1..20)) {
        let deltas = || sizes.iter().enumerate().map(|(n, size)| {
            let piece = "x".repeat(*size);
            if n % 2 == 0 { Delta::Text(piece) } else { Delta::Thinking(piece) }
        });
        let total: usize = sizes.iter().sum();
        let within = |limit| {
            let mut fold = Fold::with_limit(limit);
            deltas().try_for_each(|delta| fold.push(delta)).map(|()| fold.finish())
        };
        prop_assert!(within(total).is_ok());
        prop_assert_eq!(within(total - 1).unwrap_err().kind(), ModelErrorKind::Malformed);
    }
}

#[test]
fn fold_joins_pieces_of_same_kind() {
    check(vec![], []);
    check(vec![text("a"), text("b")], [Part::text("ab")]);
    check(
        vec![thinking("a"), text("b"), text("c")],
        [Part::thinking("a"), Part::text("bc")],
    );
    check(
        vec![text("a"), thinking("b"), text("c")],
        [Part::text("a"), Part::thinking("b"), Part::text("c")],
    );
    check(
        vec![text("a"), start(0, "x"), text("b")],
        [Part::text("a"), call("x", ""), Part::text("b")],
    );
    check(
        vec![Delta::Part(Part::text("a")), Delta::Part(Part::text("b"))],
        [Part::text("a"), Part::text("b")],
    );
    let picture = Part::Media(Media::bytes("image/png", vec![1]));
    check(
        vec![text("a"), Delta::Part(picture.clone())],
        [Part::text("a"), picture],
    );
}

#[test]
fn fold_omits_empty_text() {
    check(vec![text("")], []);
    check(
        vec![text(""), start(0, "x"), args(0, "{}"), text("")],
        [call("x", "{}")],
    );
    // With provider data it is a part: some providers attach a signature to an empty text.
    check(vec![text(""), opaque(1)], [with(Part::text(""), 1)]);
    // A provider sends empty thinking to show that there was some.
    check(vec![thinking(""), opaque(1)], [with(Part::thinking(""), 1)]);
}

#[test]
fn fold_assigns_arguments_to_their_call() {
    check(
        vec![start(0, "x"), args(0, "{\"a\""), args(0, ": 2}")],
        [call("x", "{\"a\": 2}")],
    );
    check(
        vec![
            start(0, "x"),
            start(1, "y"),
            args(1, "{\"b\":1}"),
            args(0, "{\"a\":1}"),
        ],
        [call("x", "{\"a\":1}"), call("y", "{\"b\":1}")],
    );
    // Some servers number every call 0.
    check(
        vec![
            start(0, "x"),
            args(0, "{\"a\":1}"),
            start(0, "y"),
            args(0, "{\"b\":1}"),
        ],
        [call("x", "{\"a\":1}"), call("y", "{\"b\":1}")],
    );
    check(
        vec![start(3, ""), args(3, " ")],
        [Part::ToolCall(ToolCall::new("", "add", json!({})))],
    );
    check(
        vec![start(0, "x"), args(0, "{broken")],
        [call("x", "{broken")],
    );
    let text = fold([start(0, "x"), args(0, "{broken")])
        .unwrap()
        .message
        .calls()
        .next()
        .unwrap()
        .raw
        .clone();
    assert_eq!(text.as_deref(), Some("{broken"));
}

#[test]
fn fold_rejects_arguments_without_call() {
    for deltas in [
        vec![args(0, "{}")],
        vec![start(0, "x"), args(1, "{}")],
        vec![text("a"), args(0, "{}")],
    ] {
        let error = fold(deltas).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Malformed);
        assert!(error.to_string().ends_with("which never began"));
    }
}

#[test]
fn fold_attaches_provider_data_to_previous_part() {
    check(
        vec![thinking("a"), opaque(1)],
        [with(Part::thinking("a"), 1)],
    );
    check(
        vec![thinking("a"), opaque(1), opaque(2)],
        [with(Part::thinking("a"), 2)],
    );
    check(
        vec![text("a"), opaque(1), text("b")],
        [with(Part::text("a"), 1), Part::text("b")],
    );
    check(
        vec![start(0, "x"), opaque(1), args(0, "{}")],
        [with(call("x", "{}"), 1)],
    );
    check(
        vec![start(0, "x"), start(1, "y"), args(0, "{}"), opaque(1)],
        [with(call("x", "{}"), 1), call("y", "")],
    );
    check(
        vec![text("a"), Delta::Usage(Usage::new(1, 1)), opaque(1)],
        [with(Part::text("a"), 1)],
    );
    check(
        vec![start(0, "x"), text("b"), opaque(1)],
        [call("x", ""), with(Part::text("b"), 1)],
    );
    check(
        vec![opaque(1), text("a")],
        [Part::Opaque(data(1)), Part::text("a")],
    );
    let picture = Part::Media(Media::url("image/png", "https://example.org"));
    check(
        vec![Delta::Part(picture.clone()), opaque(1)],
        [with(picture, 1)],
    );
}

#[test]
fn fold_keeps_consecutive_provider_blocks() {
    check(
        vec![opaque(1), opaque(2)],
        [Part::Opaque(data(1)), Part::Opaque(data(2))],
    );
    let block = Delta::Part(Part::Opaque(data(1)));
    check(
        vec![block, opaque(2)],
        [Part::Opaque(data(1)), Part::Opaque(data(2))],
    );
}

#[test]
fn fold_limit_counts_names_and_whole_parts() {
    let refused = |deltas: Vec<Delta>| {
        let mut fold = Fold::with_limit(1000);
        let error = deltas
            .into_iter()
            .try_for_each(|delta| fold.push(delta))
            .unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Malformed);
        assert_eq!(error.to_string(), "the reply is larger than 1000 bytes");
    };
    let long = "x".repeat(1001);
    refused(vec![text(&long)]);
    refused(vec![start(0, &long)]);
    refused(vec![start(0, "x"), args(0, &long)]);
    refused(vec![Delta::Part(Part::text(&*long))]);
    refused(vec![Delta::Part(Part::thinking(&*long))]);
}

/// No endless input of a provider may grow without limit.
#[test]
fn fold_limit_stops_endless_pieces_of_any_kind() {
    let long = || json!("x".repeat(1001));
    let endless = [
        vec![start(0, "")],
        vec![text(""), thinking("")],
        vec![Delta::Part(Part::text(""))],
        vec![Delta::Part(Part::ToolCall(ToolCall::new("", "", long())))],
        vec![Delta::Part(Part::Opaque(ProviderState::new(
            "test",
            long(),
        )))],
        vec![Delta::Part(Part::Media(Media::bytes(
            "image/png",
            vec![0; 1001],
        )))],
        vec![text("a"), Delta::Opaque(ProviderState::new("test", long()))],
        vec![
            text("a"),
            Delta::Restart {
                reason: String::new(),
            },
        ],
    ];
    for deltas in endless {
        let mut fold = Fold::with_limit(1000);
        let piece = format!("{:?}", deltas[0]);
        let pushed = deltas
            .into_iter()
            .cycle()
            .take(2000)
            .try_for_each(|delta| fold.push(delta));
        assert!(
            pushed.is_err(),
            "2000 times {piece:.60} pass a limit of 1000 bytes"
        );
    }
}

#[test]
fn fold_infers_missing_finish_reason() {
    let finish = |deltas: Vec<Delta>| fold(deltas).unwrap().finish;
    assert_eq!(finish(vec![]), Finish::Stop);
    assert_eq!(finish(vec![text("a")]), Finish::Stop);
    assert_eq!(finish(vec![start(0, "x")]), Finish::ToolCalls);
    assert_eq!(finish(vec![Delta::Part(call("x", ""))]), Finish::ToolCalls);
    assert_eq!(
        finish(vec![start(0, "x"), Delta::Finish(Finish::Length)]),
        Finish::Length
    );
    assert_eq!(
        finish(vec![
            Delta::Finish(Finish::Length),
            Delta::Finish(Finish::Stop)
        ]),
        Finish::Stop
    );
}

#[test]
fn fold_replaces_token_counts() {
    let usage = |input, output| {
        let mut usage = Usage::default();
        (usage.input, usage.output) = (input, output);
        Delta::Usage(usage)
    };
    let folded = fold([
        usage(Some(10), Some(1)),
        usage(None, Some(3)),
        usage(None, None),
    ])
    .unwrap();
    assert_eq!(folded.usage, Usage::new(10, 3));
}

#[test]
fn fold_after_restart_has_only_later_pieces() {
    let waiting = Delta::Waiting {
        time: std::time::Duration::from_secs(1),
        reason: "busy".into(),
    };
    let restart = Delta::Restart {
        reason: "busy".into(),
    };
    assert!(!waiting.is_content() && !restart.is_content() && text("a").is_content());
    let usage = Delta::Usage(Usage::new(10, 3));
    let before = vec![
        text("lost"),
        start(0, "x"),
        args(0, "{"),
        usage,
        Delta::Finish(Finish::Length),
    ];
    let folded = fold([before, vec![waiting, restart.clone(), text("kept")]].concat()).unwrap();
    assert_eq!(
        (&*folded.message.text(), folded.finish),
        ("kept", Finish::Stop)
    );
    assert_eq!(
        folded.usage,
        Usage::new(10, 3),
        "the usage of earlier attempts remains"
    );
    assert!(folded.message.calls().next().is_none());
    let stray = fold([start(0, "x"), restart, args(0, "{}")]);
    assert_eq!(
        stray.unwrap_err().kind(),
        ModelErrorKind::Malformed,
        "calls restart too"
    );
}

#[tokio::test]
async fn from_response_and_fold_return_same_response() {
    let parts = vec![
        with(Part::thinking("hm"), 1),
        Part::text("a"),
        Part::text("b"),
        call("x", "{"),
        call("", "{}"),
    ];
    let response = Response::new(Message::new(Role::Assistant, parts))
        .with_usage(Usage::new(10, 3))
        .with_finish(Finish::Other("pause".into()));
    assert_eq!(Deltas::from_response(&response).fold().await, Ok(response));
}

/// Text in any order of parts, with and without provider data.
#[tokio::test]
async fn from_response_returns_all_text_as_text_pieces() {
    let picture = Part::Media(Media::bytes("image/png", vec![1]));
    let signed = with(Part::text("signed"), 1);
    let lists = [
        vec![Part::text("a")],
        vec![
            Part::text("a"),
            signed.clone(),
            Part::text("b"),
            signed.clone(),
        ],
        vec![signed.clone(), signed.clone(), with(Part::text(""), 2)],
        vec![
            Part::thinking("t"),
            Part::thinking("u"),
            with(Part::thinking("v"), 1),
            Part::text("a"),
            Part::text("b"),
        ],
        vec![
            Part::text("a"),
            picture.clone(),
            Part::text("b"),
            call("x", "{}"),
            Part::text("c"),
        ],
        vec![with(Part::thinking(""), 1), picture],
        vec![
            Part::thinking("t"),
            with(Part::thinking(""), 1),
            Part::text("a"),
            with(Part::text(""), 1),
        ],
    ];
    for parts in lists {
        let response = Response::new(Message::new(Role::Assistant, parts.clone()));
        let mut deltas = Deltas::from_response(&response);
        let (mut words, mut thought) = (String::new(), String::new());
        while let Some(delta) = deltas.next().await {
            match delta.unwrap() {
                Delta::Text(text) => words.push_str(&text),
                Delta::Thinking(text) => thought.push_str(&text),
                _ => {}
            }
        }
        assert_eq!(
            (&*words, &*thought),
            (&*response.message.text(), &*response.message.thinking()),
            "{parts:?}"
        );
        let folded = Deltas::from_response(&response).fold().await.unwrap();
        assert_eq!(folded.message, response.message);
    }
}

#[tokio::test]
async fn fold_returns_first_error() {
    let error = ModelError::new(ModelErrorKind::Transport, "connection reset");
    let stream = super::Ready(vec![Ok(text("a")), Err(error.clone()), Ok(text("b"))].into_iter());
    assert_eq!(Deltas::new(stream).fold().await, Err(error));
    let stray = Deltas::ready([args(0, "{}")]).fold().await;
    assert_eq!(stray.unwrap_err().kind(), ModelErrorKind::Malformed);
}

#[test]
fn deltas_pause_after_every_256_pieces() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    let pieces = (0..10_000).map(|_| Delta::Text("x".into()));
    let mut fold = pin!(Deltas::ready(pieces).fold());
    let mut cx = Context::from_waker(Waker::noop());
    let mut pauses = 0;
    let response = loop {
        match fold.as_mut().poll(&mut cx) {
            Poll::Ready(response) => break response.unwrap(),
            Poll::Pending => pauses += 1,
        }
    };
    assert_eq!(
        (pauses, response.message.text().len()),
        (10_000 / 256, 10_000)
    );
}

#[test]
fn fold_rejects_reply_with_too_many_calls() {
    let start = |index: usize| Delta::CallStart {
        index: u32::try_from(index).unwrap(),
        id: "c".into(),
        name: "add".into(),
    };
    let mut fold = Fold::new();
    (0..Fold::MAX_CALLS).for_each(|index| fold.push(start(index)).unwrap());
    let error = fold.push(start(Fold::MAX_CALLS)).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
    assert!(
        error.to_string().contains("more than 16384 tools"),
        "{error}"
    );
    assert_eq!(fold.finish().message.calls().count(), Fold::MAX_CALLS);
}
