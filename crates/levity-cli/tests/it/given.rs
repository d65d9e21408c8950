//! Tests of `--image` and `--file`: what reaches the model, and which calls are refused.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::{check, command, text};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nxx";

/// A plan with one step, and the answer of that step.
const PLAN: &str = r#"[
    {"reply": "[{\"id\": \"think\", \"agent\": \"Thinker\", \"prompt\": \"Think.\"}]"},
    {"reply": "At six."}]"#;

/// Returns a folder with an image, a table, and a script.
fn folder(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // The name does not state the type.
    fs::write(folder.path().join("chart.dat"), PNG).unwrap();
    fs::write(folder.path().join("tides.csv"), "time,metres\n06:00,4.1\n").unwrap();
    fs::write(folder.path().join("s.json"), script).unwrap();
    folder
}

/// Runs the command in a folder, with the script, these arguments and these lines as its input.
fn levity_in(folder: &Path, args: &str, lines: &str) -> Output {
    let args: Vec<_> = args.split_whitespace().collect();
    let mut child = command(&args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that has ended early does not read its input.
    let _ = stdin.write_all(lines.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Returns the names of the logged prompts without times, each with its text, in order.
fn prompts(folder: &Path) -> Vec<(String, String)> {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = names
        .filter_map(|path| {
            let name = path
                .file_name()?
                .to_str()?
                .strip_suffix("_prompt.txt")?
                .to_owned();
            let (_, name) = name.split_once('_')?;
            Some((name.to_owned(), fs::read_to_string(&path).ok()?))
        })
        .collect();
    all.sort();
    all
}

/// Returns the text of the logged prompt with this name.
#[track_caller]
fn prompt<'a>(prompts: &'a [(String, String)], name: &str) -> &'a str {
    let found = prompts.iter().find(|(known, _)| known == name);
    let names: Vec<_> = prompts.iter().map(|(name, _)| name).collect();
    assert!(found.is_some(), "no `{name}` in {names:?}");
    &found.unwrap().1
}

const GIVEN: &str = "--image chart.dat --file tides.csv --debug-log log";

#[test]
fn run_gives_image_and_profile_to_model_and_file_to_its_tool() {
    let folder = folder(
        r#"[{"call": {"name": "read_given_file", "args": {"file": "tides.csv"}}},
            {"reply": "At six."}]"#,
    );
    let args = format!("run When? --script s.json {GIVEN} --journal j --id a");
    check(&levity_in(folder.path(), &args, ""), 0, "06:00,4.1");
    let prompts = prompts(&folder.path().join("log"));
    let first = prompt(&prompts, "00000_agent");
    for part in [
        "When?\n\nFiles that were given.",
        "- tides.csv: CSV, 22 B, 1 row, 2 columns",
        "Read them with `read_given_file`.",
        "[image/png, 10 bytes]",
    ] {
        assert!(first.contains(part), "no {part:?} in {first}");
    }

    // The same call gives the stored answer again, and another goal is refused on one line.
    check(&levity_in(folder.path(), &args, ""), 0, "At six.");
    let other = levity_in(folder.path(), &args.replace("When?", "Why?"), "");
    check(
        &other,
        2,
        "run `a` already exists, and its goal is `When? Files that were given.",
    );
    assert_eq!(
        String::from_utf8_lossy(&other.stderr)
            .trim()
            .lines()
            .count(),
        1
    );
    let without = levity_in(
        folder.path(),
        "run When? --script s.json --journal j --id a",
        "",
    );
    check(&without, 2, "run `a` already exists");
}

#[test]
fn resumed_run_reads_file_again() {
    let read = r#"{"call": {"name": "read_given_file", "args": {"file": "tides.csv"}}}"#;
    let first = r#"{"call": {"name": "ask_user", "args": {"question": "Which?"}}}"#;
    let reply = r#"{"reply": "At six."}"#;
    let script = format!("[{first}, {read}, {reply}]");
    let folder = folder(&script);
    let parked = "run When? --script s.json --journal j --id a --park --file tides.csv";
    check(&levity_in(folder.path(), parked, ""), 3, "Which?");
    let answer = "runs answer a --journal j --text high";
    check(&levity_in(folder.path(), answer, ""), 0, "");
    let resume = "runs resume a --journal j --script s.json --json --file tides.csv";
    check(&levity_in(folder.path(), resume, ""), 0, "06:00,4.1");
    let missing = resume.replace("tides.csv", "no.csv");
    check(&levity_in(folder.path(), &missing, ""), 2, "no.csv");
}

