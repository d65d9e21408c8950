//! Tests of `levity chat` with lines through a pipe.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::{Place, check, command, file, levity, text};

/// Returns the output of the command for these lines.
fn chat(args: &[&str], lines: &str) -> Output {
    let mut command = command(&[&["chat"], args].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    // A command that has ended early does not read the rest.
    let writer = std::thread::spawn(move || drop(stdin.write_all(lines.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

pub(crate) fn script(name: &str, steps: &str) -> String {
    file(name, steps).to_str().unwrap().to_owned()
}

#[test]
fn chat_answers_lines_in_one_conversation() {
    let script = script(
        "chat.json",
        r#"[{"reply": "One."}, {"reply": "Two."}, {"reply": "Three."}]"#,
    );
    // The script follows the earlier conversation, so the third line sees all of it.
    let output = chat(&["-q", "--script", &script], "first\n\n  \nsecond\r\nthird");
    check(&output, 0, "");
    assert_eq!(text(&output), "One.\nTwo.\nThree.\n");
    assert_eq!(text(&chat(&["-q", "--script", &script], "")), "");
}

#[test]
fn chat_prints_streamed_answer_once() {
    let steps = r#"[
        {"calls": [{"name": "add", "args": {"a": 1, "b": 2}}], "text": "Let me see."},
        {"reply": "Three."},
        {"reply": "As I said."}
    ]"#;
    let output = chat(
        &["--script", &script("chat-calls.json", steps)],
        "What is 1 + 2?\nSure?\n",
    );
    check(&output, 0, "");
    let expected =
        "Let me see.\n  calls  add {\"a\":1,\"b\":2}\n  gets   3.0\nThree.\nAs I said.\n";
    assert_eq!(text(&output), expected);
}

#[test]
fn chat_with_json_prints_events_as_json_lines() {
    let script = script(
        "chat-json.json",
        r#"[{"reply": "One."}, {"reply": "Two."}]"#,
    );
    let output = chat(&["--json", "--script", &script], "a\nb\n");
    let events = text(&output)
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let ended = |event: &&serde_json::Value| event["kind"]["run_ended"].is_object();
    let ended: Vec<_> = events
        .iter()
        .filter(ended)
        .map(|event| &event["kind"]["run_ended"]["text"])
        .collect();
    assert_eq!(ended, ["One.", "Two."]);
}

#[test]
fn failed_line_does_not_end_conversation() {
    let script = script("chat-fails.json", r#"[{"fail": "overloaded"}]"#);
    let output = chat(&["--script", &script], "a\nb\n");
    check(&output, 1, "the model gave no reply");
    let errors = String::from_utf8_lossy(&output.stderr)
        .matches("the model gave no reply")
        .count();
    assert_eq!(errors, 2);
    let script = self::script("chat-ends.json", r#"[{"reply": "One."}]"#);
    let output = chat(&["-q", "--script", &script], "a\nb\n");
    check(&output, 1, "the model gave no reply");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !errors.contains("last text"),
        "the text for another line is not part of this: {errors}"
    );
}

#[test]
fn demonstration_answers_every_line() {
    let output = chat(&["-q"], "a\nb\n");
    check(&output, 0, "");
    assert_eq!(
        text(&output)
            .matches("A scripted model cannot answer this.")
            .count(),
        2
    );
}

#[test]
fn approval_without_terminal_is_denied() {
    let steps = r#"[{"call": {"name": "add", "args": {"a": 1, "b": 2}}}, {"reply": "I may not."}]"#;
    let output = chat(
        &["--ask", "add", "--script", &script("chat-asks.json", steps)],
        "Add.\ny\n",
    );
    check(&output, 1, "there is no terminal");
    assert!(
        text(&output).contains("I may not.\n"),
        "the next line is no answer to the question"
    );
}

#[test]
fn chat_reports_invalid_arguments() {
    check(&levity(&["chat", "--conversation", "a"]), 2, "--memory");
    check(&levity(&["chat", "--park"]), 2, "`levity run --park`");
    assert!(!text(&levity(&["chat", "--help"])).contains("--park"));
    for call in [&["chat"][..], &["run", "a"]] {
        let unnamed = [call, &["--memory", "nowhere", "--conversation", ""]].concat();
        check(&levity(&unnamed), 2, "the name is empty");
    }
    check(
        &chat(&[], &"x".repeat((1 << 20) + 1)),
        1,
        "longer than 1048576 bytes",
    );
    check(
        &levity(&["conversations", "list", "--memory", "nowhere"]),
        1,
        "there are no conversations in `nowhere`",
    );
    check(
        &levity(&["conversations", "forget", "--memory", "nowhere"]),
        2,
        "Usage",
    );
    check(&levity(&["conversations"]), 2, "Usage");
}

#[test]
fn conversation_continues_in_another_process() {
    for name in ["chats", "chats.db"] {
        let place = Place::new(name);
        let memory = place.0.to_str().unwrap();
        let script = script(
            "chat-kept.json",
            r#"[{"reply": "One."}, {"reply": "Two."}, {"reply": "Three."}]"#,
        );
        let args = [
            "-q",
            "--script",
            &script,
            "--memory",
            memory,
            "--conversation",
            "monday",
        ];
        assert_eq!(text(&chat(&args, "first\nsecond\n")), "One.\nTwo.\n");
        // The script follows the earlier conversation.
        assert_eq!(text(&chat(&args, "third\n")), "Three.\n");
        let shown = levity(&["conversations", "show", "monday", "--memory", memory]);
        let lines_shown: Vec<String> = text(&shown)
            .lines()
            .map(|line| line[13..].to_owned())
            .collect();
        assert_eq!(
            lines_shown,
            ["first", "One.", "second", "Two.", "third", "Three."]
        );

        let fresh = chat(&["-q", "--script", &script, "--memory", memory], "first\n");
        let errors = String::from_utf8_lossy(&fresh.stderr).into_owned();
        let id = errors
            .trim_end()
            .strip_prefix("levity: conversation ")
            .unwrap();
        assert_eq!((id.len(), text(&fresh)), (32, "One.\n".to_owned()));
        let listed = text(&levity(&["conversations", "list", "--memory", memory]));
        assert!(listed.contains(&format!("{id}  2 messages")), "{listed}");
    }
}

#[test]
fn json_file_of_another_program_is_continued() {
    let place = Place::new("one");
    fs::create_dir(&place.0).unwrap();
    let path = place.0.join("talk.json");
    // Two independent runs have used the same id.
    let call = r#"{"role": "assistant", "parts": [
            {"type": "tool_call", "id": "call", "name": "add", "args": {}}]},
        {"role": "tool", "parts": [
            {"type": "tool_result", "call": "call", "name": "add", "value": 7}]}"#;
    let history = format!(r#"{{"role": "user", "content": "Hi"}}, {call}, {call}"#);
    fs::write(
        &path,
        format!(r#"{{"summary": "They met.", "history": [{history}]}}"#),
    )
    .unwrap();
    let memory = path.to_str().unwrap();
    let output = chat(&["-q", "--memory", memory], "Go on.\n");
    check(&output, 0, "levity: conversation talk\n");
    let shown = text(&levity(&[
        "conversations",
        "show",
        "talk",
        "--memory",
        memory,
    ]));
    assert!(
        shown.starts_with("(a summary of earlier messages: They met.)\n   0  user   Hi\n"),
        "{shown}"
    );
    assert_eq!(shown.lines().count(), 10, "{shown}");

    fs::write(&path, "{").unwrap();
    check(
        &levity(&["conversations", "list", "--memory", memory]),
        1,
        "is damaged and was left unchanged",
    );
    check(
        &chat(&["-q", "--memory", memory], "Go on.\n"),
        1,
        "is damaged and was left unchanged",
    );
    assert_eq!(fs::read(&path).unwrap(), b"{");
}

#[test]
fn resume_of_conversation_run_without_memory_fails() {
    let (runs, store) = (Place::new("talk-runs"), Place::new("talk-memory"));
    let memory = store.0.to_str().unwrap();
    let begin = [
        "run", "Sum.", "--id", "w", "--park", "--ask", "add", "--memory", memory,
    ];
    let parked = runs.levity(&begin);
    check(&parked, 3, "run w is waiting");
    let lines_shown = String::from_utf8_lossy(&parked.stderr).into_owned();
    assert!(
        lines_shown.contains("levity: conversation "),
        "{lines_shown}"
    );
    check(&runs.levity(&["runs", "approve", "w"]), 0, "");
    check(
        &runs.levity(&["runs", "resume", "w"]),
        1,
        "no memory to store conversations in",
    );
    check(
        &runs.levity(&["run", "Sum.", "--id", "w"]),
        1,
        "no memory to store conversations in",
    );

    let done = runs.levity(&["run", "Sum.", "--id", "w", "--memory", memory]);
    check(&done, 0, "A scripted model cannot answer this.");
    assert!(
        !String::from_utf8_lossy(&done.stderr).contains("conversation"),
        "it resumes with its earlier conversation"
    );
    let listed = text(&levity(&["conversations", "list", "--memory", memory]));
    assert!(
        listed.lines().count() == 1 && listed.ends_with("  4 messages\n"),
        "{listed}"
    );
}
