//! Tests that tools of a workspace cannot reach levity's own files.

use std::fs;
#[cfg(target_os = "linux")]
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Command;
use std::process::Output;

use super::Folder;
use crate::{check, command};

#[test]
fn workspace_tools_cannot_reach_own_files_of_levity() {
    let steps = r#"[
        {"calls": [
            {"name": "read_file", "args": {"path": "runs/r1.jsonl"}},
            {"name": "write_file", "args": {"path": "runs/r1.jsonl", "content": "forged"}},
            {"name": "write_file", "args": {"path": "sub/../runs/r2.jsonl", "content": "forged"}},
            {"name": "write_file", "args": {"path": "RUNS/r2.jsonl", "content": "forged"}},
            {"name": "read_file", "args": {"path": "talks[1].db"}},
            {"name": "read_file", "args": {"path": "talks[1].db-wal"}},
            {"name": "read_file", "args": {"path": "logs/x"}},
            {"name": "write_file", "args": {"path": "talks[1].db-journal", "content": "forged"}},
            {"name": "read_file", "args": {"path": "home/.local/state/levity/tokens"}},
            {"name": "read_file", "args": {"path": "servers.json"}},
            {"name": "write_file", "args": {"path": "servers.json", "content": "forged"}},
            {"name": "read_file", "args": {"path": "plain.txt"}}
        ]},
        {"reply": "Done."}
    ]"#;
    let servers = r#"{"mcpServers": {"nobody": {"url": "http://127.0.0.1:1/mcp",
        "headers": {"X-Key": "secret"}}}}"#;
    let files = [
        ("servers.json", servers),
        ("plain.txt", "plain"),
        ("sub/x", ""),
        ("talks[1].db-wal", "said"),
        ("logs/x", "said"),
        ("home/.local/state/levity/tokens", "secret"),
        ("s.json", steps),
    ];
    let folder = Folder::new(&files);
    let args = [
        "run",
        "Go",
        "--script",
        "s.json",
        "--workspace",
        ".",
        "--journal",
        "runs",
        "--id",
        "r1",
        "--memory",
        "talks[1].db",
        "--logs",
        "./sub/../logs",
        "--mcp",
        "servers.json",
        "--mcp-wait",
        "0",
        "--json",
    ];
    let home = folder.path().join("home");
    let output = command(&args)
        .current_dir(folder.path())
        .env("HOME", home)
        .env_remove("XDG_STATE_HOME")
        .output()
        .unwrap();
    check(&output, 0, "");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let results: Vec<String> = events
        .iter()
        .filter(|event| event["kind"]["tool_finished"].is_object())
        .map(ToString::to_string)
        .collect();
    assert_eq!(results.len(), 12, "{told}");
    let denied = results
        .iter()
        .filter(|result| result.contains("is denied to tools"))
        .count();
    assert_eq!(denied, 11, "{results:#?}");
    let journal = fs::read_to_string(folder.path().join("runs/r1.jsonl")).unwrap();
    assert!(!journal.starts_with("forged"), "{journal}");
    assert!(!folder.path().join("runs/r2.jsonl").exists());

    // A folder that contains the workspace cannot be hidden from its tools.
    let inside = command(&[
        "run",
        "Go",
        "--script",
        "../s.json",
        "--workspace",
        ".",
        "--journal",
        "..",
    ]);
    let output = { inside }
        .current_dir(folder.path().join("sub"))
        .output()
        .unwrap();
    check(&output, 2, "`--journal ..` contains the workspace `.`");
}

/// Returns the results of a run's tools, as JSON.
fn tool_results(output: &Output) -> Vec<String> {
    let told = String::from_utf8_lossy(&output.stdout);
    let events = told
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events
        .filter(|event| event["kind"]["tool_finished"].is_object())
        .map(|event| event["kind"]["tool_finished"].to_string())
        .collect()
}

