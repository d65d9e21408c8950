//! Tests of `levity eval` with scripts as subjects.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::complete::server;
use crate::{check, command, levity};

mod package;

/// Answers each case correctly, except those that `WRONG` selects.
const SHOUT: &str = r#"while read -r q; do
    case "$q" in *"$WRONG"*) echo '{"text": "no"}';; *) echo '{"text": "7"}';; esac
done"#;

/// Writes three cases of two categories.
fn cases(folder: &Path) -> PathBuf {
    let case = |id: &str, category: &str| {
        json!({
            "id": id, "category": category,
            "messages": [{"role": "user", "content": format!("Sum {id}?")}],
            "expect": {"kind": "contains", "text": "7"},
        })
    };
    let lines = [case("a-1", "a"), case("a-2", "a"), case("b-1", "b")].map(|case| case.to_string());
    let path = folder.join("sums.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn run(suite: &Path, out: &Path, more: &[&str], script: &str) -> Output {
    let (suite, out) = (suite.to_str().unwrap(), out.to_str().unwrap());
    let mut args = vec!["eval", "run", "--suite", suite, "--out", out];
    args.extend_from_slice(more);
    args.extend_from_slice(&["--", "/bin/sh", "-c", script]);
    levity(&args)
}

fn output_text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn eval_run_shows_progress_and_writes_all_reports() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, out, junit) = (
        cases(folder.path()),
        folder.path().join("out"),
        folder.path().join("mine.xml"),
    );
    let script = SHOUT.replace("$WRONG", "a-2");
    let output = run(
        &suite,
        &out,
        &["--name", "shout", "--junit", junit.to_str().unwrap()],
        &script,
    );
    let (printed, warnings) = output_text(&output);
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    assert!(
        printed.contains("subject shout, suite sums.jsonl, judged by levity"),
        "{printed}"
    );
    assert!(
        warnings.contains("3 of 3 (2 passed, 67%): b-1"),
        "{warnings}"
    );
    let report: Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(
        (
            &report["total"]["passed"],
            &report["categories"]["b"]["passed"]
        ),
        (&json!(2), &json!(1))
    );
    assert_eq!(
        fs::read(&junit).unwrap(),
        fs::read(out.join("junit.xml")).unwrap()
    );

    let quiet = run(&suite, &out, &["--name", "shout", "-q", "--json"], &script);
    let (printed, warnings) = output_text(&quiet);
    assert_eq!(
        (serde_json::from_str::<Value>(&printed).unwrap(), &*warnings),
        (report, "")
    );
    check(
        &run(&suite, &out, &["--name", "other"], &script),
        2,
        "`subject` is \"shout\" in the folder and \"other\" now",
    );
}

#[test]
fn eval_run_continues_after_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, out, open) = (
        cases(folder.path()),
        folder.path().join("out"),
        folder.path().join("open"),
    );
    // The second case waits until a file exists; it ends with its input.
    let script = format!(
        r#"while read -r q; do
            case "$q" in *a-2*) [ -e {} ] || read -r forever;; esac
            echo '{{"text": "7"}}'
        done"#,
        open.display()
    );
    let args = [
        "eval",
        "run",
        "--suite",
        suite.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--",
        "/bin/sh",
        "-c",
        &script,
    ];
    let mut child = command(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("1 of 3"), "{first}");
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(open, "").unwrap();
    let (printed, warnings) = output_text(&levity(&args));
    assert!(
        warnings.contains("already has 1 trials") && !warnings.contains("a-1 in"),
        "{warnings}"
    );
    assert!(
        printed.contains("all            3       3   100.0%"),
        "{printed}"
    );
}

#[test]
fn eval_run_selects_cases_and_stores_errors_as_trials() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases(folder.path());
    for (name, more, expected) in [
        ("odd", &["--odd"][..], "a-2"),
        ("even", &["--even", "--limit", "1"], "a-1 b-1"),
        ("category", &["--categories", "b"], "b-1"),
        ("offset", &["--offset", "1"], "a-2"),
    ] {
        let out = folder.path().join(name);
        let (printed, warnings) = output_text(&run(&suite, &out, more, "exit 1"));
        let trials = fs::read_to_string(out.join("trials.jsonl")).unwrap();
        let ids = trials.lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["case"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        assert_eq!(ids.collect::<Vec<_>>().join(" "), expected, "{warnings}");
        assert!(
            printed.contains("0.0%") && warnings.contains("subject.log"),
            "{printed}{warnings}"
        );
    }
    let out = folder.path().join("out");
    check(
        &run(&suite, &out, &["--offset", "9"], "exit 1"),
        2,
        "no case is selected",
    );
    check(
        &run(&suite, &out, &["--categories", "c"], "exit 1"),
        2,
        "no category `c`",
    );
    check(
        &run(&folder.path().join("none"), &out, &[], "exit 1"),
        2,
        "a suite is `bfcl` or a file",
    );
    check(
        &levity(&[
            "eval", "run", "--suite", "bfcl", "--out", "x", "--model", "m",
        ]),
        2,
        "--data",
    );
    check(
        &levity(&[
            "eval", "run", "--suite", "bfcl", "--data", "x", "--out", "x",
        ]),
        2,
        "--model",
    );
}