#[test]
fn chat_gives_image_and_file_with_first_line_only() {
    let folder = folder(r#"[{"reply": "At six."}, {"reply": "Sure."}]"#);
    let args = format!("chat -q --script s.json {GIVEN}");
    let output = levity_in(folder.path(), &args, "When?\nSure?\n");
    check(&output, 0, "");
    assert_eq!(text(&output), "At six.\nSure.\n");
    let prompts = prompts(&folder.path().join("log"));
    for name in ["00000_agent", "00001_agent"] {
        let text = prompt(&prompts, name);
        assert_eq!(text.matches("[image/png, 10 bytes]").count(), 1, "{text}");
        assert_eq!(text.matches("1 row, 2 columns").count(), 1, "{text}");
    }
    assert!(prompt(&prompts, "00001_agent").ends_with("--- user ---\nSure?\n"));
}

#[test]
fn plan_and_team_give_image_to_planner_and_to_steps() {
    for (args, lines) in [
        ("plan When? --view none", ""),
        ("team --view none", "When?\n"),
    ] {
        let folder = folder(PLAN);
        let args = format!("{args} --script s.json --image chart.dat --debug-log log");
        check(&levity_in(folder.path(), &args, lines), 0, "At six.");
        let prompts = prompts(&folder.path().join("log"));
        let planner = prompt(&prompts, "00000_Planner");
        assert!(planner.contains("[image/png, 10 bytes]"), "{planner}");
        let step = prompt(&prompts, "00001_Thinker-think");
        assert!(step.contains("[image/png, 10 bytes]"), "{step}");
    }
}

#[test]
fn swarm_gives_image_and_file_to_router_and_workers() {
    let folder = folder(
        r#"[{"reply": "[{\"id\": \"find\", \"worker\": \"researcher\", \"task\": \"Find.\"}]"},
            {"call": {"name": "read_given_file", "args": {"file": "tides.csv"}}},
            {"reply": "At six."}, {"reply": "At six, says the researcher."}]"#,
    );
    let args = format!("swarm When? --script s.json {GIVEN} --json");
    let output = levity_in(folder.path(), &args, "");
    check(&output, 0, "");
    let answer: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(answer["stats"]["tool_calls"], 1);
    let prompts = prompts(&folder.path().join("log"));
    for name in ["00000_router", "00001_researcher-find"] {
        let text = prompt(&prompts, name);
        assert!(text.contains("[image/png, 10 bytes]"), "{text}");
        assert!(text.contains("1 row, 2 columns"), "{text}");
    }
    assert!(prompt(&prompts, "00002_researcher-find").contains("06:00,4.1"));
}

#[test]
fn image_for_model_that_cannot_see_is_refused_before_any_call() {
    let folder = folder("[]");
    // Nothing listens at this address, so a call would be another error.
    let model = "--model ollama:m@http://127.0.0.1:9 --image chart.dat";
    for command in ["run x", "chat", "plan x", "team", "swarm x"] {
        let output = levity_in(folder.path(), &format!("{command} {model}"), "hi\n");
        check(
            &output,
            2,
            "the model `m` of `ollama` is not known to accept images; choose another",
        );
    }
    let output = levity_in(folder.path(), "run x --image chart.dat", "");
    check(&output, 2, "is not known to accept images");
}

#[test]
fn file_that_is_no_image_is_refused_with_way_out() {
    let folder = folder("[]");
    let large = fs::File::create(folder.path().join("large.png")).unwrap();
    large.set_len((10 << 20) + 1).unwrap();
    for command in ["run x", "chat", "plan x", "team", "swarm x"] {
        for (path, part) in [
            (
                "tides.csv",
                "`tides.csv` is not a PNG, JPEG, GIF or WebP image; convert it",
            ),
            ("none.png", "cannot read the image `none.png`"),
            (".", "it is not a regular file"),
            ("large.png", "it is larger than 10 MiB"),
        ] {
            let args = format!("{command} --script s.json --image {path}");
            check(&levity_in(folder.path(), &args, "hi\n"), 2, part);
        }
        let args = format!("{command} --script s.json --file none.csv");
        check(
            &levity_in(folder.path(), &args, "hi\n"),
            2,
            "`none.csv` does not exist",
        );
    }
}
