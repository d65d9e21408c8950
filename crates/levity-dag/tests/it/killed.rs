//! Tests with a process that is killed at random moments, and others that resume its run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Journal as _, RunId, ToolError, World as _};
use levity_dag::{FanOut, Function, Plan, PlanNotice, Retry, Step, StepInput, StepStatus, Team};
use levity_runtime::{Durability, FileJournal, Runtime, SystemWorld};
use serde_json::{Value, json};

const FOLDER: &str = "LEVITY_TEST_GRAPH_FOLDER";
const STEPS: u64 = 50;

/// 50 steps in layers, one of them with a fan-out and one that fails at first.
fn plan() -> Plan {
    let mut plan = Plan::new().given("list", json!((0..10).collect::<Vec<_>>()));
    for n in 0..STEPS {
        let id = format!("s{n}");
        let mut step = Step::new(id.as_str(), "work")
            .input("me", id.as_str())
            .writes([format!("v{n}")]);
        if n >= 5 {
            step = step.reads(
                [format!("v{}", n - 5), format!("v{}", (n * 7 + 3) % (n - 4))]
                    .map(Arc::<str>::from),
            );
            step.reads.dedup();
        }
        if n == 20 {
            step = step.map(FanOut::over("list"));
        }
        if n == 30 {
            step = step
                .retry(Retry::attempts(3).pause(Duration::from_millis(5)))
                .input("flaky", true);
        }
        plan = plan.step(step);
    }
    plan
}

/// Appends one line, in a single write.
fn append_line(file: &Path, line: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Records its start and its end, in the file and on standard output.
async fn work(input: StepInput, file: Option<PathBuf>) -> Result<Value, ToolError> {
    let me: String = input.parse("me")?;
    let me = match input.get("item") {
        Value::Null => me,
        item => format!("{me}#{item}"),
    };
    let record = |what: &str| {
        if let Some(file) = &file {
            append_line(file, &format!("{what} {me}"));
            println!("{what} {me}");
        }
    };
    if input.get("flaky") == &json!(true)
        && let Some(file) = &file
        && fs::create_dir(file.with_file_name("tried")).is_ok()
    {
        return Err(ToolError::failed("not yet"));
    }
    record("begin");
    SystemWorld.sleep(Duration::from_millis(1)).await;
    record("end");
    let sum: u64 = input.values.values().filter_map(Value::as_u64).sum();
    Ok(json!((sum * 31 + me.len() as u64) % 1_000_003))
}

fn team(folder: Option<&Path>) -> Team {
    let file = folder.map(|folder| folder.join("done"));
    let work = Function::new(move |input| work(input, file.clone())).idempotent();
    let runtime = match folder {
        None => Runtime::new(),
        Some(folder) => Runtime::new().with_journal(journal(folder)),
    };
    Team::builder()
        .function("work", work)
        .max_parallel(4)
        .runtime(runtime)
        .build()
        .unwrap()
}

fn journal(folder: &Path) -> FileJournal {
    FileJournal::new(folder.join("runs"))
        .unwrap()
        .with_durability(Durability::Buffered)
}

/// The process that is killed: it starts the run, or resumes it.
#[tokio::test]
async fn child_process_entry() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let known = journal(&folder)
        .read(&RunId::new("r"))
        .await
        .is_ok_and(|records| !records.is_empty());
    let team = team(Some(&folder));
    let finished = match known {
        true => team.resume("r").await,
        false => team.run(plan()).id("r").await,
    };
    let finished = finished.unwrap();
    let open = finished
        .steps()
        .iter()
        .filter(|step| step.status != StepStatus::Completed)
        .count();
    fs::write(
        folder.join("result"),
        json!({"open": open, "values": finished.variables()}).to_string(),
    )
    .unwrap();
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a process until it has printed this many lines, then kills it (SIGKILL). Returns `true` if
/// it ended before.
fn run_and_kill(folder: &Path, lines: usize, pause: Duration) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "killed::child_process_entry",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER, folder);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = KillOnDrop(child);
    let lines_before = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut lines_before =
        lines_before.filter(|line| line.contains("begin ") || line.contains("end "));
    for _ in 0..lines {
        if lines_before.next().is_none() {
            assert!(child.0.wait().unwrap().success());
            return true;
        }
    }
    std::thread::sleep(pause);
    drop(child);
    false
}

/// Returns the steps and elements that are finished according to the journal.
fn finished(folder: &Path) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let history = runtime.block_on(async {
        let known = journal(folder)
            .read(&RunId::new("r"))
            .await
            .is_ok_and(|records| !records.is_empty());
        if known {
            team(Some(folder)).history(&RunId::new("r")).await.unwrap()
        } else {
            Vec::new()
        }
    });
    let done = history
        .iter()
        .filter_map(|event| match PlanNotice::of(&event.kind)? {
            PlanNotice::StepCompleted { step, .. } => Some(step.to_string()),
            PlanNotice::ItemFinished {
                step,
                item,
                error: None,
            } => Some(format!("{step}#{item}")),
            _ => None,
        });
    done.collect()
}

fn done(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Runs a plan, killed this many times. Returns the number of kills before it ended.
fn killed_run(mut seed: u64, kills: usize, expected: &BTreeMap<Arc<str>, Value>) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut next = |end: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let (mut killed, mut ended) = (0, false);
    while !ended {
        let (before, lines_before) = (finished(folder.path()), done(folder.path()).len());
        let lines = if killed < kills {
            next(22) as usize
        } else {
            usize::MAX
        };
        ended = run_and_kill(folder.path(), lines, Duration::from_micros(next(1_500)));
        check_again(folder.path(), &before, lines_before);
        killed += usize::from(!ended);
    }
    check_end(folder.path(), expected);
    killed
}

/// Checks that no finished step was started again.
fn check_again(folder: &Path, finished: &BTreeSet<String>, lines_before: usize) {
    for line in &done(folder)[lines_before..] {
        let again = line
            .strip_prefix("begin ")
            .is_some_and(|step| finished.contains(step));
        assert!(!again, "{line}, which was already finished");
    }
}

fn check_end(folder: &Path, expected: &BTreeMap<Arc<str>, Value>) {
    let result: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("result")).unwrap()).unwrap();
    assert_eq!(result, json!({"open": 0, "values": expected}));
    let done = done(folder);
    for n in (0..STEPS).filter(|n| *n != 20) {
        assert!(done.contains(&format!("end s{n}")), "s{n} never ran");
    }
}

#[test]
fn run_killed_fifty_times_completes_without_repeating_finished_steps() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let expected =
        runtime.block_on(async { team(None).run(plan()).await.unwrap().variables().clone() });
    let runs = |seeds: std::ops::Range<u64>| {
        seeds
            .map(|seed| killed_run(seed, 10, &expected))
            .sum::<usize>()
    };
    let killed = std::thread::scope(|scope| {
        let other = scope.spawn(|| runs(0..4));
        runs(4..8) + other.join().unwrap()
    });
    assert!(killed >= 50, "only {killed} were killed in time");
}
