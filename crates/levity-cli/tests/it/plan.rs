//! Tests of `levity plan` and `levity sessions` without a configured model.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::{check, file, levity, text};

const ANSWER: &str = "A scripted model cannot answer this.";

/// A folder of sessions for this test run.
struct SessionsFolder(PathBuf);

impl SessionsFolder {
    fn new(name: &str) -> Self {
        let name = format!("{}-{name}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn levity(&self, args: &[&str]) -> Output {
        levity(&[args, &["--sessions", self.0.to_str().unwrap()]].concat())
    }

    /// Returns the ids of the sessions, newest first.
    fn ids(&self) -> Vec<String> {
        let listed = text(&self.levity(&["sessions", "list", "--json"]));
        let id = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"]
                .as_str()
                .map(str::to_owned)
        };
        listed.lines().filter_map(id).collect()
    }
}

impl Drop for SessionsFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn demonstration_plan_fails_in_one_step_and_is_repaired() {
    let output = levity(&["plan", "Compare\u{1b}[2J two coasts"]);
    check(&output, 0, "a scripted model");
    assert!(
        text(&output).starts_with(ANSWER) && text(&output).lines().count() == 1,
        "only the answer is on the standard output"
    );
    for part in [
        "second: failed",
        "the plan was changed",
        "recall ✓ Thinker",
        "total",
        "3 of 4",
        "replans: 1",
    ] {
        check(&output, 0, part);
    }
    assert!(
        !output.stderr.contains(&0x1b),
        "no control sequence is printed"
    );
    let quiet = levity(&["plan", "Compare", "--view", "none", "--export", "mermaid"]);
    assert!(text(&quiet).contains("flowchart"), "{quiet:?}");
    assert!(
        !String::from_utf8_lossy(&quiet.stderr).contains("total"),
        "{quiet:?}"
    );
}

#[test]
fn plan_with_json_view_prints_events_as_json_lines() {
    let output = levity(&["plan", "Compare", "--view", "json"]);
    let printed = text(&output);
    let events: Vec<serde_json::Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        events
            .iter()
            .any(|event| event["kind"]["custom"]["data"]["notice"] == "replanned"),
        "{printed}"
    );
    assert!(
        events.last().unwrap()["kind"]["run_ended"].is_object(),
        "{printed}"
    );
}

#[test]
fn plan_exit_code_reports_progress() {
    let partial = levity(&["plan", "Compare", "--max-replans", "0"]);
    check(&partial, 4, "the goal was not reached");
    check(
        &levity(&["plan", "Compare", "--limit-calls", "0"]),
        1,
        "levity: ",
    );
    check(&levity(&["plan"]), 2, "Usage");
    check(&levity(&["plan", "x", "--redo", "a"]), 2, "--fork");
    check(
        &levity(&["plan", "x", "--max-parallel", "0"]),
        2,
        "set 1 to run one step at a time",
    );
    check(
        &levity(&["plan", "x", "--limit-cost", "nan"]),
        2,
        "0 or more",
    );
    check(&levity(&["plan", "x", "--agents", "nowhere"]), 2, "nowhere");
    check(
        &levity(&["plan", "--plan", "nowhere.json"]),
        2,
        "nowhere.json",
    );
    check(
        &levity(&["plan", "x", "--file", "nowhere.csv"]),
        2,
        "`nowhere.csv` does not exist",
    );
    let path = file(
        "circle.json",
        r#"{"steps": [{"id": "a", "agent": "Thinker", "after": ["b"]},
            {"id": "b", "agent": "Thinker", "after": ["a"]}]}"#,
    );
    check(
        &levity(&["plan", "--plan", path.to_str().unwrap()]),
        2,
        "`a -> b -> a`",
    );
    let path = file(
        "one.json",
        r#"{"steps": [{"id": "a", "agent": "Thinker", "prompt": "x", "writes": ["first"]}]}"#,
    );
    check(
        &levity(&["plan", "--plan", path.to_str().unwrap()]),
        0,
        "1 of 1",
    );
    // The step needs approval, and there is no terminal.
    check(
        &levity(&["plan", "Compare", "--ask-plan"]),
        1,
        "there is no terminal",
    );
}

