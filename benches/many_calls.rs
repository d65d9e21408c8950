//! Measures one reply with many calls. The cost of a call should not depend on their number, and
//! the run should yield its thread often.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity_core::{Deltas, ModelCard, ModelError, Part, Request, Response, Role, ToolCall, Usage};
use serde_json::json;
use tokio::runtime;

use crate::clock::cpu;
use crate::measure::verdict;
use crate::workload::noop;

/// Numbers of calls in a reply.
const CALLS: [usize; 5] = [1_000, 2_000, 4_000, 8_000, 16_000];
/// Allowed cost of a call in the largest reply, relative to the smallest. Measurements are noisy.
const FLAT: f64 = 2.0;
/// Allowed CPU time of a poll of the run, in milliseconds. A limit can be delayed by that time.
const POLL: f64 = 50.0;

/// A model that calls `noop` a number of times in one reply, then answers.
struct Burst {
    card: ModelCard,
    calls: usize,
}

#[async_trait]
impl Model for Burst {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        Ok(Deltas::from_response(&self.complete(request).await?))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let call =
            |n: usize| Part::ToolCall(ToolCall::new(format!("call_{n}"), "noop", json!({"n": n})));
        let parts: Vec<Part> = match request.history.len() {
            1 => (0..self.calls).map(call).collect(),
            _ => vec![Part::text("done")],
        };
        Ok(Response::new(Message::new(Role::Assistant, parts)).with_usage(Usage::new(10, 10)))
    }
}

fn agent(calls: usize, journaled: bool) -> Agent {
    let runtime = if journaled {
        Runtime::new().with_journal(MemoryJournal::new())
    } else {
        Runtime::new()
    };
    let limits = Limits::new().tool_calls(calls as u64);
    let model = Burst {
        card: ModelCard::new("bench", "burst"),
        calls,
    };
    let agent = Agent::builder(model)
        .tool(noop)
        .limits(limits)
        .max_calls_per_turn(calls);
    agent.runtime(runtime).build().expect("the agent is valid")
}

/// Executes one run. Returns its CPU time and the CPU time of its longest poll.
pub fn run(calls: usize, journaled: bool) -> (Duration, Duration) {
    let tokio = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built");
    let agent = Arc::new(agent(calls, journaled));
    let start = cpu();
    let mut longest = Duration::ZERO;
    let answer = tokio.block_on(async {
        let mut run = pin!(agent.run("Go").into_future());
        poll_fn(|cx| {
            let start = cpu();
            let polled = run.as_mut().poll(cx);
            longest = longest.max(cpu() - start);
            polled
        })
        .await
    });
    let answer = answer.expect("the run ends with an answer");
    assert_eq!(answer.stats().tool_calls, calls as u64);
    (cpu() - start, longest)
}

pub fn report(quick: bool) {
    println!(
        "Many calls in one reply: CPU of this process, the least of 3. Goals: a call costs at most \
            {FLAT} times as much in \
         the largest reply, a poll takes at most {POLL} ms.\n"
    );
    println!(
        "{:40} {:>8} {:>10} {:>10} {:>12}",
        "", "calls", "µs/call", "× first", "longest poll"
    );
    for journaled in [false, true] {
        let mut first = None;
        for calls in if quick { &CALLS[..2] } else { &CALLS[..] } {
            let samples: Vec<_> = (0..3).map(|_| run(*calls, journaled)).collect();
            let least = samples
                .iter()
                .map(|(all, _)| *all)
                .min()
                .unwrap_or_default();
            let longest = samples
                .iter()
                .map(|(_, longest)| *longest)
                .min()
                .unwrap_or_default();
            let each = least.as_secs_f64() * 1e6 / *calls as f64;
            let (ratio, poll) = (
                each / *first.get_or_insert(each),
                longest.as_secs_f64() * 1e3,
            );
            let name = if journaled {
                "run(), MemoryJournal"
            } else {
                "run(), no journal"
            };
            println!(
                "{name:40} {calls:>8} {each:>10.2} {ratio:>10.2} {poll:>9.1} ms {}, poll: {}",
                verdict(ratio, FLAT),
                verdict(poll, POLL)
            );
        }
    }
    println!();
}
