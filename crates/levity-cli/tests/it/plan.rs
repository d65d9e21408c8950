//! `levity plan` and `levity sessions`, where no model is configured.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::{check, file, levity, text};

const ANSWER: &str = "A scripted stand-in cannot know.";

/// A folder of sessions of this test run's own.
struct Kept(PathBuf);

impl Kept {
    fn new(name: &str) -> Self {
        let name = format!("{}-{name}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn levity(&self, args: &[&str]) -> Output {
        levity(&[args, &["--sessions", self.0.to_str().unwrap()]].concat())
    }

    /// The ids of the sessions, the newest first.
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

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_a_model_a_plan_fails_in_one_step_and_is_mended() {
    let output = levity(&["plan", "Compare\u{1b}[2J two coasts"]);
    check(&output, 0, "a scripted stand-in");
    assert!(
        text(&output).starts_with(ANSWER) && text(&output).lines().count() == 1,
        "the answer alone"
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
    assert!(!output.stderr.contains(&0x1b), "nothing moves a terminal");
    let quiet = levity(&["plan", "Compare", "--view", "none", "--export", "mermaid"]);
    assert!(text(&quiet).contains("flowchart"), "{quiet:?}");
    assert!(
        !String::from_utf8_lossy(&quiet.stderr).contains("total"),
        "{quiet:?}"
    );
}

#[test]
fn events_of_a_plan_are_json_lines() {
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
fn how_far_it_came_is_told_by_the_exit_code() {
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
        r#"{"steps": [{"id": "a", "agent": "Thinker", "after": ["b"]}, {"id": "b", "agent": "Thinker", "after": ["a"]}]}"#,
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
    // A person would be asked, and nobody is there.
    check(
        &levity(&["plan", "Compare", "--ask-plan"]),
        1,
        "nobody sits at the terminal",
    );
}

#[test]
fn a_session_is_kept_shown_gone_on_with_and_forked() {
    let kept = Kept::new("sessions");
    assert_eq!(kept.ids(), [""; 0]);
    check(&kept.levity(&["sessions", "show", "nothing"]), 1, "nothing");
    check(
        &kept.levity(&["plan", "Compare two coasts"]),
        0,
        "kept as session ",
    );
    let [first] = &*kept.ids() else {
        unreachable!("one session")
    };
    check(
        &kept.levity(&["sessions", "list"]),
        0,
        "completed  Compare two coasts",
    );
    check(
        &kept.levity(&["sessions", "show", &first[..8]]),
        0,
        "recall ✓ Thinker",
    );
    check(&kept.levity(&["sessions", "export", first]), 0, "flowchart");
    check(
        &kept.levity(&["sessions", "export", first, "--format", "dot"]),
        0,
        "digraph",
    );
    let json = text(&kept.levity(&["sessions", "export", first, "--format", "json"]));
    let graph: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        graph["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() > 4),
        "{json}"
    );
    // It has ended, so nothing is done again.
    let again = kept.levity(&["plan", "--resume", first]);
    check(&again, 0, ANSWER);
    assert!(
        !String::from_utf8_lossy(&again.stderr).contains("starts"),
        "{again:?}"
    );
    assert_eq!(kept.ids().len(), 1);
    let fork = kept.levity(&["plan", "--fork", first, "--redo", "answer"]);
    check(&fork, 0, "answer: starts");
    assert!(
        !String::from_utf8_lossy(&fork.stderr).contains("first: starts"),
        "{fork:?}"
    );
    assert_eq!(kept.ids().len(), 2);
    check(
        &kept.levity(&["plan", "--fork", first, "--redo", "nobody"]),
        2,
        "nobody",
    );
    check(&kept.levity(&["plan", "--resume", "nobody"]), 2, "nobody");
}

#[test]
fn files_are_looked_at_before_the_plan() {
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
fn nothing_of_a_long_plan_is_missed() {
    let steps: Vec<_> = (0..600)
        .map(|at| {
            // The first fails, and one in two depends on it; a run that is as fast as this one
            // outruns who only listens.
            let (prompt, after) = match at {
                0 => ("[demo: fails]", serde_json::json!([])),
                at if at % 2 == 0 => ("x", serde_json::json!(["s0"])),
                _ => ("x", serde_json::json!([])),
            };
            serde_json::json!({"id": format!("s{at}"), "agent": "Thinker", "prompt": prompt, "after": after})
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
fn a_script_has_a_reply_for_each_call() {
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
fn a_run_that_reached_a_limit_is_gone_on_with() {
    let kept = Kept::new("limited");
    check(
        &kept.levity(&["plan", "Compare", "--limit-calls", "4"]),
        4,
        "the limit on model calls was reached",
    );
    let [first] = &*kept.ids() else {
        unreachable!("one session")
    };
    let again = kept.levity(&["plan", "--resume", first]);
    check(&again, 0, "it goes on as a new session");
    let told = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        text(&again).starts_with(ANSWER) && !told.contains("first: starts"),
        "{told}"
    );
    assert_eq!(kept.ids().len(), 2);
}

#[test]
fn a_session_that_cannot_be_written_is_told_once() {
    let kept = Kept::new("blocked");
    fs::create_dir_all(&kept.0).unwrap();
    (2020..2200).for_each(|year| fs::write(kept.0.join(year.to_string()), "no folder").unwrap());
    let output = kept.levity(&["plan", "Compare"]);
    check(&output, 0, "the session was not kept");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        told.matches("the session cannot be kept up to date")
            .count(),
        1,
        "{told}"
    );
    assert_eq!(told.matches("no session matches the id").count(), 1, "{told}");
}

/// A script for `levity plan`: each is a reply, or a call of a tool.
#[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
fn script(name: &str, steps: serde_json::Value) -> String {
    file(&format!("plan-{name}-script.json"), &steps.to_string())
        .to_str()
        .unwrap()
        .to_owned()
}

/// A plan of one step by this agent, which writes `x`.
fn plan_of(agent: &str) -> String {
    let step = serde_json::json!({"id": "a", "agent": agent, "prompt": "Do it.", "writes": ["x"]});
    let path = file(
        &format!("plan-of-{agent}.json"),
        &serde_json::json!({"steps": [step]}).to_string(),
    );
    path.to_str().unwrap().to_owned()
}

/// A folder with a tool, to work in.
fn desk(name: &str) -> PathBuf {
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
fn tools_of_the_command_reach_the_agents_of_a_plan() {
    let folder = desk("reach");
    let (space, tools) = (folder.to_str().unwrap(), folder.join("tools"));
    let call = |name: &str, args: serde_json::Value| serde_json::json!({"call": {"name": name, "args": args}});
    let replies = serde_json::json!([
        call("write_file", serde_json::json!({"path": "out.txt", "content": "one\ntwo\n"})),
        call("shout", serde_json::json!({"text": "hi"})),
        call("run_command", serde_json::json!({"command": "wc -l out.txt"})),
        {"reply": r#"{"code_variants": ["{'x': shout(text=read_file(path='out.txt')['content'])}"]}"#},
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
        "ONE\nTWO\n\n",
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
    // Who only reads cannot write.
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
fn tools_that_reach_no_agent_are_named() {
    let folder = desk("unreached");
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
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !told.contains("`now`") && !told.contains("`web_fetch` reaches"),
        "{told}"
    );
    fs::remove_dir_all(folder).unwrap();
    for (args, part) in [
        (
            &["--worker", "coder", "--web"][..],
            "`--web` reaches no worker",
        ),
        (
            &["--worker", "reviewer", "--python"],
            "`--python` reaches no worker",
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
fn given_files_are_read_without_a_workspace() {
    let path = file("given-tides.csv", "port,height\nDover,6.7\nBrest,5.9\n");
    let given = path.to_str().unwrap();
    let replies = serde_json::json!([
        {"reply": "{\"file_profiles\": []}"},
        {"reply": r#"{"steps": [{"id": "a", "agent": "Coder", "prompt": "Count.", "writes": ["x"]}]}"#},
        {"call": {"name": "read_given_file", "args": {"file": "given-tides.csv", "start_line": 2, "lines": 1}}},
        {"call": {"name": "read_given_file", "args": {"file": "/etc/passwd"}}},
        {"reply": r#"{"code_variants": ["text = read_given_file(file='given-tides.csv')['content']\n{'x': len(text.splitlines())}"]}"#},
    ]);
    let replies = script("given", replies);
    let output = levity(&[
        "plan", "Count", "--file", given, "--python", "--script", &replies, "--view", "json",
    ]);
    let printed = text(&output);
    assert!(
        printed.contains("Dover,6.7") && printed.contains("`/etc/passwd` was not given"),
        "{printed}"
    );
    let output = levity(&[
        "plan", "Count", "--file", given, "--python", "--script", &replies,
    ]);
    check(&output, 0, "1 of 1");
    assert_eq!(text(&output), "3\n");
}

#[test]
fn plan_that_is_cut_by_the_reply_limit_is_asked_for_the_rest() {
    let replies = serde_json::json!([
        {"reply": r#"{"steps": [{"id": "a", "agent": "Thinker", "prompt": "x", "writes": ["x"]}, {"id": "b", "age"#, "finish": "length"},
        {"reply": r#"{"steps": [{"id": "b", "agent": "Thinker", "prompt": "y", "reads": ["x"], "writes": ["y"]}]}"#},
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