#[test]
fn eval_run_runs_model_as_agent_with_journal() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("calls.jsonl");
    let parameters =
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let case = json!({
        "id": "1", "messages": [{"role": "user", "content": "Double 4."}],
        "tools": [{"name": "double", "description": "Doubles.", "parameters": parameters}],
        "expect": {"kind": "calls", "calls": [{"name": "double", "arguments": {"a": [4]}}]},
    });
    fs::write(&suite, case.to_string()).unwrap();
    // The call arrives as text, as small models on a stock server write it.
    let content = json!({"choices": [{"delta": {"content": "{\"name\": \"double\", \"arguments\": \
        {\"a\": 4}}"}, "finish_reason": "stop"}]});
    let (url, asked) = server(
        200,
        "text/event-stream",
        format!("data: {content}\n\ndata: [DONE]\n\n"),
    );
    let (out, model) = (folder.path().join("out"), format!("compatible:m@{url}"));
    let args = [
        "eval",
        "run",
        "--suite",
        suite.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--model",
        &model,
        "--temperature",
        "0",
    ];
    check(&levity(&args), 0, "100.0%");
    let asked = asked.recv().unwrap();
    assert_eq!(
        (
            &asked["temperature"],
            &asked["tools"][0]["function"]["name"]
        ),
        (&json!(0.0), &json!("double"))
    );
    assert!(
        fs::read_dir(out.join("runs")).unwrap().count() > 0,
        "the run is in the journal"
    );
}

#[test]
fn eval_score_warns_if_suite_checker_did_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    fs::create_dir(&data).unwrap();
    let row = json!({
        "id": "irrelevance_0", "question": [[{"role": "user", "content": "Well?"}]],
        "function": [{"name": "f.g", "description": "",
            "parameters": {"type": "dict", "properties": {}}}],
    });
    fs::write(data.join("BFCL_v4_irrelevance.json"), row.to_string()).unwrap();
    let (data, folder) = (data.to_str().unwrap(), out.to_str().unwrap());
    let args = [
        "eval",
        "run",
        "--suite",
        "bfcl",
        "--data",
        data,
        "--categories",
        "irrelevance",
        "--out",
        folder,
        "--python",
        "/nowhere",
    ];
    let script = ["--", "/bin/sh", "-c", SHOUT];
    let (printed, warnings) = output_text(&levity(&[&args[..], &script[..]].concat()));
    assert!(printed.contains("judged by levity"), "{printed}");
    assert!(
        warnings.contains("BFCL's own checker did not score: the judge `/nowhere` cannot be run"),
        "{warnings}"
    );
    check(
        &levity(&[
            "eval", "score", folder, "--python", "/nowhere", "--judge", "bfcl",
        ]),
        1,
        "cannot be run",
    );
    check(
        &levity(&["eval", "score", folder, "--judge", "levity"]),
        0,
        "100.0%",
    );
    check(
        &levity(&["eval", "score", "/nowhere"]),
        2,
        "there are no results",
    );
}

