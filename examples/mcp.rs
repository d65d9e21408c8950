//! Tools of an MCP server that runs beside the agent.
//!
//! The server is this program, started a second time with the argument `serve`. You can use any
//! other server instead, such as `npx -y @modelcontextprotocol/server-filesystem .`.

use std::io::{BufRead as _, Write as _};

use levity::mcp::{ServerConfig, Servers, WaitFor};
use levity::prelude::*;
use levity::test::ScriptedModel;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return Ok(serve()?);
    }
    let this = std::env::current_exe()?.to_string_lossy().into_owned();
    let config = ServerConfig::stdio("tides", this)
        .arg("serve")
        .allow(["high_*"]);
    // Servers start in the background. An agent can start at once, and gets their tools as soon as
    // they are ready.
    let servers = Servers::builder().server(config).start()?;
    for status in servers.wait(WaitFor::All).await {
        println!(
            "{}: {}, {} of its tools for {} tokens",
            status.name, status.state, status.tools, status.tokens
        );
    }

    let model = ScriptedModel::new()
        .call("mcp_tides_high_water", json!({"port": "Brest"}))
        .reply("High water at Brest is at 04:12.");
    let agent = Agent::builder(model)
        .source(servers.clone())
        .tools(servers.helper_tools())
        .build()?;
    let answer = agent.run("When is high water at Brest?").await?;
    for (call, result) in answer.history().calls() {
        println!("{} {} -> {}", call.name, call.args, result.text());
    }
    println!("{}", answer.text());

    // This stops the servers in order. If the program ends in any other way, its servers end too.
    servers.stop().await;
    Ok(())
}

/// A minimal server: it reads one request per line and writes one answer per line.
fn serve() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let Some(id) = request.get("id") else {
            continue;
        };
        let answer = match request["method"].as_str().unwrap_or_default() {
            "initialize" => Ok(json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "tides", "version": "1.0"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": [tool("high_water"), tool("low_water")]})),
            "tools/call" => {
                let port = request["params"]["arguments"]["port"]
                    .as_str()
                    .unwrap_or("nowhere");
                Ok(json!({"content": [{"type": "text", "text": format!("04:12 at {port}")}]}))
            }
            other => {
                Err(json!({"code": -32601, "message": format!("there is no method `{other}`")}))
            }
        };
        let answer = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

fn tool(name: &str) -> Value {
    let input =
        json!({"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]});
    json!({"name": name, "description": "Returns the time of it at a port.", "inputSchema": input})
}
