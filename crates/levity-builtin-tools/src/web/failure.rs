//! What a model is told when something could not be fetched.

use levity_core::{ToolError, ToolErrorKind};
use levity_sandbox::{AddressError, NetError, Reply};

/// An error of the network.
pub(super) fn net(error: NetError) -> ToolError {
    match error {
        NetError::Address(error) => address(error),
        NetError::Timeout(_) => ToolError::new(ToolErrorKind::Timeout, error.to_string()),
        error => ToolError::failed(error.to_string()).with_retryable(error.is_retryable()),
    }
}

/// An address that is refused.
pub(super) fn address(error: AddressError) -> ToolError {
    let kind = if is_forbidden(&error) {
        ToolErrorKind::Denied
    } else {
        ToolErrorKind::Failed
    };
    match error {
        AddressError::Redirect(cause) => {
            ToolError::new(kind, "the server redirects to where nobody may go").with_source(*cause)
        }
        error => ToolError::new(kind, error.to_string()),
    }
}

/// Whether a rule forbids it, and it is not merely written wrong.
pub(super) fn is_forbidden(error: &AddressError) -> bool {
    !matches!(
        error,
        AddressError::NotAUrl | AddressError::Host | AddressError::Unresolved(_)
    )
}

/// A status that has no page.
pub(super) fn status(reply: &Reply) -> Result<(), ToolError> {
    let status = reply.status();
    let (text, may_pass) = match status {
        200 | 203 | 206 => return Ok(()),
        204 | 205 => ("there is nothing at this address".to_owned(), false),
        304 => (
            "the server says that nothing changed, though nobody asked".to_owned(),
            true,
        ),
        300..=399 => (
            "the server redirects, and does not say where; look for another address".to_owned(),
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
                "the server wants fewer requests{}; use another source meanwhile",
                wait(reply)
            ),
            false,
        ),
        451 => (
            "the page is withheld for legal reasons; use another source".to_owned(),
            false,
        ),
        500 | 502 | 503 | 504 => (
            format!("the server is in trouble{}; try again later", wait(reply)),
            true,
        ),
        _ => (
            "the server does not show the page; use another source".to_owned(),
            false,
        ),
    };
    Err(ToolError::failed(format!("{text} (status {status})")).with_retryable(may_pass))
}

/// How long a server asks to be left alone.
fn wait(reply: &Reply) -> String {
    let seconds = reply
        .header("retry-after")
        .and_then(|value| value.trim().parse::<u32>().ok());
    seconds.map_or_else(String::new, |seconds| {
        format!(", and to wait for {seconds} seconds")
    })
}
