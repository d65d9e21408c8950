//! Requests to a token endpoint, and the reading of its responses.
//!
//! Responses are read leniently: `expires_in` may be a text, a missing `token_type` means bearer,
//! and an error may come with any status. Status 5xx, 429 and 408 and two error codes of OAuth
//! count as temporary; everything else is final. Tokens are registered as secrets before they are
//! returned, and an error code is cut to 60 harmless characters before it is shown.

use ::http::{Request, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::dpop;
use super::http::Http;
use super::jwt::Key;
use super::record::Method;
use crate::redact::Redactor;

/// The headers with a proof of possession, and with the nonce for the next one.
pub(crate) const PROOF: &str = "dpop";
pub(crate) const NONCE: &str = "dpop-nonce";

/// A token endpoint, and the client's identity there.
pub(crate) struct Endpoint<'a> {
    pub(crate) http: &'a Http,
    pub(crate) url: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) proof: Proof<'a>,
    /// The proof that the client has the key to bind the token to.
    pub(crate) possession: Option<String>,
    /// Masks secrets that the endpoint may repeat, and records those that it issues.
    pub(crate) secrets: &'a Redactor,
}

/// The authentication of the client.
pub(crate) enum Proof<'a> {
    None,
    Basic(&'a str),
    Post(&'a str),
    /// An assertion that was signed for this request.
    Signed(String),
}

/// The response of a token endpoint.
pub(crate) struct TokenResponse {
    pub(crate) access: String,
    pub(crate) kind: String,
    pub(crate) seconds: Option<u64>,
    pub(crate) refresh: Option<String>,
    pub(crate) scopes: Option<Vec<String>>,
    /// The nonce for the next proof of possession.
    pub(crate) nonce: Option<String>,
}

/// The reason why a token endpoint issued no token.
#[derive(Debug)]
pub(crate) enum TokenError {
    /// The endpoint is unreachable or has an internal error; a retry may help.
    Temporary(String),
    /// The endpoint rejected the request with this error code.
    Rejected(String),
    /// The endpoint requires the same request with this nonce in the proof of possession.
    NonceRequired(String),
}

impl TokenError {
    /// Formats the error as a clause that follows the name of the server.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Temporary(text) => text.clone(),
            Self::Rejected(code) => {
                format!("its authorization server refused to issue a token: `{code}`")
            }
            Self::NonceRequired(_) => {
                "its authorization server repeatedly requires another nonce".to_owned()
            }
        }
    }
}