#[test]
fn workspace_tools_cannot_reach_named_settings_files() {
    let writes = |paths: &[&str]| {
        let call = |path: &&str| {
            serde_json::json!({"name": "write_file",
            "args": {"path": path, "content": "forged"}})
        };
        let mut calls: Vec<_> = paths.iter().map(call).collect();
        calls.push(serde_json::json!({"name": "write_file",
                "args": {"path": "plain.txt", "content": "new"}}));
        serde_json::json!([{"calls": calls}, {"reply": "Done."}]).to_string()
    };
    let paths = [
        "script.json",
        "SCRIPT.json",
        "sub/../script.json",
        "tools/evil.py",
        "tools/.py",
        "tools/deep/evil.py",
        "servers/mcp.json",
        "models.json",
    ];
    let script = writes(&paths);
    let files = [
        ("script.json", &*script),
        ("tools/good.py", ""),
        ("sub/x", ""),
        ("plain.txt", "old"),
        ("servers/mcp.json", r#"{"mcpServers": {}}"#),
        ("models.json", "{}"),
    ];
    let folder = Folder::new(&files);
    let args = [
        "run",
        "Go",
        "--script",
        "script.json",
        "--workspace",
        ".",
        "--tools",
        "tools",
        "--json",
    ];
    let output = command(&args)
        .current_dir(folder.path())
        .env("LEVITY_MCP_SERVERS", folder.path().join("servers/mcp.json"))
        .env("LEVITY_MODELS", folder.path().join("models.json"))
        .output()
        .unwrap();
    check(&output, 0, "");
    let results = tool_results(&output);
    assert_eq!(results.len(), paths.len() + 1, "{output:?}");
    for (path, result) in paths.iter().zip(&results) {
        assert!(result.contains("is denied to tools"), "{path}: {result}");
    }
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(
        (text("plain.txt"), text("script.json") == script),
        ("new".into(), true),
        "{results:#?}"
    );
    assert!(
        !folder.path().join("tools/evil.py").exists() && !folder.path().join("tools/deep").exists()
    );
    assert_eq!(text("models.json"), "{}");

    for (option, value) in [("--tools", "."), ("--tools", "..")] {
        let args = [
            "run",
            "Go",
            "--script",
            "../script.json",
            "--workspace",
            ".",
            option,
            value,
        ];
        let output = command(&args)
            .current_dir(folder.path().join("sub"))
            .output()
            .unwrap();
        check(
            &output,
            2,
            &format!("`{option} {value}` contains the workspace `.`"),
        );
    }
}

#[cfg(unix)]
#[test]
fn workspace_tools_cannot_reach_unusual_names_and_neighbors() {
    let write = |path: &&str| {
        serde_json::json!({"name": "write_file",
        "args": {"path": path, "content": "forged"}})
    };
    let list = |path: &&str| serde_json::json!({"name": "list_files", "args": {"path": path}});
    let read = |path: &&str| serde_json::json!({"name": "read_file", "args": {"path": path}});
    let open = [
        "talk.json.newer",
        ".talk.json",
        "talk.new",
        "mcp",
        "mcp:y.json",
        "sub/talk.part",
        "tokens.part.txt",
    ];
    let kept = [
        "mcp:x.json",
        "MCP:X.json",
        "sub/talk.json",
        "sub/.talk.json.new",
        "sub/.TALK.json.new",
        "sub/.talk.json.new. ",
        "sub/.talk.json.levity/lock-00",
        "sub/.talk.json.levity/owners/x",
        "sub/talk.json.0123456789abcdef.part",
        "mcp:x.json.0123456789abcdef.part",
        ".mcp:x.json.new",
        "tools. /evil.py",
    ];
    let mut calls: Vec<_> = kept
        .iter()
        .map(write)
        .chain(kept.iter().map(read))
        .collect();
    calls.push(list(&"sub/.talk.json.levity"));
    let denied = calls.len();
    calls.extend(open.iter().map(write));
    calls.push(list(&"sub"));
    let script = serde_json::json!([{"calls": calls}, {"reply": "Done."}]).to_string();
    let servers = r#"{"mcpServers": {"nobody": {"url": "http://127.0.0.1:1/mcp"}}}"#;
    let files = [
        ("mcp:x.json", servers),
        ("sub/.talk.json.levity/lock-00", "secret"),
        ("sub/talk.json.0123456789abcdef.part", "secret"),
        ("tools. /good.py", ""),
        ("s.json", &*script),
    ];
    let folder = Folder::new(&files);
    let args = [
        "run",
        "Go",
        "--script",
        "s.json",
        "--workspace",
        ".",
        "--mcp",
        "mcp:x.json",
        "--mcp-wait",
        "0",
        "--memory",
        "sub/talk.json",
        "--tools",
        "tools. ",
        "--json",
    ];
    let output = command(&args).current_dir(folder.path()).output().unwrap();
    check(&output, 0, "");
    let results = tool_results(&output);
    assert_eq!(results.len(), denied + open.len() + 1, "{output:?}");
    for (call, result) in calls.iter().zip(&results).take(denied) {
        assert!(result.contains("is denied to tools"), "{call}: {result}");
    }
    for (call, result) in calls.iter().zip(&results).skip(denied) {
        assert!(!result.contains("is denied to tools"), "{call}: {result}");
    }
    let listed = &results[results.len() - 1];
    assert!(
        listed.contains("talk.part") && !listed.contains("talk.json"),
        "{listed}"
    );
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(text("mcp:x.json"), servers);
    assert_eq!(text("sub/.talk.json.levity/lock-00"), "secret");
}

#[cfg(unix)]
#[test]
fn executables_of_tools_folder_cannot_read_own_files_in_it() {
    use std::os::unix::fs::PermissionsExt as _;

    let script = r#"[{"call": {"name": "peek", "args": {}}}, {"reply": "secret"}]"#;
    let servers = r#"{"mcpServers": {"nobody": {"url": "http://127.0.0.1:1/mcp",
        "headers": {"X-Key": "secret"}}}}"#;
    let peek = "#!/bin/sh\ntext=$(cat sub/mcp.json s.json plain.txt 2>&1 | tr -dc a-z)\n\
        echo \"\\\"$text\\\"\"\n";
    let manifest = r#"{"description": "Reads files.", "read_only": true}"#;
    let files = [
        ("tools/peek", peek),
        ("tools/peek.tool.json", manifest),
        ("tools/sub/mcp.json", servers),
        ("tools/s.json", script),
        ("tools/plain.txt", "plain words"),
    ];
    let folder = Folder::new(&files);
    let program = folder.path().join("tools/peek");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let args = [
        "run",
        "Go",
        "--script",
        "tools/s.json",
        "--tools",
        "tools",
        "--mcp",
        "tools/sub/mcp.json",
        "--mcp-wait",
        "0",
        "--json",
    ];
    let output = command(&args)
        .current_dir(folder.path())
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("no sandbox is available") {
        return;
    }
    check(&output, 0, "");
    let results = tool_results(&output);
    assert_eq!(results.len(), 1, "{output:?}");
    assert!(results[0].contains("plainwords"), "{results:#?}");
    assert!(!results[0].contains("secret"), "{results:#?}");
}

