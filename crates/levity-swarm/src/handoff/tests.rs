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

use super::record::{Record, sound};
use super::{Handoff, HandoffHistory};
use crate::desk::Work;
use crate::machine::SwarmMachine;
use crate::notice::SwarmNotice;
use crate::report::ReportStatus;
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

/// A machine, and what it wants and tells.
struct Driven {
    swarm: Swarm,
    machine: SwarmMachine,
    /// The same, built again before each input from what it saved.
    again: SwarmMachine,
    wanted: Vec<(EffectId, ChildRun)>,
    told: Vec<SwarmNotice>,
}

impl Driven {
    fn new(swarm: &Swarm) -> Self {
        Self::with(swarm, None)
    }

    /// Before its first input.
    fn fresh(swarm: &Swarm) -> Self {
        let (machine, again) = (swarm.machine("Do it."), swarm.machine("Do it."));
        Self {
            swarm: swarm.clone(),
            machine,
            again,
            wanted: Vec::new(),
            told: Vec::new(),
        }
    }

    fn with(swarm: &Swarm, wrap: Option<Limit>) -> Self {
        let mut driven = Self::fresh(swarm);
        driven.apply(Input::Begin {
            run: "r".into(),
            wrap,
        });
        driven
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
        self.told
            .extend(step.events.iter().filter_map(SwarmNotice::of));
        for (id, effect) in step.effects {
            let Effect::Child(child) = effect else {
                panic!("a handoff wants runs below it alone")
            };
            self.wanted.push((id, child));
        }
    }

    /// The one run that is under way: who, and on what.
    fn now(&self) -> (String, Work) {
        let (_, child) = self.wanted.last().unwrap();
        (
            child.agent.to_string(),
            Work::deserialize(&child.input).unwrap(),
        )
    }

    fn end(&mut self, ending: Ending) {
        let effect = self.wanted.last().unwrap().0;
        self.apply(Input::Finished {
            effect,
            outcome: Outcome::Child(Box::new(ending)),
        });
    }

    fn answer(&mut self, text: &str) {
        let task = self.now().1.task;
        let mut ending = Ending::new(Status::Complete);
        ending.text = text.to_owned();
        ending.said = vec![Message::user(task).into(), Message::assistant(text).into()];
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
        ending.said = vec![Message::user(task).into(), reply.into(), answer.into()];
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

    fn talk(&self) -> Vec<Arc<Message>> {
        self.machine.shown().history
    }

    fn words(&self) -> Vec<String> {
        self.talk()
            .iter()
            .map(|message| message.text().into_owned())
            .filter(|text| !text.is_empty())
            .collect()
    }

    fn loops(&self) -> usize {
        self.told
            .iter()
            .filter(|notice| matches!(notice, SwarmNotice::LoopFound { .. }))
            .count()
    }
}

#[test]
fn near_a_limit_who_has_it_answers() {
    let mut run = Driven::new(&swarm());
    assert!(!run.now().1.plain && run.now().1.said);
    run.apply(Input::Wrap(Limit::Tokens));
    run.say("Hurry.");
    run.pass("b");
    let (who, work) = run.now();
    assert_eq!((&*who, work.plain, run.loops()), ("a", true, 1));
    assert!(
        work.task.contains("the limit on") && work.task.contains("The user says: Hurry."),
        "{}",
        work.task
    );
    // What it does with a tool that it does not have is of no interest.
    run.say("Too late.");
    run.answer("So far.");
    assert_eq!(run.status(), Some(Status::BestEffort(Limit::Tokens)));
    assert_eq!(run.words(), ["Do it.", "Hurry.", "So far.", "Too late."]);
}

#[test]
fn near_a_limit_from_the_start_nobody_has_the_tool() {
    let mut run = Driven::with(&swarm(), Some(Limit::Money));
    assert!(run.now().1.plain);
    run.pass("b");
    // It said nothing; near a limit nothing is tried again.
    assert!(matches!(run.status(), Some(Status::Failed(_))));
    assert_eq!(run.wanted.len(), 1);
}

#[test]
fn words_go_along_once_and_are_answered() {
    let mut run = Driven::new(&swarm());
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
        run.words(),
        ["Do it.", "One.", "First.", "Two.", "Three.", "Second."]
    );
}

#[test]
fn words_stay_when_a_leg_fails_or_the_run_is_stopped() {
    let mut run = Driven::new(&swarm());
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
    assert_eq!(run.words(), ["Do it.", "One.", "Two."]);
    assert_eq!(run.machine.shown().last.as_deref(), Some("a"));
}

