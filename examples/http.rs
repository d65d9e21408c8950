//! Runs over HTTP: the program serves an agent, and a client starts a run, follows its events and
//! approves a call.
//!
//! ```text
//! cargo run --example http
//! ```

use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::serve::http::HttpApi;
use levity::serve::{AccessControl, Listener, Runs, Token};
use levity::test::ScriptedModel;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Deletes a file.
#[tool(destructive)]
async fn delete(
    /** The file. */
    path: String,
) -> String {
    format!("deleted {path}")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .call("delete", json!({"path": "draft.txt"}))
        .reply("The draft is deleted.");
    let agent = Agent::builder(model)
        .tool(delete)
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()?;

    // These three lines serve any agent, swarm or team.
    let token = Token::generate()?;
    let listener = Listener::bind("127.0.0.1:0", AccessControl::new(token.clone())).await?;
    let client = Client {
        address: listener.address().to_string(),
        token,
    };
    tokio::select! {
        served = HttpApi::new(Runs::new(agent)).serve(listener) => Ok(served?),
        followed = follow(client) => followed,
    }
}

/// The client side. You can use any HTTP client; this one needs no other crate.
async fn follow(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    let run = client
        .ask("POST", "/v1/runs", json!({"goal": "Tidy up."}))
        .await?;
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap_or_default());
    println!("started, state {}", run["state"]);
    let mut lines = client
        .send("GET", &format!("{path}/events?transient=0"), "")
        .await?
        .lines();
    while let Some(line) = lines.next_line().await? {
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        let event: Value = serde_json::from_str(data)?;
        if let Some(name) = event["kind"]
            .as_object()
            .and_then(|kind| kind.keys().next())
        {
            println!("   {name}");
        }
        if let Some(ask) = event["kind"].get("asked") {
            println!("{} {} ? yes", ask["call"]["name"], ask["call"]["args"]);
            // The id of a question contains a fingerprint of its call.
            let asks = client
                .ask("GET", &format!("{path}/asks"), Value::Null)
                .await?;
            let ask = format!(
                "{path}/asks/{}",
                asks["asks"][0]["id"].as_str().unwrap_or_default()
            );
            client
                .ask("POST", &ask, json!({"decision": "allow"}))
                .await?;
        }
        // The last event has no kind. It contains the state of the run.
        if event.get("state").is_some() {
            break;
        }
    }
    let run = client.ask("GET", &path, Value::Null).await?;
    println!(
        "\n{}\n{}",
        run["ending"]["text"].as_str().unwrap_or_default(),
        run["stats"]
    );
    Ok(())
}

struct Client {
    address: String,
    token: Token,
}

impl Client {
    async fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<BufReader<TcpStream>> {
        let (address, token, length) = (&self.address, self.token.reveal(), body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
                {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        Ok(BufReader::new(stream))
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Value,
    ) -> Result<Value, Box<dyn std::error::Error>> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut answer = String::new();
        self.send(method, path, &body)
            .await?
            .read_to_string(&mut answer)
            .await?;
        let (_, json) = answer
            .split_once("\r\n\r\n")
            .ok_or("the answer has no body")?;
        Ok(serde_json::from_str(json)?)
    }
}
