//! Tests of workers that write on a shared board.

use std::time::Duration;

use levity_core::{ErrorKind, Limit, Limits, ModelErrorKind, Status};
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{
    Blackboard, Board, Debate, Error, ReportStatus, Swarm, SwarmBuilder, SwarmDetails, SwarmNotice,
    Worker,
};
use levity_test::crash::{self, Life};
use levity_test::{ManualWorld, ScriptedModel, Turn, conformance};
use serde_json::json;

use crate::rounds::{NoticeLog, Slow, agent, kinds, last_message, log, replies, within, worker};

/// Adds a turn that writes these entries, and a reply.
fn writes(model: ScriptedModel, entries: &[(&str, &str)]) -> ScriptedModel {
    let turn = entries.iter().fold(Turn::new(), |turn, (key, content)| {
        turn.call("write_board", json!({"key": key, "content": content}))
    });
    model.turn(turn).reply("Written.")
}

fn wrote(entries: &[(&str, &str)]) -> ScriptedModel {
    writes(ScriptedModel::new(), entries)
}

fn two(board: Blackboard, pilot: ScriptedModel, watch: ScriptedModel) -> SwarmBuilder {
    Swarm::builder(board)
        .worker(worker("pilot", pilot))
        .worker(worker("watch", watch))
}

fn keys(board: &Board) -> Vec<(&str, &str, u32)> {
    board
        .iter()
        .map(|entry| (&*entry.key, &*entry.content, entry.version))
        .collect()
}

#[tokio::test]
async fn entries_of_round_are_seen_in_next_round() {
    let pilot = writes(wrote(&[("tide", "High at six.")]), &[("answer", "At six.")]);
    let watch = wrote(&[("wind", "West."), ("sky", "Clear.")]).reply("Nothing to add.");
    let closer = replies(&["We sail at six, says the pilot."]);
    let swarm = two(
        Blackboard::new(closer.clone()),
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
        ("We sail at six, says the pilot.", &Status::Complete)
    );
    let expected = [
        ("tide", "High at six.", 1),
        ("wind", "West.", 1),
        ("sky", "Clear.", 1),
        ("answer", "At six.", 1),
    ];
    assert_eq!(keys(finished.board().unwrap()), expected);
    assert_eq!(
        finished
            .board()
            .unwrap()
            .get("sky")
            .map(|entry| (&*entry.by, entry.round)),
        Some(("watch", 1))
    );
    assert!(
        last_message(&watch, 0).contains("Nothing stands there yet.")
            && !last_message(&watch, 0).contains("High at six.")
    );
    assert!(
        last_message(&watch, 2)
            .contains("## `tide` by pilot, round 1, version 1\n```\nHigh at six.\n```")
    );
    assert!(
        last_message(&closer, 0).contains("At six.") && last_message(&closer, 0).contains("Clear.")
    );
    let expected = [
        "pilot entry",
        "watch entry",
        "watch entry",
        "pilot entry",
        "judge answer",
    ];
    assert_eq!(kinds(&finished), expected);
    assert_eq!(
        &*finished.bus().messages().next().unwrap().content,
        "tide: High at six."
    );
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Written { version: 1, .. })),
        4
    );
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::RoundBegan { of: 5, .. })),
        2
    );
    assert!(finished.report("round2.watch").is_some() && finished.report("round3.watch").is_none());
}

#[tokio::test]
async fn blackboard_ends_when_no_worker_writes_anything_new() {
    let pilot = writes(wrote(&[("tide", "six")]), &[("tide", "six")]);
    let swarm = two(
        Blackboard::unjudged().rounds(50),
        pilot,
        replies(&["Nothing.", "Nothing."]),
    )
    .build()
    .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(
        (finished.text(), finished.reports().len()),
        ("## tide (by pilot)\nsix", 4)
    );
}

#[tokio::test]
async fn judge_may_end_blackboard() {
    let not_yet = r#"{"done": false, "reason": "What of the wind?"}"#;
    let done = r#"{"done": true, "answer": "At six.", "reason": "All is there."}"#;
    let pilot = writes(wrote(&[("tide", "six")]), &[("wind", "west")]);
    let watch = replies(&["Nothing.", "Nothing."]);
    let judge = replies(&[not_yet, "Well, yes.", done]);
    let board = Blackboard::closed_by(agent(judge.clone())).judge_each_round();
    let swarm = two(board, pilot.clone(), watch).build().unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!((finished.text(), finished.reports().len()), ("At six.", 4));
    assert!(
        last_message(&pilot, 2).contains("What of the wind?"),
        "{}",
        last_message(&pilot, 2)
    );
    assert!(last_message(&judge, 2).contains("the answer is not JSON"));
    assert_eq!(
        kinds(&finished)
            .iter()
            .filter(|kind| *kind == "judge verdict")
            .count(),
        2
    );
    judge.assert_finished();
}

