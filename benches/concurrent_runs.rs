//! Measures the CPU time and memory of many parallel agents with a slow model.

use std::process::Command;
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinSet;

use crate::clock::{cpu, resident};
use crate::floor_agent::FloorAgent;
use crate::levity_agent;
use crate::measure::verdict;
use crate::mock_server::{ANSWER, Server};

const TURNS: usize = 10;
const DELAY: Duration = Duration::from_millis(50);

/// Allowed cost relative to the floor.
const GOAL: f64 = 1.15;

/// Allowed memory of an agent, in KiB.
const GOAL_KIB: f64 = 60.0;

const SUBJECTS: [(&str, &str); 3] = [
    ("hand", "by hand"),
    ("shared", "levity: runs of one agent"),
    ("own", "levity: agents of their own"),
];

/// The cost of a number of agents, measured in a separate process.
#[derive(Clone, Copy)]
struct RunCost {
    cpu_ms: f64,
    /// Growth of the peak resident memory per agent.
    kib: f64,
}

pub fn report(server: &Server, (count, rounds): (usize, usize)) {
    let count = count.min(open_file_limit().saturating_sub(100));
    println!(
        "Live: {count} agents at once, {TURNS} tool turns each, {} ms a call; median of {rounds}.",
        DELAY.as_millis()
    );
    println!("Goal: {GOAL} times what it takes by hand, and {GOAL_KIB} KiB an agent.\n");
    println!(
        "{:40} {:>9} {:>8} {:>10} {:>8}",
        "", "CPU ms", "× floor", "KiB/agent", "× floor"
    );
    let mut costs = vec![Vec::new(); SUBJECTS.len()];
    for _ in 0..rounds {
        for ((subject, _), costs) in SUBJECTS.iter().zip(&mut costs) {
            costs.push(measure(server, subject, count));
        }
    }
    let floor = median(&costs[0]);
    for ((_, meaning), costs) in SUBJECTS.iter().zip(&costs) {
        let RunCost { cpu_ms, kib } = median(costs);
        let (slower, larger) = (cpu_ms / floor.cpu_ms, kib / floor.kib);
        let (memory, size) = (verdict(larger, GOAL), verdict(kib, GOAL_KIB));
        let met = format!("CPU {}, memory {memory}, KiB {size}", verdict(slower, GOAL));
        println!("{meaning:40} {cpu_ms:>9.0} {slower:>8.2} {kib:>10.1} {larger:>8.2} {met}");
    }
    println!();
}

fn median(costs: &[RunCost]) -> RunCost {
    let middle = |of: fn(&RunCost) -> f64| {
        let mut all: Vec<f64> = costs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    RunCost {
        cpu_ms: middle(|cost| cost.cpu_ms),
        kib: middle(|cost| cost.kib),
    }
}

/// Returns the limit of open files of this process; each agent needs a connection.
fn open_file_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(1_024)
}

fn measure(server: &Server, subject: &str, count: usize) -> RunCost {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args([
        "--live",
        subject,
        &server.url(TURNS, DELAY),
        &count.to_string(),
    ]);
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [cpu_ms, kib] = numbers[..] else {
        panic!("{}", String::from_utf8_lossy(&output.stderr))
    };
    RunCost { cpu_ms, kib }
}

/// Runs that number of agents, and prints their cost.
pub fn main(subject: &str, url: &str, count: usize) {
    let tokio = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime is built");
    let (cpu_before, before, after) = tokio.block_on(async {
        // The first run initializes shared state before the measurement.
        let mut runs = Runs::new(subject, url);
        runs.add();
        runs.end().await;
        let (cpu_before, before) = (cpu(), resident().expect("memory is known"));
        (0..count).for_each(|_| runs.add());
        runs.end().await;
        (cpu_before, before, peak().expect("memory is known"))
    });
    let cpu_ms = (cpu() - cpu_before).as_secs_f64() * 1e3;
    println!(
        "{cpu_ms} {}",
        after.saturating_sub(before) as f64 / 1024.0 / count as f64
    );
}

/// Returns the peak resident memory of this process in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

/// A function that starts one more agent.
type StartRun = Box<dyn Fn(&mut JoinSet<String>)>;

/// The runs in progress, and the function that starts more of them.
struct Runs {
    all: JoinSet<String>,
    add: StartRun,
}

impl Runs {
    fn new(subject: &str, url: &str) -> Self {
        let add: StartRun = match subject {
            "hand" => {
                let hand = std::sync::Arc::new(FloorAgent::new(url, true));
                Box::new(move |all| {
                    let hand = hand.clone();
                    all.spawn(async move { hand.run().await.expect("the run returns an answer") });
                })
            }
            "shared" => {
                let agent = levity_agent::agent(url, TURNS, true);
                Box::new(move |all| {
                    let agent = agent.clone();
                    all.spawn(async move { levity_agent::run(&agent, TURNS).await });
                })
            }
            _ => {
                let url = url.to_owned();
                Box::new(move |all| {
                    let agent = levity_agent::agent(&url, TURNS, true);
                    all.spawn(async move { levity_agent::run(&agent, TURNS).await });
                })
            }
        };
        Self {
            all: JoinSet::new(),
            add,
        }
    }

    fn add(&mut self) {
        (self.add)(&mut self.all);
    }

    async fn end(&mut self) {
        while let Some(answer) = self.all.join_next().await {
            assert_eq!(answer.expect("no run panics"), ANSWER);
        }
    }
}
