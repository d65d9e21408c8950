//! `levity eval`, with scripts as subjects.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::complete::server;
use crate::{check, command, levity};

/// Answers each case with its own words, but for those that it is told to fail.
const SHOUT: &str = r#"while read -r q; do case "$q" in *"$WRONG"*) echo '{"text": "no"}';; *) echo '{"text": "7"}';; esac; done"#;

/// Three cases of two categories.
fn cases(folder: &Path) -> PathBuf {
    let case = |id: &str, category: &str| {
        json!({
            "id": id, "category": category, "messages": [{"role": "user", "content": format!("Sum {id}?")}],
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

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn eval_run_shows_progress_and_writes_all_reports() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, out, junit) =
        (cases(folder.path()), folder.path().join("out"), folder.path().join("mine.xml"));
    let script = SHOUT.replace("$WRONG", "a-2");
    let output = run(&suite, &out, &["--name", "shout", "--junit", junit.to_str().unwrap()], &script);
    let (printed, noted) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{noted}");
    assert!(printed.contains("subject shout, suite sums.jsonl, judged by levity"), "{printed}");
    assert!(noted.contains("3 of 3 (2 passed, 67%): b-1"), "{noted}");
    let report: Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!((&report["total"]["passed"], &report["categories"]["b"]["passed"]), (&json!(2), &json!(1)));
    assert_eq!(fs::read(&junit).unwrap(), fs::read(out.join("junit.xml")).unwrap());

    let quiet = run(&suite, &out, &["--name", "shout", "-q", "--json"], &script);
    let (printed, noted) = said(&quiet);
    assert_eq!((serde_json::from_str::<Value>(&printed).unwrap(), &*noted), (report, ""));
    check(
        &run(&suite, &out, &["--name", "other"], &script),
        2,
        "`subject` is \"shout\" there and \"other\" here",
    );
}

#[test]
fn eval_run_continues_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, out, open) = (cases(folder.path()), folder.path().join("out"), folder.path().join("open"));
    // The second case waits for ever, until a file is there; it ends with its input.
    let script = format!(
        r#"while read -r q; do case "$q" in *a-2*) [ -e {} ] || read -r forever;; esac; echo '{{"text": "7"}}'; done"#,
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
    let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("1 of 3"), "{first}");
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(open, "").unwrap();
    let (printed, noted) = said(&levity(&args));
    assert!(noted.contains("has 1 trials already") && !noted.contains("a-1 in"), "{noted}");
    assert!(printed.contains("all            3       3   100.0%"), "{printed}");
}

#[test]
fn eval_run_chooses_cases_and_keeps_errors_as_trials() {
    let folder = tempfile::tempdir().unwrap();
    let suite = cases(folder.path());
    for (name, more, expected) in [
        ("odd", &["--odd"][..], "a-2"),
        ("even", &["--even", "--limit", "1"], "a-1 b-1"),
        ("category", &["--categories", "b"], "b-1"),
        ("offset", &["--offset", "1"], "a-2"),
    ] {
        let out = folder.path().join(name);
        let (printed, noted) = said(&run(&suite, &out, more, "exit 1"));
        let trials = fs::read_to_string(out.join("trials.jsonl")).unwrap();
        let ids = trials
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["case"].as_str().unwrap().to_owned());
        assert_eq!(ids.collect::<Vec<_>>().join(" "), expected, "{noted}");
        assert!(printed.contains("0.0%") && noted.contains("subject.log"), "{printed}{noted}");
    }
    let out = folder.path().join("out");
    check(&run(&suite, &out, &["--offset", "9"], "exit 1"), 2, "no case is chosen");
    check(&run(&suite, &out, &["--categories", "c"], "exit 1"), 2, "no category `c`");
    check(&run(&folder.path().join("none"), &out, &[], "exit 1"), 2, "a suite is `bfcl` or a file");
    check(&levity(&["eval", "run", "--suite", "bfcl", "--out", "x", "--model", "m"]), 2, "--data");
    check(&levity(&["eval", "run", "--suite", "bfcl", "--data", "x", "--out", "x"]), 2, "--model");
}

