//! Workers who write on a shared board.

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

use crate::rounds::{Slow, Told, agent, kinds, log, says, told, within, worker};

/// Writes these in one run, and ends it.
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
async fn what_is_written_in_a_round_is_seen_in_the_next() {
    let pilot = writes(wrote(&[("tide", "High at six.")]), &[("answer", "At six.")]);
    let watch = wrote(&[("wind", "West."), ("sky", "Clear.")]).reply("Nothing to add.");
    let closer = says(&["We sail at six, says the pilot."]);
    let swarm = two(
        Blackboard::new(closer.clone()),
        pilot.clone(),
        watch.clone(),
    )
    .build()
    .unwrap();
    let notices = Told::default();
    let finished = swarm
        .run("When do we sail?")
        .on_event(notices.hear())
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
        told(&watch, 0).contains("Nothing stands there yet.")
            && !told(&watch, 0).contains("High at six.")
    );
    assert!(
        told(&watch, 2).contains("## `tide` by pilot, round 1, version 1\n```\nHigh at six.\n```")
    );
    assert!(told(&closer, 0).contains("At six.") && told(&closer, 0).contains("Clear."));
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
async fn it_ends_when_nobody_writes_anything_new() {
    let pilot = writes(wrote(&[("tide", "six")]), &[("tide", "six")]);
    let swarm = two(
        Blackboard::unjudged().rounds(50),
        pilot,
        says(&["Nothing.", "Nothing."]),
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
async fn the_judge_may_end_it() {
    let not_yet = r#"{"done": false, "reason": "What of the wind?"}"#;
    let done = r#"{"done": true, "answer": "At six.", "reason": "All is there."}"#;
    let pilot = writes(wrote(&[("tide", "six")]), &[("wind", "west")]);
    let watch = says(&["Nothing.", "Nothing."]);
    let judge = says(&[not_yet, "Well, yes.", done]);
    let board = Blackboard::closed_by(agent(judge.clone())).judge_each_round();
    let swarm = two(board, pilot.clone(), watch).build().unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!((finished.text(), finished.reports().len()), ("At six.", 4));
    assert!(
        told(&pilot, 2).contains("What of the wind?"),
        "{}",
        told(&pilot, 2)
    );
    assert!(told(&judge, 2).contains("it is no JSON"));
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
async fn one_is_asked_when_what_it_reads_is_new() {
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
    assert_eq!(ids, expected, "its own writing is not new to it");
    assert!(told(&mate, 2).contains("seven"));
}

#[tokio::test]
async fn of_several_who_write_one_key_the_last_stands_and_the_others_are_named() {
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
    assert!(told(&pilot, 2).contains("also written by pilot, which does not stand"));
}

#[tokio::test]
async fn what_does_not_fit_is_named_in_the_next_round() {
    let huge = "x".repeat(Board::MAX_CONTENT + 1);
    let pilot = wrote(&[("a\nlong  one", &huge), ("", "x"), ("ok", "fits")]).reply("Nothing.");
    let notices = Told::default();
    let swarm = two(
        Blackboard::unjudged(),
        pilot.clone(),
        says(&["Nothing.", "Nothing."]),
    )
    .build()
    .unwrap();
    let finished = swarm.run("When?").on_event(notices.hear()).await.unwrap();
    assert_eq!(keys(finished.board().unwrap()), [("ok", "fits", 1)]);
    let next = told(&pilot, 2);
    assert!(
        next.contains("- `a long one` by pilot: it is longer than 65536 bytes"),
        "{next}"
    );
    assert!(next.contains("- `` by pilot: it has no key"));
    assert_eq!(
        notices.count(|notice| matches!(notice, SwarmNotice::Refused { .. })),
        2
    );
}

#[tokio::test]
async fn another_entry_may_end_it() {
    let pilot = wrote(&[("answer", "no end"), ("Log  Book", "the end")]);
    let swarm = two(
        Blackboard::unjudged().until("Log Book"),
        pilot,
        says(&["Nothing."]),
    )
    .build()
    .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!((finished.text(), finished.reports().len()), ("the end", 2));
}

#[tokio::test]
async fn who_fails_is_named_and_what_it_wrote_before_stands() {
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
async fn with_an_empty_board_what_was_said_must_do() {
    let swarm = two(
        Blackboard::unjudged(),
        says(&["At six."]),
        says(&["At eight."]),
    )
    .build()
    .unwrap();
    assert_eq!(
        swarm.run("When?").await.unwrap().text(),
        "## pilot\nAt six.\n\n## watch\nAt eight."
    );
    let closer = says(&["At six or at eight."]);
    let swarm = two(
        Blackboard::new(closer.clone()),
        says(&["At six."]),
        says(&["At eight."]),
    )
    .build()
    .unwrap();
    assert_eq!(
        swarm.run("When?").await.unwrap().text(),
        "At six or at eight."
    );
    assert!(told(&closer, 0).contains("At eight."));
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
async fn what_a_swarm_says_is_written_under_its_name() {
    let debate = Swarm::builder(Debate::unjudged().rounds(1))
        .worker(worker("yes", says(&["yes", "yes"])))
        .worker(worker("no", says(&["no", "no"])))
        .build()
        .unwrap();
    let swarm = Swarm::builder(Blackboard::unjudged())
        .worker(Worker::swarm("crew", "Debates.", debate))
        .worker(worker("pilot", says(&["Nothing.", "Nothing."])))
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert_eq!(finished.reports().len(), 4, "what is said again is not new");
    let entry = finished.board().unwrap().get("crew").unwrap();
    assert_eq!(
        (&*entry.content, entry.version),
        ("## yes (`round1.yes`)\nyes\n\n## no (`round1.no`)\nno", 1)
    );
}

#[tokio::test]
async fn whatever_they_do_there_is_an_answer() {
    let huge = "words ".repeat(2_000_000);
    let bad = || {
        [
            ScriptedModel::new().panic("on purpose").panic("again"),
            ScriptedModel::new().hang().hang(),
            says(&[&huge, &huge]),
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
async fn near_a_limit_no_round_is_begun() {
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
async fn messages_are_found_in_the_next_round() {
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
    let watch = says(&["Nothing.", "Nothing."]);
    let swarm = two(Blackboard::unjudged(), pilot, watch.clone())
        .talk()
        .build()
        .unwrap();
    let finished = swarm.run("When?").await.unwrap();
    assert!(
        told(&watch, 1).contains("pilot says:\n```\nLook west.\n```"),
        "{}",
        told(&watch, 1)
    );
    assert_eq!(
        kinds(&finished),
        ["pilot note", "pilot entry", "judge answer"]
    );
}

fn three(slow: [usize; 3], parallel: usize) -> Swarm {
    let names = ["pilot", "watch", "cook"];
    let mut swarm = Swarm::builder(Blackboard::new(says(&["Done."])));
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
async fn who_is_faster_makes_no_difference() {
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
    let board = Blackboard::new(says(&["Done."]).by_history()).rounds(2);
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
async fn stopped_after_every_record_it_comes_to_the_same() {
    let report = crash::after_every_record(MemoryJournal::new, life).await;
    report.assert_same();
    assert!(report.stops.len() > 30, "{}", report.stops.len());
}

#[tokio::test]
async fn the_machine_keeps_the_contract() {
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
            .worker(worker("cook", model()).stand_in("pilot").retries(3))
            .max_parallel(2)
            .talk()
            .build()
            .unwrap();
        conformance::machine(|| swarm.machine("When?")).await;
        let restore = |state: serde_json::Value| swarm.restore(&state).unwrap();
        conformance::machine_restored(|| swarm.machine("When?"), restore).await;
        conformance::machine_damaged(|| swarm.machine("When?"), |state| swarm.restore(state)).await;
    }
}

#[track_caller]
fn refused(board: Blackboard, setting: &str) {
    match two(board, says(&[]), says(&[])).build() {
        Err(Error::Setting { setting: found, .. }) => assert_eq!(found, setting),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    refused(Blackboard::unjudged().rounds(0), "rounds");
    refused(Blackboard::unjudged().rounds(101), "rounds");
    refused(Blackboard::unjudged().until(" \n"), "until");
    refused(
        Blackboard::unjudged().judge_each_round(),
        "judge_each_round",
    );
    refused(Blackboard::unjudged().reads("pilott", ["a"]), "reads");
    refused(
        Blackboard::unjudged()
            .reads("pilot", ["a"])
            .reads("watch", ["b"]),
        "reads",
    );
    let one = Swarm::builder(Blackboard::unjudged()).worker(worker("pilot", says(&[])));
    one.build().unwrap();
}
