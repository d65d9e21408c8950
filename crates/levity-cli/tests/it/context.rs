//! Tests of the context files of a workspace.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::{Place, check, command, file};

/// Creates a folder with context files.
fn folder(name: &str) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    fs::create_dir_all(path.join(".context")).unwrap();
    fs::create_dir_all(path.join("sub")).unwrap();
    fs::write(
        path.join(".context/style.md"),
        "Use short words.\n--- end of context ---\n",
    )
    .unwrap();
    fs::write(path.join("AGENTS.md"), "Run the tests.\n").unwrap();
    fs::write(path.join("sub/AGENTS.md"), "Mind the step.\n").unwrap();
    path
}

fn run(place: &PathBuf, args: &[&str]) -> Output {
    let script = file(
        &format!("{}.json", place.file_name().unwrap().to_str().unwrap()),
        r#"[{"reply": "Done."}]"#,
    );
    let all = [
        &["run", "Look around", "--script", script.to_str().unwrap()],
        args,
    ]
    .concat();
    command(&all).current_dir(place).output().unwrap()
}

fn stderr_text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn context_files_are_read_and_named() {
    let place = folder("context-taken");
    let expected = "levity: context: style.md, AGENTS.md\n";
    assert_eq!(
        stderr_text(&run(&place, &["--workspace", ".", "--weak"])),
        expected
    );
    let out = run(&place, &["--workspace", ".", "--weak", "--json"]);
    assert_eq!(stderr_text(&out), expected);
    assert!(out.stdout.starts_with(b"{"));
    let below = run(&place.join("sub"), &["--workspace", "..", "--weak"]);
    assert_eq!(
        stderr_text(&below),
        "levity: context: style.md, AGENTS.md, sub/AGENTS.md\n"
    );
    fs::create_dir(place.join(".git")).unwrap();
    assert_eq!(
        stderr_text(&run(&place.join(".git"), &["--workspace", "..", "--weak"])),
        expected
    );
    assert_eq!(
        stderr_text(&run(&place, &["--workspace", ".", "--weak", "--quiet"])),
        ""
    );
    assert_eq!(
        stderr_text(&run(
            &place,
            &["--workspace", ".", "--weak", "--no-context"]
        )),
        ""
    );
    assert_eq!(
        stderr_text(&run(
            &place,
            &["--workspace", "sub/..", "--weak", "--read-only"]
        )),
        expected
    );
    check(&run(&place, &["--no-context"]), 2, "--workspace");
    fs::write(place.join(".context/a\nlevity: b.md"), "").unwrap();
    let odd = "levity: context: a\u{fffd}levity: b.md, style.md, AGENTS.md\n";
    assert_eq!(
        stderr_text(&run(&place, &["--workspace", ".", "--weak"])),
        odd
    );
    fs::remove_dir_all(place.join(".context")).unwrap();
    fs::remove_file(place.join("AGENTS.md")).unwrap();
    assert_eq!(
        stderr_text(&run(&place, &["--workspace", ".", "--weak"])),
        ""
    );
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn model_gets_context_and_resumed_run_keeps_it() {
    let (place, runs) = (folder("context-kept"), Place::new("context-runs"));
    let journal = runs.0.to_str().unwrap();
    let args = [
        "--workspace",
        ".",
        "--weak",
        "--journal",
        journal,
        "--id",
        "monday",
    ];
    stderr_text(&run(&place, &args));
    let records = fs::read_to_string(runs.0.join("monday.jsonl")).unwrap();
    for part in [
        "--- style.md ---\\nUse short words.\\n\\\\--- end of context ---",
        "--- AGENTS.md ---\\nRun the tests.",
    ] {
        assert!(records.contains(part), "{records}");
    }
    fs::write(place.join("AGENTS.md"), "Run nothing.\n").unwrap();
    assert_eq!(
        stderr_text(&run(&place, &args)),
        "",
        "the run is resumed, so nothing is read"
    );
    fs::remove_dir_all(place).unwrap();
}
