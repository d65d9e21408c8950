//! Bodies of requests, read within a size and a time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};

use crate::access::Caller;
use crate::quota::{Quota, TokenShare};

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is larger than it may be, or says so.
    TooLarge,
    /// It took too long to come.
    TooSlow,
    /// It broke off.
    Broken,
    /// It is large, and as many large ones are being read as may.
    Busy,
}

/// How bodies are read: so large, within such a time, and so many large ones at once.
pub(crate) struct BodyReader {
    limit: usize,
    time: Duration,
    large: Arc<Quota>,
}

impl BodyError {
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
            Self::TooLarge => format!("the body of a request has {limit} bytes at most"),
            Self::TooSlow => "the body of the request took too long to come".to_owned(),
            Self::Broken => "the body of the request broke off".to_owned(),
            Self::Busy => {
                "many large requests are being read; send this one again in a moment".to_owned()
            }
        }
    }
}

impl BodyReader {
    /// How many large bodies are read at once.
    const LARGE: usize = 64;
    /// How long a body may be that takes no place among them, if its length is announced.
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

    /// All of a body, as far as it is no larger than it may be and comes in time. One that is
    /// announced as too large is not read.
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
        let _place = match exact {
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

fn is_too_large(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.to_string().contains("length limit"))
}