#[tokio::test]
async fn worker_is_asked_when_its_entries_are_new() {
    let pilot = writes(
        writes(wrote(&[("tide", "six")]), &[("swell", "low")]),
        &[("tide", "seven")],
    );
    let pilot = pilot.reply("Nothing.").reply("Nothing.");
    let mate = writes(
        wrote(&[("plan", "at six")]),
        &[("plan", "at seven"), ("tide", "I say eight")],
    );
    let board = Blackboard::unjudged().reads("mate", ["tide", "plan"]);
    let swarm = Swarm::builder(board)
        .worker(worker("mate", mate.clone()))
        .worker(worker("pilot", pilot))
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    let ids: Vec<_> = finished
        .reports()
        .iter()
        .map(|report| &*report.id)
        .collect();
    let expected = [
        "round1.pilot",
        "round2.mate",
        "round2.pilot",
        "round3.pilot",
        "round4.mate",
        "round4.pilot",
        "round5.pilot",
    ];
    assert_eq!(ids, expected, "a worker's own writes are not new to it");
    assert!(last_message(&mate, 2).contains("seven"));
}

#[tokio::test]
async fn last_writer_of_key_wins_and_others_are_named() {
    let pilot = wrote(&[("plan", "six")]).reply("Nothing.");
    let watch = wrote(&[("plan", "eight")]).reply("Nothing.");
    let swarm = two(Blackboard::unjudged(), pilot.clone(), watch)
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    let entry = finished.board().unwrap().get("plan").unwrap();
    assert_eq!(
        (&*entry.content, &*entry.by, entry.version),
        ("eight", "watch", 2)
    );
    assert_eq!(
        (
            &*entry.history[0].content,
            entry.rivals().collect::<Vec<_>>()
        ),
        ("six", vec!["pilot"])
    );
    assert!(last_message(&pilot, 2).contains("also written by pilot, which does not stand"));
}

#[tokio::test]
async fn refused_writes_are_named_in_next_round() {
    let huge = "x".repeat(Board::MAX_CONTENT + 1);
    let pilot = wrote(&[("a\nlong  one", &huge), ("", "x"), ("ok", "fits")]).reply("Nothing.");
    let notices = NoticeLog::default();
    let swarm = two(
        Blackboard::unjudged(),
        pilot.clone(),
        replies(&["Nothing.", "Nothing."]),
    )
    .build()
    .unwrap();
    let finished = swarm
        .run("When?")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(keys(finished.board().unwrap()), [("ok", "fits", 1)]);
    let next = last_message(&pilot, 2);
    assert!(
        next.contains("- `a long one` by pilot: the content is longer than 65536 bytes"),
        "{next}"
    );
    assert!(next.contains("- `` by pilot: the key is empty"));
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Refused { .. })),
        2
    );
}

#[tokio::test]
async fn configured_entry_ends_blackboard() {
    let pilot = wrote(&[("answer", "no end"), ("Log  Book", "the end")]);
    let swarm = two(
        Blackboard::unjudged().until("Log Book"),
        pilot,
        replies(&["Nothing."]),
    )
    .build()
    .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!((finished.text(), finished.reports().len()), ("the end", 2));
}

#[tokio::test]
async fn failed_worker_is_named_and_its_writes_remain() {
    let pilot = ScriptedModel::new()
        .call("write_board", json!({"key": "tide", "content": "six"}))
        .fail(ModelErrorKind::BadRequest)
        .fail(ModelErrorKind::BadRequest);
    let swarm = two(
        Blackboard::unjudged().rounds(1),
        pilot,
        wrote(&[("wind", "west")]),
    )
    .build()
    .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(
        keys(finished.board().unwrap()),
        [("tide", "six", 1), ("wind", "west", 1)]
    );
    assert_eq!(
        finished.report("round1.pilot").unwrap().status,
        ReportStatus::Failed
    );
    let list = "## tide (by pilot)\nsix\n\n## wind (by watch)\nwest\n\nNot done:\n- pilot \
        (`round1.pilot`): ";
    assert!(finished.text().starts_with(list), "{}", finished.text());
    let expected = [
        "pilot failure",
        "pilot failure",
        "pilot entry",
        "watch entry",
        "judge answer",
    ];
    assert_eq!(kinds(&finished), expected);
}

