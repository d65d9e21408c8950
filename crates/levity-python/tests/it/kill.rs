//! Test in which the process is killed while code waits for a tool.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_python::RunPython;
use levity_runtime::{FileJournal, Runtime};
use serde_json::{Value, json};

use crate::support::{agent, call_result, python};

/// The environment variable with the folder of the process to be killed.
const FOLDER: &str = "LEVITY_TEST_KILL";

/// A tool that appends a line to a file for each call; in the process to be killed, it blocks in
/// its second call.
struct Step(ToolSpec, std::path::PathBuf);

#[async_trait]
impl Tool for Step {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let file = self.1.join("done");
        let mut done = std::fs::read_to_string(&file).unwrap_or_default();
        if std::env::var_os(FOLDER).is_some() && !done.is_empty() {
            println!("waiting");
            std::future::pending::<()>().await;
        }
        done.push_str(&format!("{}\n", args["n"]));
        std::fs::write(&file, done).unwrap();
        Ok(ToolOutput::value(json!(args["n"].as_i64().unwrap() * 10)))
    }
}

fn step(folder: &Path) -> Step {
    let input =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    // The tool is idempotent, so the interrupted call is repeated.
    let hints = levity_core::Hints::new().idempotent();
    Step(
        ToolSpec::new("step", "Steps.")
            .with_input(input)
            .with_hints(hints),
        folder.to_owned(),
    )
}

fn worker(folder: &Path) -> levity_loop::Agent {
    let code = "seen = []\nfor n in [1, 2, 3]:\n    seen.append(step(n))\nseen";
    let step = Arc::new(step(folder));
    let runtime = Runtime::new().with_journal(FileJournal::new(folder.join("runs")).unwrap());
    let program = RunPython::new().python(python()).tool(&step);
    agent(json!({"code": code}), program)
        .tool(step)
        .runtime(runtime)
        .build()
        .unwrap()
}

/// The process that the other test kills, not a test.
#[tokio::test]
async fn process_to_be_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    worker(Path::new(&folder)).run("go").id("r").await.unwrap();
}

#[tokio::test]
async fn code_resumes_after_process_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut process_to_be_killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::process_to_be_killed", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process_to_be_killed.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let waits = lines.any(|line| line.contains("waiting"));
    process_to_be_killed.kill().unwrap();
    process_to_be_killed.wait().unwrap();
    assert!(waits, "it ended before it could be killed");
    let done = || std::fs::read_to_string(folder.path().join("done")).unwrap();
    assert_eq!(done(), "1\n");

    let answer = worker(folder.path()).resume("r").await.unwrap();
    assert_eq!(call_result(&answer).1["result"], json!([10, 20, 30]));
    assert_eq!(
        done(),
        "1\n2\n3\n",
        "what was done before the kill is not done again"
    );
}
