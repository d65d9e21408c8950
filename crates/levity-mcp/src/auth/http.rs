//! HTTP for requests to authorization servers: 30 s per request, 1 MiB per response, no redirects.

use std::time::Duration;

use ::http::{Request, Response};
use futures_util::StreamExt;
use levity_rpc::mcp::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

/// The timeout of one request to an authorization server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a response.
const MAX_RESPONSE: usize = 1 << 20;

/// A client for requests to authorization servers. It never follows redirects, which would leak
/// codes and secrets to another host.
pub(crate) struct Http(reqwest::Client);

impl Http {
    /// Creates a client. It is separate from that of the server, so headers of the server's
    /// settings never reach an authorization server.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        Ok(Self(levity_http::client(|builder| {
            builder.timeout(REQUEST_TIMEOUT)
        })?))
    }

    /// Sends a request and reads the whole response. Errors contain no URL.
    pub(crate) async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, OAuthHttpClientError> {
        // A URL may contain a key, so errors must not name it.
        let without_url = reqwest::Error::without_url;
        let response = self
            .0
            .execute(reqwest::Request::try_from(request).map_err(without_url)?)
            .await
            .map_err(without_url)?;
        let mut answer = Response::builder().status(response.status());
        for (name, value) in response.headers() {
            answer = answer.header(name, value);
        }
        let mut body = Vec::new();
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(without_url)?;
            if body.len() + piece.len() > MAX_RESPONSE {
                return Err("the response is larger than 1 MiB".into());
            }
            body.extend_from_slice(&piece);
        }
        Ok(answer.body(body)?)
    }
}

impl OAuthHttpClient for Http {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send(request.request))
    }
}
