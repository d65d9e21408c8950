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

/// The authorization server of a server, as its metadata describe it.
pub(crate) struct Found {
    pub(crate) manager: AuthorizationManager,
    pub(crate) metadata: AuthorizationMetadata,
    server: Arc<str>,
    watch: Arc<Watch>,
    secrets: Redactor,
}

impl Found {
    /// Follows what the server said in its challenge, or looks in the places that are known.
    pub(crate) async fn find(
        server: &Arc<str>,
        url: &Url,
        http: Arc<Http>,
        challenge: &str,
        secrets: &Redactor,
    ) -> Result<Self> {
        let watch = Arc::new(Watch {
            http,
            failed: AtomicBool::new(false),
        });
        let explain = |error| explain(server, &watch, &error, secrets);
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), watch.clone())
                .await
                .map_err(explain)?;
        let challenge = Some(challenge).filter(|challenge| !challenge.is_empty());
        let metadata = manager
            .resolve_metadata_from_challenge(challenge)
            .await
            .map_err(explain)?
            .metadata;
        let registration = metadata.registration_endpoint.as_ref();
        let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint].into_iter();
        if let Some(bad) = endpoints
            .chain(registration)
            .find(|endpoint| !is_for(url, endpoint))
        {
            let text = match is_safe(bad) {
                true => {
                    "its authorization server has an address on this machine, and the server is \
                        elsewhere"
                }
                false => {
                    "its authorization server has an address that is neither https nor on this \
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
            watch,
            secrets: secrets.clone(),
        })
    }

    pub(crate) fn issuer(&self) -> Option<&str> {
        self.metadata.issuer.as_deref()
    }

    /// Who reads an assertion of ours.
    pub(crate) fn audience(&self) -> &str {
        self.issuer().unwrap_or(&self.metadata.token_endpoint)
    }

    pub(crate) fn offers_grant(&self, grant: &str) -> bool {
        match self.list("grant_types_supported") {
            Some(grants) => grants.contains(&grant),
            // What RFC 8414 says holds when nothing is said.
            None => grant == "authorization_code",
        }
    }

    pub(crate) fn takes_metadata_url(&self) -> bool {
        let field = self
            .metadata
            .additional_fields
            .get("client_id_metadata_document_supported");
        field.and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// How a client with a secret, or a key, is to show that it is itself.
    pub(crate) fn method(&self, has_secret: bool, has_key: bool) -> Method {
        let offered = self.list("token_endpoint_auth_methods_supported");
        let takes = |method: &str| {
            offered
                .as_ref()
                .is_none_or(|offered| offered.contains(&method))
        };
        match (has_key, has_secret) {
            (true, _) => Method::Key,
            (_, true) if takes("client_secret_basic") => Method::Basic,
            (_, true) if takes("client_secret_post") => Method::Post,
            _ => Method::None,
        }
    }

    /// Adds the scope that makes refresh tokens come, where there is one.
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

    /// The address of a login page for this client, with a new `state` and code challenge.
    pub(crate) async fn page(
        &mut self,
        client: &str,
        redirect: &str,
        scopes: &[String],
    ) -> Result<String> {
        let config = OAuthClientConfig::new(client, redirect);
        self.manager
            .configure_client(config)
            .map_err(|error| self.explain(&error))?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        self.manager
            .get_authorization_url(&scopes)
            .await
            .map_err(|error| self.explain(&error))
    }

    /// What tokens are asked for: the server's own name for itself, or else its address.
    pub(crate) async fn resource(&mut self, client: &str, url: &Url) -> String {
        let page = self.page(client, url.as_str(), &[]).await.ok();
        let named = page.and_then(|page| parameter(&page, "resource"));
        named
            .filter(|resource| !resource.is_empty())
            .unwrap_or_else(|| url.to_string())
    }

    pub(crate) fn explain(&self, error: &AuthError) -> Error {
        explain(&self.server, &self.watch, error, &self.secrets)
    }

    /// A new key for tokens, where the authorization server binds tokens to keys.
    pub(crate) fn proof_key(&self) -> Option<Secret> {
        let offered = self.list("dpop_signing_alg_values_supported")?;
        offered
            .contains(&dpop::ALGORITHM)
            .then(dpop::ProofKey::generate)
            .flatten()
    }

    fn list(&self, field: &str) -> Option<Vec<&str>> {
        let values = self.metadata.additional_fields.get(field)?.as_array()?;
        Some(values.iter().filter_map(|value| value.as_str()).collect())
    }
}

/// Notices whether a request failed for a reason that may pass.
struct Watch {
    http: Arc<Http>,
    failed: AtomicBool,
}

impl OAuthHttpClient for Watch {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let answer = self.http.send(request.request).await;
            let bad = answer
                .as_ref()
                .map_or(true, |answer| answer.status().is_server_error());
            self.failed.fetch_or(bad, Ordering::Relaxed);
            answer
        })
    }
}

fn explain(server: &Arc<str>, watch: &Watch, error: &AuthError, secrets: &Redactor) -> Error {
    if watch.failed.load(Ordering::Relaxed) {
        let text = "its authorization server could not be reached, or has a problem of its own";
        return Error::new(ErrorKind::Start, server.clone(), text);
    }
    let shown = |text: &str| shown(&secrets.text(text));
    let text = match error {
        AuthError::AuthorizationServerMismatch {
            expected_issuer,
            received_issuer,
        } => {
            let (received, expected) = (shown(received_issuer), shown(expected_issuer));
            format!("its authorization server calls itself `{received}` and should be `{expected}`")
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
            format!(
                "its authorization server does not say that it is `{}`",
                shown(expected_issuer)
            )
        }
        // This names addresses, and those without their queries.
        AuthError::MetadataError(text) => {
            format!("its OAuth metadata cannot be used: {}", shown(text))
        }
        AuthError::PkceUnsupported => {
            "its authorization server has no S256 code challenges".to_owned()
        }
        AuthError::RegistrationFailed(_) => {
            "its authorization server registers no clients by itself; \
             set `OAuth::client_id` to a client that was registered there"
                .to_owned()
        }
        _ => "the login failed on something that its authorization server does not support"
            .to_owned(),
    };
    Error::new(ErrorKind::Auth, server.clone(), text)
}

/// What a server says, as it may stand in an error: on one line, and not too long.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(400).collect()
}

/// Whether secrets may be sent there, and a person's browser.
pub(crate) fn is_safe(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    url.username().is_empty()
        && url.password().is_none()
        && (url.scheme() == "https" && url.has_host() || url.scheme() == "http" && is_local(&url))
}

/// Whether it is safe and this server may name it: only a server on this machine may send us to
/// others on this machine.
fn is_for(server: &Url, endpoint: &str) -> bool {
    is_safe(endpoint) && (is_local(server) || Url::parse(endpoint).is_ok_and(|url| !is_local(&url)))
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

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
            is_for(&Url::parse(server).unwrap(), endpoint),
            expected,
            "{endpoint}"
        );
    }

    #[test]
    fn only_a_server_on_this_machine_leads_to_this_machine() {
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
    fn what_a_server_says_is_cut() {
        assert_eq!(
            shown(&format!("a\n\u{1b}[b{}", "c".repeat(1_000))).len(),
            400
        );
    }
}
