//! Tests of custom patterns through the public API.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    ErrorKind, Journal as _, Limits, ModelErrorKind, Response, RunId, Status, ToolSpec,
};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{
    Coordinator, Delegation, Move, PlannedBy, ReportStatus, Swarm, SwarmAnswer, SwarmDetails,
    SwarmNotice, SwarmProgress, Worker,
};
use levity_test::crash::{CrashTally, Crashes, Life};
use levity_test::{FunctionModel, ScriptedModel, conformance};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::rounds::{NoticeLog, kinds, last_message, replies, worker};

/// A coordinator in which all answer, all vote with a tool, and the answer with the most votes
/// wins.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Vote {
    /// The vote of each worker.
    votes: BTreeMap<String, String>,
    /// The number of voting rounds.
    rounds: u32,
}

impl Vote {
    fn ask(&self, round: u32, progress: &SwarmProgress<'_>) -> Move {
        let answers: Vec<_> = progress
            .reports()
            .iter()
            .take(3)
            .filter(|report| report.is_done())
            .collect();
        let one = |worker: &str| match round {
            0 => Delegation::new(format!("answer.{worker}"), worker, progress.goal()),
            _ => Delegation::new(
                format!("vote{round}.{worker}"),
                worker,
                "Vote for an answer.",
            )
            .after(answers.iter().map(|report| report.id.clone())),
        };
        Move::Work(progress.workers().map(one).collect())
    }
}

impl Coordinator for Vote {
    fn name(&self) -> &str {
        "vote"
    }

    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
        for report in progress.last_round() {
            let vote = progress
                .signals(&report.id)
                .iter()
                .rfind(|signal| &*signal.name == "vote");
            let choice = vote.and_then(|vote| vote.args["for"].as_str());
            self.votes
                .extend(choice.map(|choice| (report.worker.to_string(), choice.to_owned())));
        }
        if progress.round() <= self.rounds {
            return self.ask(progress.round(), progress);
        }
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        self.votes
            .values()
            .for_each(|choice| *count.entry(choice).or_default() += 1);
        let won = count.into_iter().max_by_key(|(_, votes)| *votes);
        match won.and_then(|(winner, _)| progress.report(&format!("answer.{winner}"))) {
            Some(report) => Move::Answer(report.text.to_string()),
            None => Move::Fail("no worker has voted".to_owned()),
        }
    }

    fn tools(&self, worker: &str) -> Vec<ToolSpec> {
        let schema = json!({"type": "object", "properties": {"for": {"type": "string"}},
            "required": ["for"]});
        vec![ToolSpec::new("vote", format!("Votes in the name of {worker}.")).with_input(schema)]
    }
}

/// A coordinator that makes the moves of a test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Steps {
    plans: Vec<Vec<Delegation>>,
    at: usize,
    then: String,
}

impl Coordinator for Steps {
    fn name(&self) -> &str {
        "steps"
    }

    fn next(&mut self, _: &SwarmProgress<'_>) -> Move {
        self.at += 1;
        match (self.plans.get(self.at - 1), &*self.then) {
            (Some(plan), _) => Move::Work(plan.clone()),
            (None, "panic") => panic!("a bug of the pattern"),
            (None, "forever") => Move::Work(vec![Delegation::new(
                format!("again{}", self.at),
                "pilot",
                "Go on.",
            )]),
            (None, then) => Move::Answer(then.to_owned()),
        }
    }
}

fn steps(plans: Vec<Vec<Delegation>>, then: &str) -> Steps {
    Steps {
        plans,
        at: 0,
        then: then.to_owned(),
    }
}

fn one(id: &str, worker: &str) -> Delegation {
    Delegation::new(id, worker, format!("Do {id}."))
}

fn two_workers(pattern: Steps, pilot: ScriptedModel, watch: ScriptedModel) -> Swarm {
    Swarm::builder(pattern)
        .worker(worker("pilot", pilot))
        .worker(worker("watch", watch))
        .build()
        .unwrap()
}

