//! Rounds, by feeding outcomes.

use levity_core::{
    ChildRun, Effect, EffectId, Ending, Failure, Input, Limit, Limits, Machine as _, MachineOutput,
    Message, Money, Outcome, Signal, Status, Usage,
};
use levity_loop::Agent;
use levity_test::ScriptedModel;
use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::json;

use crate::bus::MessageKind;
use crate::desk::Work;
use crate::machine::SwarmMachine;
use crate::pattern::Pattern;
use crate::report::{ReportStatus, WorkerReport};
use crate::swarm::{Swarm, SwarmBuilder};
use crate::worker::{Worker, WorkerMemory};
use crate::{Blackboard, Debate};

fn worker(name: &str) -> Worker {
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    Worker::new(name, format!("Does {name}."), agent).retries(0)
}

fn builder(pattern: impl Into<Pattern>) -> SwarmBuilder {
    Swarm::builder(pattern).workers(["a", "b", "c"].map(worker))
}

fn judge() -> ScriptedModel {
    ScriptedModel::new()
}

/// A machine, and the work under way.
struct Driven {
    machine: SwarmMachine,
    open: Vec<(EffectId, ChildRun)>,
}

impl Driven {
    fn new(swarm: SwarmBuilder) -> Self {
        let machine = swarm.build().unwrap().machine("Do it.");
        let mut driven = Self {
            machine,
            open: Vec::new(),
        };
        driven.apply(Input::Begin {
            run: "r".into(),
            wrap: None,
        });
        driven
    }

    fn apply(&mut self, input: Input) {
        let mut step = MachineOutput::new();
        self.machine.apply(input, &mut step);
        for (id, effect) in step.effects {
            let Effect::Child(child) = effect else {
                panic!("only runs below it are wanted")
            };
            self.open.push((id, child));
        }
    }

    /// Who is at work, in the order in which they began.
    fn at_work(&self) -> Vec<&str> {
        self.open.iter().map(|(_, child)| &*child.agent).collect()
    }

    fn work(&self, at: usize) -> Work {
        Work::deserialize(&self.open[at].1.input).unwrap()
    }

    fn end(&mut self, at: usize, ending: Ending) {
        let (effect, _) = self.open.remove(at);
        self.apply(Input::Finished {
            effect,
            outcome: Outcome::Child(Box::new(ending)),
        });
    }

    fn says(&mut self, at: usize, text: &str) {
        self.end(at, said(text));
    }

    fn fails(&mut self, at: usize) {
        self.end(
            at,
            Ending::new(Status::Failed(Failure::Behaviour("broken".into()))),
        );
    }

    fn statuses(&self) -> Vec<ReportStatus> {
        self.machine
            .desk()
            .reports
            .iter()
            .map(|report| report.status)
            .collect()
    }

    fn text(&self) -> &str {
        self.machine.ending().map_or("", |ending| &ending.text)
    }

    fn bus(&self) -> Vec<String> {
        let messages = self.machine.desk().bus.messages();
        messages
            .map(|message| format!("{} {} {}", message.from, message.kind, message.content))
            .collect()
    }
}

fn said(text: &str) -> Ending {
    let mut ending = Ending::new(Status::Complete);
    ending.text = text.to_owned();
    ending
}

fn wrote(key: &str, content: &str) -> Ending {
    let mut ending = said("Written.");
    ending.signals = vec![Signal::new(
        "write_board",
        json!({"key": key, "content": content}),
    )];
    ending
}

#[test]
fn one_speaks_at_a_time() {
    let mut debate = Driven::new(builder(Debate::unjudged().rounds(1)));
    for name in ["a", "b", "c"] {
        assert_eq!(debate.at_work(), [name]);
        debate.says(0, name);
    }
    assert_eq!(debate.bus()[..3], ["a turn a", "b turn b", "c turn c"]);
    assert_eq!(
        debate.machine.ending().map(|ending| &ending.status),
        Some(&Status::Complete)
    );
}

#[test]
fn no_more_work_at_a_time_than_may() {
    let mut board = Driven::new(builder(Blackboard::unjudged()).max_parallel(2));
    assert_eq!(board.at_work(), ["a", "b"]);
    board.end(1, wrote("k", "b"));
    assert_eq!(board.at_work(), ["a", "c"]);
    assert!(board.bus().is_empty());
}

#[test]
fn what_is_left_is_shared_out_in_each_round() {
    let limits = Limits::new().tokens(8_000).money(Money::from_nanos(8_000));
    let mut board = Driven::new(builder(Blackboard::new(judge())).limits(limits));
    let shares = |driven: &Driven, at| {
        driven
            .work(at)
            .limits
            .map(|limits| (limits.tokens, limits.money))
            .unwrap()
    };
    // Three, and one more share for the answer.
    let first = (Some(2_000), Some(Money::from_nanos(2_000)));
    assert_eq!([0, 1, 2].map(|at| shares(&board, at)), [first; 3]);
    for name in ["a", "b", "c"] {
        let mut ending = wrote(name, "x");
        let mut usage = Usage::new(200, 200);
        usage.cost = Some(Money::from_nanos(400));
        ending.usage = usage;
        board.end(0, ending);
    }
    let second = (Some(1_700), Some(Money::from_nanos(1_700)));
    assert_eq!([0, 1, 2].map(|at| shares(&board, at)), [second; 3]);
}

