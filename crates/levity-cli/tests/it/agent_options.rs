//! Tests of the options `--planner`, `--reflector`, `--recall`, `--text-tools` and `--debug-log`.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::{check, command, text};

/// Runs the command in a folder that has this script as `s.json`.
fn levity_in(folder: &Path, script: &str, args: &str) -> Output {
    fs::write(folder.join("s.json"), script).unwrap();
    let args: Vec<_> = args.split_whitespace().collect();
    command(&[&args, &["--script", "s.json"][..]].concat())
        .current_dir(folder)
        // Only the name of the variable states that this is a secret.
        .env("OPENAI_API_KEY", "mellow-harbour-lantern")
        .output()
        .unwrap()
}

/// Returns all logged prompts, in order.
fn prompts(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut paths: Vec<_> = paths
        .filter(|path| name(path).ends_with("_prompt.txt") && !name(path).starts_with("latest"))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

const ANSWER: &str = r#"[{"reply": "1. look"}, {"reply": "Done."}]"#;

#[test]
fn planner_asks_model_for_steps_first() {
    let folder = tempfile::tempdir().unwrap();
    check(
        &levity_in(folder.path(), ANSWER, "run x --planner model --debug-log a"),
        0,
        "look",
    );
    let planned = prompts(&folder.path().join("a"));
    assert_eq!(planned.len(), 2);
    assert!(
        planned[0].contains("Before you begin, write a plan"),
        "{}",
        planned[0]
    );
    assert!(planned[1].contains("look"), "{}", planned[1]);
    check(
        &levity_in(folder.path(), ANSWER, "run x --planner off --debug-log b"),
        0,
        "look",
    );
    assert_eq!(prompts(&folder.path().join("b")).len(), 1);
    check(
        &levity_in(folder.path(), ANSWER, "run x --planner maybe"),
        2,
        "model, off",
    );
}

#[test]
fn reflector_asks_model_or_follows_rules() {
    let script = r#"[{"call": {"name": "read_file", "args": {"path": "none"}}},
        {"reply": "Done."}, {"reply": "Done."}]"#;
    for (how, part) in [
        ("model", "Look at the last results against the goal."),
        (
            "rules",
            "List or search the files before you guess another path.",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let space = folder.path().join("space");
        fs::create_dir(&space).unwrap();
        let args = format!("run x --workspace space --reflector {how} --debug-log log");
        check(&levity_in(folder.path(), script, &args), 0, "Done.");
        let prompts = prompts(&folder.path().join("log"));
        assert!(
            prompts.iter().any(|prompt| prompt.contains(part)),
            "{how}: {prompts:#?}"
        );
        let args = "run x --workspace space --reflector off --debug-log off";
        check(&levity_in(folder.path(), script, args), 0, "Done.");
        let without = self::prompts(&folder.path().join("off"));
        assert!(
            !without.iter().any(|prompt| prompt.contains(part)),
            "{how}: {without:#?}"
        );
    }
}

#[test]
fn planner_and_reflector_are_refused_for_team_and_swarm() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--planner=model", "--reflector=rules"] {
        let (name, _) = option.split_once('=').unwrap();
        for kind in ["team", "swarm"] {
            let args = format!("serve mcp --offer {kind} {option}");
            let output = levity_in(folder.path(), "[]", &args);
            check(
                &output,
                2,
                &format!("`{name}` has no effect on a {kind}; remove it"),
            );
        }
    }
}

#[test]
fn answers_are_recalled_by_every_command() {
    let plan = r#"[
        {"reply": "[{\"id\": \"a\", \"agent\": \"Thinker\", \"prompt\": \"Think.\"}]"},
        {"reply": "Seven metres."}]"#;
    let folder = tempfile::tempdir().unwrap();
    let run = r#"[{"reply": "At six."}]"#;
    check(
        &levity_in(folder.path(), run, "run Brest-tides --recall r.db"),
        0,
        "At six.",
    );
    let args = "plan Brest-height --view none --recall r.db --debug-log plan";
    check(&levity_in(folder.path(), plan, args), 0, "Seven metres.");
    let planner = &prompts(&folder.path().join("plan"))[0];
    assert!(
        planner.contains("recalled") && planner.contains("At six."),
        "{planner}"
    );

    let args = "run Brest --recall r.db --debug-log run";
    check(&levity_in(folder.path(), run, args), 0, "At six.");
    let prompt = &prompts(&folder.path().join("run"))[0];
    for part in [
        "Goal: Brest-tides",
        "At six.",
        "Seven metres.",
        "source: plan ",
    ] {
        assert!(prompt.contains(part), "no {part:?} in {prompt}");
    }
    // A run that did not store answers recalls none.
    check(
        &levity_in(folder.path(), run, "run Brest --debug-log none"),
        0,
        "At six.",
    );
    assert!(!prompts(&folder.path().join("none"))[0].contains("Seven metres."));

    fs::write(folder.path().join("text.db"), "no database").unwrap();
    for command in ["run x", "plan x", "chat"] {
        let output = levity_in(folder.path(), run, &format!("{command} --recall text.db"));
        check(&output, 2, "text.db");
    }
}

