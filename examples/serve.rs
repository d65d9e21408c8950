//! An agent as an MCP server, and a client that calls it.
//!
//! With the argument `serve`, this program is the server, on standard input and output. Any MCP
//! client can start it. Without the argument, it starts itself as a server, as a client would, and
//! calls it.

use levity::mcp::{ServerConfig, Servers, WaitFor};
use levity::prelude::*;
use levity::serve::{AgentServer, Runs};
use levity::test::ScriptedModel;
use serde_json::json;

/// Adds two numbers.
#[tool(read_only)]
async fn add(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve().await,
        _ => ask().await,
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let model = ScriptedModel::new()
        .call("add", json!({"a": 2, "b": 5}))
        .reply("2 + 5 makes 7.");
    let agent = Agent::builder(model).tool(add).build()?;
    let server = AgentServer::new("sums", "1.0", Runs::new(agent))
        .description("Adds numbers.")
        .build()?;
    Ok(server.stdio().await?)
}

async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let this = std::env::current_exe()?.to_string_lossy().into_owned();
    let config = ServerConfig::stdio("sums", this).arg("serve");
    let servers = Servers::builder().server(config).start()?;
    servers.wait(WaitFor::All).await;
    let server = servers.get("sums").ok_or("the server is not configured")?;
    let answer = server
        .call("query", json!({"prompt": "What is 2 + 5?"}))
        .await?
        .value
        .ok_or("no value")?;
    println!("answer:     {}", answer["answer"]);
    println!("statistics: {}", answer["statistics"]);
    servers.stop().await;
    Ok(())
}