/// Returns a swarm of three workers that answer and then vote; the cook fails once with each task.
pub(crate) fn voters(runtime: &Runtime, world: &Arc<CrashTally>) -> Swarm {
    let voter = |name: &'static str, whom: &'static str| {
        let world = world.clone();
        let model = FunctionModel::new(move |request| {
            world.record_action("model");
            let messages = request.history.messages();
            let text: String = messages
                .iter()
                .map(|message| message.text().into_owned())
                .collect();
            let acted = messages
                .iter()
                .any(|message| message.role == levity_core::Role::Tool);
            if name == "cook" && !text.contains("The attempt before") {
                return Err(levity_core::ModelError::new(
                    ModelErrorKind::BadRequest,
                    "not yet",
                ));
            }
            if text.contains("Vote for") && !acted {
                let call = levity_core::ToolCall::new("c1", "vote", json!({"for": whom}));
                let part = levity_core::Part::ToolCall(call);
                return Ok(Response::new(levity_core::Message::new(
                    levity_core::Role::Assistant,
                    [part],
                )));
            }
            Ok(Response::new(levity_core::Message::assistant(format!(
                "{name} says so."
            ))))
        });
        Worker::new(
            name,
            format!("The {name}."),
            Agent::builder(model).build().unwrap(),
        )
    };
    Swarm::builder(Vote {
        rounds: 2,
        ..Vote::default()
    })
    .worker(voter("pilot", "cook"))
    .worker(voter("watch", "cook"))
    .worker(voter("cook", "watch"))
    .max_parallel(2)
    .runtime(runtime.clone())
    .build()
    .unwrap()
}

fn shown(finished: &SwarmAnswer) -> Vec<String> {
    let mut shown = kinds(finished);
    shown.extend(finished.reports().iter().map(|report| {
        format!(
            "{} {} {:?} {} {}",
            report.id, report.worker, report.status, report.attempts, report.text
        )
    }));
    shown.push(format!("{:?} {}", finished.status(), finished.text()));
    shown
}

#[tokio::test]
async fn custom_pattern_stopped_after_every_record_has_same_result() {
    let live = async |life: Life<Arc<CrashTally>>| {
        let runtime = Runtime::new().with_journal(life.journal.clone());
        let swarm = voters(&runtime, &life.world);
        let run = match life.knows("r").await {
            true => swarm.resume("r"),
            false => swarm.run("What do we eat?").id("r"),
        };
        shown(&run.await.unwrap())
    };
    let report = Crashes::new(MemoryJournal::new)
        .world(Arc::<CrashTally>::default)
        .run(live)
        .await;
    report.assert_same();
    assert_eq!(report.whole.value.last().unwrap(), "Complete cook says so.");
    assert!(report.stops.len() > 50, "{}", report.stops.len());
}

#[tokio::test]
async fn custom_pattern_is_replayed_and_forked() {
    let (journal, world) = (MemoryJournal::new(), Arc::default());
    let swarm = voters(&Runtime::new().with_journal(journal.clone()), &world);
    let notices = NoticeLog::default();
    let finished = swarm
        .run("What do we eat?")
        .id("r")
        .on_event(notices.recorder())
        .await
        .unwrap();
    let planned = |notice: &SwarmNotice| {
        matches!(
            notice,
            SwarmNotice::Planned {
                by: PlannedBy::Coordinator,
                ..
            }
        )
    };
    assert_eq!(notices.count(planned), 3);
    let again = swarm.history(&"r".into()).await.unwrap();
    assert_eq!(
        again
            .iter()
            .filter_map(|event| SwarmNotice::of(&event.kind))
            .filter(planned)
            .count(),
        3
    );
    let records = journal.read(&"r".into()).await.unwrap().len() as u64;
    for after in 0..records - 1 {
        let forked = swarm
            .fork("r")
            .after(after)
            .id(format!("fork{after}"))
            .await
            .unwrap();
        assert_eq!(shown(&forked), shown(&finished), "forked after {after}");
    }
    assert_eq!(finished.plan().len(), 9);
}

