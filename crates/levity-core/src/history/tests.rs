use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::{Exchange, History, HistoryError};
use crate::{
    CallId, Content, Message, Part, Role, ToolCall, ToolError, ToolErrorKind, ToolOutput,
    ToolResult,
};

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "add", json!({"a": 2}))
}

/// Returns a reply with a text and a tool call for each id.
fn reply(ids: &[&str]) -> Message {
    let calls = ids.iter().map(|id| Part::ToolCall(call(id)));
    Message::new(Role::Assistant, [Part::text("so")].into_iter().chain(calls))
}

fn answer(id: &str) -> ToolResult {
    ToolResult::new(&call(id), Ok(ToolOutput::text(id)))
}

fn answers(ids: &[&str]) -> Message {
    Message::new(
        Role::Tool,
        ids.iter().map(|id| Part::ToolResult(answer(id))),
    )
}

fn open(history: &History, ids: &[&str]) -> Exchange {
    history.open(Arc::new(reply(ids))).unwrap()
}

fn close(history: &mut History, exchange: Exchange) {
    history.close(
        exchange,
        &ToolError::new(ToolErrorKind::Cancelled, "the caller stopped waiting"),
    );
}

fn ids(exchange: &Exchange) -> Vec<&str> {
    exchange
        .reply()
        .calls()
        .map(|call| call.id.as_str())
        .collect()
}

/// Checks that every call is directly followed by its one result, no result is alone, and no id is
/// empty or duplicate.
#[track_caller]
fn check_invariant(history: &History) {
    let mut seen = HashSet::new();
    let mut open: Vec<&CallId> = Vec::new();
    for message in history.messages() {
        let answered: Vec<_> = message.results().map(|result| &result.call).collect();
        assert_eq!(answered, open, "results follow their calls, in order");
        assert_eq!(
            message.role == Role::Tool,
            !open.is_empty(),
            "tool messages follow calls"
        );
        open = message.calls().map(|call| &call.id).collect();
        assert!(
            open.iter()
                .all(|id| !id.as_str().is_empty() && seen.insert(id.as_str().to_owned()))
        );
    }
    assert_eq!(open, Vec::<&CallId>::new(), "the last calls are answered");
    assert_eq!(history.calls().count(), seen.len());
}