#[test]
fn session_is_stored_shown_resumed_and_forked() {
    let sessions = SessionsFolder::new("sessions");
    assert_eq!(sessions.ids(), [""; 0]);
    check(
        &sessions.levity(&["sessions", "show", "nothing"]),
        1,
        "nothing",
    );
    check(
        &sessions.levity(&["plan", "Compare two coasts"]),
        0,
        "stored as session ",
    );
    let [first] = &*sessions.ids() else {
        unreachable!("one session")
    };
    check(
        &sessions.levity(&["sessions", "list"]),
        0,
        "completed  Compare two coasts",
    );
    check(
        &sessions.levity(&["sessions", "show", &first[..8]]),
        0,
        "recall ✓ Thinker",
    );
    check(
        &sessions.levity(&["sessions", "export", first]),
        0,
        "flowchart",
    );
    check(
        &sessions.levity(&["sessions", "export", first, "--format", "dot"]),
        0,
        "digraph",
    );
    check(
        &sessions.levity(&["sessions", "export", first, "--format", "svg"]),
        0,
        "<svg ",
    );
    let json = text(&sessions.levity(&["sessions", "export", first, "--format", "json"]));
    let graph: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        graph["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() > 4),
        "{json}"
    );
    // The session has ended, so nothing is repeated.
    let again = sessions.levity(&["plan", "--resume", first]);
    check(&again, 0, ANSWER);
    assert!(
        !String::from_utf8_lossy(&again.stderr).contains("starts"),
        "{again:?}"
    );
    assert_eq!(sessions.ids().len(), 1);
    let fork = sessions.levity(&["plan", "--fork", first, "--redo", "answer"]);
    check(&fork, 0, "answer: starts");
    assert!(
        !String::from_utf8_lossy(&fork.stderr).contains("first: starts"),
        "{fork:?}"
    );
    assert_eq!(sessions.ids().len(), 2);
    check(
        &sessions.levity(&["plan", "--fork", first, "--redo", "nobody"]),
        2,
        "nobody",
    );
    check(
        &sessions.levity(&["plan", "--resume", "nobody"]),
        2,
        "nobody",
    );
}

#[test]
fn given_files_are_inspected_before_planning() {
    let path = file("tides.csv", "port,height\nDover,6.7\n");
    let output = levity(&[
        "plan",
        "Compare",
        "--file",
        path.to_str().unwrap(),
        "--view",
        "json",
    ]);
    let printed = text(&output);
    assert!(
        printed.contains("profiling") && printed.contains("tides.csv"),
        "{printed}"
    );
}

#[test]
fn display_misses_no_event_of_long_plan() {
    let steps: Vec<_> = (0..600)
        .map(|at| {
            // The first step fails, and every second step depends on it; a run this fast is ahead
            // of a mere listener.
            let (prompt, after) = match at {
                0 => ("[demo: fails]", serde_json::json!([])),
                at if at % 2 == 0 => ("x", serde_json::json!(["s0"])),
                _ => ("x", serde_json::json!([])),
            };
            serde_json::json!({"id": format!("s{at}"), "agent": "Thinker", "prompt": prompt,
                "after": after})
        })
        .collect();
    let path = file(
        "long.json",
        &serde_json::json!({"steps": steps}).to_string(),
    );
    let args = [
        "plan",
        "--plan",
        path.to_str().unwrap(),
        "--max-replans",
        "0",
    ];
    let output = levity(&args);
    check(&output, 4, "300 of 600");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = |part: &str| printed.lines().filter(|line| line.ends_with(part)).count();
    assert_eq!(
        (count(": starts"), count(": completed")),
        (301, 300),
        "{printed}"
    );
    assert_eq!(
        printed
            .lines()
            .filter(|line| line.contains(": skipped: "))
            .count(),
        299
    );
    let events = text(&levity(&[&args[..], &["--view", "json"]].concat()));
    assert!(
        !events.contains("lagged") && events.matches(r#""notice":"step_started""#).count() == 301
    );
}

#[test]
fn plan_script_has_one_reply_per_call() {
    let plan = r#"{"steps": [
        {"id": "a", "agent": "Thinker", "prompt": "x", "writes": ["x"]},
        {"id": "b", "agent": "Thinker", "prompt": "y", "reads": ["x"], "writes": ["y"]}]}"#;
    let replies = [plan, r#"{"x": "one"}"#, r#"{"y": "two"}"#]
        .map(|reply| serde_json::json!({"reply": reply}));
    let script = file("in-order.json", &serde_json::json!(replies).to_string());
    let output = levity(&["plan", "Do it", "--script", script.to_str().unwrap()]);
    check(&output, 0, "2 of 2");
    assert_eq!(text(&output), "two\n");
}