#[test]
fn chat_stores_and_recalls_answers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.json"), r#"[{"reply": "At six."}]"#).unwrap();
    let chat = |args: &[&str]| {
        let lines = fs::write(folder.path().join("lines"), "When are the tides?\n");
        lines.unwrap();
        let input = fs::File::open(folder.path().join("lines")).unwrap();
        command(
            &[
                &["chat", "-q", "--script", "s.json", "--recall", "r.db"],
                args,
            ]
            .concat(),
        )
        .current_dir(folder.path())
        .stdin(input)
        .output()
        .unwrap()
    };
    check(&chat(&[]), 0, "At six.");
    check(&chat(&["--debug-log", "log"]), 0, "At six.");
    let prompt = &prompts(&folder.path().join("log"))[0];
    assert!(prompt.contains("Goal: When are the tides?"), "{prompt}");
}

#[test]
fn text_tools_describes_tools_in_prompt_and_reads_calls_from_text() {
    let script = r#"[
        {"reply":
            "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 5}}</tool_call>"},
        {"reply": "Seven."}]"#;
    let folder = tempfile::tempdir().unwrap();
    let output = levity_in(folder.path(), script, "run x --text-tools --debug-log log");
    check(&output, 0, "gets   7.0");
    let prompt = &prompts(&folder.path().join("log"))[0];
    assert!(
        prompt.contains("# Tools\n") && prompt.contains("\"name\":\"add\""),
        "{prompt}"
    );
    assert!(!prompt.contains("--- tools ---"), "{prompt}");
    // Without the option, the tools are part of the request.
    let output = levity_in(folder.path(), script, "run x --debug-log plain");
    check(&output, 0, "");
    assert!(prompts(&folder.path().join("plain"))[0].contains("--- tools ---"));
}

#[test]
fn debug_log_is_private_scrubbed_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let args = "run mellow-harbour-lantern --debug-log log";
    check(
        &levity_in(folder.path(), r#"[{"reply": "Hidden."}]"#, args),
        0,
        "Hidden.",
    );
    let log = folder.path().join("log");
    let prompt = fs::read_to_string(log.join("latest_prompt.txt")).unwrap();
    assert!(
        prompt.contains("***") && !prompt.contains("harbour"),
        "{prompt}"
    );
    let reply = fs::read_to_string(log.join("latest_response.txt")).unwrap();
    assert!(reply.contains("Hidden."), "{reply}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            fs::metadata(&log).unwrap().permissions().mode() & 0o777,
            0o700
        );
        for entry in fs::read_dir(&log).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
    fs::write(folder.path().join("file"), "").unwrap();
    let output = levity_in(folder.path(), "[]", "run x --debug-log file/log");
    check(&output, 2, "cannot create `file/log`");
    check(&output, 2, "choose another folder");
}

#[test]
fn debug_log_in_workspace_is_hidden_from_agent() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("log")).unwrap();
    fs::write(folder.path().join("log/latest_prompt.txt"), "private").unwrap();
    let script = r#"[{"call": {"name": "read_file", "args": {"path": "log/latest_prompt.txt"}}},
        {"reply": "Done."}]"#;
    let output = levity_in(folder.path(), script, "run x --workspace . --debug-log log");
    check(&output, 0, "Done.");
    assert!(!text(&output).contains("private") && !text(&output).contains("Be brief"));
}

#[test]
fn client_model_excludes_options_of_own_model() {
    for option in ["--text-tools", "--debug-log=log"] {
        let output = command(&["serve", "mcp", "--client-model", option])
            .output()
            .unwrap();
        check(&output, 2, "cannot be used with");
    }
}
