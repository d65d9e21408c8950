//! Measures the dispatch of a tool call, compared with calling the function.

use std::hint::black_box;

use levity::core::RunId;
use levity_core::ToolCall;
use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
use serde_json::json;
use tokio::runtime;

use crate::measure::{Effort, Work, compare, verdict};
use crate::workload::{invoke, noop};

/// Allowed CPU time of a call, in nanoseconds.
const GOAL: f64 = 5_000.0;

const CALLS: usize = 1_000;

pub fn report(effort: Effort) {
    println!(
        "Dispatch: the call of a tool that does nothing, from the model's call to its result. \
            Goal: {GOAL} ns.\n"
    );
    println!(
        "{:40} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "", "ns/call", "least", "× floor", "allocs", "bytes"
    );
    let costs = compare(effort, vec![by_hand(CALLS), dispatched(CALLS)]);
    for (at, cost) in costs.iter().enumerate() {
        let ratio = cost.nanos / costs[0].nanos;
        let goal = if at == 0 {
            ""
        } else {
            verdict(cost.nanos, GOAL)
        };
        println!(
            "{:40} {:>9.0} {:>9.0} {ratio:>8.1} {:>8.1} {:>9.0} {goal}",
            cost.name, cost.nanos, cost.least, cost.allocations, cost.bytes
        );
    }
    println!();
}

fn call() -> ToolCall {
    ToolCall::new("call_1", "noop", json!({"n": 1}))
}

fn by_hand(calls: usize) -> Work {
    let (tokio, call) = (tokio(), call());
    let run = move || {
        tokio.block_on(async {
            for _ in 0..calls {
                black_box(invoke(&black_box(&call).args).await);
            }
        });
    };
    Work {
        name: "the function, its arguments read by hand",
        units: calls,
        run: Box::new(run),
    }
}

pub fn dispatched(calls: usize) -> Work {
    let (tokio, call) = (tokio(), call());
    let registry = Registry::builder()
        .tool(noop)
        .build()
        .expect("the tool is valid");
    let dispatcher = Dispatcher::builder(registry)
        .build()
        .expect("the defaults are valid");
    let cx = CallCx::new(RunId::from("r1"), "r1/1");
    let run = move || {
        tokio.block_on(async {
            for _ in 0..calls {
                match dispatcher
                    .dispatch(black_box(&call), false, cx.clone())
                    .await
                {
                    Dispatched::Done(result) if !result.is_error() => drop(black_box(result)),
                    other => panic!("the call is allowed and succeeds: {other:?}"),
                }
            }
        });
    };
    Work {
        name: "the dispatcher",
        units: calls,
        run: Box::new(run),
    }
}

fn tokio() -> runtime::Runtime {
    runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built")
}
