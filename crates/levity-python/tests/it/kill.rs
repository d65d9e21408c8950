//! A process that is really killed while code waits for a tool.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_python::RunPython;
use levity_runtime::{FileJournal, Runtime};
use serde_json::{Value, json};

use crate::support::{agent, python, told};

/// The folder that the process to be killed works in.
const FOLDER: &str = "LEVITY_TEST_KILL";

/// Adds a line to a file for each call; the process to be killed stands still in its second.
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
    // It may be made again, so the one that was cut off is.
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

/// Not a test: what the other one kills.
#[tokio::test]
async fn victim() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    worker(Path::new(&folder)).run("go").id("r").await.unwrap();
}

#[tokio::test]
async fn code_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::victim", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let waits = lines.any(|line| line.contains("waiting"));
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(waits, "it ended before it could be killed");
    let done = || std::fs::read_to_string(folder.path().join("done")).unwrap();
    assert_eq!(done(), "1\n");

    let answer = worker(folder.path()).resume("r").await.unwrap();
    assert_eq!(told(&answer).1["result"], json!([10, 20, 30]));
    assert_eq!(
        done(),
        "1\n2\n3\n",
        "what was done before the kill is not done again"
    );
}