#[cfg(unix)]
#[test]
fn workspace_commands_cannot_change_named_settings_files() {
    use std::os::unix::fs::PermissionsExt as _;

    let attacks = [
        "echo forged > script.json",
        "echo forged > sub/tools/good.py",
        "echo forged > sub/tools/evil.py",
        "rm -rf script.json sub/tools",
        "mv script.json away.json",
        "mv sub/tools away",
        "mv sub away && mkdir -p sub/tools && echo forged > sub/tools/evil.py",
        "ln -s plain.txt new && mv -f new script.json",
        "cat script.json sub/tools/good.py",
        "cp script.json sub/tools/good.py .",
    ];
    let script = r#"[{"call": {"name": "run_command", "args": {"command": "./change"}}},
        {"reply": "Done."}]"#;
    for attack in attacks {
        let change = format!("#!/bin/sh\n{attack}\necho new > plain.txt\n");
        let files = [
            ("script.json", script),
            ("sub/tools/good.py", "\"\"\"mine\"\"\""),
            ("plain.txt", "old"),
            ("change", &*change),
        ];
        let folder = Folder::new(&files);
        fs::set_permissions(
            folder.path().join("change"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        let args = [
            "run",
            "Go",
            "--script",
            "script.json",
            "--workspace",
            ".",
            "--tools",
            "sub/tools",
            "--allow",
            "./change",
            "--json",
        ];
        let output = command(&args)
            .current_dir(folder.path())
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        if String::from_utf8_lossy(&output.stderr).contains("the agent cannot run commands") {
            return;
        }
        check(&output, 0, "");
        let results = tool_results(&output);
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        assert_eq!(text("plain.txt"), "new\n", "{attack}: {results:#?}");
        assert_eq!(text("script.json"), script, "{attack}: {results:#?}");
        assert_eq!(
            text("sub/tools/good.py"),
            "\"\"\"mine\"\"\"",
            "{attack}: {results:#?}"
        );
        assert!(
            !folder.path().join("sub/tools/evil.py").exists(),
            "{attack}: {results:#?}"
        );
        assert!(!results[0].contains("mine"), "{attack}: {results:#?}");
    }
}

/// Runs levity without user namespaces, so that the sandbox reaches only the level `guarded`.
/// Returns `None` if the system does not support this.
#[cfg(target_os = "linux")]
fn output_at_guarded(args: &[&str], folder: &Path) -> Option<Output> {
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv \
        --bounding-set=-all --inh-caps=-all --ambient-caps=-all \"$0\" \"$@\"";
    let wrapped = |program: &str, args: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args([
                "-U",
                "--map-current-user",
                "--keep-caps",
                "sh",
                "-c",
                script,
            ])
            .arg(program)
            .args(args)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", folder.join("home"))
            .current_dir(folder);
        command.output().ok()
    };
    let works = wrapped("true", &[]).is_some_and(|output| output.status.success());
    let output = works.then(|| wrapped(env!("CARGO_BIN_EXE_levity"), args));
    output.flatten()
}

