//! Tests of debates with workers that speak in turns, and a judge.

use std::time::Duration;

use levity_core::{ErrorKind, Limit, Limits, ModelErrorKind, Status};
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{
    Debate, Error, ReportStatus, Swarm, SwarmAnswer, SwarmBuilder, SwarmDetails, SwarmNotice,
    WorkerMemory,
};
use levity_test::crash::{self, Life};
use levity_test::{ManualWorld, ScriptedModel, Turn, conformance};

use crate::rounds::{NoticeLog, Slow, agent, kinds, last_message, log, replies, within, worker};

const VERDICT: &str = r#"{"done": true, "answer": "Sail at six.", "reason": "Both came to it."}"#;
const NOT_YET: &str = r#"{"done": false, "reason": "What of the wind?"}"#;

fn two(debate: Debate, pilot: ScriptedModel, watch: ScriptedModel) -> SwarmBuilder {
    Swarm::builder(debate)
        .worker(worker("pilot", pilot))
        .worker(worker("watch", watch))
}

#[tokio::test]
async fn workers_speak_in_turns_and_judge_decides() {
    let (pilot, watch) = (
        replies(&["At six.", "Still at six."]),
        replies(&["At eight.", "Six will do."]),
    );
    let judge = replies(&[VERDICT]);
    let swarm = two(
        Debate::new(judge.clone()).rounds(2),
        pilot.clone(),
        watch.clone(),
    )
    .build()
    .unwrap();
    let notices = NoticeLog::default();
    let finished = swarm
        .run("When do we sail?")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.status()),
        ("Sail at six.", &Status::Complete)
    );
    let ids: Vec<_> = finished
        .reports()
        .iter()
        .map(|report| &*report.id)
        .collect();
    assert_eq!(
        ids,
        [
            "round1.pilot",
            "round1.watch",
            "round2.pilot",
            "round2.watch"
        ]
    );
    let expected = [
        "pilot turn",
        "watch turn",
        "pilot turn",
        "watch turn",
        "judge verdict",
        "judge answer",
    ];
    assert_eq!(kinds(&finished), expected);
    assert_eq!(finished.last_speaker(), Some("watch"));
    assert_eq!(finished.stats().model_calls, 5);
    // Each worker has seen all earlier turns, and nothing else.
    assert!(
        !last_message(&pilot, 0).contains("At eight."),
        "{}",
        last_message(&pilot, 0)
    );
    assert!(
        last_message(&watch, 0).contains("At six.")
            && last_message(&pilot, 1).contains("At eight.")
    );
    let last = last_message(&watch, 1);
    let places: Vec<_> = ["At six.", "At eight.", "Still at six."]
        .map(|said| last.find(said))
        .into();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{last}"
    );
    assert!(last_message(&judge, 0).contains("Six will do."));
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::RoundBegan { of: 2, .. })),
        2
    );
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Judged { done: true, .. })),
        1
    );
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Began { .. })),
        4
    );
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Done { .. })),
        4
    );
}

#[tokio::test]
async fn judge_may_end_debate_early() {
    let judge = replies(&[NOT_YET, VERDICT]);
    let debate = Debate::judged_by(agent(judge)).rounds(5).judge_each_round();
    let pilot = replies(&["a", "c"]);
    let swarm = two(debate, pilot.clone(), replies(&["b", "d"]))
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(
        (finished.text(), finished.reports().len()),
        ("Sail at six.", 4)
    );
    assert!(
        last_message(&pilot, 1).contains("What of the wind?"),
        "{}",
        last_message(&pilot, 1)
    );
}

#[tokio::test]
async fn last_turns_are_listed_without_judge() {
    let swarm = two(
        Debate::unjudged().rounds(2),
        replies(&["a", "c"]),
        replies(&["b", "d"]),
    )
    .build()
    .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(
        finished.text(),
        "## pilot (`round2.pilot`)\nc\n\n## watch (`round2.watch`)\nd"
    );
}

