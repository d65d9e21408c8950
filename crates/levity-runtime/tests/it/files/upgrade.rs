//! Files of other versions: those of earlier ones are read and their runs resume; those of later
//! ones are rejected with an error that names the new part.
//!
//! `fixtures/first` is the first version of the format, before records contained the setup of a
//! run. `fixtures/second` is the version after that, and `fixtures/third` has checksums. They never
//! change after a release. A version that writes something new adds a folder:
//! `LEVITY_FIXTURES=DIR cargo test -p levity-runtime --test it current_format` writes one to DIR.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_core::{
    CallId, ControlCommand, Decision, Digest, EffectClass, EffectId, EffectKind, EffectNote,
    Ending, Entry, Failure, ForkPoint, Journal, JournalErrorKind, Limit, Limits, MachineKind,
    Message, ModelError, ModelErrorKind, Money, Outcome, Record, ReservedCost, Response, RunHeader,
    RunId, RunQuery, RunSummary, Spending, Status, Timestamp, ToolCall, ToolError, ToolOutput,
    ToolResult, Usage,
};
use levity_runtime::{FileJournal, MachineRun, Runtime, replay};
use serde_json::json;

use super::{Folder, opened, refused, resealed, result, sealed, unsealed, write};
use crate::driving::{Answers, Calls};

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// Returns a copy of the fixtures, since a journal writes.
fn copy(name: &str) -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(folder.0.join("bodies")).unwrap();
    for part in ["", "bodies"] {
        let Ok(entries) = fs::read_dir(fixtures(name).join(part)) else {
            continue;
        };
        for path in entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
        {
            fs::copy(&path, folder.0.join(part).join(path.file_name().unwrap())).unwrap();
        }
    }
    folder
}

/// Returns a record of every kind.
fn every() -> Vec<Record> {
    let machine = || MachineKind::new("calls", 1);
    let limits = Limits::new()
        .tokens(100)
        .wall_time(std::time::Duration::from_millis(1_500));
    let mut first = RunHeader::new(
        machine(),
        json!({"count": 1, "text": "ä\n\"", "none": null}),
        limits,
    );
    first.wrap = Some(Limit::Tokens);
    first.low = Some(Limit::Money);
    first.origin = Some(Digest::EMPTY);
    first.setup = vec![
        ("model".to_owned(), Digest::of(&"m")),
        ("tools".to_owned(), Digest::of(&"t")),
    ];
    first.forked = Some(ForkPoint::new(RunId::new("other"), 7));
    let call = ToolCall::new("c1", "tool", json!({"a": 1.5}));
    let started = |effect, kind, class: EffectClass| {
        let mut note = EffectNote::new(kind, "it", class);
        note.alone = effect == 2;
        note.call = (effect == 2).then(|| CallId::new("c1"));
        note.reserved = (effect == 1).then(|| ReservedCost::new(5, Some(Money::from_nanos(7))));
        note.until = (kind == EffectKind::Wait).then_some(Timestamp::from_millis(9_000));
        note.inputs = vec![("arguments".to_owned(), Digest::of(&effect))];
        Entry::Started {
            effect: EffectId::new(effect),
            note,
        }
    };
    let finished = |effect, outcome| Entry::finished(EffectId::new(effect), outcome);
    let response = Response::new(Message::assistant("Yes.")).with_usage(Usage::new(3, 4));
    let child = Outcome::Child(Box::new(Ending::new(Status::BestEffort(Limit::Turns))));
    let spent = Some(Spending::new(1, 2, 3));
    let failed = ToolResult::new(&call, Err(ToolError::failed("out of order")));
    let edit = Decision::Edit {
        args: json!({"a": 2}),
    };
    let entries = vec![
        Entry::Opened(first),
        started(1, EffectKind::Model, EffectClass::ReadOnly),
        finished(1, Outcome::Model(Ok(response))),
        started(2, EffectKind::Tool, EffectClass::AtMostOnce),
        finished(
            2,
            Outcome::Tool(ToolResult::new(&call, Ok(ToolOutput::text("done")))),
        ),
        started(3, EffectKind::Tool, EffectClass::Idempotent),
        finished(3, Outcome::Tool(failed)),
        finished(
            4,
            Outcome::NeedsApproval {
                reason: "it is dear".to_owned(),
            },
        ),
        started(5, EffectKind::Ask, EffectClass::ReadOnly),
        finished(5, Outcome::Decision(edit)),
        finished(
            6,
            Outcome::Denied {
                reason: "never".to_owned(),
            },
        ),
        started(7, EffectKind::Child, EffectClass::AtMostOnce),
        Entry::Finished {
            effect: EffectId::new(7),
            outcome: child,
            spent,
        },
        started(8, EffectKind::Wait, EffectClass::ReadOnly),
        finished(8, Outcome::Woken),
        finished(9, Outcome::Refused(Limit::ToolCalls)),
        finished(10, Outcome::Unknown),
        finished(
            11,
            Outcome::Model(Err(ModelError::new(ModelErrorKind::Overloaded, "later"))),
        ),
        Entry::Commanded(ControlCommand::Pause),
        Entry::Commanded(ControlCommand::Say {
            message: Arc::new(Message::user("Hurry.")),
        }),
        Entry::Commanded(ControlCommand::Resume),
        Entry::Cleared {
            effect: EffectId::new(12),
        },
        Entry::Low(Limit::Money),
        Entry::Wrapped(Limit::ModelCalls),
        Entry::Commanded(ControlCommand::Cancel {
            reason: "enough".to_owned(),
        }),
        Entry::Stopped(Limit::WallTime),
        Entry::Ended(Status::Failed(Failure::Internal("it broke".to_owned()))),
    ];
    let at = |seq| Timestamp::from_millis(1_700_000_000_000 + 10 * seq);
    (0..)
        .zip(entries)
        .map(|(seq, entry)| Record::new(seq, at(seq), entry))
        .collect()
}