#[tokio::test]
async fn empty_board_falls_back_to_answers_of_workers() {
    let swarm = two(
        Blackboard::unjudged(),
        replies(&["At six."]),
        replies(&["At eight."]),
    )
    .build()
    .unwrap();
    assert_eq!(
        swarm.run("When?").await.unwrap().text(),
        "## pilot\nAt six.\n\n## watch\nAt eight."
    );
    let closer = replies(&["At six or at eight."]);
    let swarm = two(
        Blackboard::new(closer.clone()),
        replies(&["At six."]),
        replies(&["At eight."]),
    )
    .build()
    .unwrap();
    assert_eq!(
        swarm.run("When?").await.unwrap().text(),
        "At six or at eight."
    );
    assert!(last_message(&closer, 0).contains("At eight."));
    let swarm = two(
        Blackboard::unjudged(),
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
async fn answer_of_nested_swarm_is_written_under_its_name() {
    let debate = Swarm::builder(Debate::unjudged().rounds(1))
        .worker(worker("yes", replies(&["yes", "yes"])))
        .worker(worker("no", replies(&["no", "no"])))
        .build()
        .unwrap();
    let swarm = Swarm::builder(Blackboard::unjudged())
        .worker(Worker::swarm("crew", "Debates.", debate))
        .worker(worker("pilot", replies(&["Nothing.", "Nothing."])))
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(finished.reports().len(), 4, "a repeated answer is not new");
    let entry = finished.board().unwrap().get("crew").unwrap();
    assert_eq!(
        (&*entry.content, entry.version),
        ("## yes (`round1.yes`)\nyes\n\n## no (`round1.no`)\nno", 1)
    );
}

#[tokio::test]
async fn blackboard_answers_despite_misbehaving_members() {
    let huge = "words ".repeat(2_000_000);
    let bad = || {
        [
            ScriptedModel::new().panic("on purpose").panic("again"),
            ScriptedModel::new().hang().hang(),
            replies(&[&huge, &huge]),
            ScriptedModel::new()
                .turn(Turn::new().raw_call("write_board", "{nonsense"))
                .reply("Well."),
        ]
    };
    for (pilot, closer) in bad().into_iter().zip(bad()) {
        let board = Blackboard::new(closer)
            .rounds(1)
            .judge_timeout(Duration::from_secs(5));
        let swarm = Swarm::builder(board)
            .worker(worker("pilot", pilot).timeout(Duration::from_secs(5)))
            .worker(worker("watch", wrote(&[("answer", "At six.")])))
            .runtime(Runtime::new().with_world(ManualWorld::auto()))
            .build()
            .unwrap();
        let finished = within(swarm.run("When?")).await.unwrap();
        assert!(!finished.text().is_empty() && finished.text().len() < 300_000);
        assert_eq!(keys(finished.board().unwrap()), [("answer", "At six.", 1)]);
    }
}

#[tokio::test]
async fn near_limit_no_round_starts() {
    let turn = |text: &str| {
        ScriptedModel::looping(
            Turn::new()
                .call("write_board", json!({"key": text, "content": "x"}))
                .usage(300, 300),
        )
    };
    let closer = ScriptedModel::new().turn(Turn::new().text("So far.").usage(10, 10));
    let swarm = two(Blackboard::new(closer).rounds(50), turn("a"), turn("b"));
    let limits = Limits::new().tokens(60_000).low(60);
    let finished = within(swarm.limits(limits).build().unwrap().run("When?"))
        .await
        .unwrap();
    assert_eq!(finished.status(), &Status::BestEffort(Limit::Tokens));
    assert!(
        finished.text().starts_with("So far."),
        "{}",
        finished.text()
    );
    assert!(finished.usage().total() <= 60_000);
}

#[tokio::test]
async fn messages_are_shown_in_next_round() {
    let pilot = ScriptedModel::new()
        .turn(
            Turn::new()
                .call(
                    "send_message",
                    json!({"to": "watch", "content": "Look west."}),
                )
                .call("write_board", json!({"key": "tide", "content": "six"})),
        )
        .reply("Written.")
        .reply("Nothing.");
    let watch = replies(&["Nothing.", "Nothing."]);
    let swarm = two(Blackboard::unjudged(), pilot, watch.clone())
        .worker_messages()
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert!(
        last_message(&watch, 1).contains("pilot says:\n```\nLook west.\n```"),
        "{}",
        last_message(&watch, 1)
    );
    assert_eq!(
        kinds(&finished),
        ["pilot note", "pilot entry", "judge answer"]
    );
}

fn three(slow: [usize; 3], parallel: usize) -> Swarm {
    let names = ["pilot", "watch", "cook"];
    let mut swarm = Swarm::builder(Blackboard::new(replies(&["Done."])));
    for (name, slow) in names.into_iter().zip(slow) {
        let own = format!("{name}'s");
        let model = writes(wrote(&[("plan", name), (&own, "1")]), &[(&own, "2")]);
        let model = if name == "cook" {
            model.call("write_board", json!({}))
        } else {
            model
        };
        swarm = swarm.worker(worker(name, Slow(model.reply("Nothing."), slow)));
    }
    let runtime = Runtime::new().with_world(ManualWorld::new());
    swarm
        .max_parallel(parallel)
        .runtime(runtime)
        .build()
        .unwrap()
}

#[tokio::test]
async fn speed_of_workers_makes_no_difference() {
    let mut logs = Vec::new();
    for (slow, parallel) in [
        ([0, 0, 0], 3),
        ([50, 0, 20], 3),
        ([0, 50, 20], 3),
        ([20, 50, 0], 2),
        ([50, 20, 0], 1),
    ] {
        let finished = within(three(slow, parallel).run("When?").id("r"))
            .await
            .unwrap();
        logs.push((
            log(&finished),
            serde_json::to_string(finished.board().unwrap()).unwrap(),
        ));
    }
    assert!(logs.iter().all(|log| *log == logs[0]), "{logs:#?}");
    assert!(logs[0].0.lines().count() > 9);
}

async fn life(life: Life) -> (String, String, String) {
    let model = |key: &str| wrote(&[(key, "a"), ("plan", key)]).by_history();
    let board = Blackboard::new(replies(&["Done."]).by_history()).rounds(2);
    let runtime = Runtime::new()
        .with_journal(life.journal.clone())
        .with_world(ManualWorld::new());
    let swarm = two(board, model("one"), model("two"))
        .runtime(runtime)
        .build()
        .unwrap();
    let finished = match life.knows("r").await {
        true => within(swarm.resume("r")).await,
        false => within(swarm.run("When?").id("r")).await,
    };
    let finished = finished.unwrap();
    let board = serde_json::to_string(finished.board().unwrap()).unwrap();
    (finished.text().to_owned(), log(&finished), board)
}

#[tokio::test]
async fn blackboard_stopped_after_every_record_has_same_result() {
    let report = crash::after_every_record(MemoryJournal::new, life).await;
    report.assert_same();
    assert!(report.stops.len() > 30, "{}", report.stops.len());
}

#[tokio::test]
async fn blackboard_machine_passes_conformance_suite() {
    let model = || ScriptedModel::looping(Turn::new().text("Well."));
    for board in [
        Blackboard::new(model()),
        Blackboard::new(model())
            .judge_each_round()
            .reads("watch", ["a"]),
        Blackboard::unjudged().rounds(1),
        Blackboard::unjudged().rounds(100),
    ] {
        let swarm = two(board, model(), model())
            .worker(worker("cook", model()).fallback("pilot").retries(3))
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
fn assert_rejected(board: Blackboard, setting: &str) {
    match two(board, replies(&[]), replies(&[])).build() {
        Err(Error::Setting { setting: found, .. }) => assert_eq!(found, setting),
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_settings_are_rejected() {
    assert_rejected(Blackboard::unjudged().rounds(0), "rounds");
    assert_rejected(Blackboard::unjudged().rounds(101), "rounds");
    assert_rejected(Blackboard::unjudged().until(" \n"), "until");
    assert_rejected(
        Blackboard::unjudged().judge_each_round(),
        "judge_each_round",
    );
    assert_rejected(Blackboard::unjudged().reads("pilott", ["a"]), "reads");
    assert_rejected(
        Blackboard::unjudged()
            .reads("pilot", ["a"])
            .reads("watch", ["b"]),
        "reads",
    );
    let one = Swarm::builder(Blackboard::unjudged()).worker(worker("pilot", replies(&[])));
    one.build().unwrap();
}
