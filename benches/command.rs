//! Measures the overhead of the sandbox for a command that does nothing, compared with a plain
//! spawn.
//!
//! `cargo bench --bench command`; use `-- --quick` to check that it runs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use levity_builtin_tools::RunCommand;
use levity_core::{Tool, ToolCx};
use levity_sandbox::{Level, Sandbox, Workspace};
use serde_json::json;
use tokio::runtime::Runtime;

/// Allowed overhead in milliseconds.
const GOAL: f64 = 3.0;

struct Work {
    name: String,
    run: Box<dyn FnMut()>,
    samples: Vec<f64>,
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let rounds = if quick { 5 } else { 300 };
    let folder = std::env::temp_dir().join(format!("levity-bench-command-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let mut works = works(&folder);
    for _ in 0..rounds {
        works.iter_mut().for_each(|work| {
            let time = timed(&mut work.run);
            work.samples.push(time.as_secs_f64() * 1e3);
        });
    }
    println!("`true`, in milliseconds of real time. Goal: {GOAL} ms over a bare spawn.\n");
    println!("{:44} {:>8} {:>8} {:>8}", "", "median", "least", "over");
    let mut bare = None;
    for work in &mut works {
        work.samples.sort_by(f64::total_cmp);
        let (median, least) = (work.samples[work.samples.len() / 2], work.samples[0]);
        let over = median - *bare.get_or_insert(median);
        let verdict = if over <= GOAL { "met" } else { "MISSED" };
        println!(
            "{:44} {median:>8.2} {least:>8.2} {over:>8.2} {verdict}",
            work.name
        );
    }
    drop(works);
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[allow(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time"
)]
fn timed(run: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn works(folder: &std::path::Path) -> Vec<Work> {
    let mut works = vec![Work {
        name: "a bare spawn".to_owned(),
        run: Box::new(bare),
        samples: Vec::new(),
    }];
    for without in [
        &[][..],
        &["root"],
        &["namespaces"],
        &["namespaces", "landlock", "seccomp"],
    ] {
        let builder = Sandbox::builder(Workspace::open(folder).expect("a workspace"))
            .require_level(Level::Open);
        let builder = without
            .iter()
            .fold(builder, |builder, means| builder.disable(means));
        let sandbox = builder.build().expect("a sandbox");
        let level = sandbox.report().level;
        let name = format!("run_command, {level}, without {without:?}");
        works.push(Work {
            name,
            run: Box::new(called(RunCommand::new(sandbox))),
            samples: Vec::new(),
        });
    }
    works
}

fn bare() {
    let mut command = std::process::Command::new("true");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    assert!(command.output().expect("`true` runs").status.success());
}

fn called(tool: RunCommand) -> impl FnMut() {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    move || {
        let args = json!({"command": "true", "args": []});
        let output = runtime.block_on(tool.call(args, &ToolCx::detached()));
        assert!(
            output.is_ok_and(|output| output.value.is_some_and(|value| value["exit_code"] == 0))
        );
    }
}
