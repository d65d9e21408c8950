use std::time::Duration;

use ::http::{Request, Response};
use futures_util::StreamExt;
use levity_rpc::mcp::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

/// How long one request to an authorization server may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How large an answer may be.
const MAX_ANSWER: usize = 1 << 20;

/// Requests to authorization servers. A redirect is never followed: it would take codes and secrets
/// to another place.
pub(crate) struct Http(reqwest::Client);

impl Http {
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        // Another part of the program may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("levity/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self(client))
    }

    pub(crate) async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, OAuthHttpClientError> {
        // An address may hold a key, and an error would name it.
        let bare = reqwest::Error::without_url;
        let response = self
            .0
            .execute(reqwest::Request::try_from(request).map_err(bare)?)
            .await
            .map_err(bare)?;
        let mut answer = Response::builder().status(response.status());
        for (name, value) in response.headers() {
            answer = answer.header(name, value);
        }
        let mut body = Vec::new();
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(bare)?;
            if body.len() + piece.len() > MAX_ANSWER {
                return Err("the answer is larger than 1 MiB".into());
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
