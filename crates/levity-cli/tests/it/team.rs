//! Tests of `levity team`, by subprocess and on a terminal.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::{check, command, text};

/// A plan with one step, and the answer of that step.
const PLAN: &str = concat!(
    r#"{"reply": "{\"steps\": [{\"id\": \"think\", \"agent\": \"Thinker\", "#,
    r#"\"prompt\": \"Think.\", \"writes\": [\"answer\"]}]}"}"#,
);

fn answer(text: &str) -> String {
    let value = serde_json::json!({"answer": {"text": text, "sources": ["tides.pdf, page 4"]}});
    serde_json::json!({"reply": value.to_string()}).to_string()
}

/// Writes a script with the replies for a number of goals.
fn script(folder: &Path, answers: &[&str]) {
    let replies: Vec<_> = answers
        .iter()
        .map(|text| format!("{PLAN}, {}", answer(text)))
        .collect();
    fs::write(folder.join("s.json"), format!("[{}]", replies.join(", "))).unwrap();
}

/// Runs `levity team` in a folder, with these lines as its input.
fn team(folder: &Path, args: &str, lines: &str) -> Output {
    let args: Vec<_> = format!("team --script s.json {args}")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut child = command(&args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn goals_of_a_session_know_earlier_ones_and_answer_as_text() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), &["At six.", "At noon."]);
    let args = "--memory m.db --conversation tides --recall r.db --view json";
    let output = team(
        folder.path(),
        args,
        "When is high water?\n\nAnd low water?\n",
    );
    check(&output, 0, "");
    let events = text(&output);
    let goals = |events: &str| -> Vec<Value> {
        events
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["kind"]["goal"].is_object() && event["run"].as_str().is_some())
            .collect()
    };
    assert!(goals(&events).len() >= 2, "{events}");

    // Another process continues the conversation, and recalls the answers.
    script(folder.path(), &["Both are in the table."]);
    let args = "--memory m.db --conversation tides --recall r.db";
    let output = team(
        folder.path(),
        args,
        "When is high water, again?\n/cost\n/tree\n",
    );
    check(&output, 0, "think ✓ Thinker");
    let printed = text(&output);
    assert!(
        printed.starts_with("Both are in the table.\n\nSources:\n- tides.pdf, page 4\n"),
        "{printed}"
    );
    assert!(printed.contains("1 goal in this session"), "{printed}");
    let listed = command(&["conversations", "show", "tides", "--memory", "m.db"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let stored = text(&listed);
    for part in ["And low water?", "At noon.", "Both are in the table."] {
        assert!(stored.contains(part), "{part}: {stored}");
    }
}

#[test]
fn earlier_goals_and_recalled_answers_reach_the_planner() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), &["At six.", "At noon."]);
    let lines = "When is high water?\nWhen is low water?\n";
    let output = team(folder.path(), "--recall r.db --sessions s", lines);
    check(&output, 0, "think ✓ Thinker");
    // The journal of the second goal has the variables, as the planner saw them.
    let journal = fs::read_dir(folder.path().join("s/journal")).unwrap();
    let texts: Vec<String> = journal
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .filter(|text| text.contains("low water?"))
        .collect();
    let with = |part: &str| texts.iter().any(|text| text.contains(part));
    assert!(
        with("earlier_goals") && with("recalled") && with("At six."),
        "{texts:#?}"
    );
}

#[test]
fn failed_goal_and_unknown_command_do_not_end_the_session() {
    let folder = tempfile::tempdir().unwrap();
    // The planner of the first goal gives no plan: each draft is refused.
    let nothing = r#"{"reply": "no plan"}"#;
    let replies = format!(
        "[{nothing}, {nothing}, {nothing}, {PLAN}, {}]",
        answer("At six.")
    );
    fs::write(folder.path().join("s.json"), replies).unwrap();
    let output = team(
        folder.path(),
        "",
        "/what\n/fork\n/pause\nFail.\nWhen?\n/quit\nNever read.\n",
    );
    check(
        &output,
        1,
        "unknown command `/what`; `/help` lists the commands",
    );
    check(&output, 1, "no goal has been worked on yet");
    check(&output, 1, "no run is working");
    assert!(text(&output).starts_with("At six."), "{}", text(&output));
}

#[test]
fn fork_repeats_a_step_of_the_last_goal() {
    let folder = tempfile::tempdir().unwrap();
    let replies = format!("[{PLAN}, {}, {}]", answer("At six."), answer("At seven."));
    fs::write(folder.path().join("s.json"), replies).unwrap();
    let lines = "When?\n/fork nothing\n/fork think\n";
    let output = team(folder.path(), "--sessions sessions", lines);
    check(&output, 1, "nothing");
    let printed = text(&output);
    assert!(
        printed.contains("At six.") && printed.contains("At seven."),
        "{printed}"
    );
    script(folder.path(), &["At six."]);
    check(
        &team(folder.path(), "", "When?\n/fork think\n"),
        1,
        "--sessions DIR",
    );
}

#[cfg(target_os = "linux")]
mod terminal {
    use std::io::Write as _;

    use crate::plan_terminal::Terminal;

    #[test]
    fn session_on_a_terminal_shows_tree_text_and_takes_commands() {
        let folder = tempfile::tempdir().unwrap();
        let mut terminal = Terminal::in_folder(folder.path(), &["--start", "team"], b"");
        terminal.until("> ");
        terminal.ours.write_all(b"Compare the tides\n").unwrap();
        terminal.until("Retriever");
        // Typed text is hidden while the tree is drawn; an empty line asks for a command.
        terminal.ours.write_all(b"\n").unwrap();
        terminal.until("command (/pause, /resume, /cost, /tree, /cancel): ");
        terminal.ours.write_all(b"/pause\n").unwrap();
        terminal.until("(paused: ");
        terminal.ours.write_all(b"/resume\n").unwrap();
        terminal.until("(resumed)");
        terminal.until("> ");
        terminal.ours.write_all(b"/cost\n").unwrap();
        terminal.until("1 goal in this session");
        terminal.until("> ");
        terminal.ours.write_all(b"/quit\n").unwrap();
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    }
}