#[test]
fn plan_that_reached_limit_can_be_resumed() {
    let sessions = SessionsFolder::new("limited");
    check(
        &sessions.levity(&["plan", "Compare", "--limit-calls", "4"]),
        4,
        "the limit on model calls was reached",
    );
    let [first] = &*sessions.ids() else {
        unreachable!("one session")
    };
    let again = sessions.levity(&["plan", "--resume", first]);
    check(&again, 0, "continues it as a new session");
    let stderr_text = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        text(&again).starts_with(ANSWER) && !stderr_text.contains("first: starts"),
        "{stderr_text}"
    );
    assert_eq!(sessions.ids().len(), 2);
}

#[test]
fn unwritable_session_is_reported_once() {
    let sessions = SessionsFolder::new("blocked");
    fs::create_dir_all(&sessions.0).unwrap();
    (2020..2200)
        .for_each(|year| fs::write(sessions.0.join(year.to_string()), "no folder").unwrap());
    let output = sessions.levity(&["plan", "Compare"]);
    check(&output, 0, "the session was not stored");
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        stderr_text
            .matches("cannot update the stored session")
            .count(),
        1,
        "{stderr_text}"
    );
    assert_eq!(
        stderr_text.matches("no session matches the id").count(),
        1,
        "{stderr_text}"
    );
}

/// Writes a script for `levity plan`: each item is a reply, or a call of a tool.
#[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
fn script(name: &str, steps: serde_json::Value) -> String {
    file(&format!("plan-{name}-script.json"), &steps.to_string())
        .to_str()
        .unwrap()
        .to_owned()
}

/// Returns a plan of one step by this agent, which writes `x`.
fn plan_of(agent: &str) -> String {
    let step = serde_json::json!({"id": "a", "agent": agent, "prompt": "Do it.", "writes": ["x"]});
    let path = file(
        &format!("plan-of-{agent}.json"),
        &serde_json::json!({"steps": [step]}).to_string(),
    );
    path.to_str().unwrap().to_owned()
}

/// Creates a workspace folder with a tool.
fn workspace_with_tool(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{}-plan-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("tools")).unwrap();
    let shout = "def shout(text: str) -> str:\n    \"\"\"Writes in capitals.\"\"\"\n    return \
        text.upper()\n";
    fs::write(folder.join("tools/texts.py"), shout).unwrap();
    folder
}