/// Without mounts, the rules of the sandbox protect whole folders only, so a command could approve
/// its own calls in a journal of the workspace.
#[cfg(target_os = "linux")]
#[test]
fn commands_are_unavailable_if_own_files_cannot_be_hidden() {
    let script = r#"[{"call": {"name": "run_command", "args": {"command": "touch done"}}},
        {"reply": "Done."}]"#;
    let folder = Folder::new(&[("s.json", script), ("ws/x", "")]);
    let run = |journal| {
        let args = [
            "run",
            "Go",
            "--script",
            "s.json",
            "--workspace",
            "ws",
            "--allow",
            "touch",
            "--json",
            "--journal",
            journal,
        ];
        output_at_guarded(&args, folder.path())
    };
    if let Some(beside) = run("ws/../beside") {
        assert!(
            !format!("{beside:?}").contains("cannot protect"),
            "{beside:?}"
        );
    }
    // The second call is the one inside, because its journal also counts for later calls.
    let (Some(outside), Some(inside)) = (run("runs"), run("ws/runs")) else {
        eprintln!("SKIPPED: unshare or setpriv is missing, or user namespaces are disabled");
        return;
    };
    check(
        &inside,
        0,
        "cannot protect `--journal ws/runs` from commands",
    );
    check(&outside, 0, "");
    let results = (tool_results(&inside), tool_results(&outside));
    assert!(results.0[0].contains("not_found"), "{results:#?}");
    assert!(folder.path().join("ws/done").exists(), "{results:#?}");
    let later = run("runs").unwrap();
    check(&later, 0, "cannot protect");
    assert!(tool_results(&later)[0].contains("not_found"), "{later:?}");
}

/// The rules of a sandbox without mounts do not hide single files, so executables are unavailable.
#[cfg(target_os = "linux")]
#[test]
fn executables_are_unavailable_if_own_files_of_their_folder_cannot_be_hidden() {
    use std::os::unix::fs::PermissionsExt as _;

    let script = r#"[{"call": {"name": "peek", "args": {}}}, {"reply": "Done."}]"#;
    let servers = r#"{"mcpServers": {"nobody": {"url": "http://127.0.0.1:1/mcp",
        "headers": {"X-Key": "secret"}}}}"#;
    let peek = "#!/bin/sh\ntext=$(cat mcp.json | tr -dc a-z)\necho \"\\\"$text\\\"\"\n";
    let manifest = r#"{"description": "Reads files.", "read_only": true}"#;
    let folder = Folder::new(&[
        ("tools/peek", peek),
        ("tools/peek.tool.json", manifest),
        ("tools/mcp.json", servers),
        ("s.json", script),
    ]);
    let program = folder.path().join("tools/peek");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let args = "run Go --script s.json --tools tools --mcp tools/mcp.json --mcp-wait 0 --json";
    let args: Vec<_> = args.split(' ').collect();
    let Some(output) = output_at_guarded(&args, folder.path()) else {
        eprintln!("SKIPPED: unshare or setpriv is missing, or user namespaces are disabled");
        return;
    };
    check(&output, 0, "cannot hide the denied files of its folder");
    let results = tool_results(&output);
    assert!(results[0].contains("not_found"), "{results:#?}");
}

