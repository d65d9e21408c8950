//! Measures the decoding of a streamed reply into a message, compared with parsing the same JSON
//! once.
//!
//! `cargo bench --bench sse`; use `-- --quick` to check that it runs.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod allocations;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod measure;

use std::borrow::Cow;
use std::hint::black_box;

use levity_llm::__private::decode_chat_stream;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::measure::{Cost, Effort, Work, compare};

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Required megabytes per second on one core. Alternatively, the cost relative to the JSON alone
/// must not exceed `RATIO`.
const SPEED: f64 = 400.0;
const RATIO: f64 = 1.5;

/// Number of chunks in the reply.
const PIECES: usize = 20_000;

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    println!("A streamed reply. Goal: {SPEED} MB/s, or {RATIO} times what the JSON takes.");
    for (name, payloads) in [("text", text()), ("thinking, text and calls", mixed())] {
        let stream: Vec<u8> = payloads
            .iter()
            .flat_map(|data| format!("data: {data}\n\n").into_bytes())
            .collect();
        let (events, bytes) = (payloads.len(), stream.len());
        println!("\n{name}: {events} events, {:.1} MB\n", bytes as f64 / 1e6);
        println!(
            "{:44} {:>8} {:>8} {:>8} {:>8}",
            "", "MB/s", "most", "× floor", "allocs"
        );
        let costs = compare(effort, works(payloads, stream));
        print(&costs, bytes as f64 / events as f64);
    }
}

fn works(payloads: Vec<String>, stream: Vec<u8>) -> Vec<Work> {
    let units = payloads.len();
    let work = |name, run: Box<dyn FnMut()>| Work { name, units, run };
    let (first, second, copy) = (payloads.clone(), payloads, stream.clone());
    let skim = move || {
        for data in events(&first) {
            black_box(serde_json::from_slice::<IgnoredAny>(black_box(data)).expect("it is JSON"));
        }
    };
    let read = move || {
        for data in events(&second) {
            black_box(serde_json::from_slice::<Chunk<'_>>(black_box(data)).expect("it is a chunk"));
        }
    };
    let cut = |stream: Vec<u8>, size: usize| {
        move || {
            drop(black_box(
                decode_chat_stream(black_box(&stream).chunks(size)).expect("it is a reply"),
            ));
        }
    };
    vec![
        work("serde_json, into what is read of it", Box::new(read)),
        work("serde_json, into nothing", Box::new(skim)),
        work(
            "the reply, in reads of 16 KiB",
            Box::new(cut(stream, 16 << 10)),
        ),
        work("the reply, in reads of 200 bytes", Box::new(cut(copy, 200))),
    ]
}

fn events(payloads: &[String]) -> impl Iterator<Item = &[u8]> {
    payloads
        .iter()
        .map(String::as_bytes)
        .filter(|data| *data != b"[DONE]")
}

/// Prints the cost of an event of this size.
fn print(costs: &[Cost], bytes: f64) {
    for cost in costs {
        let speed = |nanos: f64| bytes / nanos * 1e3;
        let (now, ratio) = (speed(cost.nanos), cost.nanos / costs[0].nanos);
        let goal = if now >= SPEED || ratio <= RATIO {
            "met"
        } else {
            "MISSED"
        };
        let (name, best) = (cost.name, speed(cost.least));
        println!(
            "{name:44} {now:>8.0} {best:>8.0} {ratio:>8.2} {:>8.1} {goal}",
            cost.allocations
        );
    }
}

/// The part of a chunk that every client must read.
#[derive(Deserialize)]
#[allow(dead_code, reason = "the benchmark only parses the fields")]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the benchmark only parses the fields")]
struct Choice<'a> {
    index: u64,
    #[serde(borrow)]
    delta: Delta<'a>,
    #[serde(borrow)]
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the benchmark only parses the fields")]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Cow<'a, str>,
    #[serde(borrow, default)]
    reasoning_content: Cow<'a, str>,
    #[serde(borrow, default)]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the benchmark only parses the fields")]
struct Call<'a> {
    index: u64,
    id: Option<&'a str>,
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the benchmark only parses the fields")]
struct Function<'a> {
    name: Option<&'a str>,
    #[serde(borrow, default)]
    arguments: Cow<'a, str>,
}

const WORDS: [&str; 12] = [
    "The", " runtime", " folds", " events", ",", " über", " and", " \"so\"", " it", " goes on",
    ".\n", " 再",
];

fn chunk(delta: &serde_json::Value, finish: Option<&str>) -> String {
    json!({
        "id": "chatcmpl-9f2b7c41d0aa4e6c8b15", "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "invented-large-2026", "system_fingerprint": "fp_5a1c0e77b2",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        "usage": null,
    })
    .to_string()
}

fn ended(mut payloads: Vec<String>, finish: &str) -> Vec<String> {
    payloads.push(chunk(&json!({}), Some(finish)));
    let usage =
        json!({"prompt_tokens": 9, "completion_tokens": PIECES, "total_tokens": PIECES + 9});
    payloads.push(json!({"choices": [], "usage": usage}).to_string());
    payloads.push("[DONE]".to_owned());
    payloads
}

fn text() -> Vec<String> {
    let word = |at: usize| chunk(&json!({"content": WORDS[at % WORDS.len()]}), None);
    ended((0..PIECES).map(word).collect(), "stop")
}

fn mixed() -> Vec<String> {
    let (text, calls) = (PIECES / 3, PIECES * 2 / 3);
    let piece = |at: usize| {
        let word = WORDS[at % WORDS.len()];
        if at < text {
            json!({"reasoning_content": word})
        } else if at < calls {
            json!({"content": word})
        } else {
            call(
                (at - calls) / 1_000,
                (at - calls).is_multiple_of(1_000),
                word,
            )
        }
    };
    ended(
        (0..PIECES).map(|at| chunk(&piece(at), None)).collect(),
        "tool_calls",
    )
}

fn call(index: usize, begins: bool, word: &str) -> serde_json::Value {
    if begins {
        let function = json!({"name": "note", "arguments": ""});
        let id = format!("call_{index}");
        return json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": function}]});
    }
    json!({"tool_calls": [{"index": index, "function": {"arguments": word}}]})
}