#[tokio::test]
async fn custom_pattern_passes_conformance_suite() {
    let swarm = voters(&Runtime::new(), &Arc::default());
    conformance::machine(|| swarm.machine("Go.")).await;
    conformance::machine_restored(
        || swarm.machine("Go."),
        |state| swarm.restore(&state).unwrap(),
    )
    .await;
    conformance::machine_damaged(|| swarm.machine("Go."), |state| swarm.restore(state)).await;
}

#[tokio::test]
async fn later_round_sees_results_of_its_dependencies() {
    let watch = replies(&["A sail."]);
    let plans = vec![
        vec![one("look", "pilot")],
        vec![one("tell", "watch").after(["look"])],
    ];
    let swarm = two_workers(steps(plans, "Done."), replies(&["A rock."]), watch.clone());
    let finished = swarm.run("What is there?").await.unwrap();
    assert_eq!(
        (finished.text(), finished.status()),
        ("Done.", &Status::Complete)
    );
    assert!(
        last_message(&watch, 0).contains("A rock."),
        "{}",
        last_message(&watch, 0)
    );
    let expected = [
        "coordinator task",
        "pilot result",
        "coordinator task",
        "watch result",
        "coordinator answer",
    ];
    assert_eq!(kinds(&finished), expected);
}

#[tokio::test]
async fn failed_delegation_is_retried_and_dependents_are_skipped() {
    let plans = vec![vec![
        one("look", "pilot"),
        one("tell", "watch").after(["look"]),
        one("rest", "watch"),
    ]];
    let pilot = ScriptedModel::new()
        .fail(ModelErrorKind::BadRequest)
        .fail(ModelErrorKind::BadRequest);
    let finished = two_workers(steps(plans, "Done."), pilot, replies(&["Rested."]))
        .run("Go.")
        .await
        .unwrap();
    let status = |id: &str| {
        finished
            .report(id)
            .map(|report| (report.status, report.attempts))
            .unwrap()
    };
    assert_eq!(status("look"), (ReportStatus::Failed, 2));
    assert_eq!(status("tell"), (ReportStatus::Skipped, 0));
    assert_eq!(status("rest"), (ReportStatus::Done, 1));
}

#[tokio::test]
async fn invalid_move_of_pattern_ends_run_with_reason() {
    let cases = [
        (
            steps(Vec::new(), "panic"),
            "the pattern `steps` gave up: `next` panicked",
        ),
        (
            steps(vec![Vec::new()], ""),
            "its plan is invalid: the plan has no delegations",
        ),
        (
            steps(vec![vec![one("a", "pilto")]], ""),
            "`a` is for `pilto`, who is not there; did you mean `pilot`?",
        ),
        (
            steps(vec![vec![one("a", "coordinator")]], ""),
            "`a` names the router itself",
        ),
        (
            steps(vec![vec![one("a", "pilot")], vec![one("a", "watch")]], ""),
            "two delegations have the id `a`",
        ),
        (
            steps(
                vec![vec![
                    one("a", "pilot").after(["b"]),
                    one("b", "watch").after(["a"]),
                ]],
                "",
            ),
            "`a` → `b` depend on each other in a cycle",
        ),
        (
            steps(vec![vec![one("a", "pilot").after(["x"])]], ""),
            "`a` depends on `x`, which does not exist",
        ),
    ];
    for (pattern, expected) in cases {
        let error = two_workers(pattern, replies(&["Yes."]), replies(&["No."]))
            .run("Go.")
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreached);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = voters_who_abstain().run("Go.").await.unwrap_err();
    assert!(error.to_string().contains("no worker has voted"), "{error}");
    assert_eq!(
        error.partial_as::<SwarmDetails>().unwrap().reports().len(),
        2
    );
}

