//! A model writes Python code that calls tools. The code runs in an interpreter that can access
//! nothing else.
//!
//! ```text
//! cargo run --example python
//! ```

use levity::core::Event;
use levity::prelude::*;
use levity::python::{Python, RunPython, tools_from_source};
use levity::test::ScriptedModel;
use serde_json::json;

/// Returns the number of items in stock.
#[tool(read_only)]
async fn stock(item: String) -> u32 {
    match item.as_str() {
        "apples" => 12,
        "pears" => 0,
        _ => 3,
    }
}

/// A file of tools, as a folder could contain it.
const PRICES: &str = r#"
PRICES = {"apples": 0.5, "pears": 0.8, "plums": 0.2}

def price(item: str, count: int = 1) -> float:
    """Returns the price of some items.

    Args:
        item: Its name.
        count: How many.
    """
    return PRICES[item] * count
"#;

const CODE: &str = r#"
worth = {}
for item in items:
    count = stock(item)
    if count == 0:
        print(f"no {item}")
        continue
    worth[item] = price(item, count)
{"worth": worth, "total": round(sum(worth.values()), 2)}
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // With this line, code runs in a separate process: levity starts this program again.
    levity::python::worker_main();
    println!("(a scripted model replaces a real one)\n");
    let python = Python::new();
    let tools = tools_from_source("prices.py", PRICES, &python)?.tools;
    let price = tools[0].clone();
    let program = RunPython::new()
        .python(python)
        .tool(&stock)
        .tool(&price)
        .variables(json!({"items": ["apples", "pears", "plums"]}));
    let model = ScriptedModel::new()
        .call("run_python", json!({"code": CODE}))
        .reply("The stock is worth 6.60.");
    let agent = Agent::builder(model)
        .tool(stock)
        .tool(price)
        .program(program)
        .build()?;
    let watch = |event: &Event| {
        if let EventKind::ToolFinished { result, .. } = &event.kind {
            println!("{} → {}", result.name, result.text());
        }
        if let EventKind::ChildFinished { ending, .. } = &event.kind {
            println!("run_python → {}", ending.text);
        }
    };
    let answer = agent
        .run("What is our stock worth?")
        .on_event(watch)
        .await?;
    println!("\n{}", answer.text());
    Ok(())
}