impl Endpoint<'_> {
    /// Requests a token with the parameters of a grant.
    pub(crate) async fn request(
        &self,
        grant: &[(&str, &str)],
    ) -> Result<TokenResponse, TokenError> {
        let request = self.build_request(grant).map_err(|_| unreachable())?;
        let answer = self.http.send(request).await.map_err(|_| unreachable())?;
        let nonce = answer
            .headers()
            .get(NONCE)
            .and_then(|value| dpop::nonce(value.to_str().ok()?));
        match (
            read(answer.status().as_u16(), answer.body(), self.secrets),
            nonce,
        ) {
            (Err(TokenError::Rejected(code)), Some(nonce)) if code == "use_dpop_nonce" => {
                Err(TokenError::NonceRequired(nonce.to_owned()))
            }
            (outcome, nonce) => outcome.map(|granted| TokenResponse {
                nonce: nonce.map(str::to_owned),
                ..granted
            }),
        }
    }

    /// Builds the form and the headers. Empty parameters are left out, because some servers reject
    /// an empty `scope`.
    fn build_request(&self, grant: &[(&str, &str)]) -> Result<Request<Vec<u8>>, ::http::Error> {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(grant.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = Request::post(self.url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if let Some(possession) = &self.possession {
            request = request.header(PROOF, possession);
        }
        match &self.proof {
            // A workload may be identified by its assertion alone.
            Proof::None if self.client_id.is_empty() => {}
            Proof::None => drop(form.append_pair("client_id", self.client_id)),
            Proof::Basic(secret) => {
                request = request.header(header::AUTHORIZATION, basic(self.client_id, secret));
            }
            Proof::Post(secret) => {
                form.append_pair("client_id", self.client_id)
                    .append_pair("client_secret", secret);
            }
            Proof::Signed(assertion) => {
                form.append_pair(
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                );
                form.append_pair("client_assertion", assertion);
            }
        }
        request.body(form.finish().into_bytes())
    }
}

/// Reads a response: the tokens, or the reason why there are none.
fn read(status: u16, body: &[u8], secrets: &Redactor) -> Result<TokenResponse, TokenError> {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let field = |name: &str| Some(value.as_ref()?.get(name)?.as_str()?.to_owned());
    let error = field("error").map(|code| sanitize_code(&secrets.text(&code)));
    let is_temporary = matches!(
        error.as_deref(),
        Some("server_error" | "temporarily_unavailable")
    );
    if is_temporary || status >= 500 || status == 429 || status == 408 {
        let text =
            format!("its authorization server responded with HTTP {status} to a token request");
        return Err(TokenError::Temporary(text));
    }
    if let Some(code) = error {
        return Err(TokenError::Rejected(code));
    }
    let access = field("access_token").filter(|_| (200..300).contains(&status));
    let access =
        access.ok_or_else(|| TokenError::Rejected(format!("status {status} and no token")))?;
    let seconds = value
        .as_ref()
        .and_then(|value| value.get("expires_in"))
        .and_then(|value| match value {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        });
    secrets.add([&*access]);
    secrets.add(field("refresh_token").as_deref());
    Ok(TokenResponse {
        access,
        kind: field("token_type").unwrap_or_else(|| "bearer".to_owned()),
        seconds,
        refresh: field("refresh_token"),
        scopes: field("scope").map(|scopes| split(&scopes)),
        nonce: None,
    })
}

/// Splits a list of scopes at its spaces.
pub(crate) fn split(scopes: &str) -> Vec<String> {
    scopes.split_whitespace().map(str::to_owned).collect()
}

/// Prepares an error code for display: codes of OAuth are short words.
pub(crate) fn sanitize_code(code: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    code.chars().filter(fits).take(60).collect()
}

/// Formats HTTP basic authentication; OAuth encodes both parts for forms before (RFC 6749, 2.3.1).
fn basic(id: &str, secret: &str) -> String {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    format!(
        "Basic {}",
        STANDARD.encode(format!("{}:{}", encode(id), encode(secret)))
    )
}

/// Creates the error of a request that got no response. It names no URL.
fn unreachable() -> TokenError {
    TokenError::Temporary("cannot reach its authorization server".to_owned())
}

/// Returns the authentication for the method, or `None` if a required secret or key is missing.
pub(crate) fn proof<'a>(
    method: Method,
    secret: Option<&'a str>,
    sign: impl FnOnce() -> Option<String>,
) -> Option<Proof<'a>> {
    match method {
        Method::None => Some(Proof::None),
        Method::Basic => secret.map(Proof::Basic),
        Method::Post => secret.map(Proof::Post),
        Method::Key => sign().map(Proof::Signed),
    }
}

/// Parses the configured key, if there is one.
pub(crate) fn read_key(pem: Option<&str>) -> Result<Option<Key>, &'static str> {
    pem.map(Key::read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_parses_token_response() {
        let granted = read(
            200,
            br#"{"access_token": "a", "expires_in": "60", "scope": "x  y"}"#,
            &Redactor::default(),
        )
        .ok()
        .unwrap();
        assert_eq!(
            (granted.access.as_str(), granted.kind.as_str()),
            ("a", "bearer")
        );
        assert_eq!((granted.seconds, granted.refresh), (Some(60), None));
        assert_eq!(granted.scopes.unwrap(), ["x", "y"]);
    }

    #[test]
    fn read_distinguishes_temporary_and_final_errors() {
        let check = |status, body: &str, later, part: &str| {
            let refusal = read(status, body.as_bytes(), &Redactor::default())
                .err()
                .unwrap();
            assert_eq!(
                matches!(refusal, TokenError::Temporary(_)),
                later,
                "{refusal:?}"
            );
            assert!(
                refusal.text().contains(part) && !refusal.text().contains("hush"),
                "{refusal:?}"
            );
        };
        check(
            400,
            r#"{"error": "invalid_grant", "error_description": "hush"}"#,
            false,
            "`invalid_grant`",
        );
        check(200, r#"{"error": "<a no>\n"}"#, false, "`ano`");
        check(503, "hush", true, "503");
        check(404, "hush", false, "404");
        check(200, r#"{"access_token": 7}"#, false, "no token");
        check(500, r#"{"error": "invalid_grant"}"#, true, "500");
        check(400, r#"{"error": "temporarily_unavailable"}"#, true, "400");
    }

    #[test]
    fn basic_encodes_id_and_secret() {
        assert_eq!(
            basic("a:b", "c d"),
            format!("Basic {}", STANDARD.encode("a%3Ab:c+d"))
        );
    }
}