#[test]
fn words_that_others_have_heard_are_not_lost_on_the_way_back() {
    let mut run = Driven::new(&swarm());
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
    assert_eq!(run.words(), ["Do it.", "One.", "Two.", "Three.", "Well."]);
}

#[test]
fn words_before_the_beginning_are_part_of_the_first_leg() {
    let mut machine = Driven::fresh(&swarm());
    machine.say("Soon.");
    machine.apply(Input::Begin {
        run: "r".into(),
        wrap: None,
    });
    assert_eq!(machine.now().1.task, "Do it.\n\nSoon.");
    machine.answer("Done.");
    assert_eq!(machine.words(), ["Do it.", "Soon.", "Done."]);
}

#[test]
fn a_pair_may_occur_so_often() {
    let mut run = Driven::new(
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
    // It has no such tool, and it said nothing: it goes back to who passed it on, who has to
    // answer.
    let (who, work) = run.now();
    assert_eq!((&*who, work.plain), ("c", true));
    run.answer("Well then.");
    assert_eq!(run.status(), Some(Status::Complete));
}

#[test]
fn it_goes_back_past_those_who_failed() {
    let mut run = Driven::new(&swarm());
    run.pass("b");
    run.pass("a");
    run.pass("c");
    run.fail();
    assert_eq!(run.now().0, "a");
    run.fail();
    assert_eq!(run.now().0, "b", "it is the first who has not failed");
    run.fail();
    assert!(
        matches!(run.status(), Some(Status::Failed(Failure::Unreached(_)))),
        "{:?}",
        run.status()
    );
    let statuses: Vec<_> = run
        .machine
        .desk()
        .reports
        .iter()
        .map(|report| report.status)
        .collect();
    use ReportStatus::{Done, Failed};
    assert_eq!(statuses, [Done, Done, Done, Failed, Failed, Failed]);
}

#[test]
fn who_was_stopped_is_not_tried_again() {
    let retrying = Swarm::builder(Handoff::starting_with("a"))
        .workers([
            worker("a"),
            worker("b").retries(3).stand_in("c"),
            worker("c"),
        ])
        .build()
        .unwrap();
    let mut run = Driven::new(&retrying);
    run.pass("b");
    run.end(Ending::new(Status::Cancelled {
        reason: "by hand".into(),
    }));
    assert_eq!(run.now().0, "a");
    assert_eq!(run.machine.desk().reports[1].status, ReportStatus::Stopped);
    let mut run = Driven::new(&retrying);
    run.pass("b");
    run.end(Ending::new(Status::Partial(Limit::WallTime)));
    assert_eq!(run.now().0, "c", "who ran out of time would do so again");
}

#[test]
fn a_worker_has_what_is_left_and_its_own_time() {
    let mut limits = levity_core::Limits::new();
    limits.tokens = Some(1_000);
    let own = levity_core::Limits::new().tokens(400).model_calls(5);
    let swarm = Swarm::builder(Handoff::starting_with("a"))
        .workers([worker("a"), worker("b").limits(own).retries(1)])
        .limits(limits)
        .build()
        .unwrap();
    let mut run = Driven::new(&swarm);
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
async fn it_keeps_the_promises_of_machines() {
    let panics = Handoff::starting_with("a")
        .carry(HandoffHistory::by(|all| all[1..].to_vec()))
        .max_handoffs(3);
    for handoff in [Handoff::starting_with("a"), panics] {
        let swarm = builder(handoff)
            .worker(worker("d").stand_in("a").retries(2))
            .talk()
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
fn settings_that_make_no_sense_are_found() {
    let check = |handoff: Handoff, expected: &str| {
        let error = builder(handoff).build().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(Handoff::starting_with("aa"), "did you mean `a`");
    check(Handoff::starting_with("a").to("x", ["b"]), "`to` names `x`");
    check(
        Handoff::starting_with("a").to("a", ["zz"]),
        "`to` names `zz`",
    );
    check(
        Handoff::starting_with("a").to("a", ["a"]),
        "pass on to itself",
    );
    check(
        Handoff::starting_with("a").carry_to("zz", HandoffHistory::Note),
        "`carry_to` names `zz`",
    );
    check(
        Handoff::starting_with("a").max_repeats(0),
        "max_handoffs(0)",
    );
    assert!(
        builder(Handoff::starting_with("a").to("a", [""; 0]).max_handoffs(0))
            .build()
            .is_ok()
    );
}

/// Leaves a message for `b`, and passes the conversation on to it.
fn leaves_a_message() -> Ending {
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
    let swarm = builder(Handoff::starting_with("a")).talk().build().unwrap();
    let mut run = Driven::new(&swarm);
    run.end(leaves_a_message());
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
fn messages_are_there_when_a_leg_is_tried_again() {
    let workers = [worker("a"), worker("b").retries(1)];
    let swarm = Swarm::builder(Handoff::starting_with("a"))
        .workers(workers)
        .talk()
        .build()
        .unwrap();
    let mut run = Driven::new(&swarm);
    run.end(leaves_a_message());
    run.fail();
    let (who, work) = run.now();
    assert!(
        who == "b" && work.task.contains("Mind the step."),
        "{}",
        work.task
    );
}

/// What may come of a leg, and what may happen meanwhile.
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

impl Driven {
    fn happens(&mut self, event: Event, said: &mut Vec<String>) {
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
                let effect = self.wanted.last().unwrap().0;
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
    fn whatever_happens_it_ends_and_no_word_is_lost(
        events in prop::collection::vec(event(), 0..60), carry in 0..5_usize, most in 0..4_u32,
    ) {
        let carries = [HandoffHistory::Everything, HandoffHistory::Words, HandoffHistory::Last(3), HandoffHistory::Note, HandoffHistory::by(|all| all[1..].to_vec())];
        let handoff = Handoff::starting_with("a").carry(carries[carry].clone()).max_handoffs(most).to("c", ["a"]);
        let swarm = builder(handoff).worker(worker("d").stand_in("b").retries(1)).build().unwrap();
        let (mut run, mut said) = (Driven::new(&swarm), vec!["Do it.".to_owned()]);
        for event in events {
            if run.status().is_some() {
                break;
            }
            let before = run.wanted.len();
            run.happens(event, &mut said);
            prop_assert!(run.wanted.len() <= before + 1, "one has the conversation at a time");
            prop_assert!(History::renamed(run.now().1.history).is_ok());
        }
        let mut rest = 0;
        while run.status().is_none() {
            run.answer("Well.");
            rest += 1;
            prop_assert!(rest <= 2, "one who answers ends it, when all words are heard");
        }
        prop_assert!(History::renamed(run.talk()).is_ok());
        let users = run.talk().into_iter().filter(|message| message.role == Role::User);
        let users: Vec<_> = users.map(|message| message.text().into_owned()).collect();
        prop_assert_eq!(users, said);
        prop_assert!(run.machine.desk().reports.iter().all(|report| report.status.is_settled()));
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
fn the_oldest_leave_and_a_mark_says_so() {
    let mut record = Record::default();
    record.push(Message::user("Begin.").into());
    for n in 0..Record::MAX_MESSAGES {
        record.extend(&exchange(n));
    }
    let all = record.all();
    assert_eq!(all.len(), Record::MAX_MESSAGES + 1, "and the mark");
    assert_eq!(all[0].text(), "[2001 earlier messages are left out]");
    record.push(Message::user("Go on.").into());
    let all = record.all();
    assert_eq!(
        all[0].text(),
        "[2003 earlier messages are left out]",
        "a result does not stay without its call"
    );
    assert_eq!(
        (all.len(), all[1].role),
        (Record::MAX_MESSAGES, Role::Assistant)
    );
    // It is read again when a conversation goes on.
    let mut again = Record::of(&all);
    assert_eq!(again.all(), all);
    again.extend(&exchange(0));
    assert_eq!(
        again.all()[0].text(),
        "[2005 earlier messages are left out]"
    );
}

#[test]
fn bytes_are_bounded_too() {
    let mut record = Record::default();
    for _ in 0..10 {
        record.push(Message::user("x".repeat(1 << 20)).into());
    }
    assert_eq!(record.all().len(), 9);
    record.push(Message::user("x".repeat(9 << 20)).into());
    assert_eq!(
        record.all().len(),
        1,
        "one that is too long for all leaves as well"
    );
    let image = levity_core::Media::bytes("image/png", vec![0; 5 << 20]);
    let mut record = Record::default();
    for _ in 0..3 {
        record.push(Message::new(Role::User, [Part::Media(image.clone())]).into());
    }
    assert_eq!(record.all().len(), 2, "what is no text counts");
}

#[test]
fn what_makes_no_history_is_left_out() {
    let [call, answer] = exchange(1);
    let [other, others] = exchange(2);
    let user: Arc<Message> = Message::user("Hi").into();
    let check = |given: &[&Arc<Message>], expected: &[&Arc<Message>]| {
        let given: Vec<_> = given.iter().map(|message| (*message).clone()).collect();
        let expected: Vec<_> = expected.iter().map(|message| (*message).clone()).collect();
        assert_eq!(sound(&given), expected);
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
