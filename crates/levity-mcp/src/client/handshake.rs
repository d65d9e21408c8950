//! The first words with a server, in the protocol's newer form where it has it, else in the older
//! one.
//!
//! rmcp can do this too, but waits ten seconds for a server that ignores what it does not know, and
//! takes an odd answer for a failure.

use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use levity_rpc::mcp::{
    ClientConfig, ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult,
    DiscoverRequest, DiscoverRequestParams, DiscoverResult, ErrorCode, ErrorData,
    InitializeRequest, InitializeResult, InitializedNotification, ProtocolVersion, RequestId,
    RequestMetaObject, RoleClient, ServerJsonRpcMessage, ServerPeerInfo, ServerRequest,
    ServerResult, Transport,
};
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
        if version.has_initialize() {
            Self::Legacy
        } else {
            Self::Modern
        }
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

// Far from the numbers that requests get afterwards, so that a late answer is taken for none of
// theirs.
const FIRST: i64 = 1_000_000_000;
/// How often the newer form is asked for.
const PROBES: i64 = 2;

impl Handshake<'_> {
    /// Speaks with the server until both know which form they use.
    pub(crate) async fn shake<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
    ) -> Heard<ServerPeerInfo> {
        if self.known != Some(Era::Legacy)
            && let Some(info) = self.discover(transport).await?
        {
            return Ok(info);
        }
        self.initialize(transport).await
    }

    /// Asks for the newer form; `None` when the server does not have it, or does not answer in
    /// time.
    async fn discover<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
    ) -> Heard<Option<ServerPeerInfo>> {
        // One more try for a server that says it has the very version it was asked for.
        for attempt in 0..PROBES {
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
        request
            .extensions
            .insert(RequestMetaObject::with_client_context(
                ProtocolVersion::V_2026_07_28,
                self.config.client_info.clone(),
                self.config.capabilities.clone(),
            ));
        let request = ClientRequest::DiscoverRequest(request);
        send(
            transport,
            ClientJsonRpcMessage::request(request, id.clone()),
        )
        .await?;
        let heard = answer(transport, |other| same(id, other)).await;
        heard.map(|(_, result)| result).map_err(|(_, why)| why)
    }

    async fn initialize<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
    ) -> Heard<ServerPeerInfo> {
        let id = RequestId::Number(FIRST + 10);
        // rmcp's own latest version has no `initialize`.
        let params = self
            .config
            .clone()
            .with_protocol_version(ProtocolVersion::V_2025_11_25);
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        send(
            transport,
            ClientJsonRpcMessage::request(request, id.clone()),
        )
        .await?;
        loop {
            match answer(transport, |other| same(&id, other) || is_probe(other)).await {
                Ok((other, result)) if same(&id, &other) => return begin(transport, result).await,
                // A slow start was taken for silence. From here on such a server refuses the older
                // form.
                Ok((_, result)) => {
                    if let Some(info) = modern(result) {
                        return Ok(info);
                    }
                }
                Err((Some(other), _)) if is_probe(&other) => {}
                Err((_, why)) => return Err(why),
            }
        }
    }
}

/// Takes in the answer to `initialize` and says that we are ready.
async fn begin<T: Transport<RoleClient>>(
    transport: &mut T,
    result: ServerResult,
) -> Heard<ServerPeerInfo> {
    let result: InitializeResult = match result {
        ServerResult::InitializeResult(result) => result,
        other => read(&other).ok_or_else(|| {
            Misunderstanding::Odd(
                "the answer to `initialize` is not what the protocol says".to_owned(),
            )
        })?,
    };
    let note = ClientNotification::InitializedNotification(InitializedNotification::default());
    send(transport, ClientJsonRpcMessage::notification(note)).await?;
    Ok(result.into())
}

/// Whether a number is one of those with which the newer form was asked for.
fn is_probe(id: &RequestId) -> bool {
    (0..PROBES).any(|probe| same(&RequestId::Number(FIRST + probe), id))
}

fn modern(result: ServerResult) -> Option<ServerPeerInfo> {
    let found: DiscoverResult = match result {
        ServerResult::DiscoverResult(found) => found,
        other => read(&other)?,
    };
    let version = ProtocolVersion::V_2026_07_28;
    found
        .supported_versions
        .contains(&version)
        .then(|| ServerPeerInfo::from_discover_result(version, found))
}

/// Whether the refusal says that the version asked for is there after all.
fn supports_modern(error: &ErrorData) -> bool {
    let supported = error
        .data
        .as_ref()
        .and_then(|data| data.get("supported")?.as_array());
    error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        && supported.is_some_and(|versions| {
            versions
                .iter()
                .any(|version| version.as_str() == Some(ProtocolVersion::V_2026_07_28.as_str()))
        })
}

/// Whether only a server of the newer form refuses like this.
fn is_modern_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH
    )
}

fn read<T: DeserializeOwned>(result: &ServerResult) -> Option<T> {
    serde_json::from_value(value_of(result)).ok()
}

async fn send<T: Transport<RoleClient>>(
    transport: &mut T,
    message: ClientJsonRpcMessage,
) -> Heard<()> {
    transport
        .send(message)
        .await
        .map_err(|error| Misunderstanding::Send(Box::new(error)))
}

/// Waits for the answer to one of the requests that are `wanted`; what else comes is left aside,
/// but a ping is answered.
async fn answer<T: Transport<RoleClient>>(
    transport: &mut T,
    wanted: impl Fn(&RequestId) -> bool,
) -> Result<(RequestId, ServerResult), (Option<RequestId>, Misunderstanding)> {
    loop {
        match transport
            .receive()
            .await
            .ok_or((None, Misunderstanding::Closed))?
        {
            ServerJsonRpcMessage::Response(answer) if wanted(&answer.id) => {
                return Ok((answer.id, answer.result));
            }
            ServerJsonRpcMessage::Error(error) if error.id.as_ref().is_none_or(&wanted) => {
                return Err((error.id, Misunderstanding::Refused(error.error)));
            }
            ServerJsonRpcMessage::Request(request)
                if matches!(request.request, ServerRequest::PingRequest(_)) =>
            {
                let pong = ClientJsonRpcMessage::response(ClientResult::empty(()), request.id);
                send(transport, pong).await.map_err(|why| (None, why))?;
            }
            _ => {}
        }
    }
}

/// Some servers send a number back as a string.
fn same(sent: &RequestId, got: &RequestId) -> bool {
    sent == got || sent.to_string() == got.to_string()
}
