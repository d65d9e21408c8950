//! Classification of the response to a message.
//!
//! The status and the content type decide how a response is read. Servers are inconsistent here, so
//! the rules accept some mistakes: content after a notification, 400 in place of 404 for an expired
//! session, and an error status with a JSON-RPC error in its body, which then is the answer.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use levity_rpc::mcp::http_client::{StreamableHttpError, StreamableHttpPostResponse};
use levity_rpc::mcp::{ErrorData, RequestId, ServerJsonRpcMessage};
use reqwest::Response;

use super::call::Caller;
use super::client::{Failure, OutgoingMessage, PostError, Step, client_error};
use super::events;
use super::reader::Reader;
use crate::ErrorKind;
use crate::link::decode::DecodeOutcome;

/// The maximum length of the body of an error that is read.
const ERROR_BODY: usize = 64 * 1024;

/// A response, or the source of its events.
#[expect(
    clippy::large_enum_variant,
    reason = "the value is destructured at once and is nearly always the large variant"
)]
pub(super) enum PostOutcome {
    Answer(StreamableHttpPostResponse),
    /// The response arrives as events, in this session.
    Events(Response, Option<String>),
}

/// Reads the response to a message.
pub(super) async fn read_response(
    caller: &Caller,
    response: Response,
    outgoing: &OutgoingMessage<'_>,
    reader: Option<&mut Reader>,
    in_session: bool,
) -> Result<PostOutcome, PostError> {
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return accept(caller, outgoing, in_session);
    }
    if !status.is_success() {
        return read_error_response(caller, response, outgoing, in_session)
            .await
            .map(PostOutcome::Answer);
    }
    let session = response
        .headers()
        .get("mcp-session-id")
        .and_then(|value| value.to_str().ok());
    let session = session.map(str::to_owned);
    match essence(&response).as_str() {
        "text/event-stream" => Ok(PostOutcome::Events(response, session)),
        "application/json" => json(caller, response, reader, session)
            .await
            .map(PostOutcome::Answer),
        // Some servers send content in response to a message that expects none.
        _ if outgoing.id.is_none() => Ok(PostOutcome::Answer(StreamableHttpPostResponse::Accepted)),
        "" => Err(protocol_error(
            caller,
            "its response has no content type; check its URL",
        )),
        _ => {
            let other = displayed_type(&response);
            let message =
                format!("it responded with `{other}` in place of JSON or events; check its URL");
            Err(protocol_error(caller, &message))
        }
    }
}

/// Returns `true` if the response consists of events.
pub(crate) fn is_events(response: &Response) -> bool {
    response.status().is_success() && essence(response) == "text/event-stream"
}

/// Returns the content type without its parameters, in lower case.
fn essence(response: &Response) -> String {
    type_of(response).to_ascii_lowercase()
}

/// Returns the content type for an error message. A long one is left out rather than truncated, so
/// that secrets in it are masked.
fn displayed_type(response: &Response) -> String {
    match type_of(response) {
        long if long.len() > 80 => format!("a content type of {} bytes", long.len()),
        short => short.to_owned(),
    }
}

fn type_of(response: &Response) -> &str {
    let value = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    value
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
}

/// Creates the error of a response that violates the protocol.
fn protocol_error(caller: &Caller, message: &str) -> PostError {
    client_error(caller.error(ErrorKind::Protocol, message))
}

fn accept(
    caller: &Caller,
    outgoing: &OutgoingMessage<'_>,
    in_session: bool,
) -> Result<PostOutcome, PostError> {
    // In a session, the response may arrive through the stream of notifications; otherwise it
    // cannot arrive any more.
    if outgoing.id.is_some() && (outgoing.step != Step::Later || !in_session) {
        return Err(protocol_error(
            caller,
            "it accepted the request but sent no response",
        ));
    }
    Ok(PostOutcome::Answer(StreamableHttpPostResponse::Accepted))
}

/// Reads a JSON body and returns the response to the request in it.
async fn json(
    caller: &Caller,
    response: Response,
    reader: Option<&mut Reader>,
    session: Option<String>,
) -> Result<StreamableHttpPostResponse, PostError> {
    let body = events::body(caller, response, caller.limits.max_message)
        .await
        .map_err(client_error)?;
    let Some(reader) = reader else {
        return Ok(StreamableHttpPostResponse::Accepted);
    };
    let read = reader.push(&body);
    match (reader.answer(), read) {
        (Some(answer), _) => Ok(StreamableHttpPostResponse::Json(answer, session)),
        (None, DecodeOutcome::Message) => Err(protocol_error(
            caller,
            "it responded to another request than the one that was sent",
        )),
        (None, DecodeOutcome::Blank | DecodeOutcome::Junk) => Err(protocol_error(
            caller,
            "its response is not a JSON-RPC message",
        )),
    }
}

/// Reads a response with an error status.
async fn read_error_response(
    caller: &Caller,
    response: Response,
    outgoing: &OutgoingMessage<'_>,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, PostError> {
    let status = response.status();
    if status == StatusCode::NOT_FOUND && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let refused = caller.status_error(&response);
    let error = match essence(&response).as_str() {
        "application/json" => error_in(
            &events::body(caller, response, ERROR_BODY)
                .await
                .unwrap_or_default(),
        ),
        _ => None,
    };
    if status == StatusCode::BAD_REQUEST
        && in_session
        && error.as_ref().is_some_and(mentions_session)
    {
        return Err(StreamableHttpError::SessionExpired);
    }
    let Some(id) = outgoing.id.clone() else {
        return Err(client_error(refused));
    };
    if let Some(error) = error {
        return Ok(json_error(error, id));
    }
    match outgoing.step {
        // An older server does not support this request. The caller gets an error of the protocol.
        Step::Discover if rejects_discover(status) => {
            let message = format!(
                "the response to `server/discover` was HTTP {}",
                status.as_u16()
            );
            Ok(json_error(ErrorData::invalid_request(message, None), id))
        }
        Step::Initialize => Err(StreamableHttpError::Client(Failure {
            error: refused,
            try_sse: matches!(status.as_u16(), 400 | 404 | 405),
        })),
        _ => Err(client_error(refused)),
    }
}

/// Returns `true` for a status by which older servers reject the probe for the newer version.
fn rejects_discover(status: StatusCode) -> bool {
    let broken = matches!(
        status,
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::NOT_IMPLEMENTED
    );
    broken || (status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS)
}

fn json_error(error: ErrorData, id: RequestId) -> StreamableHttpPostResponse {
    StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, Some(id)), None)
}

fn error_in(body: &[u8]) -> Option<ErrorData> {
    match serde_json::from_slice(body).ok()? {
        ServerJsonRpcMessage::Error(error) => Some(error.error),
        _ => None,
    }
}

/// Some servers respond with 400 in place of 404 when a session has expired.
fn mentions_session(error: &ErrorData) -> bool {
    error.message.to_ascii_lowercase().contains("session")
}
