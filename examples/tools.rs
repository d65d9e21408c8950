//! Tools with state, options, defaults, progress, and errors that the model can act on.
//!
//! ```text
//! cargo run --example tools
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;

use levity::core::Progress;
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// A shop's stock; its methods are tools that share it.
#[derive(Default)]
struct Stock {
    items: Mutex<BTreeMap<String, u32>>,
}

#[tool]
impl Stock {
    /// Returns the number of items in stock.
    #[tool(read_only)]
    async fn count(
        &self,
        /** The item's name. */
        item: String,
    ) -> Result<u32, ToolError> {
        let items = self
            .items
            .lock()
            .map_err(|_| ToolError::failed("the lock on the stock is poisoned"))?;
        let known: Vec<_> = items.keys().cloned().collect();
        items.get(&item).copied().ok_or_else(|| {
            ToolError::failed(format!(
                "no `{item}` in stock; the items are \
                {known:?}"
            ))
        })
    }

    /// Adds items to the stock.
    #[tool(timeout = "5s")]
    async fn add(
        &self,
        /** The item's name. */
        item: String,
        /** The number of items. */
        #[tool(default = 1)]
        number: u32,
        progress: Progress,
    ) -> String {
        progress.report(format!("adding {number} {item}"));
        if let Ok(mut items) = self.items.lock() {
            *items.entry(item.clone()).or_default() += number;
        }
        format!("{number} {item} added")
    }
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    println!("(a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .call("add", json!({"item": "pear", "number": 3}))
                .call("add", json!({"item": "fig"})),
        )
        .turn(
            Turn::new()
                .call("count", json!({"item": "pears"}))
                .call("count", json!({"items": "fig"})),
        )
        .turn(Turn::new().call("count", json!({"item": "pear"})))
        .reply("There are 3 pears.");
    let agent = Agent::builder(model).tools(Stock::default()).build()?;

    let answer = agent
        .run("Stock up, then count the pears.")
        .on_event(|event| match &event.kind {
            EventKind::Progress { text, .. } => println!("   … {text}"),
            EventKind::ToolStarted { call, .. } => println!("-> {} {}", call.name, call.args),
            EventKind::ToolFinished { result, .. } => {
                println!(
                    "<- {}{}",
                    if result.is_error() { "failed: " } else { "" },
                    result.text()
                );
            }
            _ => {}
        })
        .await?;
    println!("\n{answer}");
    Ok(())
}