#[test]
fn agents_of_plan_have_tools_of_command() {
    let folder = workspace_with_tool("reach");
    let (space, tools) = (folder.to_str().unwrap(), folder.join("tools"));
    let call = |name: &str, args: serde_json::Value| {
        serde_json::json!({"call": {"name": name,
        "args": args}})
    };
    let replies = serde_json::json!([
        call("write_file", serde_json::json!({"path": "out.txt", "content": "one\ntwo\n"})),
        call("shout", serde_json::json!({"text": "hi"})),
        call("run_command", serde_json::json!({"command": "wc -l out.txt"})),
        {"reply":
            r#"{"code_variants": ["{'x': shout(text=read_file(path='out.txt')['content'])}"]}"#},
    ]);
    let args = [
        "plan",
        "--workspace",
        space,
        "--tools",
        tools.to_str().unwrap(),
        "--weak",
        "--python",
    ];
    let (plan, replies) = (plan_of("Coder"), script("reach", replies));
    let output = levity(&[&args[..], &["--plan", &plan, "--script", &replies]].concat());
    check(&output, 0, "1 of 1");
    assert_eq!(
        text(&output),
        "ONE\nTWO\n",
        "code calls the tools of its agent: {output:?}"
    );
    assert_eq!(
        fs::read_to_string(folder.join("out.txt")).unwrap(),
        "one\ntwo\n"
    );
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("reaches no agent"),
        "{output:?}"
    );
    // An agent that only reads cannot write.
    let writes = serde_json::json!([
        call("write_file", serde_json::json!({"path": "more.txt", "content": "x"})),
        {"reply": "{\"x\": 1}"},
    ]);
    let (plan, replies) = (plan_of("Retriever"), script("reads", writes));
    let output = levity(&[&args[..], &["--plan", &plan, "--script", &replies]].concat());
    check(&output, 0, "1 of 1");
    assert!(!folder.join("more.txt").exists());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn unused_tools_are_reported() {
    let folder = workspace_with_tool("unreached");
    let config = "Coder:\n  tools: []\n  mcp_servers: []\n  code: false\nRetriever:\n  tools: []\n";
    fs::write(folder.join("agent_config.yaml"), config).unwrap();
    let (space, tools) = (folder.to_str().unwrap(), folder.join("tools"));
    let args = [
        "plan",
        "Compare",
        "--agents",
        space,
        "--tools",
        tools.to_str().unwrap(),
        "--python",
        "--web",
    ];
    let output = levity(&args);
    for part in [
        "the tool `shout` reaches no agent",
        "a program that runs Python reaches no agent",
    ] {
        check(&output, 0, part);
    }
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !stderr_text.contains("`now`") && !stderr_text.contains("`web_fetch` reaches"),
        "{stderr_text}"
    );
    fs::remove_dir_all(folder).unwrap();
    for (args, part) in [
        (
            &["--worker", "coder", "--web"][..],
            "`--web` has no effect on any worker",
        ),
        (
            &["--worker", "reviewer", "--python"],
            "`--python` has no effect on any worker",
        ),
        (
            &["--worker", "reviewer", "--workspace", ".", "--allow", "ls"],
            "only the coder runs commands",
        ),
    ] {
        check(&levity(&[&["swarm", "Compare"], args].concat()), 0, part);
    }
}