#[test]
fn near_a_limit_who_works_may_end_and_nobody_begins() {
    let mut debate = Driven::new(builder(Debate::new(judge())));
    debate.apply(Input::Wrap(Limit::Tokens));
    assert_eq!(debate.at_work(), ["a"], "it is not stopped");
    debate.says(0, "In short.");
    assert_eq!(debate.at_work(), ["judge"]);
    use ReportStatus::{Done, Skipped};
    assert_eq!(debate.statuses(), [Done, Skipped, Skipped]);
    debate.says(0, r#"{"answer": "So be it."}"#);
    assert!(
        debate
            .text()
            .starts_with("So be it.\n\nNot done:\n- b (`round1.b`): the limit on tokens was near")
    );
    assert_eq!(
        debate.machine.ending().map(|ending| ending.status.clone()),
        Some(Status::BestEffort(Limit::Tokens))
    );
}

#[test]
fn near_a_limit_a_judge_is_not_asked_again() {
    let mut debate = Driven::new(builder(Debate::new(judge()).rounds(1)));
    (0..3).for_each(|_| debate.says(0, "x"));
    debate.apply(Input::Low(Limit::Money));
    debate.says(0, "Prose.");
    assert_eq!(debate.text(), "Prose.");
}

#[test]
fn a_judge_that_gives_no_answer_gives_none() {
    let mut debate = Driven::new(builder(Debate::new(judge()).rounds(1)));
    (0..3).for_each(|_| debate.says(0, "x"));
    debate.says(0, "null");
    debate.says(0, r#"{"done": true, "answer": null}"#);
    assert!(
        debate.text().starts_with("## a (`round1.a`)\nx"),
        "{}",
        debate.text()
    );
}

#[test]
fn near_a_limit_before_it_begins_the_judge_is_asked_at_once() {
    let swarm = builder(Blackboard::new(judge())).build().unwrap();
    let mut board = Driven {
        machine: swarm.machine("Do it."),
        open: Vec::new(),
    };
    board.apply(Input::Begin {
        run: "r".into(),
        wrap: Some(Limit::WallTime),
    });
    assert_eq!(board.at_work(), ["judge"]);
    board.fails(0);
    let ending = board.machine.ending().unwrap();
    assert!(
        matches!(&ending.status, Status::Failed(Failure::Unreached(why)) if why.contains("no answer was made"))
    );
}

#[test]
fn who_keeps_a_conversation_does_one_thing_after_the_other() {
    let swarm = Swarm::builder(Blackboard::unjudged())
        .worker(worker("a").stand_in("b"))
        .worker(worker("b").memory(WorkerMemory::Named("talk".into())));
    let mut board = Driven::new(swarm);
    assert_eq!(board.at_work(), ["a"], "it may be the other's in the end");
    board.fails(0);
    assert_eq!(board.at_work(), ["b"], "it is at work for the other");
    board.end(0, wrote("k", "x"));
    assert_eq!(board.at_work(), ["b"], "and then for itself");
    board.says(0, "Nothing.");
    assert_eq!(
        board.bus(),
        [
            "a failure the model's reply is of no use: broken",
            "b entry k: x"
        ]
    );
}

#[test]
fn in_a_conversation_of_two_one_works_after_the_other() {
    let talks = |name| worker(name).memory(WorkerMemory::Named("talk".into()));
    let swarm =
        Swarm::builder(Blackboard::unjudged()).workers([talks("a"), worker("b"), talks("c")]);
    let mut board = Driven::new(swarm);
    assert_eq!(board.at_work(), ["a", "b"]);
    board.says(1, "Nothing.");
    assert_eq!(board.at_work(), ["a"]);
    board.says(0, "Nothing.");
    assert_eq!(board.at_work(), ["c"]);
}

#[test]
fn who_fails_first_does_not_say_what_a_conversation_is() {
    for faster in [0, 1] {
        let swarm = Swarm::builder(Blackboard::unjudged())
            .max_parallel(2)
            .workers([
                worker("a").stand_in("c"),
                worker("b").stand_in("c"),
                worker("c").memory(WorkerMemory::Named("talk".into())),
            ]);
        let (mut board, mut tasks) = (Driven::new(swarm), Vec::new());
        while !board.open.is_empty() {
            let at = faster.min(board.open.len() - 1);
            if board.at_work()[at] == "c" {
                let is_at_it = |report: &&WorkerReport| {
                    report.status == ReportStatus::Running
                        && report.worker == board.open[at].1.agent
                };
                let reports = board.machine.desk().reports.iter();
                tasks.extend(reports.filter(is_at_it).map(|report| report.id.clone()));
                board.says(at, "Nothing.");
            } else {
                board.fails(at);
            }
        }
        assert_eq!(
            tasks.iter().map(|id| &**id).collect::<Vec<_>>(),
            ["round1.a", "round1.b", "round1.c"]
        );
    }
}

#[test]
fn what_the_oldest_said_is_cut_when_all_is_too_much() {
    let huge = "x".repeat(200 << 10);
    let mut debate = Driven::new(builder(Debate::unjudged().rounds(100).context_tokens(100)));
    while !debate.open.is_empty() {
        debate.says(0, &huge);
        let last = debate
            .machine
            .desk()
            .reports
            .iter()
            .rev()
            .find(|report| report.is_done());
        assert_eq!(last.map(|report| report.text.len()), Some(huge.len()));
    }
    let kept: usize = debate
        .machine
        .desk()
        .reports
        .iter()
        .map(|report| report.text.len())
        .sum();
    assert!(
        debate.statuses().len() == 300 && kept <= super::MOST_KEPT + 300 * 2 * super::CUT,
        "{kept}"
    );
    assert!(debate.text().len() < 2 << 20);
}

#[test]
fn what_the_host_says_is_shown_to_those_who_begin_later() {
    let mut debate = Driven::new(builder(Debate::unjudged()));
    debate.apply(Input::Say(Message::user("Be brief.").into()));
    assert!(!debate.work(0).task.contains("Be brief."));
    debate.says(0, "x");
    assert!(
        debate
            .work(0)
            .task
            .contains("The user has added: Be brief.")
    );
}

/// What comes of work that ends in an order that follows from `picks`, each worker doing what its
/// name and the round say.
fn any_order(
    pattern: impl Into<Pattern>,
    parallel: usize,
    picks: &[usize],
) -> (Vec<String>, String, String) {
    let mut driven = Driven::new(builder(pattern).max_parallel(parallel).talk());
    let mut picks = picks.iter().cycle();
    while !driven.open.is_empty() {
        let at = picks.next().unwrap() % driven.open.len();
        let child = &driven.open[at].1;
        let number = driven
            .machine
            .desk()
            .reports
            .iter()
            .filter(|report| report.worker == child.agent)
            .count();
        let mut ending = wrote("shared", &format!("{}{number}", child.agent));
        let note = json!({"to": "*", "content": format!("note {number}")});
        ending.signals.push(Signal::new("send_message", note));
        match (&*child.agent, number) {
            ("judge", _) => driven.says(at, r#"{"done": true, "answer": "So be it."}"#),
            ("b", 1) | ("c", 2) => driven.fails(at),
            _ => driven.end(at, ending),
        }
    }
    let board = driven
        .machine
        .shown()
        .board
        .map(|board| serde_json::to_string(&board).unwrap());
    (
        driven.bus(),
        driven.text().to_owned(),
        board.unwrap_or_default(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn who_is_faster_makes_no_difference(
        picks in prop::collection::vec(0_usize..5, 1..20),
        parallel in 1_usize..5,
    ) {
        let board = || Blackboard::new(judge()).rounds(4);
        prop_assert_eq!(any_order(board(), parallel, &picks), any_order(board(), 3, &[0]));
        let debate = || Debate::new(judge()).rounds(2).open_together();
        prop_assert_eq!(any_order(debate(), parallel, &picks), any_order(debate(), 3, &[0]));
    }
}

#[test]
fn a_thousand_take_part() {
    let names: Vec<String> = (0..1_000).map(|at| format!("w{at}")).collect();
    let swarm = Swarm::builder(Blackboard::unjudged().rounds(2))
        .workers(names.iter().map(|name| worker(name)));
    let mut board = Driven::new(swarm);
    assert_eq!(board.open.len(), SwarmBuilder::DEFAULT_PARALLEL);
    while !board.open.is_empty() {
        let last = board.open.len() - 1;
        let key = board.at_work()[last].to_owned();
        board.end(last, wrote(&key, "x"));
    }
    let entries = board.machine.shown().board.unwrap();
    assert!(
        entries
            .iter()
            .map(|entry| &*entry.by)
            .eq(names.iter().map(String::as_str))
    );
    let kinds = board
        .machine
        .desk()
        .bus
        .messages()
        .filter(|message| message.kind == MessageKind::Entry);
    assert_eq!(kinds.count(), 1_000);
}

/// Has one worker work, round after round.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Rounds(u32);

impl crate::Coordinator for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn next(&mut self, progress: &crate::SwarmProgress<'_>) -> crate::Move {
        match progress.round() < self.0 {
            true => crate::Move::Work(vec![crate::Delegation::new(
                format!("r{}", progress.round()),
                "a",
                "Go.",
            )]),
            false => crate::Move::Answer("Done.".to_owned()),
        }
    }
}

#[test]
fn coordinator_keeps_a_bounded_amount_of_text() {
    let huge = "x".repeat(200 << 10);
    let mut rounds = Driven::new(builder(Rounds(400)));
    while !rounds.open.is_empty() {
        rounds.says(0, &huge);
    }
    let kept: usize = rounds
        .machine
        .desk()
        .reports
        .iter()
        .map(|report| report.text.len())
        .sum();
    assert_eq!(rounds.statuses().len(), 400);
    assert!(kept <= super::MOST_KEPT + 400 * 2 * super::CUT, "{kept}");
}
