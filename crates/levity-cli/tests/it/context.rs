//! What a workspace says about itself.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::{Place, check, command, file};

/// A folder that says how things are done in it.
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

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn files_of_the_workspace_are_taken_and_named() {
    let place = folder("context-taken");
    let taken = "levity: context: style.md, AGENTS.md\n";
    assert_eq!(said(&run(&place, &["--workspace", ".", "--weak"])), taken);
    let out = run(&place, &["--workspace", ".", "--weak", "--json"]);
    assert_eq!(said(&out), taken);
    assert!(out.stdout.starts_with(b"{"));
    let below = run(&place.join("sub"), &["--workspace", "..", "--weak"]);
    assert_eq!(
        said(&below),
        "levity: context: style.md, AGENTS.md, sub/AGENTS.md\n"
    );
    fs::create_dir(place.join(".git")).unwrap();
    assert_eq!(
        said(&run(&place.join(".git"), &["--workspace", "..", "--weak"])),
        taken
    );
    assert_eq!(
        said(&run(&place, &["--workspace", ".", "--weak", "--quiet"])),
        ""
    );
    assert_eq!(
        said(&run(
            &place,
            &["--workspace", ".", "--weak", "--no-context"]
        )),
        ""
    );
    assert_eq!(
        said(&run(
            &place,
            &["--workspace", "sub/..", "--weak", "--read-only"]
        )),
        taken
    );
    check(&run(&place, &["--no-context"]), 2, "--workspace");
    fs::write(place.join(".context/a\nlevity: b.md"), "").unwrap();
    let odd = "levity: context: a\u{fffd}levity: b.md, style.md, AGENTS.md\n";
    assert_eq!(said(&run(&place, &["--workspace", ".", "--weak"])), odd);
    fs::remove_dir_all(place.join(".context")).unwrap();
    fs::remove_file(place.join("AGENTS.md")).unwrap();
    assert_eq!(said(&run(&place, &["--workspace", ".", "--weak"])), "");
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn the_model_gets_them_and_a_run_that_goes_on_keeps_what_it_had() {
    let (place, kept) = (folder("context-kept"), Place::new("context-runs"));
    let journal = kept.0.to_str().unwrap();
    let args = [
        "--workspace",
        ".",
        "--weak",
        "--journal",
        journal,
        "--id",
        "monday",
    ];
    said(&run(&place, &args));
    let records = fs::read_to_string(kept.0.join("monday.jsonl")).unwrap();
    for part in [
        "--- style.md ---\\nUse short words.\\n\\\\--- end of context ---",
        "--- AGENTS.md ---\\nRun the tests.",
    ] {
        assert!(records.contains(part), "{records}");
    }
    fs::write(place.join("AGENTS.md"), "Run nothing.\n").unwrap();
    assert_eq!(
        said(&run(&place, &args)),
        "",
        "it is gone on with, so nothing is read"
    );
    fs::remove_dir_all(place).unwrap();
}