#[test]
fn eval_run_asks_a_model_as_an_agent_with_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("calls.jsonl");
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let case = json!({
        "id": "1", "messages": [{"role": "user", "content": "Double 4."}],
        "tools": [{"name": "double", "description": "Doubles.", "parameters": parameters}],
        "expect": {"kind": "calls", "calls": [{"name": "double", "arguments": {"a": [4]}}]},
    });
    fs::write(&suite, case.to_string()).unwrap();
    // The call comes as text, as small models on a stock server write it.
    let content = json!({"choices": [{"delta": {"content": "{\"name\": \"double\", \"arguments\": {\"a\": 4}}"}, "finish_reason": "stop"}]});
    let (url, asked) = server(200, "text/event-stream", format!("data: {content}\n\ndata: [DONE]\n\n"));
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
        (&asked["temperature"], &asked["tools"][0]["function"]["name"]),
        (&json!(0.0), &json!("double"))
    );
    assert!(fs::read_dir(out.join("runs")).unwrap().count() > 0, "the run is in the journal");
}

#[test]
fn eval_score_says_aloud_that_the_checker_of_the_suite_did_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    fs::create_dir(&data).unwrap();
    let row = json!({
        "id": "irrelevance_0", "question": [[{"role": "user", "content": "Well?"}]],
        "function": [{"name": "f.g", "description": "", "parameters": {"type": "dict", "properties": {}}}],
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
    let (printed, noted) = said(&levity(&[&args[..], &script[..]].concat()));
    assert!(printed.contains("judged by levity"), "{printed}");
    assert!(
        noted.contains("BFCL's own checker did not score: the judge `/nowhere` cannot be run"),
        "{noted}"
    );
    check(&levity(&["eval", "score", folder, "--python", "/nowhere", "--judge", "bfcl"]), 1, "cannot be run");
    check(&levity(&["eval", "score", folder, "--judge", "levity"]), 0, "100.0%");
    check(&levity(&["eval", "score", "/nowhere"]), 2, "there are no results");
}

#[test]
fn eval_compare_pairs_two_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, one, two) = (cases(folder.path()), folder.path().join("one"), folder.path().join("two"));
    run(&suite, &one, &["--name", "one"], &SHOUT.replace("$WRONG", "nothing"));
    run(&suite, &two, &["--name", "two", "--categories", "a"], &SHOUT.replace("$WRONG", "a-"));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let (printed, noted) = said(&levity(&["eval", "compare", one, two]));
    assert!(
        printed.contains("only the first passed 2, only the second 0, both 0, neither 0"),
        "{printed}{noted}"
    );
    assert!(printed.contains("p = 0.5000") && printed.contains("1 of the first"), "{printed}");
    let (printed, _) = said(&levity(&["eval", "compare", one, two, "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["only_first"], json!(["a-1", "a-2"]));
    check(&levity(&["eval", "compare", one, two, "--categories", "a"]), 0, "p = 0.5000");
    check(&levity(&["eval", "compare", one, two, "--categories", "b"]), 2, "no case in common");
    fs::remove_file(Path::new(two).join("scores.jsonl")).unwrap();
    let (_, noted) = said(&levity(&["eval", "compare", one, two]));
    assert!(noted.contains("trials without a score"), "{noted}");
    check(&levity(&["eval", "compare", one, "/nowhere"]), 2, "there are no results");
}

#[test]
fn eval_score_runs_no_program_of_the_working_directory_or_of_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = format!("open({:?}, 'w').close()\n", at("ran").to_str().unwrap());
    // Modules beside the command, and a checker that the results name.
    let package = at("package/bfcl_eval");
    for place in [at("here/bfcl_eval"), package.clone(), package.join("data"), at("out")] {
        fs::create_dir_all(place).unwrap();
    }
    for name in ["json", "types", "importlib", "os", "sitecustomize", "encodings"] {
        fs::write(at("here").join(format!("{name}.py")), &run).unwrap();
    }
    for place in [at("here/bfcl_eval"), package.clone()] {
        fs::write(place.join("__init__.py"), &run).unwrap();
    }
    let row = json!({
        "id": "irrelevance_0", "question": [[{"role": "user", "content": "Well?"}]],
        "function": [{"name": "f.g", "description": "", "parameters": {"type": "dict", "properties": {}}}],
    });
    fs::write(package.join("data/BFCL_v4_irrelevance.json"), row.to_string()).unwrap();
    let (data, out) = (package.join("data"), at("out"));
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    let args =
        ["eval", "run", "--suite", "bfcl", "--data", data, "--categories", "irrelevance", "--out", out];
    check(&levity(&[&args[..], &["--judge", "levity", "--", "/bin/sh", "-c", SHOUT]].concat()), 0, "100.0%");
    for judge in [&["--judge", "bfcl"][..], &[]] {
        let scored =
            command(&[&["eval", "score", out][..], judge].concat()).current_dir(at("here")).output().unwrap();
        assert!(!at("ran").exists(), "a file of the folder ran: {:?}", said(&scored));
    }
}
