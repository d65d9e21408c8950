//! Measures the cost of a turn, compared with a hand-written loop.

use std::sync::Arc;

use levity::core::{Journal as _, RunId};
use levity::prelude::*;
use levity::runtime::{Durability, FileJournal, MemoryJournal};
use levity_core::ToolSpec;
use tokio::runtime;

use crate::measure::{Cost, Effort, Work, compare, verdict};
use crate::workload::{Caller, Quirk, agent, by_hand, noop};

/// Allowed CPU time of a tool turn, in microseconds.
const GOAL: f64 = 20.0;

/// Allowed additional CPU time with a journal on disk, in microseconds.
const ON_DISK: f64 = 100.0;

/// Allowed cost of a turn in a long run, relative to a short one. Measurements are noisy.
const FLAT: f64 = 1.5;

/// The configuration that executes a turn.
#[derive(Clone, Copy, PartialEq)]
pub enum Setup {
    Floor,
    Run,
    Yielding,
    Journal,
    Files,
    Unread,
    Events,
    NoUsage,
    SameIds,
}

impl Setup {
    pub const ALL: [Self; 9] = [
        Self::Floor,
        Self::Run,
        Self::Yielding,
        Self::Journal,
        Self::Files,
        Self::Unread,
        Self::Events,
        Self::NoUsage,
        Self::SameIds,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Run => "run",
            Self::Yielding => "yielding",
            Self::Journal => "journal",
            Self::Files => "files",
            Self::Unread => "unread",
            Self::Events => "events",
            Self::NoUsage => "no-usage",
            Self::SameIds => "same-ids",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Floor => "a loop written by hand",
            Self::Run => "run(), no journal",
            Self::Yielding => "run(), the model has to be waited for",
            Self::Journal => "run(), MemoryJournal",
            Self::Files => "run(), FileJournal, buffered",
            Self::Unread => "start(), nobody reads the events",
            Self::Events => "start(), with a listener",
            Self::NoUsage => "run(), the model gives no token counts",
            Self::SameIds => "run(), the model reuses its call ids",
        }
    }

    /// Creates work that executes one run of `turns` tool turns.
    pub fn work(self, turns: usize) -> Work {
        let model = Caller::new(turns).quirk(match self {
            Self::NoUsage => Quirk::NoUsage,
            Self::SameIds => Quirk::SameIds,
            // The listener runs on the same thread, so it would always lag behind a model that
            // never yields.
            Self::Yielding | Self::Unread | Self::Events => Quirk::Yields,
            _ => Quirk::None,
        });
        let tokio = runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime is built");
        let run: Box<dyn FnMut()> = match self {
            Self::Floor => {
                let tools = [Arc::new(ToolSpec::clone(noop.spec()))];
                Box::new(move || assert_eq!(tokio.block_on(by_hand(&model, &tools)), "done"))
            }
            Self::Run | Self::Yielding | Self::NoUsage | Self::SameIds => {
                let agent = agent(model).build().expect("the agent is valid");
                Box::new(move || check(tokio.block_on(agent.run("Go").into_future()), turns))
            }
            Self::Journal => {
                let journal = MemoryJournal::new();
                let runtime = Runtime::new().with_journal(journal.clone());
                let agent = agent(model)
                    .runtime(runtime)
                    .build()
                    .expect("the agent is valid");
                Box::new(move || {
                    check(
                        tokio.block_on(agent.run("Go").id("r1").into_future()),
                        turns,
                    );
                    tokio
                        .block_on(journal.remove(&RunId::from("r1")))
                        .expect("no process drives the run");
                })
            }
            Self::Files => {
                let folder =
                    std::env::temp_dir().join(format!("levity-bench-{}", std::process::id()));
                let journal = FileJournal::new(&folder).expect("a folder is made");
                let journal = journal.with_durability(Durability::Buffered);
                let runtime = Runtime::new().with_journal(journal);
                let agent = agent(model)
                    .runtime(runtime)
                    .build()
                    .expect("the agent is valid");
                Box::new(move || {
                    check(
                        tokio.block_on(agent.run("Go").id("r1").into_future()),
                        turns,
                    );
                    std::fs::remove_dir_all(&folder)
                        .and_then(|()| std::fs::create_dir(&folder))
                        .expect("the folder can be emptied");
                })
            }
            Self::Unread => {
                let agent = agent(model).build().expect("the agent is valid");
                Box::new(move || check(tokio.block_on(async { agent.start("Go").await }), turns))
            }
            Self::Events => {
                let agent = agent(model).build().expect("the agent is valid");
                Box::new(move || check(tokio.block_on(listen(&agent)), turns))
            }
        };
        Work {
            name: self.meaning(),
            units: turns,
            run,
        }
    }
}

async fn listen(agent: &Agent) -> levity::Result<Answer> {
    let mut run = agent.start("Go");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        std::hint::black_box(event);
    }
    run.await
}

/// Checks the number of calls, because a run with fewer calls would look faster.
fn check(answer: levity::Result<Answer>, turns: usize) {
    let answer = answer.expect("the run ends with an answer");
    let stats = answer.stats();
    assert_eq!(
        (answer.text(), stats.tool_calls, stats.failed_calls),
        ("done", turns as u64, 0)
    );
}

pub fn report(effort: Effort) {
    println!(
        "Turns: the model calls a tool that does nothing. Goal: {GOAL} µs of CPU, {ON_DISK} more \
            on disk, and flat.\n"
    );
    println!(
        "{:40} {:>6} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "", "turns", "µs/turn", "least", "× floor", "allocs", "bytes"
    );
    let sizes = [10, 100, 1_000];
    let all: Vec<Vec<Cost>> = sizes
        .iter()
        .map(|&turns| {
            compare(
                effort,
                Setup::ALL.iter().map(|setup| setup.work(turns)).collect(),
            )
        })
        .collect();
    for at in 0..Setup::ALL.len() {
        for (turns, costs) in sizes.iter().zip(&all) {
            row(*turns, &costs[at], costs[0].nanos);
        }
        println!("{}\n", summary(at, &all));
    }
}

/// Returns the growth of the cost of one set-up, and the verdict on its goals at every length.
fn summary(at: usize, all: &[Vec<Cost>]) -> String {
    let nanos: Vec<f64> = all.iter().map(|costs| costs[at].nanos).collect();
    let growth = nanos[nanos.len() - 1] / nanos[0];
    if at == 0 {
        return format!("{:40} 1,000 turns / 10 turns: {growth:.2}", "");
    }
    let max_micros = nanos.into_iter().fold(0.0, f64::max) / 1e3;
    let goal = if Setup::ALL[at] == Setup::Files {
        GOAL + ON_DISK
    } else {
        GOAL
    };
    let (flat, fast) = (verdict(growth, FLAT), verdict(max_micros, goal));
    format!(
        "{:40} 1,000 turns / 10 turns: {growth:.2}, {flat}; at most {max_micros:.2} µs, {fast}",
        ""
    )
}

fn row(turns: usize, cost: &Cost, floor: f64) {
    println!(
        "{:40} {:>6} {:>9.2} {:>9.2} {:>8.1} {:>8.1} {:>9.0}",
        cost.name,
        turns,
        cost.nanos / 1e3,
        cost.least / 1e3,
        cost.nanos / floor,
        cost.allocations,
        cost.bytes
    );
}
