//! Reads request bodies within a size limit and a timeout.
//!
//! Small bodies, up to 64 KiB, are read without a permit. Larger ones share 64 permits, so that
//! slow uploads cannot fill the memory: at most 64 large bodies arrive at once. A body
//! of unknown length counts as large.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};

use crate::access::Caller;
use crate::quota::{Quota, TokenShare};

/// The reason for which a body was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The body exceeds the size limit, or its announced length does.
    TooLarge,
    /// The body took too long to arrive.
    TooSlow,
    /// The connection broke before the end of the body.
    Broken,
    /// The body is large, and the maximum number of large bodies is being read.
    Busy,
}

/// The limits for reading bodies: size, time, and number of concurrent large bodies.
pub(crate) struct BodyReader {
    limit: usize,
    time: Duration,
    large: Arc<Quota>,
}

impl BodyError {
    /// Returns the HTTP status of the rejection. The MCP server and the HTTP API use the same ones.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Broken => "bad_body",
            Self::Busy => "too_many_bodies",
        }
    }

    pub(crate) fn message(self, limit: usize) -> String {
        match self {
            Self::TooLarge => {
                format!("the body of the request has more than {limit} bytes; send a smaller one")
            }
            Self::TooSlow => {
                "the body of the request took too long to arrive; send it again".to_owned()
            }
            Self::Broken => "the body of the request is incomplete; send it again".to_owned(),
            Self::Busy => {
                "too many large requests are being read; send this one again in a moment".to_owned()
            }
        }
    }
}

impl BodyReader {
    /// The maximum number of large bodies that are read at once.
    const LARGE: usize = 64;
    /// The maximum announced length of a small body. Small bodies do not count towards
    /// [`LARGE`](Self::LARGE).
    const SMALL: u64 = 64 << 10;

    pub(crate) fn new(limit: usize, time: Duration, share: TokenShare) -> Self {
        Self {
            limit,
            time,
            large: Quota::new(Self::LARGE, share),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Reads a whole body within the size limit and the timeout. A body that is announced as too
    /// large is rejected without being read.
    pub(crate) async fn read(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Bytes, BodyError> {
        let exact = body.size_hint().exact();
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.limit as u64) {
            return Err(BodyError::TooLarge);
        }
        let _permit = match exact {
            Some(length) if length <= Self::SMALL => None,
            _ => Some(self.large.take(caller).map_err(|_| BodyError::Busy)?),
        };
        match tokio::time::timeout(self.time, to_bytes(body, self.limit)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) if is_too_large(&error) => Err(BodyError::TooLarge),
            Ok(Err(_)) => Err(BodyError::Broken),
            Err(_) => Err(BodyError::TooSlow),
        }
    }
}

/// Returns `true` if the size limit caused an error. The library does not export the type of that
/// error, so its text is compared.
fn is_too_large(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.to_string().contains("length limit"))
}