fn voters_who_abstain() -> Swarm {
    let swarm = Swarm::builder(Vote {
        rounds: 1,
        ..Vote::default()
    });
    swarm
        .worker(worker("pilot", replies(&["Fish.", "I abstain."])))
        .build()
        .unwrap()
}

#[tokio::test]
async fn near_limit_partial_result_is_answer() {
    let pilot = replies(&["1", "2", "3", "4", "5", "6"]);
    let swarm = two_workers(steps(Vec::new(), "forever"), pilot.clone(), replies(&[]));
    let finished = swarm
        .run("Go.")
        .limits(Limits::new().model_calls(4))
        .await
        .unwrap();
    assert!(
        matches!(finished.status(), Status::BestEffort(_)),
        "{:?}",
        finished.status()
    );
    assert!(
        finished.text().contains("## pilot (`again1`)\n1"),
        "{}",
        finished.text()
    );
    assert!(pilot.requests().len() <= 4);
}

#[tokio::test]
async fn endless_pattern_is_stopped_after_round_limit() {
    let pilot = FunctionModel::new(|_| Ok(Response::new(levity_core::Message::assistant("On."))));
    let swarm = Swarm::builder(steps(Vec::new(), "forever"))
        .worker(worker("pilot", pilot))
        .build()
        .unwrap();
    let error = swarm.run("Go.").await.unwrap_err();
    assert!(
        error.to_string().contains("no answer after 1000 rounds"),
        "{error}"
    );
}

#[tokio::test]
async fn resume_with_other_pattern_is_rejected() {
    let journal = MemoryJournal::new();
    let runtime = Runtime::new().with_journal(journal.clone());
    voters(&runtime, &Arc::default())
        .run("Go.")
        .id("r")
        .await
        .unwrap();
    let other = Swarm::builder(steps(Vec::new(), "Done.")).worker(worker("pilot", replies(&[])));
    let error = other
        .runtime(runtime.clone())
        .build()
        .unwrap()
        .resume("r")
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the run has the pattern `vote`, but this swarm has the pattern `steps`"),
        "{error}"
    );

    /// A pattern with the same name and another state.
    #[derive(Clone, Serialize, Deserialize)]
    struct Other {
        needed: bool,
    }
    impl Coordinator for Other {
        fn name(&self) -> &str {
            "vote"
        }
        fn next(&mut self, _: &SwarmProgress<'_>) -> Move {
            Move::Answer(String::new())
        }
    }
    let other = Swarm::builder(Other { needed: true }).worker(worker("pilot", replies(&[])));
    let error = other
        .runtime(runtime)
        .build()
        .unwrap()
        .resume(RunId::new("r"))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot read the saved state of the pattern `vote`"),
        "{error}"
    );
}

#[test]
fn pattern_with_unsavable_state_or_reserved_name_is_rejected() {
    #[derive(Clone, Serialize, Deserialize)]
    struct Named(String, BTreeMap<(u8, u8), u8>);
    impl Coordinator for Named {
        fn name(&self) -> &str {
            &self.0
        }
        fn next(&mut self, _: &SwarmProgress<'_>) -> Move {
            Move::Answer(String::new())
        }
    }
    let build = |name: &str, map, worker_name: &str| {
        let swarm = Swarm::builder(Named(name.to_owned(), map))
            .worker(worker(worker_name, replies(&[])))
            .build();
        swarm.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(build("mine", BTreeMap::new(), "pilot"), Ok(()));
    let cases = [
        (
            build("router", BTreeMap::new(), "pilot"),
            "which levity reserves",
        ),
        (build("", BTreeMap::new(), "pilot"), "choose another"),
        (
            build("mine", BTreeMap::from([((1, 2), 3)]), "pilot"),
            "the state of the pattern cannot be saved",
        ),
        (
            build("mine", BTreeMap::new(), "coordinator"),
            "which sends the tasks",
        ),
    ];
    for (built, expected) in cases {
        let error = built.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
