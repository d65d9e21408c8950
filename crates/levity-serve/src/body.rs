//! Bodies of requests, read within a size and a time.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is larger than it may be, or says so.
    TooLarge,
    /// It took too long to come.
    TooSlow,
    /// It broke off.
    Broken,
}

impl BodyError {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Broken => "bad_body",
        }
    }

    pub(crate) fn message(self, limit: usize) -> String {
        match self {
            Self::TooLarge => format!("the body of a request has {limit} bytes at most"),
            Self::TooSlow => "the body of the request took too long to come".to_owned(),
            Self::Broken => "the body of the request broke off".to_owned(),
        }
    }
}

/// All of a body, as far as it is no larger than it may be and comes in time. One that is announced as too large is not read.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    time: Duration,
) -> Result<Bytes, BodyError> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(BodyError::TooLarge);
    }
    match tokio::time::timeout(time, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_large(&error) => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Broken),
        Err(_) => Err(BodyError::TooSlow),
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.to_string().contains("length limit"))
}
