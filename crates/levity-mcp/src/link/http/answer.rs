//! What the answer to a message that was sent is.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use levity_rpc::mcp::http_client::{StreamableHttpError, StreamableHttpPostResponse};
use levity_rpc::mcp::{ErrorData, RequestId, ServerJsonRpcMessage};
use reqwest::Response;

use super::call::Caller;
use super::client::{Asked, Failure, PostError, Step, failed};
use super::events;
use super::reader::Reader;
use crate::ErrorKind;
use crate::link::decode::Decoded;

/// How much of the body of an error is read.
const ERROR_BODY: usize = 64 * 1024;

/// An answer, or where it will come from.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and nearly always is the large one"
)]
pub(super) enum Taken {
    Answer(StreamableHttpPostResponse),
    /// It comes as events, in this session.
    Events(Response, Option<String>),
}

/// Takes the answer to a message.
pub(super) async fn take(
    caller: &Caller,
    response: Response,
    asked: &Asked<'_>,
    reader: Option<&mut Reader>,
    in_session: bool,
) -> Result<Taken, PostError> {
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return accepted(caller, asked, in_session);
    }
    if !status.is_success() {
        return refused(caller, response, asked, in_session)
            .await
            .map(Taken::Answer);
    }
    let session = response
        .headers()
        .get("mcp-session-id")
        .and_then(|value| value.to_str().ok());
    let session = session.map(str::to_owned);
    match essence(&response).as_str() {
        "text/event-stream" => Ok(Taken::Events(response, session)),
        "application/json" => json(caller, response, reader, session)
            .await
            .map(Taken::Answer),
        // Some servers say more than they should to a message that wants no answer.
        _ if asked.id.is_none() => Ok(Taken::Answer(StreamableHttpPostResponse::Accepted)),
        "" => Err(protocol(
            caller,
            "it answered without a content type; check its URL",
        )),
        _ => {
            let other = shown_type(&response);
            let message =
                format!("it answered with `{other}` where JSON or events are due; check its URL");
            Err(protocol(caller, &message))
        }
    }
}

/// Whether events follow.
pub(crate) fn is_events(response: &Response) -> bool {
    response.status().is_success() && essence(response) == "text/event-stream"
}

/// The content type without its parameters, in lower case.
fn essence(response: &Response) -> String {
    type_of(response).to_ascii_lowercase()
}

/// The content type as it may stand in an error. One that is too long is left out rather than cut,
/// so that secrets in it are found.
fn shown_type(response: &Response) -> String {
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

fn protocol(caller: &Caller, message: &str) -> PostError {
    failed(caller.error(ErrorKind::Protocol, message))
}

fn accepted(caller: &Caller, asked: &Asked<'_>, in_session: bool) -> Result<Taken, PostError> {
    // In a session the answer may come by the stream of what is said unasked; elsewhere it cannot
    // come any more.
    if asked.id.is_some() && (asked.step != Step::Later || !in_session) {
        return Err(protocol(caller, "it took the request and gave no answer"));
    }
    Ok(Taken::Answer(StreamableHttpPostResponse::Accepted))
}

async fn json(
    caller: &Caller,
    response: Response,
    reader: Option<&mut Reader>,
    session: Option<String>,
) -> Result<StreamableHttpPostResponse, PostError> {
    let body = events::body(caller, response, caller.limits.max_message)
        .await
        .map_err(failed)?;
    let Some(reader) = reader else {
        return Ok(StreamableHttpPostResponse::Accepted);
    };
    let read = reader.push(&body);
    match (reader.answer(), read) {
        (Some(answer), _) => Ok(StreamableHttpPostResponse::Json(answer, session)),
        (None, Decoded::Message) => Err(protocol(
            caller,
            "it answered another request than the one that was sent",
        )),
        (None, Decoded::Blank | Decoded::Junk) => {
            Err(protocol(caller, "its answer is no JSON-RPC message"))
        }
    }
}

/// Takes an answer whose status is an error.
async fn refused(
    caller: &Caller,
    response: Response,
    asked: &Asked<'_>,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, PostError> {
    let status = response.status();
    if status == StatusCode::NOT_FOUND && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let refused = caller.refused(&response);
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
        && error.as_ref().is_some_and(speaks_of_session)
    {
        return Err(StreamableHttpError::SessionExpired);
    }
    let Some(id) = asked.id.clone() else {
        return Err(failed(refused));
    };
    if let Some(error) = error {
        return Ok(json_error(error, id));
    }
    match asked.step {
        // An older server does not know this question, and whoever asked it is told so in the
        // protocol's words.
        Step::Discover if is_no_to_discover(status) => {
            let message = format!(
                "`server/discover` was answered with HTTP {}",
                status.as_u16()
            );
            Ok(json_error(ErrorData::invalid_request(message, None), id))
        }
        Step::Initialize => Err(StreamableHttpError::Client(Failure {
            error: refused,
            older: matches!(status.as_u16(), 400 | 404 | 405),
        })),
        _ => Err(failed(refused)),
    }
}

fn is_no_to_discover(status: StatusCode) -> bool {
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

/// Some servers answer 400 where the protocol has 404 when they no longer know a session.
fn speaks_of_session(error: &ErrorData) -> bool {
    error.message.to_ascii_lowercase().contains("session")
}