#[tokio::test]
async fn failed_turn_is_retried_and_then_skipped() {
    let broken = |model: ScriptedModel| model.fail(ModelErrorKind::BadRequest);
    let pilot = broken(broken(ScriptedModel::new())).reply("Here again.");
    let watch = broken(replies(&[])).reply("b").reply("d");
    let swarm = two(
        Debate::new(replies(&[VERDICT])).rounds(2),
        pilot,
        watch.clone(),
    )
    .build()
    .unwrap();
    let notices = NoticeLog::default();
    let finished = swarm
        .run("When?")
        .on_event(notices.recorder())
        .await
        .unwrap();
    let status = |id: &str| {
        finished
            .report(id)
            .map(|report| (report.status, report.attempts))
            .unwrap()
    };
    assert_eq!(status("round1.pilot"), (ReportStatus::Failed, 2));
    assert_eq!(status("round1.watch"), (ReportStatus::Done, 2));
    assert_eq!(status("round2.pilot"), (ReportStatus::Done, 1));
    assert!(
        finished
            .text()
            .starts_with("Sail at six.\n\nNot done:\n- pilot (`round1.pilot`): ")
    );
    assert!(
        last_message(&watch, 0).contains("could not speak in round 1"),
        "{}",
        last_message(&watch, 0)
    );
    assert!(last_message(&watch, 1).contains("# The attempt before failed"));
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Failed { .. })),
        3
    );
}

#[tokio::test]
async fn judge_decides_with_existing_turns_when_all_workers_fail() {
    let bad = || {
        ScriptedModel::new()
            .reply("a")
            .fail(ModelErrorKind::BadRequest)
            .fail(ModelErrorKind::Auth)
    };
    let judge = replies(&[VERDICT]);
    let swarm = two(Debate::new(judge.clone()).rounds(9), bad(), bad())
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(finished.reports().len(), 4);
    assert!(finished.text().starts_with("Sail at six."));
    // The same, without any turn:
    let swarm = two(
        Debate::unjudged(),
        ScriptedModel::new(),
        ScriptedModel::new(),
    )
    .build()
    .unwrap();
    let error = swarm.run("When?").await.unwrap_err();
    assert_eq!(
        (
            error.kind(),
            error
                .partial_as::<SwarmDetails>()
                .unwrap()
                .failures()
                .count()
        ),
        (ErrorKind::Unreached, 2)
    );
}

#[tokio::test]
async fn fallback_worker_speaks_in_turn_of_failed_worker() {
    let swarm = Swarm::builder(Debate::unjudged().rounds(1))
        .worker(
            worker("pilot", ScriptedModel::new())
                .retries(0)
                .fallback("cook"),
        )
        .worker(worker("cook", replies(&["For the pilot.", "For myself."])))
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(
        finished.text(),
        "## cook (`round1.pilot`)\nFor the pilot.\n\n## cook (`round1.cook`)\nFor myself."
    );
}

/// Returns the result of a debate with this judge.
async fn judged(judge: ScriptedModel) -> (SwarmAnswer, NoticeLog) {
    let world = ManualWorld::auto();
    let notices = NoticeLog::default();
    let debate = Debate::new(judge)
        .rounds(1)
        .judge_timeout(Duration::from_secs(5));
    let swarm = two(debate, replies(&["a"]), replies(&["b"]))
        .runtime(Runtime::new().with_world(world))
        .build()
        .unwrap();
    let finished = within(swarm.run("When?").on_event(notices.recorder()))
        .await
        .unwrap();
    (finished, notices)
}

#[tokio::test]
async fn judge_with_prose_is_asked_once_more() {
    let judge = replies(&["I would sail.", VERDICT]);
    let (finished, _) = judged(judge.clone()).await;
    assert_eq!(finished.text(), "Sail at six.");
    let again = last_message(&judge, 1);
    assert!(
        again.contains("I would sail.") && again.contains("the answer is not JSON"),
        "{again}"
    );
    let (finished, notices) = judged(replies(&["I would sail.", "I said I would sail."])).await;
    assert_eq!(finished.text(), "I said I would sail.");
    let uses_text = |notice: &SwarmNotice| {
        matches!(
            notice,
            SwarmNotice::Judged { reason, .. } if reason.contains("is used as the answer")
        )
    };
    assert_eq!(notices.count(uses_text), 1);
}