/// The name of the text `abc`.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Writes a run of three calls, one after the other, up to the start of the second.
async fn half(journal: &FileJournal) {
    let job =
        MachineRun::new(Calls::one_by_one(3), Arc::new(Answers::default())).id(RunId::new("half"));
    let runtime = Runtime::new().with_world(levity_test::ManualWorld::new());
    let stopping = levity_test::FaultyJournal::new(journal.clone()).stop_after_records(4);
    assert!(runtime.with_journal(stopping).run(job).await.is_err());
}

#[tokio::test]
async fn current_format_is_read_back() {
    let temporary = Folder::new();
    let folder =
        std::env::var_os("LEVITY_FIXTURES").map_or_else(|| temporary.0.clone(), PathBuf::from);
    write_all(&folder).await;
    let journal = FileJournal::new(&folder).unwrap();
    assert_eq!(journal.read(&RunId::new("every")).await.unwrap(), every());
    for run in ["half", "aside"] {
        assert_eq!(journal.read(&RunId::new(run)).await.unwrap().len(), 4);
    }
}

/// Writes one run of each kind, in the current format.
async fn write_all(folder: &Path) {
    let journal = FileJournal::new(folder).unwrap();
    half(&journal).await;
    journal
        .open(&RunId::new("every"))
        .await
        .unwrap()
        .log
        .append(&every())
        .await
        .unwrap();
    // A real one would be long.
    let text = fs::read_to_string(folder.join("half.jsonl"))
        .unwrap()
        .replace("\"half\"", "\"aside\"");
    let body = format!("{{\"$body\":\"{ABC}\"}}");
    let aside = |line: &str| match line.contains("\"finished\"") {
        true => {
            let line = unsealed(line).replace("\"ok\"", &body);
            sealed(&format!("{{\"$aside\":{line}}}")) + "\n"
        }
        false => format!("{line}\n"),
    };
    fs::write(
        folder.join("aside.jsonl"),
        text.lines().map(aside).collect::<String>(),
    )
    .unwrap();
    fs::create_dir_all(folder.join("bodies")).unwrap();
    fs::write(folder.join("bodies").join(ABC), "abc").unwrap();
}

#[tokio::test]
async fn every_kind_of_record_is_read_correctly() {
    for version in ["second", "third"] {
        let folder = copy(version);
        let (run, expected) = (RunId::new("every"), every());
        let records = folder.journal().read(&run).await.unwrap();
        for (found, expected) in records.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(records.len(), expected.len());
        let listed = folder
            .journal()
            .list(&RunQuery::new().below(run.clone()))
            .await
            .unwrap();
        assert_eq!(listed, [RunSummary::of(&run, &expected).unwrap()]);
    }
}

#[tokio::test]
async fn versions_without_checksums_read_current_format() {
    let folder = Folder::new();
    let records = write(
        &folder.journal(),
        every()[..]
            .iter()
            .map(|record| record.entry.clone())
            .collect(),
    )
    .await;
    let text = fs::read_to_string(folder.file()).unwrap();
    for (line, record) in text.lines().skip(1).zip(&records) {
        // This is all that those versions did with a line.
        assert_eq!(serde_json::from_str::<Record>(line).unwrap(), *record);
        assert!(line.contains(",\"crc\":\""), "{line}");
    }
    // Lines that they append have no checksum, and are read.
    let old: String = text.lines().map(|line| unsealed(line) + "\n").collect();
    let half = text.lines().count() / 2;
    let lines = text.lines().take(half).chain(old.lines().skip(half));
    fs::write(
        folder.file(),
        lines.map(|line| format!("{line}\n")).collect::<String>(),
    )
    .unwrap();
    assert_eq!(folder.journal().read(&super::run()).await.unwrap(), records);
}

