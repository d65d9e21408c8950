//! Errors for the model when a request fails or cannot be made.
//!
//! Each message says what happened and what the model can do instead. Statuses that another attempt
//! may change are retryable; all others are not, since a model would repeat them in vain.

use levity_core::{ToolError, ToolErrorKind};
use levity_sandbox::{AddressError, NetError, Reply};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns an error for arguments that a tool cannot use.
pub(super) fn invalid(text: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArgs, text)
}

/// Parses the arguments of a call. The dispatcher has validated them, but a direct caller has not.
pub(super) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args)
        .map_err(|error| invalid("the arguments do not match the tool's schema").with_source(error))
}

/// Converts a network error into a tool error.
pub(super) fn net(error: NetError) -> ToolError {
    match error {
        NetError::Address(error) => address(error),
        NetError::Timeout(_) => ToolError::new(ToolErrorKind::Timeout, error.to_string()),
        error => ToolError::failed(error.to_string()).with_retryable(error.is_retryable()),
    }
}

/// Converts a rejected address into a tool error.
///
/// The target of a refused redirect is not part of the message: the server chose it, perhaps to
/// learn about the network.
pub(super) fn address(error: AddressError) -> ToolError {
    let kind = if is_forbidden(&error) {
        ToolErrorKind::Denied
    } else {
        ToolErrorKind::Failed
    };
    match error {
        AddressError::Redirect(cause) => ToolError::new(
            kind,
            "the server redirects to an address that is not allowed",
        )
        .with_source(*cause),
        error => ToolError::new(kind, error.to_string()),
    }
}

/// Returns `true` if a rule forbids the address, and `false` if it is only malformed.
pub(super) fn is_forbidden(error: &AddressError) -> bool {
    !matches!(
        error,
        AddressError::NotAUrl | AddressError::InvalidHost | AddressError::Unresolved(_)
    )
}

/// Returns an error for a status without a page.
pub(super) fn status(reply: &Reply) -> Result<(), ToolError> {
    let status = reply.status();
    let (text, may_pass) = match status {
        200 | 203 | 206 => return Ok(()),
        204 | 205 => ("there is nothing at this address".to_owned(), false),
        304 => (
            "the server reports an unchanged page for an unconditional request".to_owned(),
            true,
        ),
        300..=399 => (
            "the server redirects without a target; use another address".to_owned(),
            false,
        ),
        401 | 407 => (
            "the page needs a log-in; use another source".to_owned(),
            false,
        ),
        402 => (
            "the page must be paid for; use another source".to_owned(),
            false,
        ),
        403 => (
            "the server refuses to show the page to programs; use another source".to_owned(),
            false,
        ),
        404 => (
            "there is no such page; check the address, or search for it".to_owned(),
            false,
        ),
        406 => (
            "the server has no text of this page; use another source".to_owned(),
            false,
        ),
        410 => (
            "the page is gone for good; use another source".to_owned(),
            false,
        ),
        429 => (
            format!(
                "the server requires fewer requests{}; use another source meanwhile",
                wait(reply)
            ),
            false,
        ),
        451 => (
            "the page is withheld for legal reasons; use another source".to_owned(),
            false,
        ),
        500 | 502 | 503 | 504 => (
            format!("the server failed{}; try again later", wait(reply)),
            true,
        ),
        _ => (
            "the server does not show the page; use another source".to_owned(),
            false,
        ),
    };
    Err(ToolError::failed(format!("{text} (status {status})")).with_retryable(may_pass))
}

/// Returns the wait that the server requests, in words.
fn wait(reply: &Reply) -> String {
    let seconds = reply
        .header("retry-after")
        .and_then(|value| value.trim().parse::<u32>().ok());
    seconds.map_or_else(String::new, |seconds| {
        format!(", and to wait for {seconds} seconds")
    })
}
