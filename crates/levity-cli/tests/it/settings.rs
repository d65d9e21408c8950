//! Tests of `levity init`, `levity trust`, `levity config` and of the settings in `levity.toml`.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::{check, command, text};

/// A folder with these files. Other tests share the state folder, so each folder has its own path.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn levity_in(folder: &Path, args: &[&str]) -> Output {
    command(args).current_dir(folder).output().unwrap()
}

fn with_variables(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = command(args);
    command.current_dir(folder);
    command.envs(variables.iter().copied());
    command.output().unwrap()
}

/// Returns the value and the origin of a setting, as `levity config show` prints them.
fn shown(output: &Output, name: &str) -> (Value, String) {
    let lines = text(output);
    let rows = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = rows.into_iter().find(|row| row["name"] == name);
    assert!(row.is_some(), "no `{name}` in {lines}");
    let row = row.unwrap();
    (
        row["value"].clone(),
        row["origin"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn init_creates_folder_in_which_every_command_works_without_option() {
    let above = folder(&[]);
    for template in ["agent", "team", "swarm", "mcp-server"] {
        let made = levity_in(above.path(), &["init", template, "--template", template]);
        check(&made, 0, "created 2");
        let inside = above.path().join(template);
        let help = levity_in(&inside, &["config", "show"]);
        assert!(!text(&help).contains("not trusted"), "{}", text(&help));
        check(
            &levity_in(&inside, &["run", "What is 2 + 5?"]),
            0,
            "scripted model cannot",
        );
        assert!(inside.join("memory/runs.db").exists());
        assert!(inside.join("memory/conversations.db").exists());
        check(&levity_in(&inside, &["runs", "list"]), 0, "complete");
        check(
            &levity_in(&inside, &["conversations", "list"]),
            0,
            "4 messages",
        );
        check(&levity_in(&inside, &["mcp", "list"]), 2, "names no servers");
        check(
            &levity_in(&inside, &["plan", "Compare the tides"]),
            0,
            "stored as session",
        );
        check(
            &levity_in(&inside, &["sessions", "list"]),
            0,
            "Compare the tides",
        );
        check(&levity_in(&inside, &["swarm", "Compare the tides"]), 0, "");
    }
    assert!(above.path().join("mcp-server/prompts/summary.md").exists());
}

#[test]
fn init_keeps_existing_files_and_rejects_those_that_control_levity() {
    let kept = folder(&[("README.md", "mine\n")]);
    check(&levity_in(kept.path(), &["init"]), 0, "kept `README.md`");
    assert_eq!(
        fs::read_to_string(kept.path().join("README.md")).unwrap(),
        "mine\n"
    );
    for name in [
        "levity.toml",
        "mcp.json",
        "tools/x.py",
        "agents/agent_config.yaml",
        "memory/a",
    ] {
        let used = folder(&[(name, "")]);
        let first = name.split('/').next().unwrap();
        let output = levity_in(used.path(), &["init"]);
        check(
            &output,
            2,
            &format!("{first}` already exists; choose a folder without it"),
        );
        assert_eq!(fs::read_dir(used.path()).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn tools_of_new_folder_work() {
    let above = folder(&[]);
    check(&levity_in(above.path(), &["init", "w"]), 0, "created");
    let inside = above.path().join("w");
    let script = r#"[
        {"calls": [
            {"name": "text_statistics", "args": {"text": "one two\nthree"}},
            {"name": "reverse_words", "args": {"text": "one two three"}},
            {"name": "read_file", "args": {"path": "AGENTS.md"}}
        ]},
        {"reply": "done"}
    ]"#;
    fs::write(above.path().join("script.json"), script).unwrap();
    let output = levity_in(
        &inside,
        &["run", "x", "--script", "../script.json", "--json"],
    );
    check(&output, 0, "three two one");
    let printed = text(&output);
    assert!(
        printed.contains("words") && printed.contains("Rules for agents"),
        "{printed}"
    );
}

#[test]
fn untrusted_settings_are_refused_until_user_trusts_them() {
    let mark = "settings-started";
    let server = format!("touch {mark}");
    let mcp =
        format!(r#"{{"mcpServers": {{"evil": {{"command": "sh", "args": ["-c", "{server}"]}}}}}}"#);
    let clone = folder(&[
        ("levity.toml", "mcp = \"mcp.json\"\nmax-turns = 3\n"),
        ("mcp.json", &mcp),
    ]);
    let started = clone.path().join(mark);
    for args in [
        &["run", "hi"][..],
        &["chat"],
        &["plan", "hi"],
        &["swarm", "hi"],
        &["serve", "http"],
        &["serve", "mcp"],
        &["mcp", "tools"],
    ] {
        let output = levity_in(clone.path(), args);
        check(
            &output,
            2,
            "`levity.toml` in this folder is not trusted and sets `mcp`; run",
        );
        assert!(!started.exists(), "{args:?}");
    }
    check(
        &levity_in(clone.path(), &["run", "hi", "--no-settings"]),
        0,
        "scripted model",
    );
    check(
        &levity_in(clone.path(), &["config", "show"]),
        0,
        "is not trusted",
    );
    let shown = levity_in(clone.path(), &["trust", "--show"]);
    check(&shown, 0, "evil  stdio  sh -c 'touch settings-started'");
    check(&shown, 0, "this folder is not trusted");
    check(&levity_in(clone.path(), &["trust"]), 2, "add `--yes`");
    assert!(!started.exists());
    check(
        &levity_in(clone.path(), &["trust", "--yes"]),
        0,
        "is trusted until",
    );
    assert!(!started.exists());
    levity_in(clone.path(), &["run", "hi"]);
    assert!(started.exists());

    fs::write(
        clone.path().join("mcp.json"),
        mcp.replace("touch", "touch other"),
    )
    .unwrap();
    let output = levity_in(clone.path(), &["run", "hi"]);
    check(
        &output,
        2,
        "since then `mcp.json` was changed; run `levity trust`",
    );
    assert!(!clone.path().join("other").exists());
    fs::write(clone.path().join("mcp.json"), &mcp).unwrap();
    check(&levity_in(clone.path(), &["mcp", "list"]), 0, "evil");
    check(
        &levity_in(clone.path(), &["trust", "--remove"]),
        0,
        "no longer trusted",
    );
    check(
        &levity_in(clone.path(), &["mcp", "list"]),
        2,
        "is not trusted",
    );
}

#[test]
fn every_setting_that_is_not_harmless_needs_trust() {
    for setting in [
        "workspace = \".\"",
        "allow = [\"rm\"]\nworkspace = \".\"",
        "tools = \"tools\"",
        "web = true",
        "script = \"script.json\"",
        "memory = \"m.db\"",
        "journal = \"/tmp/levity-journal\"",
        "logs = \"logs\"",
        "cache = true",
        "model = \"compatible:x@http://127.0.0.1:9/v1\"",
        "model = \"vertex:projects/other/locations/global/x\"",
        "[run]\nworkspace = \".\"",
    ] {
        let clone = folder(&[("levity.toml", setting)]);
        check(
            &levity_in(clone.path(), &["run", "hi"]),
            2,
            "is not trusted and sets",
        );
        let files = fs::read_dir(clone.path()).unwrap().count();
        assert_eq!(files, 1, "{setting}");
    }
    let harmless = "max-turns = 3\nlimit-calls = 5\nthinking = \"off\"\nweb = false\n\
        guard = [\"secrets\"]\ninstructions = \"Be kind.\"\n";
    let clone = folder(&[("levity.toml", harmless)]);
    check(
        &levity_in(clone.path(), &["run", "hi"]),
        0,
        "scripted model",
    );
    check(
        &levity_in(clone.path(), &["trust"]),
        0,
        "no setting in `levity.toml` needs trust",
    );
}

#[test]
fn trusted_folders_of_tools_cover_added_and_linked_files() {
    let clone = folder(&[
        ("levity.toml", "tools = \"tools\"\n"),
        (
            "tools/one.py",
            "def one() -> int:\n    \"\"\"One.\"\"\"\n    return 1\n",
        ),
        (
            "other/two.py",
            "def two() -> int:\n    \"\"\"Two.\"\"\"\n    return 2\n",
        ),
    ]);
    let tools = clone.path().join("tools");
    check(
        &levity_in(clone.path(), &["trust", "--yes"]),
        0,
        "tools/one.py",
    );
    check(
        &levity_in(clone.path(), &["run", "hi"]),
        0,
        "scripted model",
    );
    fs::create_dir(tools.join("deep")).unwrap();
    fs::write(tools.join("deep/three.py"), "").unwrap();
    check(
        &levity_in(clone.path(), &["run", "hi"]),
        2,
        "`tools/deep/three.py` was added",
    );
    fs::remove_dir_all(tools.join("deep")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../other/two.py", tools.join("two.py")).unwrap();
        check(
            &levity_in(clone.path(), &["run", "hi"]),
            2,
            "`tools/two.py` was added",
        );
        fs::remove_file(tools.join("two.py")).unwrap();
    }
    fs::remove_file(tools.join("one.py")).unwrap();
    check(
        &levity_in(clone.path(), &["run", "hi"]),
        2,
        "`tools/one.py` was removed",
    );
    // The agreement belongs to the path of the folder.
    fs::write(tools.join("one.py"), "").unwrap();
    check(
        &levity_in(clone.path(), &["trust", "--yes"]),
        0,
        "is trusted",
    );
    let moved = folder(&[("levity.toml", "tools = \"tools\"\n"), ("tools/one.py", "")]);
    check(
        &levity_in(moved.path(), &["run", "hi"]),
        2,
        "is not trusted",
    );
}

#[test]
fn invalid_settings_name_line_column_and_next_step() {
    for (settings, problem) in [
        (
            "modle = \"x\"\n",
            "line 1, column 1: unknown setting `modle`; did you mean `model`?",
        ),
        (
            "\n\nmax-turnz = 1",
            "line 3, column 1: unknown setting `max-turnz`; did you mean",
        ),
        (
            "max-turns = \"many\"",
            "line 1, column 13: `max-turns`: it is not a whole number",
        ),
        (
            "max-turns = [1]",
            "line 1, column 13: `max-turns`: it has one value; use no list",
        ),
        (
            "web = \"yes\"",
            "line 1, column 7: `web`: use `true` or `false`",
        ),
        (
            "ask = [true]",
            "line 1, column 7: `ask`: use a text in quotes or a number",
        ),
        (
            "thinking = \"loud\"",
            "line 1, column 12: `thinking`: use auto, model, off",
        ),
        (
            "[plan]\nview = \"big\"",
            "line 2, column 8: `view`: it is invalid; use auto, tree",
        ),
        (
            "[run]\nview = \"tree\"",
            "line 2, column 1: `levity run` has no setting `view`; move it to the top of the \
                file, or to a table such as `[plan]`",
        ),
        (
            "[serve.htp]\nlisten = \"x\"",
            "line 1, column 8: unknown setting `htp`; did you mean",
        ),
        ("a = ", "line 1, column 5: "),
        (
            "[run",
            "line 1, column 5: unclosed table, expected `]`; correct this line",
        ),
        (
            "journal = \"\"",
            "line 1, column 11: `journal`: it is empty; set a value, or remove the line",
        ),
        (
            "run = 3",
            "line 1, column 1: `run` is a command; write its settings below a line `[run]`",
        ),
        (
            "[[serve]]",
            "line 1, column 3: `serve` is a command; write its settings below a line `[serve]`",
        ),
        (
            "[profiles.fast]\nmodel = \"a:b\"\n[profiles.slow]\nmodel = \"a:b\"\nmodle = 1",
            "line 5, column 1: `profiles`: unknown field `modle`",
        ),
        (
            "[profiles]\nfast = \"x\"",
            "line 2, column 1: `profiles`: invalid type: string",
        ),
        (
            "[servers.local]\nbase_url = 3",
            "line 2, column 1: `servers`: invalid type: integer, expected a string",
        ),
        (
            "model = \"a\"\nmodel = \"b\"",
            "line 2, column 1: duplicate key",
        ),
        (
            "trust-journal = true",
            "line 1, column 1: unknown setting `trust-journal`",
        ),
        (
            "token-file = \"t\"",
            "line 1, column 1: unknown setting `token-file`",
        ),
    ] {
        let place = folder(&[("levity.toml", settings)]);
        let output = levity_in(place.path(), &["run", "hi"]);
        check(&output, 2, &format!("levity: `levity.toml`, {problem}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error.lines().count(), 1, "{error}");
        check(&levity_in(place.path(), &["run", "--help"]), 0, "Usage");
        check(
            &levity_in(place.path(), &["run", "hi", "--no-settings"]),
            0,
            "scripted",
        );
    }
    // An error in the call itself does not name the file.
    let valid = folder(&[("levity.toml", "max-turns = 3\nquiet = true\n")]);
    let output = levity_in(valid.path(), &["run", "hi", "--modle", "x"]);
    check(&output, 2, "levity: unexpected argument '--modle' found");
    let conflict = folder(&[("levity.toml", "read-only = true\n")]);
    let output = levity_in(conflict.path(), &["run", "hi"]);
    check(
        &output,
        2,
        "levity: `levity.toml`: the following required arguments were not provided",
    );
    let binary = folder(&[("levity.toml", "")]);
    fs::write(binary.path().join("levity.toml"), [0xff, 0xfe]).unwrap();
    check(
        &levity_in(binary.path(), &["run", "hi"]),
        2,
        "it is not UTF-8; save it as UTF-8",
    );
}

#[test]
fn call_wins_over_variable_and_variable_over_file() {
    let settings =
        "max-turns = 3\nthinking = \"low\"\n[chat]\nmax-turns = 4\n[plan]\nmax-turns = 5\n";
    let place = folder(&[("levity.toml", settings)]);
    let show = |command: &str, variables: &[(&str, &str)]| {
        let args = ["config", "show", command, "--json"];
        let output = with_variables(place.path(), &args, variables);
        check(&output, 0, "");
        shown(&output, "max-turns")
    };
    let line = |number: usize| format!("levity.toml, line {number}");
    assert_eq!(show("run", &[]), ("3".into(), line(1)));
    assert_eq!(show("chat", &[]), ("4".into(), line(4)));
    assert_eq!(show("plan", &[]), ("5".into(), line(6)));
    let variable = [("LEVITY_MAX_TURNS", "6")];
    assert_eq!(
        show("plan", &variable),
        ("6".into(), "LEVITY_MAX_TURNS".to_owned())
    );
    assert_eq!(show("swarm", &[]), ("3".into(), line(1)));
    let nowhere = folder(&[]);
    let output = levity_in(nowhere.path(), &["config", "show", "--json"]);
    assert_eq!(shown(&output, "max-turns").1, "default");

    // A limit of no calls shows which value a run has.
    let place = folder(&[("levity.toml", "limit-calls = 0\n")]);
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        with_variables(place.path(), &[&["run", "hi"], args].concat(), variables)
    };
    check(&run(&[], &[]), 1, "limit");
    check(
        &run(&[], &[("LEVITY_LIMIT_CALLS", "9")]),
        0,
        "scripted model",
    );
    check(
        &run(&["--limit-calls", "9"], &[("LEVITY_LIMIT_CALLS", "0")]),
        0,
        "scripted model",
    );
    check(&run(&["--limit-calls=9"], &[]), 0, "scripted model");
}

#[test]
fn flag_of_file_can_be_switched_off_in_call() {
    let place = folder(&[("levity.toml", "quiet = true\n")]);
    let run = |args: &[&str]| {
        text(&levity_in(
            place.path(),
            &[&["run", "What is 2 + 5?"], args].concat(),
        ))
    };
    assert!(!run(&[]).contains("calls  add"));
    assert!(!run(&["-q"]).contains("calls  add"));
    assert!(run(&["--quiet=false"]).contains("calls  add"));
    assert!(!run(&["--quiet=true"]).contains("calls  add"));
    // `--json` excludes `--quiet`, and the call wins.
    assert!(run(&["--json"]).contains("\"add\""));
}

#[test]
fn invalid_variables_are_reported() {
    let place = folder(&[]);
    for (variable, value, problem) in [
        (
            "LEVITY_MAX_TURNS",
            "many",
            "`LEVITY_MAX_TURNS`: it is not a whole number",
        ),
        (
            "LEVITY_WEB",
            "perhaps",
            "`LEVITY_WEB` is `perhaps`; use `true` or `false`",
        ),
        ("LEVITY_TOOLS", "tools", "`LEVITY_TOOLS` is a relative path"),
        (
            "LEVITY_SCRIPT",
            "script.json",
            "`LEVITY_SCRIPT` is a relative path",
        ),
    ] {
        let output = with_variables(place.path(), &["run", "hi"], &[(variable, value)]);
        check(&output, 2, problem);
    }
}

#[test]
fn list_in_call_replaces_list_of_file() {
    let place = folder(&[("levity.toml", "guard = [\"answer:1\", \"secrets\"]\n")]);
    check(&levity_in(place.path(), &["run", "hi"]), 1, "answer");
    check(
        &levity_in(place.path(), &["run", "hi", "--guard", "secrets"]),
        0,
        "scripted model",
    );
}

#[test]
fn settings_of_other_kinds_do_not_hinder_resume() {
    let above = folder(&[]);
    check(&levity_in(above.path(), &["init", "w"]), 0, "created");
    let inside = above.path().join("w");
    let journal = ["--journal", "memory/runs.db"];
    let started = levity_in(&inside, &["swarm", "Compare the tides", "--id", "tides"]);
    check(&started, 0, "");
    // `memory` and `agents` have no effect on a swarm.
    let resumed = levity_in(
        &inside,
        &[&["runs", "resume", "tides"], &journal[..]].concat(),
    );
    check(&resumed, 0, "");
    let typed = ["runs", "resume", "tides", "--instructions", "x"];
    check(
        &levity_in(&inside, &typed),
        2,
        "`--instructions` has no effect on a swarm",
    );
}

#[test]
fn schema_describes_file_of_template() {
    let output = levity_in(folder(&[]).path(), &["config", "schema"]);
    check(&output, 0, "");
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let published = include_str!("../fixtures/levity.schema.json");
    let published: Value = serde_json::from_str(published).unwrap();
    assert_eq!(
        schema, published,
        "run `levity config schema > docs/levity.schema.json`"
    );
    let template = include_str!("../../templates/folder/levity.toml");
    let template = template.replace("{{prompts}}", "prompts = \"prompts\"\n");
    let names = template.lines().filter_map(|line| line.split_once(" = "));
    for (name, _) in names {
        let name = name.trim_start_matches("# ");
        let found = &schema["properties"][name];
        let of_plan = &schema["properties"]["plan"]["properties"][name];
        assert!(found.is_object() || of_plan.is_object(), "{name}");
    }
    assert_eq!(schema["properties"]["web"]["type"], "boolean");
    assert!(
        schema["properties"]["serve"]["properties"]["http"]["properties"]["listen"].is_object()
    );
}

#[cfg(unix)]
#[test]
fn levity_without_arguments_opens_conversation() {
    use std::io::Write as _;
    use std::process::Stdio;

    let above = folder(&[]);
    check(&levity_in(above.path(), &["init", "w"]), 0, "created");
    for place in [above.path().join("w"), above.path().to_owned()] {
        let mut child = command(&[])
            .current_dir(&place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
        check(
            &child.wait_with_output().unwrap(),
            0,
            "scripted model cannot answer",
        );
    }
    assert!(above.path().join("w/memory/conversations.db").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn trust_asks_on_terminal() {
    use crate::plan_terminal::Terminal;

    let clone = folder(&[("levity.toml", "workspace = \".\"\n")]);
    for (typed, state) in [
        (&b"n\n"[..], "nothing was changed"),
        (b"y\n", "is trusted until"),
    ] {
        let mut terminal = Terminal::in_folder(clone.path(), &["trust"], b"");
        terminal.until("Trust these settings? [y/N]");
        std::io::Write::write_all(&mut terminal.ours, typed).unwrap();
        terminal.until(state);
        terminal.child.wait().unwrap();
    }
    let mut terminal = Terminal::in_folder(clone.path(), &[], b"");
    terminal.until("> ");
    std::io::Write::write_all(&mut terminal.ours, b"hello\n").unwrap();
    terminal.until("scripted model cannot answer");
    std::io::Write::write_all(&mut terminal.ours, b"\x04").unwrap();
    assert!(terminal.child.wait().unwrap().success());
}

#[test]
fn agent_cannot_change_settings_of_its_folder() {
    let above = folder(&[]);
    check(&levity_in(above.path(), &["init", "w"]), 0, "created");
    let inside = above.path().join("w");
    let before = fs::read_to_string(inside.join("levity.toml")).unwrap();
    let script = r#"[
        {"calls": [
            {"name": "write_file", "args": {"path": "levity.toml", "content": "weak = true"}},
            {"name": "write_file", "args": {"path": "tools/new.py", "content": "x"}},
            {"name": "write_file", "args": {"path": "mcp.json", "content": "{}"}},
            {"name": "write_file", "args": {"path": "agents/prompts/qa.md", "content": "x"}}
        ]},
        {"reply": "done"}
    ]"#;
    fs::write(above.path().join("script.json"), script).unwrap();
    let output = levity_in(&inside, &["run", "x", "--script", "../script.json"]);
    check(&output, 0, "done");
    assert_eq!(
        fs::read_to_string(inside.join("levity.toml")).unwrap(),
        before
    );
    assert!(!inside.join("tools/new.py").exists());
    check(&levity_in(&inside, &["run", "hi"]), 0, "scripted model");
}

#[cfg(target_os = "linux")]
#[test]
fn files_with_ambiguous_names_cannot_be_trusted() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let clone = folder(&[
        ("levity.toml", "tools = \"tools\"\n"),
        ("tools/x\u{fffd}.py", ""),
    ]);
    let other = clone
        .path()
        .join("tools")
        .join(OsStr::from_bytes(b"x\xff.py"));
    fs::write(other, "").unwrap();
    let output = levity_in(clone.path(), &["trust", "--yes"]);
    check(&output, 2, "is not UTF-8, so it cannot be checked; rename");
    check(&levity_in(clone.path(), &["run", "hi"]), 2, "is not UTF-8");
}

#[cfg(unix)]
#[test]
fn init_does_not_write_through_links() {
    for (link, template) in [(".context", "agent"), (".github", "rust")] {
        let place = folder(&[("inside/x", ""), ("outside/x", "")]);
        let inside = place.path().join("inside");
        std::os::unix::fs::symlink("../outside", inside.join(link)).unwrap();
        let output = levity_in(&inside, &["init", "--template", template]);
        check(
            &output,
            2,
            "is a link, and levity writes through none; remove it",
        );
        assert_eq!(
            fs::read_dir(place.path().join("outside")).unwrap().count(),
            1
        );
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 2);
    }
}

#[test]
fn changed_settings_name_the_file_first_and_files_that_they_name_no_longer() {
    let above = folder(&[]);
    check(&levity_in(above.path(), &["init", "w"]), 0, "created");
    let inside = above.path().join("w");
    fs::write(inside.join("levity.toml"), "workspace = \".\"\n").unwrap();
    let output = levity_in(&inside, &["run", "hi"]);
    check(
        &output,
        2,
        "since then `levity.toml` was changed, `agents/agent_config.yaml` is no longer named",
    );
    fs::remove_dir_all(inside.join("agents")).unwrap();
    let part = "`agents/agent_config.yaml` was removed";
    check(&levity_in(&inside, &["run", "hi"]), 2, part);
}

#[test]
fn unknown_model_of_settings_names_the_file() {
    let place = folder(&[("levity.toml", "model = \"nobody:small\"\n")]);
    let part = "(set by `model` in `levity.toml`)";
    check(&levity_in(place.path(), &["run", "hi"]), 2, part);
    let call = ["run", "hi", "--model", "nobody:small"];
    let output = levity_in(place.path(), &call);
    check(&output, 2, "there is no provider `nobody`");
    assert!(!format!("{output:?}").contains("set by"), "{output:?}");
}

#[test]
fn model_of_settings_is_named_even_with_quiet() {
    let settings = "model = \"deepseek:deepseek-chat\"\nquiet = true\nlimit-calls = 0\n";
    let clone = folder(&[("levity.toml", settings)]);
    let key = [("DEEPSEEK_API_KEY", "sk-0123456789")];
    let notice = "the model is `deepseek:deepseek-chat`, set by `model` in `levity.toml`";
    // No call is allowed, so nothing is sent.
    check(
        &with_variables(clone.path(), &["run", "hi"], &key),
        1,
        notice,
    );
    let typed = ["run", "hi", "--model", "deepseek:deepseek-chat"];
    let output = with_variables(clone.path(), &typed, &key);
    assert!(!format!("{output:?}").contains(notice), "{output:?}");
}

#[test]
fn profiles_of_file_name_models_once_trusted() {
    let settings = "[profiles.fast]\nmodel = \"local:small\"\n\n[servers.local]\n\
        base_url = \"http://127.0.0.1:9/v1\"\ndefault = \"small\"\n";
    let folder = folder(&[("levity.toml", settings)]);
    // No call is made, so a model that is found ends in the limit.
    let args = ["run", "hi", "--model", "fast", "--limit-calls", "0"];
    let refused = levity_in(folder.path(), &args);
    check(&refused, 2, "not trusted and sets `profiles`, `servers`");
    check(
        &levity_in(folder.path(), &["trust", "--yes"]),
        0,
        "levity.toml",
    );
    check(&levity_in(folder.path(), &args), 1, "limit");
    let unknown = ["run", "hi", "--model", "fsat", "--limit-calls", "0"];
    check(&levity_in(folder.path(), &unknown), 2, "fsat");
    check(&levity_in(folder.path(), &["runs", "list"]), 1, "journal");

    fs::write(
        folder.path().join("levity.toml"),
        "max-turns = 3\n[profiles.fast]\nmodle = \"x\"\n",
    )
    .unwrap();
    let wrong = levity_in(folder.path(), &args);
    check(&wrong, 2, "`levity.toml`, line 3, column 1: `profiles`: ");
    check(&wrong, 2, "modle");
}