#[tokio::test]
async fn runs_of_every_earlier_format_resume() {
    for (version, ids) in [
        ("first", &["half"][..]),
        ("second", &["half", "aside"]),
        ("third", &["half", "aside"]),
    ] {
        for id in ids {
            let folder = copy(version);
            let run = RunId::new(*id);
            let before = folder.journal().read(&run).await.unwrap();
            replay(&run, &before, |kind, state| {
                assert_eq!(
                    (kind, &state["count"]),
                    (&MachineKind::new("calls", 1), &json!(3))
                );
                Ok(Calls::one_by_one(3))
            })
            .unwrap();
            let executor = Arc::new(Answers::default());
            let job = MachineRun::resume(run.clone(), executor.clone(), |_, _| {
                Ok(Calls::one_by_one(3))
            });
            let done = Runtime::new()
                .with_journal(folder.journal())
                .run(job)
                .await
                .unwrap();
            let text = if *id == "aside" { "abc" } else { "ok" };
            let [Outcome::Tool(first), Outcome::Unknown, Outcome::Tool(_)] = &done.machine.done[..]
            else {
                panic!("{version}/{id}: {:?}", done.machine.done)
            };
            assert_eq!(
                (&first.call, first.text().as_ref()),
                (&CallId::from("c0"), text)
            );
            assert_eq!(executor.seen.lock().unwrap().len(), 1, "{version}/{id}");
            let after = folder.journal().read(&run).await.unwrap();
            assert_eq!(after[..before.len()], before, "{version}/{id}");
            assert_eq!(after.last().unwrap().entry, Entry::Ended(Status::Complete));
        }
    }
}

/// Checks that a record with this replacement is rejected as one of a newer version.
async fn newer(whole: &str, from: &str, to: &str, part: &str) {
    assert!(whole.contains(from), "{from}");
    let newer = resealed(&whole.replace(from, to));
    refused(newer.as_bytes(), JournalErrorKind::Version, part).await;
}

#[tokio::test]
async fn records_of_newer_version_are_rejected_by_name() {
    let folder = Folder::new();
    write(
        &folder.journal(),
        vec![
            opened(),
            result("one", None),
            Entry::Ended(Status::Complete),
        ],
    )
    .await;
    let whole = fs::read_to_string(folder.file()).unwrap();
    let whole = whole.as_str();
    newer(
        whole,
        "{\"ended\":\"complete\"}",
        "{\"foo\":{\"a\":1}}",
        "line 4: record 2 is a `foo`, which",
    )
    .await;
    newer(
        whole,
        "{\"ended\":\"complete\"}",
        "\"foo\"",
        "line 4: record 2 is a `foo`, which",
    )
    .await;
    newer(
        whole,
        "{\"tool\":",
        "{\"foo\":",
        "line 3: record 1 has a `foo`, which this version",
    )
    .await;
    newer(
        whole,
        "\"complete\"",
        "\"foo\"",
        "line 4: record 2 has a `foo`, which",
    )
    .await;
    newer(
        whole,
        "\"limits\":",
        "\"bounds\":",
        "line 2: record 0 has a form",
    )
    .await;
    let long = "x".repeat(10_000);
    let cut = format!("is a `{}`, which", "x".repeat(64));
    newer(whole, "\"ended\"", &format!("\"{long}\""), &cut).await;
    // A field that is only new is ignored.
    let more = whole.replace("{\"seq\":1,", "{\"mood\":\"good\",\"seq\":1,");
    fs::write(folder.file(), resealed(&more)).unwrap();
    assert_eq!(folder.journal().read(&super::run()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn error_does_not_show_value_of_wrong_type() {
    let folder = Folder::new();
    write(&folder.journal(), vec![opened(), result("one", None)]).await;
    let whole = fs::read_to_string(folder.file()).unwrap();
    let journal = folder.journal();
    let whole = resealed(&whole.replace("\"effect\":0", "\"effect\":\"my secret\""));
    fs::write(folder.file(), whole).unwrap();
    let error = journal.open(&super::run()).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Version);
    assert!(
        !format!("{error} {error:?}").contains("secret"),
        "{error:?}"
    );
}
