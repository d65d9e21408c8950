use std::sync::Arc;

use levity_core::{
    History, Message, Part, ProviderState, Response, Role, ToolCall, ToolError, ToolOutput,
    ToolResult, estimate_tokens,
};
use proptest::prelude::*;
use serde_json::json;

use super::{Counter, Window, WindowView};

fn call(n: usize, args: &str, answer: &str) -> [Arc<Message>; 2] {
    let call = ToolCall::new(format!("c{n}"), "look", json!({"at": args}));
    let mut thought = Part::thinking("hm");
    thought.set_opaque(ProviderState::new("test", json!({"signature": "c2ln"})));
    let result = ToolResult::new(&call, Ok(ToolOutput::text(answer)));
    [
        Arc::new(Message::new(
            Role::Assistant,
            [thought, Part::ToolCall(call)],
        )),
        Arc::new(Message::new(Role::Tool, [Part::ToolResult(result)])),
    ]
}

fn words(n: usize) -> String {
    "word ".repeat(n)
}

#[test]
fn show_leaves_fitting_conversation_unchanged() {
    let messages: Vec<Arc<Message>> =
        vec![Message::user("a").into(), Message::assistant("b").into()];
    let shown = Window::new()
        .tokens(1_000)
        .contents(&messages, None, &Counter::new());
    assert_eq!(shown.history.messages(), &messages[..]);
    assert!(shown.fits && shown.left_out == 0 && shown.shortened == 0);
}

#[test]
fn show_puts_last_messages_after_summary() {
    let messages: Vec<Arc<Message>> = (0..30)
        .map(|n| Message::user(format!("m{n}")).into())
        .collect();
    let shown = Window::new().contents(&messages, Some("Before."), &Counter::new());
    let texts: Vec<_> = shown
        .history
        .messages()
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(texts.len(), 11);
    assert_eq!(
        (texts[0].as_str(), texts[1].as_str()),
        ("Previous Summary: Before.", "m20")
    );
    let without = Window::new().contents(&messages, None, &Counter::new());
    assert_eq!(
        without.history.messages()[0].text(),
        "[20 earlier messages are left out here.]"
    );
}

#[test]
fn show_puts_pinned_messages_first() {
    let messages: Vec<Arc<Message>> = (0..30)
        .map(|n| Message::user(format!("m{n}")).into())
        .collect();
    let shown = Window::new().messages(2).contents_with_pins(
        &messages,
        &[3, 29],
        Some("Before."),
        &Counter::new(),
    );
    let texts: Vec<_> = shown
        .history
        .messages()
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(texts, ["m3", "Previous Summary: Before.", "m28", "m29"]);
}

#[test]
fn fit_removes_call_and_result_together() {
    let mut messages: Vec<Arc<Message>> = vec![Message::user("go").into()];
    (0..6).for_each(|n| messages.extend(call(n, "x", "y")));
    for limit in 0..14 {
        let shown = Window::new()
            .messages(limit)
            .contents(&messages, None, &Counter::new());
        let retained = messages.len() - shown.left_out;
        assert!(retained <= limit, "{retained} of {limit}");
        let results = shown.history.calls().count();
        assert_eq!(
            shown
                .history
                .messages()
                .iter()
                .filter(|message| message.role == Role::Tool)
                .count(),
            results
        );
    }
}

#[test]
fn fit_shortens_long_results_before_removing_messages() {
    let mut messages: Vec<Arc<Message>> = vec![Message::user("go").into()];
    (0..4).for_each(|n| messages.extend(call(n, "x", &words(1_000))));
    let window = Window::new().all_messages().tokens(4_000);
    let fit = window
        .fit(&messages, 0, &[0], &WindowView::default(), &Counter::new())
        .unwrap();
    assert!(fit.fits);
    assert_eq!((fit.view.start(), fit.view.shortened()), (0, 3));
    let shown = fit.view.history(&messages, &[0], "read_result");
    let results: Vec<_> = shown
        .calls()
        .map(|(_, result)| result.text().into_owned())
        .collect();
    assert!(
        results[0].contains("read them with `read_result` {\"id\": \"c0\", \"offset\": 0}"),
        "{}",
        results[0]
    );
    assert_eq!(results[3], words(1_000), "the last result is shown whole");
    // Signed provider state returns unchanged.
    assert_eq!(shown.messages()[1], messages[1]);
}

#[test]
fn fit_restores_results_when_removed_messages_free_room() {
    let mut messages: Vec<Arc<Message>> = (0..10)
        .map(|n| Message::user(format!("message {n}")).into())
        .collect();
    messages.extend(call(1, "x", &words(2_000)));
    messages.push(Message::user("and now?").into());
    let window = Window::new().tokens(50_000).messages(8);
    let fit = window
        .fit(
            &messages,
            messages.len(),
            &[],
            &WindowView::default(),
            &Counter::new(),
        )
        .unwrap();
    assert_eq!((fit.view.start(), fit.view.shortened()), (9, 0));
}

