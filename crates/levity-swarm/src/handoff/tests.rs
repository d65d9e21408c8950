use std::sync::Arc;

use levity_core::{
    ChildRun, Effect, EffectId, Ending, Failure, History, Input, Limit, Machine as _,
    MachineOutput, Message, Outcome, Part, Role, Signal, Status, ToolCall, ToolOutput, ToolResult,
};
use levity_loop::Agent;
use levity_test::{ScriptedModel, conformance};
use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::json;

use super::record::{Record, valid_history};
use super::{Handoff, HandoffHistory};
use crate::machine::SwarmMachine;
use crate::notice::SwarmNotice;
use crate::report::ReportStatus;
use crate::shared_state::Work;
use crate::swarm::{Swarm, SwarmBuilder};
use crate::worker::Worker;

fn worker(name: &str) -> Worker {
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    Worker::new(name, format!("Does {name}."), agent).retries(0)
}

fn builder(handoff: Handoff) -> SwarmBuilder {
    Swarm::builder(handoff).workers(["a", "b", "c"].map(worker))
}

fn swarm() -> Swarm {
    builder(Handoff::starting_with("a")).build().unwrap()
}

/// A machine, with its requests and notices.
struct MachineDriver {
    swarm: Swarm,
    machine: SwarmMachine,
    /// The same machine, restored from its saved state before each input.
    again: SwarmMachine,
    requests: Vec<(EffectId, ChildRun)>,
    notices: Vec<SwarmNotice>,
}

impl MachineDriver {
    fn new(swarm: &Swarm) -> Self {
        Self::with(swarm, None)
    }

