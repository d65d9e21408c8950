//! Tests of journals that another program changes while levity drives a run or after it: no
//! decision is used for a call that the user has not seen, and no call is made twice.

use std::fs;

use serde_json::json;

use super::check;
use super::journals::{FORMS, PlantedJournal, change};

/// Removes the last record of the run `nightly`, as another program would.
fn remove_last_record(planted: &PlantedJournal, journal: &str) {
    let file = planted.path("clone").join(journal);
    if file.is_file() {
        let newest = "SELECT max(seq) FROM records";
        change(
            &file,
            &format!("DELETE FROM records WHERE seq = ({newest})"),
        );
        change(
            &file,
            "UPDATE runs SET records = records - 1, waiting = NULL",
        );
    } else {
        let file = file.join("nightly.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let rest = lines[..lines.len() - 1].join("\n");
        fs::write(&file, rest + "\n").unwrap();
    }
}

#[test]
fn run_without_its_last_record_is_refused() {
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        let own = |args: &[&str]| planted.call("stranger", args);
        remove_last_record(&planted, journal);
        for action in ["resume", "fork", "approve"] {
            let refused = own(&["runs", action, "nightly"]);
            check(&refused, 1, "another program changed the records");
        }
        assert!(!planted.is_written());
    }
}

/// Otherwise the call would be made a second time.
#[test]
fn run_without_end_of_its_call_is_refused() {
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        let own = |args: &[&str]| planted.call("stranger", args);
        check(&own(&["runs", "approve", "nightly"]), 0, "resume run");
        remove_last_record(&planted, journal);
        let refused = own(&["runs", "resume", "nightly"]);
        check(&refused, 1, "another program changed the records");
        assert!(!planted.is_written());
    }
}

/// The user reads a run before approving its calls.
#[test]
fn changed_run_is_shown_with_note() {
    let part = "another program changed the records of run `nightly`";
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        for show in [
            &["runs", "show", "nightly"][..],
            &["runs", "show", "nightly", "--json"],
        ] {
            let shown = planted.call("stranger", show);
            check(&shown, 0, "");
            let notes = String::from_utf8_lossy(&shown.stderr);
            assert!(!notes.contains(part), "{notes}");
        }
        remove_last_record(&planted, journal);
        check(
            &planted.call("stranger", &["runs", "show", "nightly"]),
            0,
            part,
        );
        let json = ["runs", "show", "nightly", "--json"];
        check(&planted.call("stranger", &json), 0, part);
    }
}

/// The list of the journal names the number of a later call. A decision that the user sends for it
/// would be used when that call is asked.
#[cfg(unix)]
#[test]
fn approval_is_sent_only_for_question_in_records() {
    let planted = PlantedJournal::waiting("runs.db");
    let own = |args: &[&str]| planted.call("stranger", args);
    let address = "127.0.0.1:0";
    let serve = ["serve", "http", "--listen", address, "--ask", "write_file"];
    let server = crate::serve::Server::spawn(planted.command("stranger", &serve));
    let start = json!({"goal": "Go", "id": "live"});
    assert_eq!(server.ask("POST", "/v1/runs", &start).0, 201);
    let mut seen = Vec::new();
    server.follow("live", &mut seen, |seen| {
        let last = seen.last();
        last.is_some_and(|(_, event)| event["kind"].get("asked").is_some())
    });
    let database = planted.path("clone/runs.db");
    let forged = r#"UPDATE runs SET waiting = '[{"effect":6}]' WHERE id = 'live'"#;
    change(&database, forged);
    for action in [
        &["approve"][..],
        &["deny"],
        &["answer", "--text", "x"],
        &["resolve", "--not-done"],
    ] {
        let named = [&["runs", action[0], "live", "--effect", "6"], &action[1..]].concat();
        check(&own(&named), 1, "with effect 6");
    }
    let inbox = rusqlite::Connection::open(&database).unwrap();
    let count = "SELECT count(*) FROM inbox";
    let count: i64 = inbox.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
    // Without a number, levity asks about the question in the records.
    check(
        &own(&["runs", "approve", "live"]),
        0,
        "approving write_file",
    );
    assert!(server.follow("live", &mut seen, |_| false));
    assert!(planted.is_written());
}