#[test]
fn eval_compare_pairs_two_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, one, two) = (
        cases(folder.path()),
        folder.path().join("one"),
        folder.path().join("two"),
    );
    run(
        &suite,
        &one,
        &["--name", "one"],
        &SHOUT.replace("$WRONG", "nothing"),
    );
    run(
        &suite,
        &two,
        &["--name", "two", "--categories", "a"],
        &SHOUT.replace("$WRONG", "a-"),
    );
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let (printed, warnings) = output_text(&levity(&["eval", "compare", one, two]));
    assert!(
        printed.contains("only the first passed 2, only the second 0, both 0, neither 0"),
        "{printed}{warnings}"
    );
    assert!(
        printed.contains("p = 0.5000") && printed.contains("1 of the first"),
        "{printed}"
    );
    let (printed, _) = output_text(&levity(&["eval", "compare", one, two, "--json"]));
    assert_eq!(
        serde_json::from_str::<Value>(&printed).unwrap()["only_first"],
        json!(["a-1", "a-2"])
    );
    check(
        &levity(&["eval", "compare", one, two, "--categories", "a"]),
        0,
        "p = 0.5000",
    );
    check(
        &levity(&["eval", "compare", one, two, "--categories", "b"]),
        2,
        "no case in common",
    );
    fs::remove_file(Path::new(two).join("scores.jsonl")).unwrap();
    let (_, warnings) = output_text(&levity(&["eval", "compare", one, two]));
    assert!(warnings.contains("trials without a score"), "{warnings}");
    check(
        &levity(&["eval", "compare", one, "/nowhere"]),
        2,
        "there are no results",
    );
}

#[test]
fn eval_fail_under_fails_with_too_few_successes() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, out) = (cases(folder.path()), folder.path().join("out"));
    let script = SHOUT.replace("$WRONG", "a-2");
    check(
        &run(&suite, &out, &["--fail-under", "67"], &script),
        1,
        "success is 66.7%, below 67%",
    );
    let out = out.to_str().unwrap();
    let score = |least: &str| levity(&["eval", "score", out, "--fail-under", least]);
    for (least, code, text) in [
        ("66.6", 0, "66.7%"),
        ("66%", 0, "66.7%"),
        ("0", 0, "66.7%"),
        ("66.7", 1, "below 66.7%"),
        ("100", 1, "below 100%"),
        ("101", 2, "a number from 0 to 100"),
        ("NaN", 2, "a number from 0 to 100"),
        ("most", 2, "a number from 0 to 100"),
    ] {
        check(&score(least), code, text);
    }
    assert!(
        Path::new(out).join("report.json").exists(),
        "the report is written before it fails"
    );
}

#[test]
fn eval_fail_under_passes_at_exact_percentage() {
    // 0.57 * 100.0 is a little less than 57.
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("hundred.jsonl");
    let lines = (0..100).map(|n| {
        let text = if n < 57 { "7" } else { "8" };
        json!({"id": n.to_string(), "messages": [{"role": "user", "content": "?"}],
            "expect": {"kind": "exact", "text": text}})
        .to_string()
    });
    fs::write(&suite, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let (out, script) = (
        folder.path().join("out"),
        SHOUT.replace("$WRONG", "nothing"),
    );
    check(
        &run(&suite, &out, &["--fail-under", "57"], &script),
        0,
        "57.0%",
    );
    check(
        &run(&suite, &out, &["--fail-under", "57.1"], &script),
        1,
        "below 57.1%",
    );
}

/// Answers the multi-turn cases of the package: opens a ticket first, and removes all tickets once
/// it can.
const TICKETS: &str = r#"while read -r q; do
    case "$q" in
        *'"turn":1,'*)
            echo '{"call": {"name": "open_ticket", "arguments": {"title": "TITLE"}}}'
            read -r result;;
        *'"turn":3,'*) echo '{"call": {"name": "clear_tickets", "arguments": {}}}'; read -r result;;
    esac
    echo '{"text": "Done."}'
done"#;

