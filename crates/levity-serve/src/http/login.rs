//! `POST /v1/login`: exchanges a code that is valid once and for five minutes for a token.
//!
//! A program that opens the page in a browser passes the code in the fragment of the URL. The
//! token itself then appears neither in the browser's history nor among the arguments of a process.
//! Wrong codes are counted like wrong tokens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use http::StatusCode;
use levity_core::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::Api;
use super::input::read;
use super::problem::{HandlerResult, Problem, ok};
use crate::token::Token;

/// The path of the login, which requires no token.
pub(crate) const PATH: &str = "/v1/login";
/// The time for which a code is valid.
pub(super) const VALID: Duration = Duration::from_secs(5 * 60);
/// The maximum size of a request in bytes.
const MAX_BODY: usize = 1 << 10;
/// The time in which a request must arrive.
const BODY_TIME: Duration = Duration::from_secs(5);

/// A code that has not been used yet, and its token.
pub(super) struct LoginCode {
    pub(super) code: Token,
    pub(super) token: Token,
    pub(super) until: Timestamp,
}

/// The code of a server, if it has one.
pub(super) type LoginSlot = Mutex<Option<LoginCode>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    code: String,
}

/// Returns the token for a valid code, which is then used up. A wrong code leaves it valid.
pub(super) async fn login(State(api): State<Arc<Api>>, request: Request) -> HandlerResult {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = timeout(BODY_TIME, to_bytes(body, MAX_BODY)).await else {
        let message = "the body took too long to arrive";
        return Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            message,
        ));
    };
    let too_large = |_| {
        let message = "the body must be `{\"code\": \"..\"}`";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let body: LoginBody = read(&parts.headers, &bytes.map_err(too_large)?)?;
    let now = api.runs.runtime().world().now();
    match take(&api.settings.login, &body.code, now) {
        Some(token) => Ok(ok(&json!({"token": token.reveal()}))),
        None => {
            let message = "the code is wrong, was already used or has expired; enter the token \
                instead, or start the server again";
            Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "code_wrong",
                message,
            ))
        }
    }
}

/// Takes the token out of the slot, if the code is right and still valid.
fn take(slot: &LoginSlot, code: &str, now: Timestamp) -> Option<Token> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let right = slot.as_ref()?.code.matches(code);
    let valid = slot.as_ref()?.until > now;
    if !valid {
        *slot = None;
        return None;
    }
    if right {
        slot.take().map(|login| login.token)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_valid_once_and_for_a_limited_time() {
        let (code, token) = (Token::generate().unwrap(), Token::generate().unwrap());
        let right = code.reveal().to_owned();
        let at = Timestamp::from_millis;
        let slot = || {
            let (code, token) = (code.clone(), token.clone());
            LoginSlot::new(Some(LoginCode {
                code,
                token,
                until: at(10),
            }))
        };
        let used = slot();
        assert!(take(&used, "wrong", at(1)).is_none());
        assert_eq!(take(&used, &right, at(9)).unwrap().reveal(), token.reveal());
        assert!(take(&used, &right, at(9)).is_none());
        assert!(take(&slot(), &right, at(10)).is_none());
        assert!(take(&LoginSlot::default(), &right, at(0)).is_none());
    }
}
