//! The discovery of the authorization server, and the checks of its metadata.
//!
//! rmcp reads the metadata (RFC 9728 and RFC 8414, with older methods as a fallback). This module
//! adds the checks that a hostile server makes necessary. Every endpoint must have https or be on
//! this machine. A server elsewhere may not name endpoints on this machine, where a request could
//! reach services of the user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levity_rpc::mcp::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig, OAuthHttpClient,
    OAuthHttpClientFuture, OAuthHttpRequest,
};
use url::{Host, Url};

use super::dpop;
use super::http::Http;
use super::record::Method;
use super::secret::Secret;
use crate::redact::Redactor;
use crate::{Error, ErrorKind, Result};

/// The authorization server of a server, as its metadata describes it.
pub(crate) struct AuthServer {
    pub(crate) manager: AuthorizationManager,
    pub(crate) metadata: AuthorizationMetadata,
    server: Arc<str>,
    tracker: Arc<FailureTracker>,
    secrets: Redactor,
}

impl AuthServer {
    /// Finds the authorization server through the server's challenge, or at well-known locations.
    pub(crate) async fn find(
        server: &Arc<str>,
        url: &Url,
        http: Arc<Http>,
        challenge: &str,
        secrets: &Redactor,
    ) -> Result<Self> {
        let tracker = Arc::new(FailureTracker {
            http,
            failed: AtomicBool::new(false),
        });
        let convert = |error| convert_error(server, &tracker, &error, secrets);
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), tracker.clone())
                .await
                .map_err(convert)?;
        let challenge = Some(challenge).filter(|challenge| !challenge.is_empty());
        let metadata = manager
            .resolve_metadata_from_challenge(challenge)
            .await
            .map_err(convert)?
            .metadata;
        let registration = metadata.registration_endpoint.as_ref();
        let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint].into_iter();
        if let Some(invalid) = endpoints
            .chain(registration)
            .find(|endpoint| !is_allowed_for(url, endpoint))
        {
            let text = match is_safe(invalid) {
                true => {
                    "its authorization server has a URL on this machine, but the server is on \
                        another \
                        one"
                }
                false => {
                    "its authorization server has a URL that is neither https nor on this \
                        machine"
                }
            };
            return Err(Error::new(ErrorKind::Auth, server.clone(), text));
        }
        manager.set_metadata(metadata.clone());
        Ok(Self {
            manager,
            metadata,
            server: server.clone(),
            tracker,
            secrets: secrets.clone(),
        })
    }

    /// Returns the name of the authorization server, which tokens are bound to.
    pub(crate) fn issuer(&self) -> Option<&str> {
        self.metadata.issuer.as_deref()
    }

    /// Returns the audience of an assertion.
    pub(crate) fn audience(&self) -> &str {
        self.issuer().unwrap_or(&self.metadata.token_endpoint)
    }

    /// Returns `true` if the authorization server supports a grant type.
    pub(crate) fn offers_grant(&self, grant: &str) -> bool {
        match self.list("grant_types_supported") {
            Some(grants) => grants.contains(&grant),
            // This is the default of RFC 8414.
            None => grant == "authorization_code",
        }
    }

    /// Returns `true` if a URL of a metadata document may be the client id, in place of a
    /// registration.
    pub(crate) fn supports_metadata_url(&self) -> bool {
        let field = self
            .metadata
            .additional_fields
            .get("client_id_metadata_document_supported");
        field.and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Returns the method by which a client with a secret or a key authenticates.
    pub(crate) fn method(&self, has_secret: bool, has_key: bool) -> Method {
        let offered = self.list("token_endpoint_auth_methods_supported");
        let is_offered = |method: &str| {
            offered
                .as_ref()
                .is_none_or(|offered| offered.contains(&method))
        };
        match (has_key, has_secret) {
            (true, _) => Method::Key,
            (_, true) if is_offered("client_secret_basic") => Method::Basic,
            (_, true) if is_offered("client_secret_post") => Method::Post,
            _ => Method::None,
        }
    }

    /// Adds the scope for refresh tokens, if the authorization server supports it.
    pub(crate) fn add_offline(&self, scopes: &mut Vec<String>) {
        const OFFLINE: &str = "offline_access";
        let supported = self
            .metadata
            .scopes_supported
            .iter()
            .flatten()
            .any(|scope| scope == OFFLINE);
        if supported && !scopes.is_empty() && !scopes.iter().any(|scope| scope == OFFLINE) {
            scopes.push(OFFLINE.to_owned());
        }
    }

    /// Returns the URL of a login page for this client, with a new `state` and code challenge.
    pub(crate) async fn login_url(
        &mut self,
        client: &str,
        redirect: &str,
        scopes: &[String],
    ) -> Result<String> {
        let config = OAuthClientConfig::new(client, redirect);
        self.manager
            .configure_client(config)
            .map_err(|error| self.convert_error(&error))?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        self.manager
            .get_authorization_url(&scopes)
            .await
            .map_err(|error| self.convert_error(&error))
    }

    /// Returns the resource to request tokens for: the server's own name for itself, or otherwise
    /// its URL.
    pub(crate) async fn resource(&mut self, client: &str, url: &Url) -> String {
        let url_with_resource = self.login_url(client, url.as_str(), &[]).await.ok();
        let named = url_with_resource.and_then(|url| parameter(&url, "resource"));
        named
            .filter(|resource| !resource.is_empty())
            .unwrap_or_else(|| url.to_string())
    }

    /// Converts an error of rmcp, with secrets masked.
    pub(crate) fn convert_error(&self, error: &AuthError) -> Error {
        convert_error(&self.server, &self.tracker, error, &self.secrets)
    }

    /// Creates a key for tokens, if the authorization server binds tokens to keys.
    pub(crate) fn proof_key(&self) -> Option<Secret> {
        let offered = self.list("dpop_signing_alg_values_supported")?;
        offered
            .contains(&dpop::ALGORITHM)
            .then(dpop::ProofKey::generate)
            .flatten()
    }

    /// Returns a list of texts in the metadata; `None` if the field is missing or is no list.
    fn list(&self, field: &str) -> Option<Vec<&str>> {
        let values = self.metadata.additional_fields.get(field)?.as_array()?;
        Some(values.iter().filter_map(|value| value.as_str()).collect())
    }
}

