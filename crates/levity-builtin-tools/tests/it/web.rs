//! Tests of `web_fetch` and `web_search` through a dispatcher, against loopback servers.

mod fetch;
mod pages;
mod search;
mod server;

use std::sync::Arc;

use levity_core::{RunId, Tool, ToolCall, ToolResult};
use levity_test::ManualWorld;
use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
use serde_json::Value;

/// Creates a dispatcher with one tool, and its clock.
fn dispatcher(tool: impl Tool + 'static) -> (Dispatcher, Arc<ManualWorld>) {
    let world = Arc::new(ManualWorld::new());
    let registry = Registry::builder().tool(tool).build().unwrap();
    (
        Dispatcher::builder(registry)
            .world(world.clone())
            .retries(0)
            .build()
            .unwrap(),
        world,
    )
}

async fn call(dispatcher: &Dispatcher, name: &str, args: Value) -> ToolResult {
    let call = ToolCall::new("c1", name, args);
    match dispatcher
        .dispatch(&call, false, CallCx::new(RunId::from("r"), "r/1"))
        .await
    {
        Dispatched::Done(result) => result,
        other => panic!("{other:?}"),
    }
}