/// levity does not read such a state folder, but a later call may, once its owner has mended it.
#[cfg(unix)]
#[test]
fn state_folder_that_others_can_change_is_out_of_reach() {
    use std::os::unix::fs::PermissionsExt as _;

    let steps = r#"[
        {"calls": [
            {"name": "read_file", "args": {"path": "home/.local/state/levity/tokens"}},
            {"name": "write_file", "args": {"path": "home/.local/state/levity/x", "content": "y"}},
            {"name": "read_file", "args": {"path": "plain.txt"}}
        ]},
        {"reply": "Done."}
    ]"#;
    let folder = Folder::new(&[
        ("home/.local/state/levity/tokens", "secret"),
        ("plain.txt", "plain"),
        ("s.json", steps),
    ]);
    let state = folder.path().join("home/.local/state/levity");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    let output = command(&[
        "run",
        "hi",
        "--script",
        "s.json",
        "--workspace",
        ".",
        "--json",
    ])
    .current_dir(folder.path())
    .env("HOME", folder.path().join("home"))
    .env_remove("XDG_STATE_HOME")
    .output()
    .unwrap();
    check(&output, 0, "Done.");
    let results = tool_results(&output);
    let is_denied = |result: &String| result.contains("is denied to tools");
    assert!(results[..2].iter().all(is_denied), "{results:#?}");
    assert!(results[2].contains("plain"), "{results:#?}");
    assert!(!state.join("x").exists());
}

#[test]
fn journal_of_earlier_call_is_out_of_reach_of_later_call() {
    let steps = r#"[
        {"calls": [
            {"name": "write_file", "args": {"path": "runs/one.jsonl", "content": "forged"}},
            {"name": "read_file", "args": {"path": "runs/one.jsonl"}},
            {"name": "write_file", "args": {"path": "free.txt", "content": "free"}}
        ]},
        {"reply": "Done."}
    ]"#;
    let folder = Folder::new(&[("s.json", steps)]);
    let run = |args: &str| {
        let args: Vec<_> = args.split(' ').collect();
        command(&args).current_dir(folder.path()).output().unwrap()
    };
    check(&run("run hi --journal runs --id one"), 0, "");
    let journal = folder.path().join("runs/one.jsonl");
    let before = fs::read(&journal).unwrap();
    let output = run("run hi --script s.json --workspace . --json");
    check(&output, 0, "Done.");
    assert_eq!(fs::read(&journal).unwrap(), before);
    let results = tool_results(&output);
    assert!(
        results[0].contains("denied") && results[1].contains("denied"),
        "{results:#?}"
    );
    assert!(folder.path().join("free.txt").exists(), "{results:#?}");
}

