//! Measures the time from the start of a process to its first answer.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime;

use crate::clock::cpu;
use crate::floor_agent::FloorAgent;
use crate::levity_agent;
use crate::measure::verdict;
use crate::mock_server::{ANSWER, Server};

/// Allowed time relative to the floor.
const GOAL: f64 = 1.1;

const SUBJECTS: [(&str, &str); 2] = [("hand", "by hand"), ("levity", "levity")];

pub fn report(server: &Server, rounds: usize) {
    println!(
        "Once: from the start of a process to its first answer; median of {rounds}. Goal: {GOAL} \
            times.\n"
    );
    println!(
        "{:40} {:>9} {:>8} {:>9} {:>8}",
        "", "CPU ms", "× floor", "wall ms", "× floor"
    );
    let url = server.url(0, Duration::ZERO);
    let mut samples = vec![(Vec::new(), Vec::new()); SUBJECTS.len()];
    for _ in 0..rounds {
        for ((subject, _), (cpus, walls)) in SUBJECTS.iter().zip(&mut samples) {
            let (cpu, wall) = measure(subject, &url);
            cpus.push(cpu);
            walls.push(wall);
        }
    }
    let medians: Vec<_> = samples
        .iter_mut()
        .map(|(cpus, walls)| (median(cpus), median(walls)))
        .collect();
    for ((_, meaning), (cpu, wall)) in SUBJECTS.iter().zip(&medians) {
        let (slower, later) = (cpu / medians[0].0, wall / medians[0].1);
        let met = format!("{}, {}", verdict(slower, GOAL), verdict(later, GOAL));
        println!("{meaning:40} {cpu:>9.2} {slower:>8.2} {wall:>9.2} {later:>8.2} {met}");
    }
    println!();
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Returns the CPU time and the wall time in milliseconds.
#[allow(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time"
)]
fn measure(subject: &str, url: &str) -> (f64, f64) {
    let program = std::env::current_exe().expect("this program has a path");
    let start = Instant::now();
    let mut command = Command::new(program);
    command
        .args(["--once", subject, url])
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("the output is piped")
        .read_to_string(&mut text)
        .expect("the output is text");
    let wall = start.elapsed();
    assert!(child.wait().expect("the program ends").success());
    (
        text.trim()
            .parse()
            .expect("the program prints its CPU time"),
        wall.as_secs_f64() * 1e3,
    )
}

/// Requests one answer, and prints the CPU time of the process until then.
pub fn main(subject: &str, url: &str) {
    let tokio = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime is built");
    let answer = tokio.block_on(async {
        match subject {
            "hand" => FloorAgent::new(url, false)
                .run()
                .await
                .expect("the run returns an answer"),
            _ => levity_agent::run(&levity_agent::agent(url, 0, false), 0).await,
        }
    });
    assert_eq!(answer, ANSWER);
    println!("{}", cpu().as_secs_f64() * 1e3);
}
