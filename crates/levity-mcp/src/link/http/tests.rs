//! Tests against real servers: some in this process, some hostile.
#![allow(clippy::disallowed_methods, reason = "the servers run in real time")]

mod compliant;
mod hostile;
mod login;
mod lossless;
mod raw_server;
#[path = "../../../tests/it/http/server.rs"]
mod server;
mod sse_fallback;

use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use levity_rpc::mcp::{
    CallToolRequestParams, CallToolResult, ClientConfig, ClientJsonRpcMessage, ErrorData,
    ProtocolVersion, RoleClient, RunningService, ServerJsonRpcMessage, ServiceError, Transport,
};
use levity_runtime::SystemWorld;
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use serde_json::Value;

use super::{Limits, Link, open};
use crate::config::{self, ServerConfig};
use crate::link::authorize::Authorize;
use crate::link::failure;
use crate::{Error, Result};

type Client = RunningService<RoleClient, ClientConfig>;

/// The settings of a test connection.
pub(crate) struct TestConnection {
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) max_message: usize,
    pub(crate) answer: Option<Duration>,
    pub(crate) authorize: Option<Arc<dyn Authorize>>,
}

impl TestConnection {
    pub(crate) fn to(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            max_message: 1 << 20,
            answer: None,
            authorize: None,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn parts(&self) -> (config::Http, Limits, Arc<dyn World>) {
        let config = ServerConfig::http("test", &self.url)
            .max_message(self.max_message)
            .max_concurrent(64);
        let config = self
            .headers
            .iter()
            .fold(config, |config, (name, value)| config.header(*name, value));
        let mut limits = Limits::from_config(&config);
        limits.answer = self.answer.unwrap_or(limits.answer);
        let config::Transport::Http(http) = config.transport else {
            unreachable!()
        };
        (http, limits, Arc::new(SystemWorld))
    }

    pub(crate) fn open(&self) -> Result<Link> {
        let (config, limits, world) = self.parts();
        open(
            "test".into(),
            &config,
            limits,
            self.authorize.clone(),
            world,
        )
    }

    /// Connects like a client for servers of 2025-11-25.
    pub(crate) async fn legacy(&self) -> Client {
        within(self.try_legacy()).await.unwrap()
    }

    pub(crate) async fn try_legacy(&self) -> Result<Client, String> {
        let link = self.open().map_err(|error| error.to_string())?;
        connect(link, ClientLifecycleMode::Initialize).await
    }

    /// Connects like a client for servers of 2026-07-28.
    pub(crate) async fn modern(&self) -> Client {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let mode = ClientLifecycleMode::Discover { preferred_versions };
        within(connect(self.open().unwrap(), mode)).await.unwrap()
    }
}

pub(crate) fn auto() -> ClientLifecycleMode {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    ClientLifecycleMode::Auto {
        preferred_versions,
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

pub(crate) async fn connect<T>(link: T, mode: ClientLifecycleMode) -> Result<Client, String>
where
    T: Transport<RoleClient, Error = Error> + 'static,
{
    let client_config =
        ClientConfig::default().with_protocol_version(ProtocolVersion::V_2025_11_25);
    serve_client_with_lifecycle(client_config, RmcpResults(link), mode)
        .await
        .map_err(|error| error.to_string())
}

/// Converts results to the types that rmcp's own client expects.
struct RmcpResults<T>(T);

impl<T: Transport<RoleClient, Error = Error>> Transport<RoleClient> for RmcpResults<T> {
    type Error = Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        self.0.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let mut message = self.0.receive().await?;
        if let ServerJsonRpcMessage::Response(response) = &mut message {
            let value = serde_json::to_value(&response.result).unwrap();
            response.result = serde_json::from_value(value).unwrap();
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<()> {
        self.0.close().await
    }
}

/// Fails in place of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("the operation timed out")
}

pub(crate) async fn call(
    client: &Client,
    tool: &'static str,
    arguments: Value,
) -> Result<String, Error> {
    let Value::Object(arguments) = arguments else {
        panic!("the arguments are not an object")
    };
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    match within(client.peer().call_tool(params)).await {
        Ok(result) => Ok(text(&result)),
        Err(error) => Err(convert_error(error)),
    }
}

fn text(result: &CallToolResult) -> String {
    let texts = result
        .content
        .iter()
        .filter_map(|content| content.as_text());
    texts.map(|text| text.text.clone()).collect()
}

/// Returns levity's error from rmcp's.
fn convert_error(error: ServiceError) -> Error {
    let server: Arc<str> = "test".into();
    match error {
        ServiceError::McpError(ErrorData {
            ref message, code, ..
        }) => {
            let ServiceError::McpError(data) = &error else {
                unreachable!()
            };
            let refused = Error::new(
                crate::ErrorKind::Rejected(code.0),
                server.clone(),
                message.to_string(),
            );
            failure::read(&server, data).unwrap_or(refused)
        }
        ServiceError::TransportSend(error) => error
            .error
            .downcast_ref::<Error>()
            .expect("not an error of levity")
            .clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn end(client: Client) {
    within(client.cancel()).await.unwrap();
}