/// Starts a call whose agent first writes `started`, then waits for `go`, then does `last`.
#[cfg(target_os = "linux")]
fn waiting_call(folder: &Folder, last: &str) -> std::process::Child {
    use std::os::unix::fs::PermissionsExt as _;

    let script = folder.path().join("wait.sh");
    let wait = "echo > started\nwhile ! [ -e go ]; do sleep 0.05; done\n";
    fs::write(&script, format!("#!/bin/sh\n{wait}")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let wait = r#"{"call": {"name": "run_command", "args": {"command": "./wait.sh"}}}"#;
    let steps = format!(r#"[{wait}, {last}, {{"reply": "Done."}}]"#);
    fs::write(folder.path().join("s.json"), steps).unwrap();
    let args = "run Go --script s.json --workspace . --allow ./wait.sh --json";
    let args: Vec<_> = args.split(' ').collect();
    let mut call = command(&args);
    call.current_dir(folder.path())
        .env("PATH", "/usr/bin:/bin")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut call = call.spawn().unwrap();
    while !folder.path().join("started").exists() && call.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    call
}

/// Ends the first command of a waiting call, and returns the results of its tools; `None` if the
/// system cannot run commands.
#[cfg(target_os = "linux")]
fn results_after(folder: &Folder, call: std::process::Child, args: &[&str]) -> Option<Vec<String>> {
    let mut later = command(args);
    later.current_dir(folder.path()).output().unwrap();
    // If the command was not ended, it ends now.
    std::thread::sleep(std::time::Duration::from_secs(1));
    fs::write(folder.path().join("go"), "").unwrap();
    let output = call.wait_with_output().unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    let has_commands = !notes.contains("the agent cannot run commands");
    has_commands.then(|| tool_results(&output))
}

/// A call that runs for long, such as a server, must not reach files that another call names.
#[cfg(target_os = "linux")]
#[test]
fn files_that_later_call_names_are_out_of_reach_of_running_call() {
    const SERVERS: &str = r#"{"mcpServers": {"a": {"command": "/bin/true"}}}"#;
    let last = r#"{"call": {"name": "write_file",
        "args": {"path": "mcp.json", "content": "forged"}}}"#;
    let folder = Folder::new(&[("mcp.json", SERVERS)]);
    let call = waiting_call(&folder, last);
    let args = ["run", "hi", "--mcp", "mcp.json", "--mcp-wait", "1"];
    let Some(results) = results_after(&folder, call, &args) else {
        return;
    };
    assert!(
        results[0].contains("were denied to commands while it ran"),
        "{results:#?}"
    );
    assert!(!results[0].contains("removed"), "{results:#?}");
    assert!(results[1].contains("is denied to tools"), "{results:#?}");
    let text = fs::read_to_string(folder.path().join("mcp.json")).unwrap();
    assert_eq!(text, SERVERS);
}

/// The journal does not exist when the command starts.
#[cfg(target_os = "linux")]
#[test]
fn running_command_ends_when_other_call_creates_journal() {
    let last = r#"{"call": {"name": "read_file", "args": {"path": "runs.db"}}}"#;
    let folder = Folder::new(&[]);
    let call = waiting_call(&folder, last);
    let args = ["run", "hi", "--journal", "runs.db", "--id", "one"];
    let Some(results) = results_after(&folder, call, &args) else {
        return;
    };
    assert!(
        results[0].contains("were denied to commands while it ran"),
        "{results:#?}"
    );
    assert!(results[1].contains("is denied to tools"), "{results:#?}");
}

#[test]
fn mcp_config_of_earlier_call_is_out_of_reach_of_later_call() {
    let steps = r#"[
        {"call": {"name": "write_file", "args": {"path": "mcp.json", "content": "{}"}}},
        {"reply": "Done."}
    ]"#;
    let config = r#"{"mcpServers": {}}"#;
    for earlier in [&["--config", "mcp.json"][..], &["--mcp", "mcp.json"], &[]] {
        let folder = Folder::new(&[("s.json", steps), ("mcp.json", config)]);
        let mut list = command(&[&["mcp", "list"], earlier].concat());
        if earlier.is_empty() {
            list.env("LEVITY_MCP_SERVERS", folder.path().join("mcp.json"));
        }
        list.current_dir(folder.path()).output().unwrap();
        let args = [
            "run",
            "hi",
            "--script",
            "s.json",
            "--workspace",
            ".",
            "--json",
        ];
        let output = command(&args).current_dir(folder.path()).output().unwrap();
        check(&output, 0, "Done.");
        let results = tool_results(&output);
        assert!(results[0].contains("denied"), "{earlier:?}: {results:#?}");
        let now = fs::read_to_string(folder.path().join("mcp.json")).unwrap();
        assert_eq!(now, config);
    }
}