#[test]
fn eval_run_judges_multi_turn_cases_with_suite_checker() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let (data, out) = (data.to_str().unwrap(), folder.path().join("out"));
    let args = |categories: &'static str, out: &'static str| {
        let out = folder.path().join(out).to_str().unwrap().to_owned();
        [
            "eval",
            "run",
            "--suite",
            "bfcl",
            "--data",
            data,
            "--categories",
            categories,
            "--out",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([out])
        .collect::<Vec<_>>()
    };
    let run = |args: &[String], more: &[&str]| {
        let args: Vec<&str> = args
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect();
        levity(&args)
    };
    let script = TICKETS.replace("TITLE", "rain");
    let output = run(
        &args("multi_turn_miss_func", "out"),
        &["--fail-under", "100", "--", "/bin/sh", "-c", &script],
    );
    let (printed, warnings) = output_text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}{warnings}");
    assert!(
        warnings.contains("1 of 1 (not judged yet)") && warnings.contains("judged at the end"),
        "{warnings}"
    );
    assert!(
        printed.contains("judged by bfcl-eval") && printed.contains("100.0%"),
        "{printed}"
    );
    let trials = fs::read_to_string(out.join("trials.jsonl")).unwrap();
    let trial: Value = serde_json::from_str(&trials).unwrap();
    assert_eq!(
        trial["transcript"]["turns"][2]["calls"][0]["name"],
        "clear_tickets"
    );

    // Scores again from the folder, without a model or a subject, and never by checks that levity
    // does not have.
    let out = out.to_str().unwrap();
    check(
        &levity(&["eval", "score", out, "--data", data, "--fail-under", "100"]),
        0,
        "100.0%",
    );
    check(
        &levity(&["eval", "score", out, "--judge", "levity"]),
        2,
        "only the judge of the suite",
    );
    check(
        &levity(&["eval", "score", out, "--python", "/nowhere"]),
        1,
        "levity has no checks",
    );
    fs::remove_file(Path::new(out).join("scores.jsonl")).unwrap();
    check(
        &levity(&["eval", "compare", out, out]),
        2,
        "only the judge of the suite",
    );

    let wrong = TICKETS.replace("TITLE", "sun");
    let output = run(
        &args("multi_turn_miss_func", "wrong"),
        &["--fail-under", "1", "--", "/bin/sh", "-c", &wrong],
    );
    check(&output, 1, "success is 0.0%, below 1%");
    let old =
        r#"while read -r q; do echo '{"calls": [{"name": "open_ticket", "arguments": {}}]}'; done"#;
    let (_, warnings) = output_text(&run(
        &args("multi_turn_base", "old"),
        &["--", "/bin/sh", "-c", old],
    ));
    assert!(
        warnings.contains("must request each with a line"),
        "{warnings}"
    );
    let output = run(
        &args("multi_turn_base", "none"),
        &["--python", "/nowhere", "--", "true"],
    );
    check(&output, 1, "cannot start `/nowhere`");
    assert!(
        !folder.path().join("none").exists(),
        "it fails before it starts"
    );
    let output = run(&args("multi_turn_composite", "none"), &["--", "true"]);
    check(&output, 2, "multi_turn_base, multi_turn_miss_func");
}

#[test]
fn eval_run_executes_tools_that_model_calls() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let (data, out) = (data.to_str().unwrap(), folder.path().join("out"));
    // Each reply has the same call, until the last turn of the agent has no tools.
    let call = json!({"index": 0, "id": "1",
        "function": {"name": "open_ticket", "arguments": "{\"title\": \"f(x)\"}"}});
    let content =
        json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
    let (url, asked) = server(
        200,
        "text/event-stream",
        format!("data: {content}\n\ndata: [DONE]\n\n"),
    );
    let model = format!("compatible:m@{url}");
    let args = [
        "eval",
        "run",
        "--suite",
        "bfcl",
        "--data",
        data,
        "--categories",
        "multi_turn_base",
        "--max-turns",
        "2",
        "--out",
        out.to_str().unwrap(),
        "--model",
        &model,
    ];
    let (printed, warnings) = output_text(&levity(&args));
    assert_eq!(
        asked.recv().unwrap()["tools"][0]["function"]["name"],
        "add",
        "{warnings}"
    );
    assert!(
        printed.contains("judged by bfcl-eval"),
        "{printed}{warnings}"
    );
    let trial: Value =
        serde_json::from_str(&fs::read_to_string(out.join("trials.jsonl")).unwrap()).unwrap();
    assert_eq!(
        trial["transcript"]["turns"][0]["calls"][0]["arguments"]["title"], "f(x)",
        "{trial}"
    );
}

#[test]
fn eval_run_rejects_file_cases_that_it_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("own.jsonl");
    for (field, value) in [
        ("environment", json!({})),
        ("expect", json!({"kind": "judged"})),
    ] {
        let mut case = json!({"id": "1", "messages": [{"role": "user", "content": "?"}],
            "expect": {"kind": "no_calls"}});
        case[field] = value;
        fs::write(&suite, case.to_string()).unwrap();
        check(
            &run(&suite, &folder.path().join("out"), &[], "true"),
            2,
            "only for `--suite bfcl`",
        );
    }
    let turns = json!([{"messages": [{"role": "user", "content": "And now?"}]}]);
    let case = json!({
        "id": "1", "messages": [{"role": "user", "content": "?"}], "turns": turns,
        "expect": {"kind": "contains", "text": "7"},
    });
    fs::write(&suite, case.to_string()).unwrap();
    check(
        &run(
            &suite,
            &folder.path().join("out"),
            &[],
            &SHOUT.replace("$WRONG", "nothing"),
        ),
        0,
        "100.0%",
    );
}
