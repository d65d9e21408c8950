//! A client that uses every feature of an MCP server: it lists, calls, reads and answers. The
//! official conformance suite runs it against its own servers.
//!
//! ```text
//! cargo run --example mcp_conformance_client -- http://127.0.0.1:3000/mcp
//! ```
//!
//! Credentials for a login come from `MCP_CONFORMANCE_CONTEXT`, in JSON. The client "visits" the
//! login page with a request, and follows the redirect.

use std::env;
use std::io;
use std::time::Duration;

use levity::core::{Tool, ToolCx};
use levity::mcp::{
    AcceptDefaults, Browser, EnterpriseLogin, OAuth, Refusal, SampleReply, SampleRequest, Sampler,
    Server, ServerConfig, Servers, WaitFor,
};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(url) = env::args().skip(1).last() else {
        println!("usage: mcp_conformance_client URL");
        return Ok(());
    };
    let context = env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".into());
    let config = ServerConfig::http("peer", url)
        .oauth(login(&serde_json::from_str(&context)?))
        // All scenarios run in parallel, so even a local server can be slow.
        .probe_timeout(Duration::from_secs(15))
        .retries(0);
    let servers = Servers::builder()
        .server(config)
        .sampler(FixedSampler)
        .elicitor(AcceptDefaults)
        .roots([format!("file://{}", env::current_dir()?.display())])
        .start()?;
    for status in servers.wait(WaitFor::All).await {
        println!("{}: {:?}", status.name, status.state);
    }
    if let Some(server) = servers
        .get("peer")
        .filter(|server| server.status().state.is_ready())
    {
        use_tools(&server).await;
        read(&server).await;
        ask_prompts(&server).await;
    }
    servers.stop().await;
    Ok(())
}

async fn use_tools(server: &Server) {
    for tool in server.tools() {
        let name = &tool.spec().name;
        // A tool that accepts a schema gets the schema of the first tool, exactly as the server
        // sent it.
        let args = match server
            .tools()
            .first()
            .and_then(|first| server.input_schema(&first.spec().name))
        {
            Some(schema) if name.ends_with("schema_echo") => json!({ "schema": schema }),
            _ => example(&tool.spec().input, 0),
        };
        println!(
            "call {}: {:?}",
            tool.spec().name,
            tool.call(args, &ToolCx::detached()).await
        );
    }
}

async fn read(server: &Server) {
    let resources = server.resources().await.unwrap_or_default();
    for resource in resources {
        println!(
            "read {}: {:?}",
            resource.uri,
            server.read_resource(&resource.uri).await
        );
    }
}

async fn ask_prompts(server: &Server) {
    for prompt in server.prompts().await.unwrap_or_default() {
        let args: Map<_, _> = prompt
            .arguments
            .iter()
            .map(|arg| (arg.name.clone(), json!("text")))
            .collect();
        println!(
            "prompt {}: {:?}",
            prompt.name,
            server.prompt(&prompt.name, args.into()).await
        );
    }
}

/// Creates a value that matches a schema: its default or an example if location is one, else a
/// simple value with the required fields.
fn example(schema: &Value, depth: usize) -> Value {
    let first = |list: &str| schema.get(list).and_then(|list| list.get(0)).cloned();
    let preset = schema
        .get("default")
        .or_else(|| schema.get("const"))
        .cloned();
    if let Some(value) = preset
        .or_else(|| first("examples"))
        .or_else(|| first("enum"))
    {
        return value;
    }
    if let Some(choice) = first("anyOf")
        .or_else(|| first("oneOf"))
        .filter(|_| depth < 8)
    {
        return example(&choice, depth + 1);
    }
    let kind = schema
        .get("type")
        .and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
    match kind {
        // The text is not ASCII, because that is harder to send in a header.
        Some("string") => "Grüße".into(),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("null") => Value::Null,
        _ if depth >= 8 => json!({}),
        _ => {
            let required = schema
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let fields = required.filter_map(|name| {
                let name = name.as_str()?;
                Some((
                    name.to_owned(),
                    example(schema.get("properties")?.get(name)?, depth + 1),
                ))
            });
            fields.collect::<Map<_, _>>().into()
        }
    }
}

/// Configures the login with the known credentials: a registered client, its key, an ID token or a
/// platform token. Without credentials, the client registers dynamically.
fn login(context: &Value) -> OAuth {
    let known = |name: &str| context.get(name).and_then(Value::as_str);
    let document = "https://conformance-test.local/client-metadata.json";
    let mut oauth = OAuth::new()
        .client_name("levity conformance client")
        .client_metadata_url(document);
    oauth = oauth
        .browser(ConsentingBrowser)
        .login_timeout(Duration::from_secs(20));
    if let Some(id) = known("client_id") {
        oauth = oauth.client_id(id);
    }
    if let Some(secret) = known("client_secret") {
        oauth = oauth.client_secret(secret);
    }
    if let Some(key) = known("private_key_pem") {
        oauth = oauth.client_key(key);
    }
    if let Some(token) = known("valid_jwt") {
        oauth = oauth.workload_identity(token.to_owned());
    }
    match (
        known("idp_token_endpoint"),
        known("idp_client_id"),
        known("idp_id_token"),
    ) {
        (Some(endpoint), Some(id), Some(token)) => {
            oauth.enterprise(EnterpriseLogin::new(endpoint, id, token.to_owned()))
        }
        _ => oauth,
    }
}

/// A browser whose user agrees to everything: it requests the login page and follows the redirect.
struct ConsentingBrowser;

#[async_trait::async_trait]
impl Browser for ConsentingBrowser {
    fn redirect_url(&self) -> String {
        "http://127.0.0.1:3999/callback".into()
    }

    async fn visit(&self, url: &str) -> io::Result<String> {
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| io::Error::other("the URL is not a test page"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut stream = TcpStream::connect(host).await?;
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let location = page.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("location")
                .then(|| value.trim().to_owned())
        });
        location.ok_or_else(|| io::Error::other("the page does not redirect"))
    }
}

/// A sampler that always returns the same reply.
struct FixedSampler;

#[async_trait::async_trait]
impl Sampler for FixedSampler {
    async fn sample(&self, _: &str, _: SampleRequest) -> Result<SampleReply, Refusal> {
        Ok(SampleReply::text(
            "canned",
            "This is what a model would say.",
        ))
    }
}