/// The file of `--bus` is written at the end of the run, when a command may have replaced its
/// folder.
#[cfg(target_os = "linux")]
#[test]
fn bus_file_is_not_written_through_replaced_folder() {
    use std::os::unix::fs::PermissionsExt as _;

    let script = r#"[{"call": {"name": "run_command", "args": {"command": "./change"}}},
        {"reply": "Written."}, {"reply": "All is written."}]"#;
    let plan = r#"{"delegations": [{"id": "a", "worker": "coder", "task": "Write."}]}"#;
    let change = "#!/bin/sh\nmv out away && ln -s ../victim out\necho new > plain.txt\n";
    let files = [
        ("s.json", script),
        ("plan.json", plan),
        ("victim/bus.jsonl", "mine"),
        ("ws/out/x", ""),
        ("ws/plain.txt", "old"),
        ("ws/change", change),
    ];
    let folder = Folder::new(&files);
    let path = |name: &str| folder.path().join(name);
    fs::set_permissions(path("ws/change"), fs::Permissions::from_mode(0o755)).unwrap();
    let args = [
        "swarm",
        "Go",
        "--script",
        "s.json",
        "--plan",
        "plan.json",
        "--workspace",
        "ws",
        "--allow",
        "./change",
        "--bus",
        "ws/out/bus.jsonl",
    ];
    let output = command(&args)
        .current_dir(folder.path())
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("the agent cannot run commands") {
        return;
    }
    assert_eq!(
        fs::read_to_string(path("ws/plain.txt")).unwrap(),
        "new\n",
        "{output:?}"
    );
    assert_eq!(
        fs::read_to_string(path("victim/bus.jsonl")).unwrap(),
        "mine",
        "{output:?}"
    );
    let messages = fs::read_to_string(path("ws/out/bus.jsonl")).unwrap();
    assert!(messages.contains("coder"), "{messages} {output:?}");
}

/// A command could replace the link, and the next start would follow the new one.
#[cfg(unix)]
#[test]
fn settings_file_behind_link_in_workspace_is_an_error() {
    use std::os::unix::fs::symlink;

    let files = [
        ("work/real/mcp.json", r#"{"mcpServers": {}}"#),
        ("work/script.json", r#"[{"reply": "Done."}]"#),
    ];
    let folder = Folder::new(&files);
    let at = |name: &str| folder.path().join(name);
    symlink("real/mcp.json", at("work/mcp.json")).unwrap();
    symlink("real", at("work/configs")).unwrap();
    symlink("work/configs", at("outside")).unwrap();
    symlink("work/real", at("safe")).unwrap();
    let run = |option: &str, path: &str| {
        let args = [
            "run",
            "Go",
            "--script",
            "work/script.json",
            "--workspace",
            "work",
            option,
            path,
        ];
        command(&args).current_dir(folder.path()).output().unwrap()
    };
    for (option, path) in [
        ("--mcp", "work/mcp.json"),
        ("--mcp", "work/configs/mcp.json"),
        ("--mcp", "outside/mcp.json"),
        ("--mcp", "work/real/../configs/mcp.json"),
        ("--journal", "work/configs/runs.db"),
        ("--tools", "work/configs"),
    ] {
        let output = run(option, path);
        check(
            &output,
            2,
            "in the workspace, which a command could replace",
        );
        check(&output, 2, "give the path without the link");
    }
    // Links outside of the workspace are out of reach of its commands.
    check(&run("--journal", "safe/good.db"), 0, "Done.");
    check(&run("--journal", "work/real/plain.db"), 0, "Done.");
}

#[cfg(unix)]
#[test]
fn default_journal_is_not_followed_as_link() {
    let folder = Folder::new(&[("elsewhere/x", "")]);
    std::os::unix::fs::symlink("elsewhere", folder.path().join("runs")).unwrap();
    fs::write(folder.path().join("r.jsonl"), "").unwrap();
    for args in [&["runs", "import", "r.jsonl"][..], &["runs", "list"]] {
        let output = command(args).current_dir(folder.path()).output().unwrap();
        check(
            &output,
            1,
            "`runs` is a link, which may lead to any folder; name the journal",
        );
    }
    let named = ["runs", "list", "--journal", "elsewhere"];
    check(
        &command(&named).current_dir(folder.path()).output().unwrap(),
        0,
        "",
    );
}