#[tokio::test]
async fn debate_answers_despite_misbehaving_judge() {
    let list = "## pilot (`round1.pilot`)\na\n\n## watch (`round1.watch`)\nb";
    for judge in [
        ScriptedModel::new().panic("on purpose"),
        ScriptedModel::new().hang(),
        ScriptedModel::new().fail(ModelErrorKind::Auth),
        replies(&["", " "]),
    ] {
        let (finished, notices) = judged(judge).await;
        assert_eq!(finished.text(), list);
        assert_eq!(
            notices.count(|notice| matches!(notice, SwarmNotice::Listed { .. })),
            1
        );
    }
    let huge = "words ".repeat(2_000_000);
    let (finished, _) = judged(replies(&[&huge, &huge])).await;
    assert!(finished.text().len() < 300_000, "{}", finished.text().len());
}

#[tokio::test]
async fn debate_answers_despite_misbehaving_worker() {
    let huge = "words ".repeat(2_000_000);
    for pilot in [
        ScriptedModel::new().panic("on purpose").panic("again"),
        ScriptedModel::new().hang().hang(),
        replies(&[&huge, &huge]),
    ] {
        let world = ManualWorld::auto();
        let (judge, watch) = (replies(&[VERDICT]), replies(&["b", "d"]));
        let swarm = Swarm::builder(Debate::new(judge.clone()).rounds(2))
            .worker(worker("pilot", pilot).timeout(Duration::from_secs(5)))
            .worker(worker("watch", watch.clone()))
            .runtime(Runtime::new().with_world(world))
            .build()
            .unwrap();
        let finished = within(swarm.run("When?")).await.unwrap();
        assert!(finished.text().starts_with("Sail at six."));
        let longest = [last_message(&judge, 0), last_message(&watch, 1)]
            .iter()
            .map(String::len)
            .max();
        assert!(longest < Some(160_000), "{longest:?}");
        assert!(last_message(&judge, 0).contains("```\nd\n```"));
    }
}

#[tokio::test]
async fn near_limit_no_round_starts() {
    let turn = |text: &str| Turn::new().text(text).usage(300, 300);
    let judge = ScriptedModel::new().turn(Turn::new().text(VERDICT).usage(10, 10));
    let pilot = ScriptedModel::looping(turn("a"));
    let swarm = two(
        Debate::new(judge).rounds(50),
        pilot,
        ScriptedModel::looping(turn("b")),
    );
    let limits = Limits::new().tokens(40_000).low(50);
    let finished = swarm
        .limits(limits)
        .build()
        .unwrap()
        .run("When?")
        .await
        .unwrap();
    assert_eq!(finished.status(), &Status::BestEffort(Limit::Tokens));
    assert!(
        finished.text().starts_with("Sail at six."),
        "{}",
        finished.text()
    );
    assert!(finished.reports().len() < 100 && finished.usage().total() <= 40_000);
}

#[tokio::test]
async fn host_message_is_shown_to_later_workers() {
    let (pilot, watch) = (replies(&["a", "c"]), replies(&["b", "d"]));
    let swarm = two(
        Debate::new(replies(&[VERDICT])).rounds(2),
        pilot.clone(),
        watch,
    )
    .build()
    .unwrap();
    let handle = swarm.run("When?").start();
    handle
        .control()
        .send_message("We have no sails.")
        .await
        .unwrap();
    let finished = within(handle).await.unwrap();
    assert!(last_message(&pilot, 1).contains("The user has added: We have no sails."));
    assert!(kinds(&finished).contains(&"user said".to_owned()));
}

#[tokio::test]
async fn worker_with_run_memory_sees_its_earlier_turns() {
    let pilot = replies(&["At six.", "Still."]);
    let swarm = Swarm::builder(Debate::unjudged().rounds(2))
        .worker(worker("pilot", pilot.clone()).memory(WorkerMemory::Run))
        .worker(worker("watch", replies(&["b", "d"])))
        .build()
        .unwrap();
    swarm.run("When?").await.unwrap();
    let before: Vec<_> = pilot.requests()[1]
        .history
        .messages()
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(before[..2], ["When?", "At six."]);
}

fn three(slow: [usize; 3]) -> Swarm {
    let names = ["pilot", "watch", "cook"];
    let mut swarm = Swarm::builder(Debate::new(replies(&[VERDICT])).rounds(2).open_together());
    for (name, slow) in names.into_iter().zip(slow) {
        let model = replies(&[&format!("{name} one"), &format!("{name} two")]);
        swarm = swarm.worker(worker(name, Slow(model, slow)));
    }
    swarm
        .runtime(Runtime::new().with_world(ManualWorld::new()))
        .build()
        .unwrap()
}