    /// Creates a machine before its first input.
    fn fresh(swarm: &Swarm) -> Self {
        let (machine, again) = (swarm.machine("Do it."), swarm.machine("Do it."));
        Self {
            swarm: swarm.clone(),
            machine,
            again,
            requests: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn with(swarm: &Swarm, wrap: Option<Limit>) -> Self {
        let mut driver = Self::fresh(swarm);
        driver.apply(Input::Begin {
            run: "r".into(),
            wrap,
        });
        driver
    }

    fn apply(&mut self, input: Input) {
        let (mut step, mut same) = (MachineOutput::new(), MachineOutput::new());
        let saved = serde_json::from_str(&self.again.save().to_string()).unwrap();
        self.again = self.swarm.restore(&saved).unwrap();
        self.again.apply(input.clone(), &mut same);
        self.machine.apply(input, &mut step);
        assert_eq!(
            format!("{same:?}"),
            format!("{step:?}"),
            "restored from {saved}"
        );
        assert_eq!(
            self.again.save().to_string(),
            self.machine.save().to_string(),
            "restored from {saved}"
        );
        self.notices
            .extend(step.events.iter().filter_map(SwarmNotice::of));
        for (id, effect) in step.effects {
            let Effect::Child(child) = effect else {
                panic!("a handoff requests only child runs")
            };
            self.requests.push((id, child));
        }
    }

    /// Returns the one run in progress: the worker and its work.
    fn now(&self) -> (String, Work) {
        let (_, child) = self.requests.last().unwrap();
        (
            child.agent.to_string(),
            Work::deserialize(&child.input).unwrap(),
        )
    }

    fn end(&mut self, ending: Ending) {
        let effect = self.requests.last().unwrap().0;
        self.apply(Input::Finished {
            effect,
            outcome: Outcome::Child(Box::new(ending)),
        });
    }

    fn answer(&mut self, text: &str) {
        let task = self.now().1.task;
        let mut ending = Ending::new(Status::Complete);
        ending.text = text.to_owned();
        ending.messages = vec![Message::user(task).into(), Message::assistant(text).into()];
        self.end(ending);
    }

    fn pass(&mut self, to: &str) {
        let task = self.now().1.task;
        let mut ending = Ending::new(Status::Complete);
        let args = json!({"to": to, "note": format!("for {to}")});
        let call = ToolCall::new("c1", "transfer_to", args.clone());
        let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
        let result = ToolResult::new(&call, Ok(ToolOutput::text("noted")));
        let answer = Message::new(Role::Tool, [Part::ToolResult(result)]);
        ending.messages = vec![Message::user(task).into(), reply.into(), answer.into()];
        ending.signals = vec![Signal::new("transfer_to", args)];
        self.end(ending);
    }

    fn fail(&mut self) {
        self.end(Ending::new(Status::Failed(Failure::Behaviour(
            "broken".into(),
        ))));
    }

    fn say(&mut self, words: &str) {
        self.apply(Input::Say(Message::user(words).into()));
    }

    fn status(&self) -> Option<Status> {
        self.machine.ending().map(|ending| ending.status.clone())
    }

    fn conversation(&self) -> Vec<Arc<Message>> {
        self.machine.output().history
    }

    fn texts(&self) -> Vec<String> {
        self.conversation()
            .iter()
            .map(|message| message.text().into_owned())
            .filter(|text| !text.is_empty())
            .collect()
    }

    fn loops(&self) -> usize {
        self.notices
            .iter()
            .filter(|notice| matches!(notice, SwarmNotice::LoopFound { .. }))
            .count()
    }
}

#[test]
fn near_limit_holder_must_answer() {
    let mut run = MachineDriver::new(&swarm());
    assert!(!run.now().1.plain && run.now().1.said);
    run.apply(Input::FinishSoon(Limit::Tokens));
    run.say("Hurry.");
    run.pass("b");
    let (who, work) = run.now();
    assert_eq!((&*who, work.plain, run.loops()), ("a", true, 1));
    assert!(
        work.task.contains("the limit on") && work.task.contains("The user says: Hurry."),
        "{}",
        work.task
    );
    // A call of a tool that it does not have is ignored.
    run.say("Too late.");
    run.answer("So far.");
    assert_eq!(run.status(), Some(Status::BestEffort(Limit::Tokens)));
    assert_eq!(run.texts(), ["Do it.", "Hurry.", "So far.", "Too late."]);
}

#[test]
fn near_limit_at_start_worker_has_no_transfer_tool() {
    let mut run = MachineDriver::with(&swarm(), Some(Limit::Money));
    assert!(run.now().1.plain);
    run.pass("b");
    // The worker returned nothing, and there are no retries near a limit.
    assert!(matches!(run.status(), Some(Status::Failed(_))));
    assert_eq!(run.requests.len(), 1);
}

#[test]
fn host_messages_are_passed_once_and_answered() {
    let mut run = MachineDriver::new(&swarm());
    run.say("One.");
    run.pass("b");
    assert_eq!(run.now().1.task.matches("The user says: One.").count(), 1);
    assert!(
        !run.now()
            .1
            .history
            .iter()
            .any(|message| message.text() == "One.")
    );
    run.say("Two.");
    run.say("Three.");
    run.answer("First.");
    let (who, work) = run.now();
    assert_eq!(
        (&*who, &*work.task, work.plain),
        ("b", "Two.\n\nThree.", false)
    );
    assert_eq!(work.history.last().unwrap().text(), "First.");
    run.answer("Second.");
    assert_eq!(run.status(), Some(Status::Complete));
    assert_eq!(
        run.texts(),
        ["Do it.", "One.", "First.", "Two.", "Three.", "Second."]
    );
}

#[test]
fn host_messages_survive_failed_leg_and_cancellation() {
    let mut run = MachineDriver::new(&swarm());
    run.pass("b");
    run.say("One.");
    run.fail();
    let (who, work) = run.now();
    assert_eq!((&*who, work.plain), ("a", true));
    assert!(work.task.contains("The user says: One."), "{}", work.task);
    run.say("Two.");
    run.apply(Input::Cancel {
        reason: "enough".into(),
    });
    assert_eq!(run.texts(), ["Do it.", "One.", "Two."]);
    assert_eq!(run.machine.output().last.as_deref(), Some("a"));
}

#[test]
fn host_messages_to_others_survive_return_of_conversation() {
    let mut run = MachineDriver::new(&swarm());
    run.say("One.");
    run.pass("b");
    run.say("Two.");
    run.pass("c");
    run.say("Three.");
    run.fail();
    run.fail();
    let (who, work) = run.now();
    let shown: Vec<_> = work
        .history
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(
        (&*who, shown.last().map(String::as_str)),
        ("a", Some("One."))
    );
    assert!(
        work.task
            .ends_with("The user says: Two.\n\nThe user says: Three."),
        "{}",
        work.task
    );
    run.answer("Well.");
    assert_eq!(run.texts(), ["Do it.", "One.", "Two.", "Three.", "Well."]);
}

#[test]
fn host_message_before_start_is_part_of_first_leg() {
    let mut machine = MachineDriver::fresh(&swarm());
    machine.say("Soon.");
    machine.apply(Input::Begin {
        run: "r".into(),
        wrap: None,
    });
    assert_eq!(machine.now().1.task, "Do it.\n\nSoon.");
    machine.answer("Done.");
    assert_eq!(machine.texts(), ["Do it.", "Soon.", "Done."]);
}

#[test]
fn repeated_handoffs_between_pair_are_limited() {
    let mut run = MachineDriver::new(
        &builder(Handoff::starting_with("a").max_repeats(1))
            .build()
            .unwrap(),
    );
    for to in ["b", "c", "a"] {
        run.pass(to);
        assert_eq!((run.now().0, run.loops()), (to.to_owned(), 0));
    }
    run.pass("b");
    assert_eq!(
        (run.now().0, run.loops(), run.now().1.plain),
        ("a".to_owned(), 1, true)
    );
    run.pass("c");
    // The worker has no such tool and returned nothing: the conversation returns to the previous
    // holder, which must answer.
    let (who, work) = run.now();
    assert_eq!((&*who, work.plain), ("c", true));
    run.answer("Well then.");
    assert_eq!(run.status(), Some(Status::Complete));
}

#[test]
fn conversation_returns_past_failed_holders() {
    let mut run = MachineDriver::new(&swarm());
    run.pass("b");
    run.pass("a");
    run.pass("c");
    run.fail();
    assert_eq!(run.now().0, "a");
    run.fail();
    assert_eq!(run.now().0, "b", "the first holder that has not failed");
    run.fail();
    assert!(
        matches!(
            run.status(),
            Some(Status::Failed(Failure::GoalNotReached(_)))
        ),
        "{:?}",
        run.status()
    );
    let statuses: Vec<_> = run
        .machine
        .shared()
        .reports
        .iter()
        .map(|report| report.status)
        .collect();
    use ReportStatus::{Done, Failed};
    assert_eq!(statuses, [Done, Done, Done, Failed, Failed, Failed]);
}

#[test]
fn stopped_worker_is_not_retried() {
    let retrying = Swarm::builder(Handoff::starting_with("a"))
        .workers([
            worker("a"),
            worker("b").retries(3).fallback("c"),
            worker("c"),
        ])
        .build()
        .unwrap();
    let mut run = MachineDriver::new(&retrying);
    run.pass("b");
    run.end(Ending::new(Status::Cancelled {
        reason: "by hand".into(),
    }));
    assert_eq!(run.now().0, "a");
    assert_eq!(
        run.machine.shared().reports[1].status,
        ReportStatus::Stopped
    );
    let mut run = MachineDriver::new(&retrying);
    run.pass("b");
    run.end(Ending::new(Status::Partial(Limit::WallTime)));
    assert_eq!(run.now().0, "c", "a retry would time out again");
}

#[test]
fn worker_gets_remaining_limits_minus_its_usage() {
    let mut limits = levity_core::Limits::new();
    limits.tokens = Some(1_000);
    let own = levity_core::Limits::new().tokens(400).model_calls(5);
    let swarm = Swarm::builder(Handoff::starting_with("a"))
        .workers([worker("a"), worker("b").limits(own).retries(1)])
        .limits(limits)
        .build()
        .unwrap();
    let mut run = MachineDriver::new(&swarm);
    let of_a = run.now().1.limits.unwrap();
    assert_eq!(
        (of_a.tokens, of_a.wall_time, of_a.model_calls),
        (Some(1_000), None, None)
    );
    run.pass("b");
    let mut failed = Ending::new(Status::Failed(Failure::Behaviour("broken".into())));
    failed.usage = levity_core::Usage::new(300, 0);
    failed.stats.model_calls = 2;
    run.end(failed);
    let of_b = run.now().1.limits.unwrap();
    assert_eq!((of_b.tokens, of_b.model_calls), (Some(100), Some(3)));
}

#[tokio::test]
async fn handoff_machine_passes_conformance_suite() {
    let panics = Handoff::starting_with("a")
        .history(HandoffHistory::by(|all| all[1..].to_vec()))
        .max_handoffs(3);
    for handoff in [Handoff::starting_with("a"), panics] {
        let swarm = builder(handoff)
            .worker(worker("d").fallback("a").retries(2))
            .worker_messages()
            .build()
            .unwrap();
        conformance::machine(|| swarm.machine("Do it.")).await;
        conformance::machine_restored(
            || swarm.machine("Do it."),
            |state| swarm.restore(&state).unwrap(),
        )
        .await;
        conformance::machine_damaged(|| swarm.machine("Do it."), |state| swarm.restore(state))
            .await;
    }
}

#[test]
fn invalid_settings_are_rejected() {
    let check = |handoff: Handoff, expected: &str| {
        let error = builder(handoff).build().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(Handoff::starting_with("aa"), "did you mean `a`");
    check(
        Handoff::starting_with("a").allow_transfers("x", ["b"]),
        "`allow_transfers` names `x`",
    );
    check(
        Handoff::starting_with("a").allow_transfers("a", ["zz"]),
        "`allow_transfers` names `zz`",
    );
    check(
        Handoff::starting_with("a").allow_transfers("a", ["a"]),
        "pass the conversation to itself",
    );
    check(
        Handoff::starting_with("a").history_for("zz", HandoffHistory::Note),
        "`history_for` names `zz`",
    );
    check(
        Handoff::starting_with("a").max_repeats(0),
        "max_handoffs(0)",
    );
    assert!(
        builder(
            Handoff::starting_with("a")
                .allow_transfers("a", [""; 0])
                .max_handoffs(0)
        )
        .build()
        .is_ok()
    );
}

/// Returns an ending that leaves a message for `b` and passes the conversation to it.
fn ending_with_message() -> Ending {
    let mut passes = Ending::new(Status::Complete);
    passes.signals = vec![
        Signal::new(
            "send_message",
            json!({"to": "b", "content": "Mind the step."}),
        ),
        Signal::new("transfer_to", json!({"to": "b"})),
    ];
    passes
}

#[test]
fn messages_of_colleagues_are_shown_once() {
    let swarm = builder(Handoff::starting_with("a"))
        .worker_messages()
        .build()
        .unwrap();
    let mut run = MachineDriver::new(&swarm);
    run.end(ending_with_message());
    assert!(
        run.now().1.task.contains("Mind the step."),
        "{}",
        run.now().1.task
    );
    run.pass("c");
    assert!(!run.now().1.task.contains("Mind the step."));
    run.pass("b");
    assert!(!run.now().1.task.contains("Mind the step."));
}

#[test]
fn messages_are_shown_again_when_leg_is_retried() {
    let workers = [worker("a"), worker("b").retries(1)];
    let swarm = Swarm::builder(Handoff::starting_with("a"))
        .workers(workers)
        .worker_messages()
        .build()
        .unwrap();
    let mut run = MachineDriver::new(&swarm);
    run.end(ending_with_message());
    run.fail();
    let (who, work) = run.now();
    assert!(
        who == "b" && work.task.contains("Mind the step."),
        "{}",
        work.task
    );
}

/// An outcome of a leg, or an event in the meantime.
#[derive(Clone, Copy, Debug)]
enum Event {
    Answer,
    Pass(&'static str),
    Fail,
    Limit,
    Stopped,
    Nothing,
    Unknown,
    Say,
    Near,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Answer),
        8 => prop::sample::select(vec!["a", "b", "c", "d", "", "nobody"]).prop_map(Event::Pass),
        3 => Just(Event::Fail),
        1 => Just(Event::Limit),
        1 => Just(Event::Stopped),
        1 => Just(Event::Nothing),
        1 => Just(Event::Unknown),
        3 => Just(Event::Say),
        1 => Just(Event::Near),
    ]
}

impl MachineDriver {
    fn apply_event(&mut self, event: Event, said: &mut Vec<String>) {
        match event {
            Event::Answer => self.answer("Well."),
            Event::Pass(to) => self.pass(to),
            Event::Fail => self.fail(),
            Event::Limit => self.end(Ending::new(Status::Partial(Limit::Turns))),
            Event::Stopped => self.end(Ending::new(Status::Cancelled {
                reason: "by hand".into(),
            })),
            Event::Nothing => self.end(Ending::new(Status::Complete)),
            Event::Unknown => {
                let effect = self.requests.last().unwrap().0;
                self.apply(Input::Finished {
                    effect,
                    outcome: Outcome::Unknown,
                });
            }
            Event::Say => {
                said.push(format!("word {}", said.len()));
                self.say(said.last().unwrap());
            }
            Event::Near => self.apply(Input::Low(Limit::Money)),
        }
    }
}

proptest! {
    #[test]
    fn run_always_ends_and_no_message_is_lost(
        events in prop::collection::vec(event(), 0..60), carry in 0..5_usize, most in 0..4_u32,
    ) {
        let carries = [
            HandoffHistory::Everything,
            HandoffHistory::TextOnly,
            HandoffHistory::Last(3),
            HandoffHistory::Note,
            HandoffHistory::by(|all| all[1..].to_vec()),
        ];
        let handoff = Handoff::starting_with("a")
            .history(carries[carry].clone())
            .max_handoffs(most)
            .allow_transfers("c", ["a"]);
        let swarm = builder(handoff).worker(worker("d").fallback("b").retries(1)).build().unwrap();
        let (mut run, mut said) = (MachineDriver::new(&swarm), vec!["Do it.".to_owned()]);
        for event in events {
            if run.status().is_some() {
                break;
            }
            let before = run.requests.len();
            run.apply_event(event, &mut said);
            prop_assert!(run.requests.len() <= before + 1, "one worker has the conversation at a \
                time");
            prop_assert!(History::renamed(run.now().1.history).is_ok());
        }
        let mut rest = 0;
        while run.status().is_none() {
            run.answer("Well.");
            rest += 1;
            prop_assert!(rest <= 2, "an answer ends the run when no messages are unread");
        }
        prop_assert!(History::renamed(run.conversation()).is_ok());
        let users = run.conversation().into_iter().filter(|message| message.role == Role::User);
        let users: Vec<_> = users.map(|message| message.text().into_owned()).collect();
        prop_assert_eq!(users, said);
        prop_assert!(run.machine.shared().reports.iter().all(|report| report.status.is_settled()));
    }
}

fn exchange(n: usize) -> [Arc<Message>; 2] {
    let call = ToolCall::new(format!("c{n}"), "look", json!({}));
    let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
    let result = ToolResult::new(&call, Ok(ToolOutput::text(format!("seen {n}"))));
    [
        reply.into(),
        Message::new(Role::Tool, [Part::ToolResult(result)]).into(),
    ]
}

#[test]
fn oldest_messages_are_dropped_with_marker() {
    let mut record = Record::default();
    record.push(Message::user("Begin.").into());
    for n in 0..Record::MAX_MESSAGES {
        record.extend(&exchange(n));
    }
    let all = record.all();
    assert_eq!(all.len(), Record::MAX_MESSAGES + 1, "with the marker");
    assert_eq!(all[0].text(), "[2001 earlier messages are left out]");
    record.push(Message::user("Go on.").into());
    let all = record.all();
    assert_eq!(
        all[0].text(),
        "[2003 earlier messages are left out]",
        "a result is dropped with its call"
    );
    assert_eq!(
        (all.len(), all[1].role),
        (Record::MAX_MESSAGES, Role::Assistant)
    );
    // The marker is read again when a conversation continues.
    let mut again = Record::of(&all);
    assert_eq!(again.all(), all);
    again.extend(&exchange(0));
    assert_eq!(
        again.all()[0].text(),
        "[2005 earlier messages are left out]"
    );
}

#[test]
fn record_size_in_bytes_is_limited() {
    let mut record = Record::default();
    for _ in 0..10 {
        record.push(Message::user("x".repeat(1 << 20)).into());
    }
    assert_eq!(record.all().len(), 9);
    record.push(Message::user("x".repeat(9 << 20)).into());
    assert_eq!(
        record.all().len(),
        1,
        "a message over the limit is dropped as well"
    );
    let image = levity_core::Media::bytes("image/png", vec![0; 5 << 20]);
    let mut record = Record::default();
    for _ in 0..3 {
        record.push(Message::new(Role::User, [Part::Media(image.clone())]).into());
    }
    assert_eq!(record.all().len(), 2, "media counts");
}

#[test]
fn calls_without_results_are_removed_from_history() {
    let [call, answer] = exchange(1);
    let [other, others] = exchange(2);
    let user: Arc<Message> = Message::user("Hi").into();
    let check = |given: &[&Arc<Message>], expected: &[&Arc<Message>]| {
        let given: Vec<_> = given.iter().map(|message| (*message).clone()).collect();
        let expected: Vec<_> = expected.iter().map(|message| (*message).clone()).collect();
        assert_eq!(valid_history(&given), expected);
    };
    check(&[&user, &call, &answer], &[&user, &call, &answer]);
    check(&[&call, &others, &user], &[&user]);
    check(&[&answer, &user, &call], &[&user]);
    check(&[&call, &user, &answer], &[&user]);
    check(&[&call, &other, &others, &answer], &[&other, &others]);
    check(
        &[&call, &answer, &call, &answer],
        &[&call, &answer, &call, &answer],
    );
    check(&[], &[]);
}
