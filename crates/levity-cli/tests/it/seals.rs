//! Tests of journals that another program changes while levity drives a run: no decision is
//! used for a call that the user has not seen.

use serde_json::json;

use super::check;
use super::journals::{PlantedJournal, change};

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
