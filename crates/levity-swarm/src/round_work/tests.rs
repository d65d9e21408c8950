//! Tests of rounds, with outcomes fed by hand.

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
use crate::machine::SwarmMachine;
use crate::pattern::Pattern;
use crate::report::{ReportStatus, WorkerReport};
use crate::shared_state::Work;
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

/// A machine and its work in progress.
struct MachineDriver {
    machine: SwarmMachine,
    open: Vec<(EffectId, ChildRun)>,
}

impl MachineDriver {
    fn new(swarm: SwarmBuilder) -> Self {
        let machine = swarm.build().unwrap().machine("Do it.");
        let mut driver = Self {
            machine,
            open: Vec::new(),
        };
        driver.apply(Input::Begin {
            run: "r".into(),
            wrap: None,
        });
        driver
    }

    fn apply(&mut self, input: Input) {
        let mut step = MachineOutput::new();
        self.machine.apply(input, &mut step);
        for (id, effect) in step.effects {
            let Effect::Child(child) = effect else {
                panic!("a swarm requests only child runs")
            };
            self.open.push((id, child));
        }
    }

    /// Returns the running members, in the order of their start.
    fn running(&self) -> Vec<&str> {
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

    fn answer(&mut self, at: usize, text: &str) {
        self.end(at, answered(text));
    }

    fn fail(&mut self, at: usize) {
        self.end(
            at,
            Ending::new(Status::Failed(Failure::Behaviour("broken".into()))),
        );
    }

    fn statuses(&self) -> Vec<ReportStatus> {
        self.machine
            .shared()
            .reports
            .iter()
            .map(|report| report.status)
            .collect()
    }

    fn text(&self) -> &str {
        self.machine.ending().map_or("", |ending| &ending.text)
    }

    fn bus(&self) -> Vec<String> {
        let messages = self.machine.shared().bus.messages();
        messages
            .map(|message| format!("{} {} {}", message.from, message.kind, message.content))
            .collect()
    }
}

fn answered(text: &str) -> Ending {
    let mut ending = Ending::new(Status::Complete);
    ending.text = text.to_owned();
    ending
}

fn written(key: &str, content: &str) -> Ending {
    let mut ending = answered("Written.");
    ending.signals = vec![Signal::new(
        "write_board",
        json!({"key": key, "content": content}),
    )];
    ending
}

#[test]
fn debate_in_turns_runs_one_worker_at_a_time() {
    let mut debate = MachineDriver::new(builder(Debate::unjudged().rounds(1)));
    for name in ["a", "b", "c"] {
        assert_eq!(debate.running(), [name]);
        debate.answer(0, name);
    }
    assert_eq!(debate.bus()[..3], ["a turn a", "b turn b", "c turn c"]);
    assert_eq!(
        debate.machine.ending().map(|ending| &ending.status),
        Some(&Status::Complete)
    );
}

#[test]
fn blackboard_respects_parallel_limit() {
    let mut board = MachineDriver::new(builder(Blackboard::unjudged()).max_parallel(2));
    assert_eq!(board.running(), ["a", "b"]);
    board.end(1, written("k", "b"));
    assert_eq!(board.running(), ["a", "c"]);
    assert!(board.bus().is_empty());
}

#[test]
fn remaining_limits_are_shared_in_each_round() {
    let limits = Limits::new().tokens(8_000).money(Money::from_nanos(8_000));
    let mut board = MachineDriver::new(builder(Blackboard::new(judge())).limits(limits));
    let shares = |driver: &MachineDriver, at| {
        driver
            .work(at)
            .limits
            .map(|limits| (limits.tokens, limits.money))
            .unwrap()
    };
    // Three workers, and one more share for the answer.
    let first = (Some(2_000), Some(Money::from_nanos(2_000)));
    assert_eq!([0, 1, 2].map(|at| shares(&board, at)), [first; 3]);
    for name in ["a", "b", "c"] {
        let mut ending = written(name, "x");
        let mut usage = Usage::new(200, 200);
        usage.cost = Some(Money::from_nanos(400));
        ending.usage = usage;
        board.end(0, ending);
    }
    let second = (Some(1_700), Some(Money::from_nanos(1_700)));
    assert_eq!([0, 1, 2].map(|at| shares(&board, at)), [second; 3]);
}

#[test]
fn near_limit_running_worker_finishes_and_no_other_starts() {
    let mut debate = MachineDriver::new(builder(Debate::new(judge())));
    debate.apply(Input::FinishSoon(Limit::Tokens));
    assert_eq!(debate.running(), ["a"], "the running worker is not stopped");
    debate.answer(0, "In short.");
    assert_eq!(debate.running(), ["judge"]);
    use ReportStatus::{Done, Skipped};
    assert_eq!(debate.statuses(), [Done, Skipped, Skipped]);
    debate.answer(0, r#"{"answer": "So be it."}"#);
    assert!(debate.text().starts_with(
        "So be it.\n\nNot done:\n- b (`round1.b`): the limit on tokens was nearly reached"
    ));
    assert_eq!(
        debate.machine.ending().map(|ending| ending.status.clone()),
        Some(Status::BestEffort(Limit::Tokens))
    );
}

#[test]
fn near_limit_judge_is_not_asked_again() {
    let mut debate = MachineDriver::new(builder(Debate::new(judge()).rounds(1)));
    (0..3).for_each(|_| debate.answer(0, "x"));
    debate.apply(Input::Low(Limit::Money));
    debate.answer(0, "Prose.");
    assert_eq!(debate.text(), "Prose.");
}

#[test]
fn judge_without_answer_leads_to_list() {
    let mut debate = MachineDriver::new(builder(Debate::new(judge()).rounds(1)));
    (0..3).for_each(|_| debate.answer(0, "x"));
    debate.answer(0, "null");
    debate.answer(0, r#"{"done": true, "answer": null}"#);
    assert!(
        debate.text().starts_with("## a (`round1.a`)\nx"),
        "{}",
        debate.text()
    );
}

#[test]
fn near_limit_at_start_judge_is_asked_immediately() {
    let swarm = builder(Blackboard::new(judge())).build().unwrap();
    let mut board = MachineDriver {
        machine: swarm.machine("Do it."),
        open: Vec::new(),
    };
    board.apply(Input::Begin {
        run: "r".into(),
        wrap: Some(Limit::WallTime),
    });
    assert_eq!(board.running(), ["judge"]);
    board.fail(0);
    let ending = board.machine.ending().unwrap();
    assert!(matches!(
        &ending.status,
        Status::Failed(Failure::GoalNotReached(why)) if why.contains("no answer was made")
    ));
}

#[test]
fn worker_with_conversation_runs_its_tasks_sequentially() {
    let swarm = Swarm::builder(Blackboard::unjudged())
        .worker(worker("a").fallback("b"))
        .worker(worker("b").memory(WorkerMemory::Named("talk".into())));
    let mut board = MachineDriver::new(swarm);
    assert_eq!(
        board.running(),
        ["a"],
        "its fallback may need the conversation"
    );
    board.fail(0);
    assert_eq!(board.running(), ["b"], "the fallback works for the other");
    board.end(0, written("k", "x"));
    assert_eq!(board.running(), ["b"], "then it works on its own task");
    board.answer(0, "Nothing.");
    assert_eq!(
        board.bus(),
        [
            "a failure the model's reply is unusable: broken",
            "b entry k: x"
        ]
    );
}

#[test]
fn workers_of_shared_conversation_run_sequentially() {
    let talks = |name| worker(name).memory(WorkerMemory::Named("talk".into()));
    let swarm =
        Swarm::builder(Blackboard::unjudged()).workers([talks("a"), worker("b"), talks("c")]);
    let mut board = MachineDriver::new(swarm);
    assert_eq!(board.running(), ["a", "b"]);
    board.answer(1, "Nothing.");
    assert_eq!(board.running(), ["a"]);
    board.answer(0, "Nothing.");
    assert_eq!(board.running(), ["c"]);
}

#[test]
fn failure_order_does_not_change_conversation_order() {
    for faster in [0, 1] {
        let swarm = Swarm::builder(Blackboard::unjudged())
            .max_parallel(2)
            .workers([
                worker("a").fallback("c"),
                worker("b").fallback("c"),
                worker("c").memory(WorkerMemory::Named("talk".into())),
            ]);
        let (mut board, mut tasks) = (MachineDriver::new(swarm), Vec::new());
        while !board.open.is_empty() {
            let at = faster.min(board.open.len() - 1);
            if board.running()[at] == "c" {
                let is_at_it = |report: &&WorkerReport| {
                    report.status == ReportStatus::Running
                        && report.worker == board.open[at].1.agent
                };
                let reports = board.machine.shared().reports.iter();
                tasks.extend(reports.filter(is_at_it).map(|report| report.id.clone()));
                board.answer(at, "Nothing.");
            } else {
                board.fail(at);
            }
        }
        assert_eq!(
            tasks.iter().map(|id| &**id).collect::<Vec<_>>(),
            ["round1.a", "round1.b", "round1.c"]
        );
    }
}

#[test]
fn oldest_texts_are_cut_when_total_is_too_large() {
    let huge = "x".repeat(200 << 10);
    let mut debate =
        MachineDriver::new(builder(Debate::unjudged().rounds(100).context_tokens(100)));
    while !debate.open.is_empty() {
        debate.answer(0, &huge);
        let last = debate
            .machine
            .shared()
            .reports
            .iter()
            .rev()
            .find(|report| report.is_done());
        assert_eq!(last.map(|report| report.text.len()), Some(huge.len()));
    }
    let stored: usize = debate
        .machine
        .shared()
        .reports
        .iter()
        .map(|report| report.text.len())
        .sum();
    assert!(
        debate.statuses().len() == 300
            && stored <= super::MAX_STORED_BYTES + 300 * 2 * super::CUT_TEXT_BYTES,
        "{stored}"
    );
    assert!(debate.text().len() < 2 << 20);
}

#[test]
fn host_message_is_shown_to_later_workers() {
    let mut debate = MachineDriver::new(builder(Debate::unjudged()));
    debate.apply(Input::Say(Message::user("Be brief.").into()));
    assert!(!debate.work(0).task.contains("Be brief."));
    debate.answer(0, "x");
    assert!(
        debate
            .work(0)
            .task
            .contains("The user has added: Be brief.")
    );
}

/// Returns the result of work that finishes in an order given by `picks`. Each worker acts by its
/// name and the round.
fn any_order(
    pattern: impl Into<Pattern>,
    parallel: usize,
    picks: &[usize],
) -> (Vec<String>, String, String) {
    let mut driver = MachineDriver::new(builder(pattern).max_parallel(parallel).worker_messages());
    let mut picks = picks.iter().cycle();
    while !driver.open.is_empty() {
        let at = picks.next().unwrap() % driver.open.len();
        let child = &driver.open[at].1;
        let number = driver
            .machine
            .shared()
            .reports
            .iter()
            .filter(|report| report.worker == child.agent)
            .count();
        let mut ending = written("shared", &format!("{}{number}", child.agent));
        let note = json!({"to": "*", "content": format!("note {number}")});
        ending.signals.push(Signal::new("send_message", note));
        match (&*child.agent, number) {
            ("judge", _) => driver.answer(at, r#"{"done": true, "answer": "So be it."}"#),
            ("b", 1) | ("c", 2) => driver.fail(at),
            _ => driver.end(at, ending),
        }
    }
    let board = driver
        .machine
        .output()
        .board
        .map(|board| serde_json::to_string(&board).unwrap());
    (
        driver.bus(),
        driver.text().to_owned(),
        board.unwrap_or_default(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn speed_of_workers_makes_no_difference(
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
fn thousand_workers_take_part_in_blackboard() {
    let names: Vec<String> = (0..1_000).map(|at| format!("w{at}")).collect();
    let swarm = Swarm::builder(Blackboard::unjudged().rounds(2))
        .workers(names.iter().map(|name| worker(name)));
    let mut board = MachineDriver::new(swarm);
    assert_eq!(board.open.len(), SwarmBuilder::DEFAULT_PARALLEL);
    while !board.open.is_empty() {
        let last = board.open.len() - 1;
        let key = board.running()[last].to_owned();
        board.end(last, written(&key, "x"));
    }
    let entries = board.machine.output().board.unwrap();
    assert!(
        entries
            .iter()
            .map(|entry| &*entry.by)
            .eq(names.iter().map(String::as_str))
    );
    let kinds = board
        .machine
        .shared()
        .bus
        .messages()
        .filter(|message| message.kind == MessageKind::Entry);
    assert_eq!(kinds.count(), 1_000);
}

/// A coordinator that runs one worker, round after round.
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
fn coordinator_stores_bounded_amount_of_text() {
    let huge = "x".repeat(200 << 10);
    let mut rounds = MachineDriver::new(builder(Rounds(400)));
    while !rounds.open.is_empty() {
        rounds.answer(0, &huge);
    }
    let stored: usize = rounds
        .machine
        .shared()
        .reports
        .iter()
        .map(|report| report.text.len())
        .sum();
    assert_eq!(rounds.statuses().len(), 400);
    assert!(
        stored <= super::MAX_STORED_BYTES + 400 * 2 * super::CUT_TEXT_BYTES,
        "{stored}"
    );
}