/// An HTTP client that records if a request failed for a reason that may be temporary.
struct FailureTracker {
    http: Arc<Http>,
    failed: AtomicBool,
}

impl OAuthHttpClient for FailureTracker {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let answer = self.http.send(request.request).await;
            let invalid = answer
                .as_ref()
                .map_or(true, |answer| answer.status().is_server_error());
            self.failed.fetch_or(invalid, Ordering::Relaxed);
            answer
        })
    }
}

/// Converts an error of rmcp to one that a person can act on. A request that failed for a reason
/// that may be temporary gives `Start`, which levity retries; all else gives `Auth`, which it does
/// not.
fn convert_error(
    server: &Arc<str>,
    tracker: &FailureTracker,
    error: &AuthError,
    secrets: &Redactor,
) -> Error {
    if tracker.failed.load(Ordering::Relaxed) {
        let text = "cannot reach its authorization server, or it has an internal error";
        return Error::new(ErrorKind::Start, server.clone(), text);
    }
    let display = |text: &str| sanitize(&secrets.text(text));
    let text = match error {
        AuthError::AuthorizationServerMismatch {
            expected_issuer,
            received_issuer,
        } => {
            let (received, expected) = (display(received_issuer), display(expected_issuer));
            format!(
                "its authorization server identifies itself as `{received}` in place of \
                    `{expected}`"
            )
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
            format!(
                "its authorization server does not identify itself as `{}`",
                display(expected_issuer)
            )
        }
        // This message contains only URLs without their queries.
        AuthError::MetadataError(text) => {
            format!("its OAuth metadata is invalid: {}", display(text))
        }
        AuthError::PkceUnsupported => {
            "its authorization server does not support S256 code challenges".to_owned()
        }
        AuthError::RegistrationFailed(_) => {
            "its authorization server does not support automatic registration of clients; \
             set `OAuth::client_id` to a client that is registered there"
                .to_owned()
        }
        _ => {
            "the login failed because its authorization server lacks a required feature".to_owned()
        }
    };
    Error::new(ErrorKind::Auth, server.clone(), text)
}

/// Prepares a text from a server for an error: one line of limited length.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(400).collect()
}

/// Returns `true` if secrets and a person's browser may be sent to the URL.
pub(crate) fn is_safe(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    url.username().is_empty()
        && url.password().is_none()
        && (url.scheme() == "https" && url.has_host() || url.scheme() == "http" && is_local(&url))
}

/// Returns `true` if the endpoint is safe and this server may name it. Only a server on this
/// machine may name endpoints on this machine.
fn is_allowed_for(server: &Url, endpoint: &str) -> bool {
    is_safe(endpoint) && (is_local(server) || Url::parse(endpoint).is_ok_and(|url| !is_local(&url)))
}

/// Returns `true` for loopback addresses and `localhost`.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns a query parameter of a URL, decoded.
pub(crate) fn parameter(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(server: &str, endpoint: &str, expected: bool) {
        assert_eq!(
            is_allowed_for(&Url::parse(server).unwrap(), endpoint),
            expected,
            "{endpoint}"
        );
    }

    #[test]
    fn only_local_server_may_name_local_endpoints() {
        for server in ["https://h/mcp", "http://10.0.0.1/mcp"] {
            check(server, "https://login.h/token", true);
            check(server, "http://login.h/token", false);
            check(server, "http://127.0.0.1:8080/token", false);
            check(server, "https://localhost/token", false);
            check(server, "http://[::1]/token", false);
            check(server, "http://169.254.169.254/token", false);
            check(server, "https://user:word@login.h/token", false);
        }
        check("http://127.0.0.1:1/mcp", "http://localhost:2/token", true);
        check("http://127.0.0.1:1/mcp", "https://login.h/token", true);
        check("http://127.0.0.1:1/mcp", "http://login.h/token", false);
    }

    #[test]
    fn sanitize_limits_length() {
        assert_eq!(
            sanitize(&format!("a\n\u{1b}[b{}", "c".repeat(1_000))).len(),
            400
        );
    }
}
