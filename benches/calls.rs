//! Measures the cost of a tool turn, for one run and for many parallel runs.

use std::time::Duration;

use levity::Agent;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;

use crate::floor_agent::FloorAgent;
use crate::levity_agent;
use crate::measure::{Cost, Effort, Work, compare, verdict};
use crate::mock_server::{ANSWER, Server};

/// The implementation that executes the runs.
#[derive(Clone, Copy, PartialEq)]
enum Subject {
    Hand,
    Levity,
    WithListener,
}

/// A case: tool turns, parallel runs, streamed replies, and the allowed cost of a turn relative to
/// the floor.
#[derive(Clone, Copy)]
struct Case {
    turns: usize,
    runs: usize,
    stream: bool,
    goal: f64,
}

const CASES: [Case; 6] = [
    Case {
        turns: 10,
        runs: 1,
        stream: false,
        goal: 1.15,
    },
    Case {
        turns: 10,
        runs: 64,
        stream: false,
        goal: 1.15,
    },
    Case {
        turns: 10,
        runs: 1,
        stream: true,
        goal: 1.15,
    },
    Case {
        turns: 10,
        runs: 64,
        stream: true,
        goal: 1.15,
    },
    Case {
        turns: 100,
        runs: 1,
        stream: false,
        goal: 0.9,
    },
    Case {
        turns: 100,
        runs: 1,
        stream: true,
        goal: 0.9,
    },
];

impl Case {
    /// Returns a smaller case, to check that the benchmark runs.
    fn quick(self) -> Self {
        Self {
            turns: self.turns.min(5),
            runs: self.runs.min(2),
            ..self
        }
    }
}

pub fn report(server: &Server, quick: bool) {
    println!(
        "Calls: the model calls a tool that does nothing, over HTTP on this machine. CPU of this \
            process.\n"
    );
    println!(
        "{:32} {:>5} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "", "turns", "runs", "µs/turn", "least", "× floor", "least", "allocs", "bytes", "conns"
    );
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    for stream in [false, true] {
        println!(
            "\n{}:",
            if stream {
                "Replies as streams"
            } else {
                "Replies in one piece"
            }
        );
        for case in CASES.iter().filter(|case| case.stream == stream) {
            measure(server, if quick { case.quick() } else { *case }, effort);
        }
    }
    println!();
}

fn measure(server: &Server, case: Case, effort: Effort) {
    let subjects = [Subject::Hand, Subject::Levity, Subject::WithListener];
    let subjects = &subjects[..if case.stream { 3 } else { 2 }];
    let mut works: Vec<_> = subjects
        .iter()
        .map(|subject| subject.work(server, case))
        .collect();
    let opened: Vec<_> = works.iter_mut().map(|work| opened(server, work)).collect();
    let costs = compare(effort, works);
    for ((subject, cost), opened) in subjects.iter().zip(&costs).zip(opened) {
        row(*subject, case, cost, &costs[0], opened);
    }
}

/// Counts the connections that a few runs open. A connection can return to the pool too late, so up
/// to two per parallel run are normal. Without reuse, there would be one for each call.
fn opened(server: &Server, work: &mut Work) -> usize {
    let before = server.accepted();
    (0..3).for_each(|_| (work.run)());
    server.accepted() - before
}

fn row(subject: Subject, case: Case, cost: &Cost, floor: &Cost, opened: usize) {
    let (median, least) = (cost.nanos / floor.nanos, cost.least / floor.least);
    let reused = verdict(opened as f64, 2.0 * case.runs as f64);
    let met = match subject {
        Subject::Levity => format!("{}, connections: {reused}", verdict(median, case.goal)),
        _ => String::new(),
    };
    println!(
        "{:32} {:>5} {:>5} {:>8.1} {:>8.1} {median:>8.2} {least:>8.2} {:>8.1} {:>8.0} {opened:>6} \
            {met}",
        cost.name,
        case.turns,
        case.runs,
        cost.nanos / 1e3,
        cost.least / 1e3,
        cost.allocations,
        cost.bytes,
    );
}

impl Subject {
    fn meaning(self) -> &'static str {
        match self {
            Self::Hand => "by hand",
            Self::Levity => "levity, run()",
            Self::WithListener => "levity, start() with a listener",
        }
    }

    fn work(self, server: &Server, case: Case) -> Work {
        let Case {
            turns,
            runs,
            stream,
            ..
        } = case;
        let url = server.url(turns, Duration::ZERO);
        let tokio = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime is built");
        let run: Box<dyn FnMut()> = match self {
            Self::Hand => {
                let hand = FloorAgent::new(&url, stream);
                Box::new(move || {
                    run_in_parallel(&tokio, runs, || {
                        let hand = hand.clone();
                        async move { hand.run().await.expect("the run returns an answer") }
                    });
                })
            }
            Self::Levity => {
                let agent = levity_agent::agent(&url, turns, stream);
                Box::new(move || {
                    run_in_parallel(&tokio, runs, || {
                        let agent: Agent = agent.clone();
                        async move { levity_agent::run(&agent, turns).await }
                    });
                })
            }
            Self::WithListener => {
                let agent = levity_agent::agent(&url, turns, stream);
                Box::new(move || {
                    run_in_parallel(&tokio, runs, || {
                        let agent: Agent = agent.clone();
                        async move { levity_agent::listen(&agent, turns).await }
                    });
                })
            }
        };
        Work {
            name: self.meaning(),
            units: turns * runs,
            run,
        }
    }
}

/// Executes that number of runs in parallel.
fn run_in_parallel<F>(tokio: &Runtime, runs: usize, run: impl Fn() -> F)
where
    F: Future<Output = String> + Send + 'static,
{
    tokio.block_on(async {
        let mut all = JoinSet::new();
        (0..runs).for_each(|_| drop(all.spawn(run())));
        while let Some(answer) = all.join_next().await {
            assert_eq!(answer.expect("no run panics"), ANSWER);
        }
    });
}

/// Executes runs without measuring, for a profiler.
pub fn profile(turns: usize, setup: &str, runs: usize) {
    let (subject, stream) = match setup {
        "hand" => (Subject::Hand, false),
        "hand-stream" => (Subject::Hand, true),
        "levity" => (Subject::Levity, false),
        "levity-stream" => (Subject::Levity, true),
        "watched" => (Subject::WithListener, true),
        _ => panic!(
            "there is no set-up `{setup}`; there are hand, levity, hand-stream, levity-stream, \
                watched"
        ),
    };
    let server = Server::start();
    let mut work = subject.work(
        &server,
        Case {
            turns,
            runs: 1,
            stream,
            goal: 0.0,
        },
    );
    (0..runs).for_each(|_| (work.run)());
}