/// An action on a history; numbers are taken modulo the number of items.
#[derive(Clone, Debug)]
enum Action {
    Say(usize),
    Open(Vec<&'static str>),
    Answer(usize, usize),
    Close(usize),
    Cancel(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let id = prop::sample::select(vec!["", "a", "b", "a-2", "call"]);
    let action = prop_oneof![
        any::<usize>().prop_map(Action::Say),
        prop::collection::vec(id, 0..4).prop_map(Action::Open),
        any::<(usize, usize)>().prop_map(|(exchange, call)| Action::Answer(exchange, call)),
        any::<usize>().prop_map(Action::Close),
        any::<usize>().prop_map(Action::Cancel),
    ];
    prop::collection::vec(action, 0..40)
}

/// A history and several open exchanges.
#[derive(Default)]
struct OpenExchanges {
    history: History,
    open: Vec<Exchange>,
}

impl OpenExchanges {
    fn apply(&mut self, action: Action) {
        match action {
            Action::Say(n) => {
                let messages = [
                    Message::user("hi"),
                    Message::assistant("ho"),
                    reply(&["x"]),
                    answers(&["x"]),
                ];
                let accepted = self.history.push(messages[n % 4].clone()).is_ok();
                assert_eq!(
                    accepted,
                    n % 4 < 2,
                    "`say` accepts only messages without calls and answers"
                );
            }
            Action::Open(ids) => match self.history.open(Arc::new(reply(&ids))) {
                Ok(exchange) => self.open.push(exchange),
                Err(error) => assert_eq!(
                    error,
                    HistoryError::NoCalls {
                        at: self.history.len()
                    }
                ),
            },
            _ if self.open.is_empty() => {}
            Action::Answer(exchange, call) => self.answer(exchange, call),
            Action::Close(n) => {
                let exchange = self.open.swap_remove(n % self.open.len());
                close(&mut self.history, exchange);
            }
            Action::Cancel(n) => drop(self.open.swap_remove(n % self.open.len())),
        }
    }

    fn answer(&mut self, exchange: usize, call: usize) {
        let exchange = exchange % self.open.len();
        let exchange = &mut self.open[exchange];
        let calls: Vec<_> = exchange.reply().calls().cloned().collect();
        let call = &calls[call % calls.len()];
        let fresh = exchange.unanswered().any(|open| open.id == call.id);
        let result = exchange.answer(ToolResult::new(call, Ok(ToolOutput::text("7"))));
        let expected = if fresh {
            Ok(())
        } else {
            Err(HistoryError::AnsweredTwice {
                call: call.id.clone(),
            })
        };
        assert_eq!(result, expected);
    }
}

proptest! {
    #[test]
    fn history_gives_every_call_one_result(actions in actions()) {
        let mut state = OpenExchanges::default();
        for action in actions {
            let (before, kept) = (state.history.clone(), state.history.messages().to_vec());
            state.apply(action);
            check_invariant(&state.history);
            prop_assert_eq!(before.messages(), &kept, "a clone does not change");
            let earlier = &state.history.messages()[..kept.len()];
            prop_assert_eq!(earlier, &kept, "earlier messages stay");
        }
    }

    #[test]
    fn history_survives_json(actions in actions()) {
        let mut state = OpenExchanges::default();
        actions.into_iter().for_each(|action| state.apply(action));
        let json = serde_json::to_string(&state.history).unwrap();
        let mut read: History = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&read, &state.history);
        // The deserialized history knows the ids that are in use.
        let again = open(&read, &["a", "b"]);
        close(&mut read, again);
        check_invariant(&read);
        for exchange in state.open {
            let json = serde_json::to_string(&exchange).unwrap();
            prop_assert_eq!(serde_json::from_str::<Exchange>(&json).unwrap(), exchange);
        }
    }

    #[test]
    fn try_from_accepts_valid_lists_only(picks in prop::collection::vec(0usize..9, 0..8)) {
        let from = [
            Message::user("hi"), Message::system("note"), Message::assistant("ho"), reply(&["a"]),
            reply(&["a", "b"]), reply(&[""]), answers(&["a"]), answers(&["b", "a"]), answers(&[]),
        ];
        let messages: Vec<_> = picks.iter().map(|pick| from[*pick].clone()).collect();
        let json = serde_json::to_string(&messages).unwrap();
        let read = serde_json::from_str::<History>(&json);
        match History::try_from(messages.clone()) {
            Ok(history) => {
                check_invariant(&history);
                prop_assert_eq!(history.len(), messages.len());
                prop_assert_eq!(read.unwrap(), history);
            }
            Err(error) => {
                prop_assert!(read.unwrap_err().to_string().starts_with(&error.to_string()));
            }
        }
    }
}

#[track_caller]
fn check_refused(messages: &[Message], expected: HistoryError) {
    assert_eq!(History::try_from(messages.to_vec()), Err(expected));
}

#[test]
fn try_from_rejects_invalid_lists() {
    let hi = Message::user("hi");
    let unknown = |call: &str| HistoryError::UnknownCall { call: call.into() };
    let duplicate = |at, call: &str| HistoryError::DuplicateId {
        at,
        call: call.into(),
    };
    check_refused(&[reply(&["a"])], HistoryError::Unanswered { at: 0 });
    check_refused(
        &[hi.clone(), reply(&["a"])],
        HistoryError::Unanswered { at: 1 },
    );
    check_refused(
        &[hi.clone(), reply(&["a"]), hi.clone()],
        HistoryError::Unanswered { at: 1 },
    );
    check_refused(
        &[reply(&["a", "b"]), answers(&["a"])],
        HistoryError::Unanswered { at: 0 },
    );
    check_refused(
        &[reply(&["a", "b"]), answers(&["a"]), answers(&["b"])],
        HistoryError::Unanswered { at: 0 },
    );
    check_refused(&[answers(&["a"])], HistoryError::OrphanResult { at: 0 });
    check_refused(
        &[hi.clone(), answers(&[])],
        HistoryError::OrphanResult { at: 1 },
    );
    check_refused(
        &[reply(&["a"]), answers(&["a"]), answers(&["a"])],
        HistoryError::OrphanResult { at: 2 },
    );
    let mixed = Message::new(
        Role::Tool,
        [Part::ToolResult(answer("a")), Part::text("and so on")],
    );
    check_refused(
        &[reply(&["a"]), mixed],
        HistoryError::OrphanResult { at: 1 },
    );
    let forged = Message::new(Role::User, [Part::ToolResult(answer("a"))]);
    check_refused(&[forged], HistoryError::OrphanResult { at: 0 });
    let both = Message::new(
        Role::Assistant,
        [Part::ToolCall(call("a")), Part::ToolResult(answer("a"))],
    );
    check_refused(&[both], HistoryError::OrphanResult { at: 0 });
    let users = Message::new(Role::User, [Part::ToolCall(call("a"))]);
    check_refused(&[users], HistoryError::NoCalls { at: 0 });
    check_refused(&[reply(&["a"]), answers(&["b"])], unknown("b"));
    check_refused(
        &[reply(&["a"]), answers(&["a", "a"])],
        HistoryError::AnsweredTwice { call: "a".into() },
    );
    check_refused(
        &[
            reply(&["a"]),
            answers(&["a"]),
            reply(&["a"]),
            answers(&["a"]),
        ],
        duplicate(2, "a"),
    );
    check_refused(
        &[reply(&["a", "a"]), answers(&["a", "a"])],
        duplicate(0, "a"),
    );
    check_refused(&[hi, reply(&[""]), answers(&[""])], duplicate(1, ""));
}

#[test]
fn duplicate_id_error_names_the_id() {
    let duplicate = |call: &str| HistoryError::DuplicateId {
        at: 0,
        call: call.into(),
    };
    check_refused(
        &[reply(&["a", "b", "b"]), answers(&["a", "b", "b"])],
        duplicate("b"),
    );
    check_refused(&[reply(&["a", ""]), answers(&["a", ""])], duplicate(""));
}

#[test]
fn renamed_gives_new_ids_to_messages_of_several_runs() {
    let messages = [
        reply(&["a", "b"]),
        answers(&["b", "a"]),
        Message::user("hi"),
        reply(&["a"]),
        answers(&["a"]),
    ];
    let twice = [reply(&["c", "a", "c"]), answers(&["c", "c", "a"])];
    let all: Vec<Arc<Message>> = messages.into_iter().chain(twice).map(Arc::new).collect();
    let history = History::renamed(all.clone()).unwrap();
    let ids: Vec<_> = history
        .calls()
        .map(|(call, result)| (call.id.as_str(), result.call.as_str()))
        .collect();
    assert_eq!(ids, ["a", "b", "a-2", "c", "a-3", "c-2"].map(|id| (id, id)));
    assert_eq!(history.len(), all.len());
    assert_eq!(
        History::try_from(history.messages().to_vec()).as_ref(),
        Ok(&history)
    );
    let open: Vec<Arc<Message>> = all[..4].to_vec();
    assert_eq!(
        History::renamed(open),
        Err(HistoryError::Unanswered { at: 3 })
    );
    let strange = vec![
        Arc::new(reply(&["a", "a"])),
        Arc::new(answers(&["a", "a", "a"])),
    ];
    assert!(matches!(
        History::renamed(strange),
        Err(HistoryError::AnsweredTwice { .. })
    ));
}

#[track_caller]
fn check_renamed(taken: &[&str], wanted: &[&str], expected: &[&str]) {
    let mut history = History::new();
    for id in taken {
        let exchange = open(&history, &[id]);
        close(&mut history, exchange);
    }
    let exchange = open(&history, wanted);
    assert_eq!(ids(&exchange), expected);
    close(&mut history, exchange);
    check_invariant(&history);
}

#[test]
fn open_renames_clashing_ids() {
    check_renamed(&[], &["a", "b"], &["a", "b"]);
    check_renamed(&["a"], &["a"], &["a-2"]);
    check_renamed(&["a", "a"], &["a"], &["a-3"]);
    check_renamed(&[], &["a", "a", "a"], &["a", "a-2", "a-3"]);
    check_renamed(&["a"], &["b", "a"], &["b", "a-2"]);
    check_renamed(&[], &["", ""], &["call", "call-2"]);
    check_renamed(&["call"], &[""], &["call-2"]);
    check_renamed(&["a"], &["a", "a-2"], &["a-2", "a-2-2"]);
}

#[test]
fn exchanges_open_together_get_distinct_ids() {
    let mut history = History::new();
    let (mut first, second) = (open(&history, &["a"]), open(&history, &["a", "b"]));
    first.answer(answer("a")).unwrap();
    close(&mut history, second);
    close(&mut history, first);
    check_invariant(&history);
    let found: Vec<_> = history
        .calls()
        .map(|(call, result)| (call.id.as_str(), result.is_error()))
        .collect();
    assert_eq!(found, [("a", true), ("b", true), ("a-2", false)]);
}

#[test]
fn open_with_rename_leaves_original_reply_unchanged() {
    let sent = Arc::new(reply(&["a", "a"]));
    let exchange = History::new().open(sent.clone()).unwrap();
    assert_eq!(*sent, reply(&["a", "a"]));
    let kept = History::new().open(Arc::new(reply(&["a"]))).unwrap();
    assert!(!Arc::ptr_eq(exchange.reply(), &sent));
    assert_eq!(**kept.reply(), reply(&["a"]));
}

#[test]
fn exchange_tracks_unanswered_calls() {
    let mut exchange = open(&History::new(), &["a", "b", "c"]);
    let unanswered = |exchange: &Exchange| {
        exchange
            .unanswered()
            .map(|call| call.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(unanswered(&exchange), ["a", "b", "c"]);
    exchange.answer(answer("c")).unwrap();
    exchange.answer(answer("a")).unwrap();
    assert_eq!(unanswered(&exchange), ["b"]);
    assert!(!exchange.is_complete());
    let order: Vec<_> = exchange
        .results()
        .map(|result| result.call.as_str())
        .collect();
    assert_eq!(order, ["a", "c"], "answers are in the order of the calls");
    assert_eq!(
        exchange.answer(answer("x")),
        Err(HistoryError::UnknownCall { call: "x".into() })
    );
    assert_eq!(
        exchange.answer(answer("a")),
        Err(HistoryError::AnsweredTwice { call: "a".into() })
    );
    assert_eq!(exchange.call(&"b".into()), Some(&call("b")));
    assert_eq!(exchange.call(&"x".into()), None);
    exchange.answer(answer("b")).unwrap();
    assert!(exchange.is_complete());
}

#[test]
fn close_answers_remaining_calls() {
    let mut history = History::new();
    let mut exchange = open(&history, &["a", "b"]);
    exchange.answer(answer("b")).unwrap();
    close(&mut history, exchange);
    let results: Vec<_> = history
        .calls()
        .map(|(_, result)| (result.error, result.content.clone()))
        .collect();
    let cancelled = vec![Content::Text("the caller stopped waiting".into())];
    let answered = vec![Content::Text("b".into())];
    assert_eq!(
        results,
        [
            (Some(ToolErrorKind::Cancelled), cancelled),
            (None, answered)
        ]
    );
}

#[test]
fn last_text_returns_text_of_model() {
    let mut history = History::new();
    assert_eq!(history.last_text(), None);
    history.push(Message::user("hi")).unwrap();
    assert_eq!(history.last_text(), None);
    history.push(Message::assistant("ho")).unwrap();
    history.push(Message::assistant(" \n")).unwrap();
    history.push(Message::user("well?")).unwrap();
    assert_eq!(history.last_text().as_deref(), Some("ho"));
}

#[test]
fn clone_shares_messages_until_first_change() {
    let mut history = History::new();
    history.push(Message::user("hi")).unwrap();
    let clone = history.clone();
    assert!(std::ptr::eq(history.messages(), clone.messages()));
    history.push(Message::user("well?")).unwrap();
    assert_eq!((history.len(), clone.len()), (2, 1));
    assert!(
        Arc::ptr_eq(&history.messages()[0], &clone.messages()[0]),
        "messages are not copied"
    );
    assert!(History::new().is_empty() && !history.is_empty());
}

/// Returns a history of exchanges whose results retain this many bytes each.
fn history_with_wholes(sizes: &[&[usize]]) -> History {
    let mut history = History::new();
    for (turn, sizes) in sizes.iter().enumerate() {
        let calls: Vec<ToolCall> = (0..sizes.len())
            .map(|n| ToolCall::new(format!("c{turn}.{n}"), "t", json!({})))
            .collect();
        let reply = Message::new(Role::Assistant, calls.iter().cloned().map(Part::ToolCall));
        let mut exchange = history.open(reply.into()).unwrap();
        for (call, size) in calls.iter().zip(*sizes) {
            let mut result = ToolResult::new(call, Ok(ToolOutput::text("shown")));
            result.whole = (*size > 0).then(|| "x".repeat(*size).into());
            exchange.answer(result).unwrap();
        }
        history.close(exchange, &ToolError::failed("not used"));
    }
    history
}

fn wholes(history: &History) -> Vec<Option<usize>> {
    history
        .calls()
        .map(|(_, result)| result.whole.as_ref().map(|whole| whole.len()))
        .collect()
}

#[test]
fn keep_wholes_drops_oldest_first() {
    let history = history_with_wholes(&[&[100, 200], &[0], &[300]]);
    assert_eq!(history.retained_bytes(), 600);
    let cases: [(usize, &[Option<usize>]); 6] = [
        (600, &[Some(100), Some(200), None, Some(300)]),
        (599, &[Some(0), Some(200), None, Some(300)]),
        (500, &[Some(0), Some(200), None, Some(300)]),
        (499, &[Some(0), Some(0), None, Some(300)]),
        (299, &[Some(0), Some(0), None, Some(0)]),
        (0, &[Some(0), Some(0), None, Some(0)]),
    ];
    for (limit, expected) in cases {
        let mut bounded = history.clone();
        bounded.limit_retained_bytes(limit);
        assert_eq!(wholes(&bounded), expected, "{limit}");
        assert_eq!(
            bounded.retained_bytes(),
            expected.iter().flatten().sum::<usize>(),
            "{limit}"
        );
        assert_eq!(bounded.len(), history.len());
        assert!(bounded.calls().all(|(_, result)| result.text() == "shown"));
        let json = serde_json::to_string(&bounded).unwrap();
        let read: History = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&read, read.retained_bytes()),
            (&bounded, bounded.retained_bytes())
        );
    }
    assert_eq!(wholes(&history)[0], Some(100), "a clone is unchanged");
}

#[test]
fn wholes_are_not_part_of_any_size() {
    let (with, without) = (
        history_with_wholes(&[&[1 << 20]]),
        history_with_wholes(&[&[0]]),
    );
    let counts = |history: &History| (history.size(), history.tokens(), history.max_tokens());
    assert_eq!(counts(&with), counts(&without));
    let message = with.messages().last().unwrap();
    let shown = message.shown();
    assert_eq!(shown.results().next().unwrap().whole.as_deref(), Some(""));
    assert!(matches!(
        without.messages()[1].shown(),
        std::borrow::Cow::Borrowed(_)
    ));
}

#[test]
fn encoded_message_survives_dropped_whole() {
    let mut history = history_with_wholes(&[&[100]]);
    history.encoded(1, "wire", || b"made".to_vec());
    history.limit_retained_bytes(0);
    assert_eq!(
        &*history.encoded(1, "wire", || b"made again".to_vec()),
        b"made"
    );
}

#[test]
fn exchange_keep_wholes_limits_open_exchange() {
    let calls: Vec<ToolCall> = ["a", "b"]
        .map(|id| ToolCall::new(id, "t", json!({})))
        .into();
    let reply = Message::new(Role::Assistant, calls.iter().cloned().map(Part::ToolCall));
    let mut exchange = History::new().open(reply.into()).unwrap();
    for call in &calls {
        let mut result = ToolResult::new(call, Ok(ToolOutput::text("shown")));
        result.whole = Some("x".repeat(10).into());
        exchange.answer(result).unwrap();
    }
    exchange.keep_wholes(20);
    assert_eq!(exchange.kept(), 20);
    exchange.keep_wholes(19);
    let rest: Vec<usize> = exchange
        .results()
        .map(|result| result.whole.as_ref().unwrap().len())
        .collect();
    assert_eq!(rest, [0, 10]);
}

/// Returns how many calls `work` inspects in an exchange of this many calls.
fn inspected_calls(calls: usize, work: impl FnOnce(&mut Exchange, &[CallId])) -> usize {
    let ids: Vec<String> = (0..calls).map(|n| format!("c{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut exchange = open(&History::new(), &ids);
    let ids: Vec<CallId> = ids.into_iter().map(CallId::from).collect();
    super::inspected::take();
    work(&mut exchange, &ids);
    super::inspected::take()
}

#[test]
fn exchange_of_many_calls_inspects_each_call_once() {
    let answer_all = |exchange: &mut Exchange, ids: &[CallId]| {
        for id in ids.iter().rev() {
            assert!(!exchange.is_complete());
            assert_eq!(exchange.call(id).map(|call| &call.id), Some(id));
            exchange.answer(answer(id.as_str())).unwrap();
        }
        assert!(exchange.is_complete());
        assert_eq!(
            exchange.answer(answer("c1")),
            Err(HistoryError::AnsweredTwice { call: "c1".into() })
        );
        assert_eq!(
            exchange.answer(answer("x")),
            Err(HistoryError::UnknownCall { call: "x".into() })
        );
    };
    for calls in [16, 17, 64, 1_000, 8_000] {
        let inspected = inspected_calls(calls, answer_all);
        // Few calls are searched one by one: at most 16 for each.
        let max = if calls > 16 {
            2 * calls + 2
        } else {
            2 * 16 * calls + 32
        };
        assert!(
            inspected <= max,
            "{inspected} inspections for {calls} calls"
        );
    }
}

#[test]
fn exchange_of_many_long_answers_inspects_each_answer_once() {
    let keep = |exchange: &mut Exchange, ids: &[CallId]| {
        for id in ids {
            let mut long = answer(id.as_str());
            long.whole = Some("0123456789".into());
            exchange.answer(long).unwrap();
            exchange.keep_wholes(20);
        }
        assert_eq!(exchange.kept(), 20);
        let kept: Vec<_> = exchange
            .results()
            .filter(|result| result.retained_bytes() > 0)
            .map(|r| &r.call)
            .collect();
        assert_eq!(kept, ids.iter().rev().take(2).rev().collect::<Vec<_>>());
    };
    let inspected = inspected_calls(2_000, keep);
    assert!(
        inspected <= 4_000,
        "{inspected} inspections for 2000 answers"
    );
}

#[test]
fn result_finds_answers_from_all_sources() {
    let mut history = History::new();
    history.push(Message::user("go")).unwrap();
    let ids: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let exchange = open(&history, &ids);
    close(&mut history, exchange);
    let mut longer = History::new();
    longer.extend(&history, 0).unwrap();
    longer
        .append([reply(&["c3", "d"]).into(), answers(&["c3", "d"]).into()])
        .unwrap();
    let json = serde_json::to_value(&longer).unwrap();
    let read: History = serde_json::from_value(json).unwrap();
    for history in [&longer, &read] {
        for (call, result) in history.calls() {
            assert_eq!(history.result(&call.id), Some(result), "{}", call.id);
        }
        assert_eq!(history.calls().count(), 42);
        assert_eq!(history.result(&"x".into()), None);
    }
}
