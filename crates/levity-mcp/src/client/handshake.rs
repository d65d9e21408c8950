//! The first words with a server, in the protocol's newer form where it has it, else in the older one.
//!
//! rmcp can do this too, but waits ten seconds for a server that ignores what it does not know, and takes an
//! odd answer for a failure.

use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, DiscoverRequest,
    DiscoverRequestParams, DiscoverResult, ErrorCode, ErrorData, InitializeRequest, InitializeResult,
    InitializedNotification, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage,
    ServerPeerInfo, ServerRequest, ServerResult,
};
use rmcp::transport::Transport;
use serde::de::DeserializeOwned;

use super::value_of;

/// Which form of the protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Every request stands for itself (2026-07-28).
    Modern,
    /// A connection begins with `initialize` (2025-11-25 and before).
    Legacy,
}

impl Era {
    pub(crate) fn of(version: &ProtocolVersion) -> Self {
        if version.has_initialize() { Self::Legacy } else { Self::Modern }
    }
}

/// Why the first words were not understood.
#[derive(Debug)]
pub(crate) enum Misunderstanding {
    /// The connection ended.
    Closed,
    /// No answer came in time, and the connection cannot be used for another question.
    Unanswered,
    /// The message could not be sent.
    Send(Box<dyn std::error::Error + Send + Sync>),
    /// The server answered with an error.
    Refused(ErrorData),
    /// The server answered with something else.
    Odd(String),
}

type Heard<T> = Result<T, Misunderstanding>;

/// What is spoken of.
pub(crate) struct Handshake<'a> {
    pub(crate) config: &'a ClientConfig,
    /// What the server spoke the last time.
    pub(crate) known: Option<Era>,
    /// How long to wait for word that it speaks the newer form.
    pub(crate) probe: Duration,
    pub(crate) world: &'a Arc<dyn World>,
    /// Whether another question may be put while one is not answered.
    pub(crate) interleaves: bool,
}

// Far from the numbers that requests get afterwards, so that a late answer is taken for none of theirs.
const FIRST: i64 = 1_000_000_000;

impl Handshake<'_> {
    /// Speaks with the server until both know which form they use.
    pub(crate) async fn shake<T: Transport<RoleClient>>(&self, transport: &mut T) -> Heard<ServerPeerInfo> {
        if self.known != Some(Era::Legacy)
            && let Some(info) = self.discover(transport).await?
        {
            return Ok(info);
        }
        self.initialize(transport).await
    }

    /// Asks for the newer form; `None` when the server does not have it, or does not answer in time.
    async fn discover<T: Transport<RoleClient>>(&self, transport: &mut T) -> Heard<Option<ServerPeerInfo>> {
        // One more try for a server that says it has the very version it was asked for.
        for attempt in 0..2 {
            let id = RequestId::Number(FIRST + attempt);
            let ask = self.ask_discover(transport, &id);
            let answer = tokio::select! {
                answer = ask => answer,
                () = self.world.sleep(self.probe) => {
                    return if self.interleaves { Ok(None) } else { Err(Misunderstanding::Unanswered) };
                }
            };
            match answer {
                Ok(result) => return Ok(modern(result)),
                Err(Misunderstanding::Refused(error)) if supports_modern(&error) => {}
                Err(Misunderstanding::Refused(error)) if is_modern_refusal(error.code) => {
                    return Err(Misunderstanding::Refused(error));
                }
                Err(Misunderstanding::Refused(_)) => return Ok(None),
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }

    async fn ask_discover<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
        id: &RequestId,
    ) -> Heard<ServerResult> {
        let mut request = DiscoverRequest::new(DiscoverRequestParams {});
        request.extensions.insert(RequestMetaObject::with_client_context(
            ProtocolVersion::V_2026_07_28,
            self.config.client_info.clone(),
            self.config.capabilities.clone(),
        ));
        ask(transport, ClientRequest::DiscoverRequest(request), id).await
    }

    async fn initialize<T: Transport<RoleClient>>(&self, transport: &mut T) -> Heard<ServerPeerInfo> {
        let id = RequestId::Number(FIRST + 10);
        // rmcp's own latest version has no `initialize`.
        let params = self.config.clone().with_protocol_version(ProtocolVersion::V_2025_11_25);
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        let result = ask(transport, request, &id).await?;
        let result: InitializeResult = match result {
            ServerResult::InitializeResult(result) => result,
            other => read(&other).ok_or_else(|| odd("initialize", &other))?,
        };
        let note = ClientNotification::InitializedNotification(InitializedNotification::default());
        send(transport, ClientJsonRpcMessage::notification(note)).await?;
        Ok(result.into())
    }
}

fn modern(result: ServerResult) -> Option<ServerPeerInfo> {
    let found: DiscoverResult = match result {
        ServerResult::DiscoverResult(found) => found,
        other => read(&other)?,
    };
    let version = ProtocolVersion::V_2026_07_28;
    found.supported_versions.contains(&version).then(|| ServerPeerInfo::from_discover_result(version, found))
}

/// Whether the refusal says that the version asked for is there after all.
fn supports_modern(error: &ErrorData) -> bool {
    let supported = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
    error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        && supported.is_some_and(|versions| {
            versions.iter().any(|version| version.as_str() == Some(ProtocolVersion::V_2026_07_28.as_str()))
        })
}

/// Whether only a server of the newer form refuses like this.
fn is_modern_refusal(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH)
}

fn read<T: DeserializeOwned>(result: &ServerResult) -> Option<T> {
    serde_json::from_value(value_of(result)).ok()
}

fn odd(to: &str, _: &ServerResult) -> Misunderstanding {
    Misunderstanding::Odd(format!("the answer to `{to}` is not what the protocol says"))
}

async fn send<T: Transport<RoleClient>>(transport: &mut T, message: ClientJsonRpcMessage) -> Heard<()> {
    transport.send(message).await.map_err(|error| Misunderstanding::Send(Box::new(error)))
}

/// Sends a request and waits for its answer; what comes in between is left aside, but a ping is answered.
async fn ask<T: Transport<RoleClient>>(
    transport: &mut T,
    request: ClientRequest,
    id: &RequestId,
) -> Heard<ServerResult> {
    send(transport, ClientJsonRpcMessage::request(request, id.clone())).await?;
    loop {
        match transport.receive().await.ok_or(Misunderstanding::Closed)? {
            ServerJsonRpcMessage::Response(answer) if same(id, &answer.id) => return Ok(answer.result),
            ServerJsonRpcMessage::Error(error) if error.id.as_ref().is_none_or(|other| same(id, other)) => {
                return Err(Misunderstanding::Refused(error.error));
            }
            ServerJsonRpcMessage::Request(request)
                if matches!(request.request, ServerRequest::PingRequest(_)) =>
            {
                let pong = ClientJsonRpcMessage::response(ClientResult::empty(()), request.id);
                send(transport, pong).await?;
            }
            _ => {}
        }
    }
}

/// Some servers send a number back as a string.
fn same(sent: &RequestId, got: &RequestId) -> bool {
    sent == got || sent.to_string() == got.to_string()
}