#[test]
fn formatter_writes_artifacts_and_nothing_else() {
    let folder = workspace_with_tool("artifact");
    let space = folder.to_str().unwrap();
    let call = |name: &str, path: &str| {
        let args = serde_json::json!({"path": path, "content": "# Tides\n"});
        serde_json::json!({"call": {"name": name, "args": args}})
    };
    let replies = serde_json::json!([
        call("write_artifact", "../outside.md"),
        call("write_file", "direct.md"),
        call("write_artifact", "artifacts/tides.md"),
        {"reply": "{\"x\": \"It is in artifacts/tides.md.\"}"},
    ]);
    let (plan, replies) = (plan_of("Formatter"), script("artifact", replies));
    let args = [
        "plan",
        "--workspace",
        space,
        "--plan",
        &plan,
        "--script",
        &replies,
    ];
    let output = levity(&args);
    check(&output, 0, "It is in artifacts/tides.md.");
    let written = fs::read_to_string(folder.join("artifacts/tides.md")).unwrap();
    assert_eq!(written, "# Tides\n");
    assert!(!folder.join("outside.md").exists() && !folder.join("direct.md").exists());
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "tools and artifacts"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn tools_that_agents_name_and_lack_are_reported_before_the_run() {
    let folder = workspace_with_tool("missing");
    let config = "Lawyer:\n  prompt: Read contracts.\n  tools: [\"find_law?\"]\n  \
        mcp_servers: [\"laws?\"]\n";
    fs::write(folder.join("agent_config.yaml"), config).unwrap();
    let space = folder.to_str().unwrap();
    let notes = |command: &str, args: &[&str], expected: &[&str], absent: &[&str]| {
        let goal: &[&str] = if command == "plan" { &["Compare"] } else { &[] };
        let output = levity(&[&[command], goal, args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let before = stderr.split("requests a plan").next().unwrap_or_default();
        for part in expected {
            assert!(
                before.contains(part),
                "{command} {args:?}: `{part}` in {stderr}"
            );
        }
        for part in absent {
            assert!(
                !stderr.contains(part),
                "{command} {args:?}: `{part}` in {stderr}"
            );
        }
    };
    for command in ["plan", "team"] {
        let web = "no web pages for Browser, Retriever; add `--web`";
        let files = "no files for Retriever, Distiller, Formatter, QA; add `--workspace DIR`";
        let law = "no tool `find_law` for Lawyer; check its name in `agent_config.yaml`";
        let server = "no MCP server `laws` for Lawyer";
        let ours = &["--agents", space][..];
        notes(
            command,
            &[],
            &[web, files],
            &["Lawyer", "`browser`", "`read_given_file`"],
        );
        notes(command, ours, &[law, server, web, files], &[]);
        let search = "no web search for Browser, Retriever; set `BRAVE_API_KEY`";
        notes(
            command,
            &["--web", "--workspace", space],
            &[search],
            &[web, "no files"],
        );
        let searxng = ["--web", "--searxng", "http://127.0.0.1:9"];
        notes(command, &searxng, &[files], &[search, web]);
        let reads = &["--workspace", space, "--read-only"][..];
        notes(
            command,
            reads,
            &["no files can be written by Formatter"],
            &[files],
        );
        let tools = folder.join("tools");
        let config = "Coder:\n  tools: []\n  mcp_servers: []\nRetriever:\n  tools: []\n";
        let quiet = folder.join("quiet");
        fs::create_dir_all(&quiet).unwrap();
        fs::write(quiet.join("agent_config.yaml"), config).unwrap();
        let unused = [
            "--agents",
            quiet.to_str().unwrap(),
            "--tools",
            tools.to_str().unwrap(),
        ];
        notes(
            command,
            &unused,
            &["the tool `shout` reaches no agent"],
            &[],
        );
    }
    // A tool without `?` is required.
    let config = "Lawyer:\n  prompt: Read contracts.\n  tools: [find_law]\n";
    fs::write(folder.join("agent_config.yaml"), config).unwrap();
    check(
        &levity(&["plan", "Compare", "--agents", space]),
        2,
        "find_law",
    );

    // The tool of this server has no hint.
    let servers = crate::mcp::Config::speaker("workers");
    let of = |worker| ["Compare", "--worker", worker, "--mcp", servers.path()];
    let part = "reaches no worker, because it is not read-only; add `--worker coder`";
    notes("swarm", &of("reviewer"), &[part], &[]);
    notes("swarm", &of("coder"), &[], &["reaches no worker"]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn given_files_are_readable_without_workspace() {
    let path = file("given-tides.csv", "port,height\nDover,6.7\nBrest,5.9\n");
    let given = path.to_str().unwrap();
    let replies = serde_json::json!([
        {"reply": "{\"file_profiles\": []}"},
        {"reply": r#"{"steps": [{"id": "a", "agent": "Coder", "prompt": "Count.",
            "writes": ["x"]}]}"#},
        {"call": {"name": "read_given_file",
            "args": {"file": "given-tides.csv", "start_line": 2, "lines": 1}}},
        {"call": {"name": "read_given_file", "args": {"file": "/etc/passwd"}}},
        {"reply": concat!(
            r#"{"code_variants": ["text = read_given_file(file='given-tides.csv')['content']"#,
            r#"\n{'x': len(text.splitlines())}"]}"#,
        )},
    ]);
    let replies = script("given", replies);
    let output = levity(&[
        "plan", "Count", "--file", given, "--python", "--script", &replies, "--view", "json",
    ]);
    let printed = text(&output);
    assert!(
        printed.contains("Dover,6.7") && printed.contains("`/etc/passwd` is not a given file"),
        "{printed}"
    );
    let output = levity(&[
        "plan", "Count", "--file", given, "--python", "--script", &replies,
    ]);
    check(&output, 0, "1 of 1");
    assert_eq!(text(&output), "3\n");
}

#[test]
fn plan_cut_by_reply_limit_is_continued() {
    let replies = serde_json::json!([
        {"reply": concat!(
            r#"{"steps": [{"id": "a", "agent": "Thinker", "prompt": "x", "writes": ["x"]}, "#,
            r#"{"id": "b", "age"#,
        ), "finish": "length"},
        {"reply": r#"{"steps": [{"id": "b", "agent": "Thinker", "prompt": "y", "reads": ["x"],
            "writes": ["y"]}]}"#},
        {"reply": r#"{"x": "one"}"#},
        {"reply": r#"{"y": "two"}"#},
    ]);
    let output = levity(&["plan", "Do it", "--script", &script("cut", replies)]);
    check(&output, 0, "2 of 2");
    check(
        &output,
        0,
        "the plan was truncated after 1 parts; requesting the rest",
    );
    assert_eq!(text(&output), "two\n");
}