#[test]
fn show_pins_task_that_has_left_the_view() {
    let mut messages: Vec<Arc<Message>> = vec![Message::user("the task").into()];
    (0..40).for_each(|n| messages.extend(call(n, &words(60), "y")));
    let window = Window::new().tokens(1_500);
    let fit = window
        .fit(&messages, 0, &[0], &WindowView::default(), &Counter::new())
        .unwrap();
    let view = fit.view.with_summary(Some("Looked around.".into()));
    assert!(fit.fits && view.start() > 0);
    let shown = view.history(&messages, &[0], "");
    assert_eq!(shown.messages()[0].text(), "the task");
    assert_eq!(
        shown.messages()[1].text(),
        "Previous Summary: Looked around."
    );
    assert!(
        shown.tokens() <= 750 + 16,
        "there is room for what comes next: {}",
        shown.tokens()
    );
}

#[test]
fn fit_cuts_single_step_that_is_too_long() {
    let check = |messages: Vec<Arc<Message>>, pins: &[usize]| {
        let window = Window::new().tokens(1_000);
        let fit = window
            .fit(&messages, 0, pins, &WindowView::default(), &Counter::new())
            .unwrap();
        let shown = fit.view.history(&messages, pins, "read_result");
        assert!(
            fit.fits && shown.tokens() <= 1_000,
            "{}: {shown:?}",
            shown.tokens()
        );
        shown
    };
    let long = words(100_000);
    let shown = check(vec![Message::user(long.clone()).into()], &[0]);
    assert!(
        shown.messages()[0]
            .text()
            .contains("bytes are left out here")
    );
    let [asks, answers] = call(1, "x", &long);
    let shown = check(vec![Message::user("go").into(), asks, answers], &[0]);
    assert!(
        shown
            .calls()
            .next()
            .unwrap()
            .1
            .text()
            .contains("`read_result` {\"id\": \"c1\"")
    );
    let [asks, answers] = call(1, &long, &long);
    let shown = check(vec![Message::user("go").into(), asks, answers], &[0]);
    assert!(
        shown.last_text().is_none()
            && shown
                .messages()
                .iter()
                .any(|message| message.text().contains("`look` was called and answered"))
    );
    check(vec![Message::assistant(long).into()], &[]);
}

#[test]
fn counter_follows_provider_counts() {
    let mut counter = Counter::new().with_overhead(100);
    assert_eq!((counter.count(50), counter.max_estimate(150)), (150, 50));
    counter.record(1_000, 5_000);
    assert_eq!(counter.count(1_000), 5_000);
    counter.record(2_000, 8_000);
    assert_eq!(counter.count(2_000), 8_000);
    assert_eq!(counter.count(3_000), 11_000);
    assert_eq!(counter.count(1_000), 5_000);
}

#[test]
fn counter_of_shorter_request_never_drops_to_zero() {
    let mut counter = Counter::new();
    // Two estimated tokens are one counted token, and nothing else is known.
    counter.record(100_000, 50_000);
    assert_eq!(counter.count(60_000), 30_000);
    let room = counter.max_estimate(30_000);
    assert!((59_990..=60_000).contains(&room), "{room}");
}

#[test]
fn take_summary_enforces_word_limit_and_rejects_long_replies() {
    let window = Window::new().summary_words(5);
    let reply = |text: &str| Response::new(Message::assistant(text));
    assert_eq!(
        window.take_summary(&reply(" Short. "), 100).unwrap(),
        "Short."
    );
    assert_eq!(
        window
            .take_summary(&reply("One two three. Four five six."), 100)
            .unwrap(),
        "One two three."
    );
    assert_eq!(
        window
            .take_summary(&reply("one two three four five six"), 100)
            .unwrap(),
        "one two three four five …"
    );
    assert!(
        window
            .take_summary(&reply(" \n"), 100)
            .unwrap_err()
            .contains("empty")
    );
    assert!(
        window
            .take_summary(&reply(&words(50)), 10)
            .unwrap_err()
            .contains("longer")
    );
}

#[test]
fn take_summary_limits_text_without_spaces() {
    let window = Window::new();
    let long = "夏の午後に".repeat(4_000);
    let summary = window
        .take_summary(&Response::new(Message::assistant(&*long)), u64::MAX)
        .unwrap();
    assert!(
        estimate_tokens(&summary) <= 1_000,
        "{}",
        estimate_tokens(&summary)
    );
    let leaving: Vec<Arc<Message>> = (0..40).map(|_| Message::user(&*long).into()).collect();
    let digest = window.digest(Some(&long), &leaving);
    assert!(
        estimate_tokens(&digest) <= 1_000,
        "{}",
        estimate_tokens(&digest)
    );
    let data: Vec<Arc<Message>> = vec![Message::user("x".repeat(1 << 20)).into()];
    assert!(estimate_tokens(&window.digest(None, &data)) <= 200);
}

#[test]
fn digest_names_speakers_and_calls_within_word_limit() {
    let mut leaving: Vec<Arc<Message>> = vec![Message::user("find the bug in the parser").into()];
    leaving.extend(call(1, "x", "y"));
    let digest = Window::new().digest(Some("Before."), &leaving);
    assert_eq!(
        digest,
        "Before.\nuser: find the bug in the parser\nCalled look."
    );
    let many: Vec<_> = (0..1_000)
        .map(|n| Message::user(format!("{n} {}", words(50))).into())
        .collect();
    let digest = Window::new().digest(Some(&words(500)), &many);
    assert!(digest.split_whitespace().count() <= 122, "{digest}");
    assert!(digest.contains("999"), "the newest are kept");
}

