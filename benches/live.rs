//! Many agents at once whose model takes its time: CPU and memory.

use std::process::Command;
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinSet;

use crate::by_hand::Hand;
use crate::clock::{cpu, resident};
use crate::measure::verdict;
use crate::serve::{ANSWER, Server};
use crate::through;

const TURNS: usize = 10;
const DELAY: Duration = Duration::from_millis(50);

/// How much more than by hand it may be.
const GOAL: f64 = 1.15;

/// Memory of an agent, in KiB.
const GOAL_KIB: f64 = 60.0;

const SUBJECTS: [(&str, &str); 3] = [
    ("hand", "by hand"),
    ("shared", "levity: runs of one agent"),
    ("own", "levity: agents of their own"),
];

/// What so many agents took, in a process of their own.
#[derive(Clone, Copy)]
struct Taken {
    cpu_ms: f64,
    /// Resident memory at the most, beyond what there was before; of each.
    kib: f64,
}

pub fn report(server: &Server, (count, rounds): (usize, usize)) {
    let count = count.min(most_files().saturating_sub(100));
    println!(
        "Live: {count} agents at once, {TURNS} tool turns each, {} ms a call; median of {rounds}.",
        DELAY.as_millis()
    );
    println!("Goal: {GOAL} times what it takes by hand, and {GOAL_KIB} KiB an agent.\n");
    println!(
        "{:40} {:>9} {:>8} {:>10} {:>8}",
        "", "CPU ms", "× floor", "KiB/agent", "× floor"
    );
    let mut taken = vec![Vec::new(); SUBJECTS.len()];
    for _ in 0..rounds {
        for ((subject, _), taken) in SUBJECTS.iter().zip(&mut taken) {
            taken.push(measure(server, subject, count));
        }
    }
    let floor = median(&taken[0]);
    for ((_, meaning), taken) in SUBJECTS.iter().zip(&taken) {
        let Taken { cpu_ms, kib } = median(taken);
        let (slower, larger) = (cpu_ms / floor.cpu_ms, kib / floor.kib);
        let (room, size) = (verdict(larger, GOAL), verdict(kib, GOAL_KIB));
        let met = format!("CPU {}, memory {room}, KiB {size}", verdict(slower, GOAL));
        println!("{meaning:40} {cpu_ms:>9.0} {slower:>8.2} {kib:>10.1} {larger:>8.2} {met}");
    }
    println!();
}

fn median(taken: &[Taken]) -> Taken {
    let middle = |of: fn(&Taken) -> f64| {
        let mut all: Vec<f64> = taken.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Taken {
        cpu_ms: middle(|taken| taken.cpu_ms),
        kib: middle(|taken| taken.kib),
    }
}

/// How many files this process may have open; each agent has a connection.
fn most_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(1_024)
}

fn measure(server: &Server, subject: &str, count: usize) -> Taken {
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
    let words: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [cpu_ms, kib] = words[..] else {
        panic!("{}", String::from_utf8_lossy(&output.stderr))
    };
    Taken { cpu_ms, kib }
}

/// Has that many agents, and prints what they took.
pub fn main(subject: &str, url: &str, count: usize) {
    let tokio = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime is built");
    let (cpu_before, before, after) = tokio.block_on(async {
        // One before all others, so that what is made once is there.
        let mut runs = Runs::new(subject, url);
        runs.add();
        runs.end().await;
        let (cpu_before, before) = (cpu(), resident().expect("memory is known"));
        (0..count).for_each(|_| runs.add());
        runs.end().await;
        (cpu_before, before, peak().expect("memory is known"))
    });
    let taken = (cpu() - cpu_before).as_secs_f64() * 1e3;
    println!(
        "{taken} {}",
        after.saturating_sub(before) as f64 / 1024.0 / count as f64
    );
}

/// The most memory that the system has held for this process, in bytes.
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

/// Sets one more agent to work.
type Add = Box<dyn Fn(&mut JoinSet<String>)>;

/// Runs under way, and what makes more of them.
struct Runs {
    all: JoinSet<String>,
    add: Add,
}

impl Runs {
    fn new(subject: &str, url: &str) -> Self {
        let add: Add = match subject {
            "hand" => {
                let hand = std::sync::Arc::new(Hand::new(url, true));
                Box::new(move |all| {
                    let hand = hand.clone();
                    all.spawn(async move { hand.run().await.expect("there is an answer") });
                })
            }
            "shared" => {
                let agent = through::agent(url, TURNS, true);
                Box::new(move |all| {
                    let agent = agent.clone();
                    all.spawn(async move { through::run(&agent, TURNS).await });
                })
            }
            _ => {
                let url = url.to_owned();
                Box::new(move |all| {
                    let agent = through::agent(&url, TURNS, true);
                    all.spawn(async move { through::run(&agent, TURNS).await });
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