#[tokio::test]
async fn speed_of_workers_makes_no_difference() {
    let mut logs = Vec::new();
    for slow in [
        [0, 0, 0],
        [50, 0, 20],
        [0, 50, 20],
        [20, 50, 0],
        [50, 20, 0],
    ] {
        let finished = within(three(slow).run("When?").id("r")).await.unwrap();
        logs.push(log(&finished));
    }
    assert!(logs.iter().all(|log| *log == logs[0]), "{logs:#?}");
    assert_eq!(logs[0].lines().count(), 8);
}

#[tokio::test]
async fn open_together_hides_turns_of_first_round() {
    let models = [replies(&["a", "d"]), replies(&["b", "e"])];
    let swarm = two(
        Debate::unjudged().rounds(2).open_together(),
        models[0].clone(),
        models[1].clone(),
    );
    // The parallel limit makes no difference.
    let finished = swarm
        .max_parallel(1)
        .build()
        .unwrap()
        .run("When?")
        .await
        .unwrap();
    assert!(!last_message(&models[1], 0).contains("What was said before"));
    assert!(
        last_message(&models[0], 1).contains("```\nb\n```")
            && last_message(&models[1], 1).contains("```\nd\n```")
    );
    assert_eq!(finished.reports().len(), 4);
}

async fn life(life: Life) -> (String, String) {
    // Every child is a new conversation, so a script by history answers each of them alike.
    let model = |text: &str| replies(&[text]).by_history();
    let debate = Debate::new(model(VERDICT)).rounds(2).open_together();
    let runtime = Runtime::new()
        .with_journal(life.journal.clone())
        .with_world(ManualWorld::new());
    let swarm = two(debate, model("a"), model("b"))
        .runtime(runtime)
        .build()
        .unwrap();
    let finished = match life.knows("r").await {
        true => within(swarm.resume("r")).await,
        false => within(swarm.run("When?").id("r")).await,
    };
    let finished = finished.unwrap();
    (finished.text().to_owned(), log(&finished))
}

#[tokio::test]
async fn debate_stopped_after_every_record_has_same_result() {
    let report = crash::after_every_record(MemoryJournal::new, life).await;
    report.assert_same();
    assert!(report.stops.len() > 30, "{}", report.stops.len());
}

#[tokio::test]
async fn debate_machine_passes_conformance_suite() {
    let model = || ScriptedModel::looping(Turn::new().text("Well."));
    for debate in [
        Debate::new(model()),
        Debate::new(model()).judge_each_round().open_together(),
        Debate::unjudged().rounds(1).open_together(),
        Debate::unjudged().rounds(100).context_tokens(0),
    ] {
        let swarm = two(debate, model(), model())
            .worker(
                worker("cook", model())
                    .fallback("pilot")
                    .retries(3)
                    .memory(WorkerMemory::Named("c".into())),
            )
            .max_parallel(2)
            .worker_messages()
            .build()
            .unwrap();
        conformance::machine(|| swarm.machine("When?")).await;
        let restore = |state: serde_json::Value| swarm.restore(&state).unwrap();
        conformance::machine_restored(|| swarm.machine("When?"), restore).await;
        conformance::machine_damaged(|| swarm.machine("When?"), |state| swarm.restore(state)).await;
    }
}

#[track_caller]
fn assert_rejected(swarm: SwarmBuilder, setting: &str) {
    match swarm.build() {
        Err(Error::Setting { setting: found, .. }) => assert_eq!(found, setting),
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_settings_are_rejected() {
    let two = |debate| two(debate, replies(&[]), replies(&[]));
    assert_rejected(
        Swarm::builder(Debate::unjudged()).worker(worker("pilot", replies(&[]))),
        "worker",
    );
    assert_rejected(two(Debate::unjudged().rounds(0)), "rounds");
    assert_rejected(two(Debate::new(replies(&[])).rounds(101)), "rounds");
    assert_rejected(
        two(Debate::unjudged().judge_each_round()),
        "judge_each_round",
    );
    two(Debate::unjudged().rounds(100)).build().unwrap();
}