#[test]
fn summary_request_fits_token_limit() {
    let many: Vec<_> = (0..2_000)
        .map(|n| Message::user(format!("{n} {}", words(500))).into())
        .collect();
    let request = Window::new().summary_request(Some("Before."), &many, 2_000);
    let text = request.history.messages()[0].text().into_owned();
    assert!(text.contains("Before.") && text.contains("0 word") && text.contains("1999 word"));
    assert!(
        request.history.tokens() < 2_300,
        "{}",
        request.history.tokens()
    );
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => ".{0,40}",
        1 => (0..4_000_usize).prop_map(words),
        1 => (0..4_000_usize).prop_map(|n| "東🪁\u{0}".repeat(n)),
    ]
}

#[derive(Clone, Debug)]
enum Entry {
    User(String),
    Model(String),
    Note(String),
    Step(Vec<(String, String, bool)>),
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        any_text().prop_map(Entry::User),
        any_text().prop_map(Entry::Model),
        any_text().prop_map(Entry::Note),
        prop::collection::vec((any_text(), any_text(), any::<bool>()), 1..4).prop_map(Entry::Step),
    ]
}

fn history(entry: Vec<Entry>) -> History {
    let mut history = History::new();
    for entry in entry {
        match entry {
            Entry::User(text) => history.push(Message::user(text)).unwrap(),
            Entry::Model(text) => history.push(Message::assistant(text)).unwrap(),
            Entry::Note(text) => history.push(Message::system(text)).unwrap(),
            Entry::Step(calls) => {
                let parts = calls
                    .iter()
                    .map(|(args, ..)| Part::ToolCall(ToolCall::new("", "t", json!({"a": args}))));
                let mut exchange = history
                    .open(Message::new(Role::Assistant, parts).into())
                    .unwrap();
                let open: Vec<ToolCall> = exchange.unanswered().cloned().collect();
                for (call, (_, answer, ok)) in open.iter().zip(calls) {
                    let answer = if ok {
                        Ok(ToolOutput::text(answer))
                    } else {
                        Err(ToolError::failed(answer))
                    };
                    exchange.answer(ToolResult::new(call, answer)).unwrap();
                }
                history.close(exchange, &ToolError::failed("no"));
            }
        }
    }
    history
}

proptest! {
    #[test]
    fn fit_returns_valid_history_within_limit_for_any_conversation(
        entry in prop::collection::vec(entry(), 0..24),
        tokens in 512_u64..6_000,
        limit in prop::option::of(0_usize..12),
        task in 0_usize..24,
        summary in prop::option::of(any_text()),
        beside in 0_u64..200,
    ) {
        let history = history(entry);
        let messages = history.messages();
        let task = task.min(messages.len());
        // A task does not begin between a call and its result.
        let task = if messages
            .get(task)
            .is_some_and(|message| message.role == Role::Tool)
        {
            task - 1
        } else {
            task
        };
        let pins: Vec<usize> = messages
            .get(task)
            .filter(|message| message.role == Role::User)
            .map(|_| task)
            .into_iter()
            .collect();
        let mut window = Window::new().tokens(tokens);
        window = match limit {
            Some(limit) => window.messages(limit),
            None => window.all_messages(),
        };
        let counter = Counter::new().with_overhead(beside);
        let view = WindowView::new(summary.map(Into::into));
        let fit = window.fit(messages, task, &pins, &view, &counter);
        let (now, fits) = fit.map_or((view, true), |fit| (fit.view, fit.fits));
        let shown = now.history(messages, &pins, "read_result");
        prop_assert!(fits);
        prop_assert!(
            counter.count(shown.tokens()) <= tokens,
            "{} of {tokens}",
            counter.count(shown.tokens())
        );
        if let Some(limit) = limit {
            prop_assert!(task.saturating_sub(now.start()) <= limit);
        }
        // A history that survives serialization is one that a provider accepts.
        let again: History = serde_json::from_str(&serde_json::to_string(&shown).unwrap()).unwrap();
        prop_assert_eq!(&again, &shown);
        // The last message of a task is always visible in some form.
        prop_assert!(messages.len() <= task || shown.len() > usize::from(now.start() > 0));
        // A view that fits is not changed again.
        prop_assert!(window.fit(messages, task, &pins, &now, &counter).is_none());
    }

    #[test]
    fn counter_room_never_exceeds_token_limit(
        learnt in prop::collection::vec((0_u64..50_000, 0_u64..100_000), 0..6),
        tokens in 0_u64..200_000,
    ) {
        let mut counter = Counter::new();
        learnt.into_iter().for_each(|(estimate, counted)| counter.record(estimate, counted));
        let room = counter.max_estimate(tokens);
        prop_assert!(
            room == 0 || counter.count(room) <= tokens,
            "{} {tokens}",
            counter.count(room)
        );
    }
}
