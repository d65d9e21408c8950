//! Measures JSON repair of model output, compared with `serde_json` on the same values as valid
//! JSON.
//!
//! `cargo bench --bench json`; use `-- --quick` to check that it runs.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod allocations;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;
mod measure;

use std::hint::black_box;

use levity_llm::json;
use serde_json::Value;

use crate::measure::{Cost, Effort, Work, compare, verdict};

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed CPU time of a document, in nanoseconds.
const GOAL: f64 = 20_000.0;

/// The test documents of `levity-llm`: `=== kind`, the text, `---`, the value.
const CORPUS: &str = include_str!("../crates/levity-llm/tests/data/malformed.txt");

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let documents = documents();
    let bytes: usize = documents.iter().map(|document| document.0.len()).sum();
    println!(
        "JSON: {} malformed documents of {} bytes in the mean. Goal: all of them, at {GOAL} ns \
            each.\n",
        documents.len(),
        bytes / documents.len()
    );
    let right = documents
        .iter()
        .filter(|(text, value)| json::parse(text).is_ok_and(|found| found == *value));
    println!(
        "{} of {} mean what they should\n",
        right.count(),
        documents.len()
    );
    println!(
        "{:44} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "", "ns/doc", "least", "× floor", "allocs", "bytes"
    );
    let valid: Vec<_> = documents
        .iter()
        .map(|(_, value)| value.to_string())
        .collect();
    let fenced: Vec<_> = valid
        .iter()
        .map(|text| format!("Here it is:\n```json\n{text}\n```\n"))
        .collect();
    let malformed = documents
        .into_iter()
        .map(|(text, _)| text.to_owned())
        .collect();
    let strict = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    let tolerant = |text: &str| json::parse(text).is_ok();
    let works = vec![
        work(
            "serde_json, the same values without a fault",
            valid.clone(),
            strict,
        ),
        work("json::parse, without a fault", valid, tolerant),
        work("json::parse, without a fault, in a fence", fenced, tolerant),
        work("json::parse, malformed", malformed, tolerant),
    ];
    print(&compare(effort, works));
    hostile();
}

fn documents() -> Vec<(&'static str, Value)> {
    let cases = CORPUS
        .strip_prefix("=== ")
        .expect("a case begins it")
        .split("\n=== ");
    let document = |case: &'static str| {
        let (_, case) = case.split_once('\n').expect("a case has a kind");
        let (text, value) = case.split_once("\n---\n").expect("a case has a value");
        (
            text,
            serde_json::from_str(value).expect("the value is JSON"),
        )
    };
    cases.map(document).collect()
}

fn work(name: &'static str, texts: Vec<String>, read: impl Fn(&str) -> bool + 'static) -> Work {
    let units = texts.len();
    let run = move || assert!(texts.iter().all(|text| black_box(read(black_box(text)))));
    Work {
        name,
        units,
        run: Box::new(run),
    }
}

fn print(costs: &[Cost]) {
    for cost in costs {
        let (ratio, goal) = (cost.nanos / costs[0].nanos, verdict(cost.nanos, GOAL));
        println!(
            "{:44} {:>9.0} {:>9.0} {ratio:>8.1} {:>8.1} {:>9.0} {goal}",
            cost.name, cost.nanos, cost.least, cost.allocations, cost.bytes
        );
    }
}

/// Measures texts that would be slow if the parser searched them repeatedly.
fn hostile() {
    println!("\nA megabyte of one thing, in milliseconds:\n");
    for piece in [
        "{",
        "[",
        "\"\\",
        "\"",
        "{\"a\":",
        "```",
        "/*",
        "[1]",
        "{\"a\": b, ",
        "\"a\",",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        let start = clock::cpu();
        let _ = black_box(json::parse(black_box(&text)));
        println!(
            "{:44} {:>9.1}",
            format!("{piece:?}"),
            (clock::cpu() - start).as_secs_f64() * 1e3
        );
    }
}
