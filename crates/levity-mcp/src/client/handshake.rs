//! The handshake with a server: the newer version of the protocol if the server supports it, and
//! otherwise the older one.
//!
//! rmcp has a handshake too. However, it waits ten seconds for a server that ignores unknown
//! requests, and treats an unexpected response as a failure.
//!
//! The rules, in order:
//!
//! 1. Send `server/discover`, the probe of the newer version, unless the server used the older one
//!    before.
//! 2. A valid answer decides for the newer version. An unknown answer and most errors decide for
//!    the older one. Two errors that only newer servers send end the handshake.
//! 3. Silence for the probe timeout decides for the older version, if the transport can send
//!    another request meanwhile. Otherwise the handshake fails, and the caller tries the older
//!    version on a new connection.
//! 4. Send `initialize`. An answer to the probe that arrives only now still decides for the newer
//!    version: the server was slow to start.
//!
//! Ids of the handshake start at 1,000,000,000, so that late answers to it match no later request.

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

/// The generation of the protocol that a server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Every request is independent (2026-07-28).
    Modern,
    /// A connection starts with `initialize` (2025-11-25 and before).
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

/// The reason why a handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The connection ended during the handshake.
    Closed,
    /// No response arrived in time, and the connection cannot be used for another request.
    NoResponse,
    /// The message could not be sent.
    Send(Box<dyn std::error::Error + Send + Sync>),
    /// The server responded with an error.
    Refused(ErrorData),
    /// The server sent an unexpected response.
    Invalid(String),
}

type HandshakeResult<T> = Result<T, HandshakeError>;

/// The settings of a handshake.
pub(crate) struct Handshake<'a> {
    pub(crate) config: &'a ClientConfig,
    /// The generation that the server used last time.
    pub(crate) known: Option<Era>,
    /// The timeout of the probe for the newer version.
    pub(crate) probe: Duration,
    pub(crate) world: &'a Arc<dyn World>,
    /// `true` if another request may be sent while one is unanswered.
    pub(crate) interleaves: bool,
}

// These ids are far from those of later requests, so that a late response matches none of them.
const FIRST_ID: i64 = 1_000_000_000;
/// The maximum number of probes for the newer version.
const MAX_PROBES: i64 = 2;

impl Handshake<'_> {
    /// Negotiates the version of the protocol with the server.
    pub(crate) async fn perform<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
    ) -> HandshakeResult<ServerPeerInfo> {
        if self.known != Some(Era::Legacy)
            && let Some(info) = self.discover(transport).await?
        {
            return Ok(info);
        }
        self.initialize(transport).await
    }

    /// Probes for the newer version. Returns `None` if the server does not support it or does not
    /// respond in time.
    async fn discover<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
    ) -> HandshakeResult<Option<ServerPeerInfo>> {
        // A second attempt for a server that reports support for exactly the requested version.
        for attempt in 0..MAX_PROBES {
            let id = RequestId::Number(FIRST_ID + attempt);
            let ask = self.send_discover(transport, &id);
            let answer = tokio::select! {
                answer = ask => answer,
                () = self.world.sleep(self.probe) => {
                    return if self.interleaves {
                        Ok(None)
                    } else {
                        Err(HandshakeError::NoResponse)
                    };
                }
            };
            match answer {
                Ok(result) => return Ok(modern(result)),
                Err(HandshakeError::Refused(error)) if supports_modern(&error) => {}
                Err(HandshakeError::Refused(error)) if is_modern_refusal(error.code) => {
                    return Err(HandshakeError::Refused(error));
                }
                Err(HandshakeError::Refused(_)) => return Ok(None),
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }

    /// Sends one probe and waits for its answer.
    async fn send_discover<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
        id: &RequestId,
    ) -> HandshakeResult<ServerResult> {
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
        let response = answer(transport, |other| same_id(id, other)).await;
        response
            .map(|(_, result)| result)
            .map_err(|(_, failure)| failure)
    }

    /// Performs the handshake of the older version, and accepts a late answer to a probe.
    async fn initialize<T: Transport<RoleClient>>(
        &self,
        transport: &mut T,
    ) -> HandshakeResult<ServerPeerInfo> {
        let id = RequestId::Number(FIRST_ID + 10);
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
            match answer(transport, |other| same_id(&id, other) || is_probe(other)).await {
                Ok((other, result)) if same_id(&id, &other) => {
                    return finish_initialize(transport, result).await;
                }
                // The server was only slow to start. From here on, such a server rejects the older
                // version.
                Ok((_, result)) => {
                    if let Some(info) = modern(result) {
                        return Ok(info);
                    }
                }
                Err((Some(other), _)) if is_probe(&other) => {}
                Err((_, failure)) => return Err(failure),
            }
        }
    }
}

/// Processes the response to `initialize` and sends the `initialized` notification.
async fn finish_initialize<T: Transport<RoleClient>>(
    transport: &mut T,
    result: ServerResult,
) -> HandshakeResult<ServerPeerInfo> {
    let result: InitializeResult = match result {
        ServerResult::InitializeResult(result) => result,
        other => read(&other).ok_or_else(|| {
            HandshakeError::Invalid("the response to `initialize` violates the protocol".to_owned())
        })?,
    };
    let note = ClientNotification::InitializedNotification(InitializedNotification::default());
    send(transport, ClientJsonRpcMessage::notification(note)).await?;
    Ok(result.into())
}

/// Returns `true` if an id belongs to a probe for the newer version.
fn is_probe(id: &RequestId) -> bool {
    (0..MAX_PROBES).any(|probe| same_id(&RequestId::Number(FIRST_ID + probe), id))
}

/// Returns the server's description, if the answer to a probe names the newer version.
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

/// Returns `true` if the error states that the requested version is supported after all.
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

/// Returns `true` if only servers of the newer version respond with this error.
fn is_modern_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH
    )
}

/// Converts a result that rmcp did not recognize.
fn read<T: DeserializeOwned>(result: &ServerResult) -> Option<T> {
    serde_json::from_value(value_of(result)).ok()
}

async fn send<T: Transport<RoleClient>>(
    transport: &mut T,
    message: ClientJsonRpcMessage,
) -> HandshakeResult<()> {
    transport
        .send(message)
        .await
        .map_err(|error| HandshakeError::Send(Box::new(error)))
}

/// Waits for the response to a request that `wanted` selects. Ignores other messages, except for
/// pings, which are answered.
async fn answer<T: Transport<RoleClient>>(
    transport: &mut T,
    wanted: impl Fn(&RequestId) -> bool,
) -> Result<(RequestId, ServerResult), (Option<RequestId>, HandshakeError)> {
    loop {
        match transport
            .receive()
            .await
            .ok_or((None, HandshakeError::Closed))?
        {
            ServerJsonRpcMessage::Response(answer) if wanted(&answer.id) => {
                return Ok((answer.id, answer.result));
            }
            ServerJsonRpcMessage::Error(error) if error.id.as_ref().is_none_or(&wanted) => {
                return Err((error.id, HandshakeError::Refused(error.error)));
            }
            ServerJsonRpcMessage::Request(request)
                if matches!(request.request, ServerRequest::PingRequest(_)) =>
            {
                let pong = ClientJsonRpcMessage::response(ClientResult::empty(()), request.id);
                send(transport, pong)
                    .await
                    .map_err(|failure| (None, failure))?;
            }
            _ => {}
        }
    }
}

/// Compares ids as text, because some servers return a number as a string.
fn same_id(sent: &RequestId, got: &RequestId) -> bool {
    sent == got || sent.to_string() == got.to_string()
}
