//! Measures file access of a workspace, compared with the standard library, and search, compared
//! with ripgrep.
//!
//! `cargo bench --bench workspace`; use `-- --quick` to check that it runs.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod allocations;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;
mod measure;

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_builtin_tools::SearchFiles;
use levity_core::{Tool, ToolCx};
use levity_sandbox::Workspace;
use serde_json::json;

use crate::measure::{Cost, Effort, Work, compare, verdict};

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed time to read a file, as a multiple of `std::fs::read`.
const READ: f64 = 2.0;
/// Allowed time of a search, as a multiple of `rg`.
const SEARCH: f64 = 1.3;

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let temp = tempfile::tempdir().expect("a folder for files");
    files(
        if quick { Effort::QUICK } else { Effort::FULL },
        temp.path(),
    );
    search(quick, temp.path());
}

fn files(effort: Effort, folder: &Path) {
    let (small, new) = (
        folder.join("src/deep/small.txt"),
        folder.join("src/deep/new.txt"),
    );
    fs::create_dir_all(folder.join("src/deep")).expect("a folder");
    fs::write(&small, "a line of text\n".repeat(68)).expect("a file");
    std::os::unix::fs::symlink("src/deep", folder.join("short")).expect("a link");
    let space = Workspace::open(folder).expect("a workspace");
    let walking = Workspace::builder(folder)
        .walk_only()
        .build()
        .expect("a workspace");
    println!("A file of a kilobyte, two folders deep. Goal for reading: {READ} × std::fs.\n");
    println!(
        "{:44} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "", "ns", "least", "× std", "allocs", "bytes"
    );
    let read = |space: &Workspace, path: &'static str| {
        let space = space.clone();
        move || drop(black_box(space.read(path, 1 << 20).expect("it is there")))
    };
    print(
        Some(READ),
        &compare(
            effort,
            vec![
                work("std::fs::read", move || {
                    drop(black_box(fs::read(&small).expect("it is there")));
                }),
                work("Workspace::read", read(&space, "src/deep/small.txt")),
            ],
        ),
    );
    let small = folder.join("src/deep/small.txt");
    print(
        None,
        &compare(
            effort,
            vec![
                work("std::fs::read", move || {
                    drop(black_box(fs::read(&small).expect("it is there")));
                }),
                work(
                    "Workspace::read, through a link",
                    read(&space, "short/small.txt"),
                ),
                work(
                    "Workspace::read, on a kernel without openat2",
                    read(&walking, "src/deep/small.txt"),
                ),
            ],
        ),
    );
    let text = "a line of text\n".repeat(68);
    let same = text.clone();
    print(
        None,
        &compare(
            effort,
            vec![
                work("std::fs::write", move || {
                    fs::write(&new, &text).expect("it can be written");
                }),
                work("Workspace::write, whole or not at all", move || {
                    drop(
                        space
                            .write("src/deep/new2.txt", same.as_bytes())
                            .expect("it can be written"),
                    );
                }),
            ],
        ),
    );
}

fn work(name: &'static str, run: impl FnMut() + 'static) -> Work {
    Work {
        name,
        units: 1,
        run: Box::new(run),
    }
}

fn print(goal: Option<f64>, costs: &[Cost]) {
    for (at, cost) in costs.iter().enumerate() {
        let ratio = cost.nanos / costs[0].nanos;
        let met = goal
            .filter(|_| at > 0)
            .map_or("", |goal| verdict(ratio, goal));
        println!(
            "{:44} {:>9.0} {:>9.0} {ratio:>8.2} {:>8.1} {:>9.0} {met}",
            cost.name, cost.nanos, cost.least, cost.allocations, cost.bytes
        );
    }
    println!();
}

/// Searches a tree alternately with the tool and with ripgrep; the fastest round of each counts.
fn search(quick: bool, folder: &Path) {
    let (files, rounds) = if quick { (400, 2) } else { (12_000, 15) };
    let tree = folder.join("tree");
    let bytes = create_tree(&tree, files);
    println!(
        "A tree of {files} files and {} MB, all cores, milliseconds. Goal: {SEARCH} × rg.\n",
        bytes >> 20
    );
    println!("{:44} {:>9} {:>9} {:>8}", "", "tool", "rg", "× rg");
    let tool = Arc::new(SearchFiles::new(
        Workspace::open(&tree).expect("a workspace"),
    ));
    for (name, pattern) in [
        ("a word that is rare", "needle"),
        ("a pattern", r"fn \w+_needle\("),
        ("a pattern without literals", r"\w{5}\s+\w{5}\s+\w{9}ing"),
        ("a word that is nowhere", "zzyzx"),
    ] {
        let (mut tool_time, mut rg_time) = (Duration::MAX, Some(Duration::MAX));
        for _ in 0..rounds {
            tool_time = tool_time.min(timed(|| by_tool(&tool, pattern)));
            rg_time = rg_time.and_then(|best| Some(best.min(by_ripgrep(&tree, pattern)?)));
        }
        let tool_time = tool_time.as_secs_f64() * 1e3;
        match rg_time.map(|time| time.as_secs_f64() * 1e3) {
            Some(rg_time) => {
                let (ratio, met) = (tool_time / rg_time, verdict(tool_time / rg_time, SEARCH));
                println!("{name:44} {tool_time:>9.1} {rg_time:>9.1} {ratio:>8.2} {met}");
            }
            None => println!(
                "{name:44} {tool_time:>9.1} {:>9} {:>8} SKIPPED: there is no `rg`",
                "-", "-"
            ),
        }
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = now();
    work();
    start.elapsed()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn by_tool(tool: &Arc<SearchFiles>, pattern: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let output = runtime.block_on(tool.call(json!({"pattern": pattern}), &ToolCx::detached()));
    black_box(output.expect("a search"));
}

fn by_ripgrep(tree: &Path, pattern: &str) -> Option<Duration> {
    let mut rg = Command::new("rg");
    rg.args([
        "--no-config",
        "--no-require-git",
        "--line-number",
        "-e",
        pattern,
    ])
    .arg(tree);
    rg.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = now();
    let status = rg.status().ok()?;
    // Exit code 1 means that nothing was found.
    matches!(status.code(), Some(0 | 1)).then(|| start.elapsed())
}

/// Creates a deterministic tree of text that resembles source code.
fn create_tree(tree: &Path, files: usize) -> usize {
    const WORDS: [&str; 16] = [
        "let", "value", "return", "matching", "self", "result", "path", "string", "option",
        "where", "async", "stream", "buffer", "index", "error", "(x)",
    ];
    let (mut seed, mut bytes) = (7_u64, 0);
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for file in 0..files {
        let dir = tree.join(format!("crate{:03}/src/part{}", file / 60, file / 12 % 5));
        fs::create_dir_all(&dir).expect("a folder");
        let mut text = String::new();
        for _ in 0..40 + random(400) {
            for _ in 0..1 + random(9) {
                text.push_str(WORDS[random(WORDS.len())]);
                text.push(' ');
            }
            text.push('\n');
        }
        if file % 500 == 3 {
            text.push_str("fn find_needle(x)\n");
        }
        bytes += text.len();
        fs::write(dir.join(format!("file{file}.rs")), text).expect("a file");
    }
    fs::write(tree.join(".gitignore"), "target/\n*.log\n/dist\n").expect("a file");
    bytes
}
