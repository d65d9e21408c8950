//! Tokens without a person, and the renewal of all tokens.
//!
//! Each grant builds a form; `request_token` sends it, with the client's authentication and, if the
//! authorization server supports DPoP, a proof of possession. Assertions are sent only to the
//! authorization server that they are made for, so a hostile server cannot collect them.

use levity_core::Timestamp;
use serde_json::Value;
use url::Url;

use super::discover::{AuthServer, is_safe};
use super::dpop::{ProofKey, ProofRequest};
use super::jwt::claims;
use super::login::Inner;
use super::record::{Client, Grant, Method, Record};
use super::secret::Secret;
use super::token::{Endpoint, Proof, TokenError, TokenResponse, proof, read_key};
use crate::{Error, ErrorKind, Result};

/// The type of tokens that are bound to a key.
const BOUND_TYPE: &str = "DPoP";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// The source of tokens, and their purpose.
pub(super) struct Source {
    pub(super) issuer: Option<String>,
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) client: Client,
    pub(super) grant: Grant,
    pub(super) scopes: Vec<String>,
    /// The key to bind the tokens to.
    pub(super) proof_key: Option<Secret>,
}

impl Source {
    /// Creates the record of tokens that were granted at `now`.
    pub(super) fn record(self, granted: TokenResponse, now: Timestamp) -> Record {
        let bound = granted.kind.eq_ignore_ascii_case(BOUND_TYPE);
        Record {
            issuer: self.issuer,
            resource: self.resource,
            token_endpoint: self.token_endpoint,
            client: self.client,
            grant: self.grant,
            access: Secret::new(granted.access),
            expires: granted
                .seconds
                .map(|seconds| now.after(std::time::Duration::from_secs(seconds))),
            refresh: granted.refresh.map(Secret::new),
            // A missing scope means that the requested scopes were granted.
            scopes: granted.scopes.unwrap_or(self.scopes),
            proof_key: self.proof_key.filter(|_| bound),
        }
    }
}

impl Inner {
    /// Logs in as the client itself.
    pub(super) async fn log_in_as_client(
        &self,
        auth_server: &mut AuthServer,
        scopes: Vec<String>,
    ) -> Result<Record> {
        let client = self.known_client(auth_server)?;
        let source = self
            .source(auth_server, client, Grant::Client, scopes)
            .await;
        let audience = auth_server.audience().to_owned();
        let granted = self
            .request_as_client(&source, &audience)
            .await
            .map_err(|error| self.token_error(&error))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Logs in with an assertion of a company's identity provider.
    pub(super) async fn log_in_by_enterprise(
        &self,
        auth_server: &mut AuthServer,
        scopes: Vec<String>,
    ) -> Result<Record> {
        let client = self.known_client(auth_server)?;
        let source = self
            .source(auth_server, client, Grant::Enterprise, scopes)
            .await;
        let audience = auth_server.audience().to_owned();
        let granted = self
            .request_by_identity(&source, &audience)
            .await
            .map_err(|error| self.token_error(&error))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Logs in with a JWT of the platform that this program runs on.
    pub(super) async fn log_in_by_workload(
        &self,
        auth_server: &mut AuthServer,
        scopes: Vec<String>,
    ) -> Result<Record> {
        let client = match self.settings.client_id {
            Some(_) => self.known_client(auth_server)?,
            None => Client {
                id: String::new(),
                method: Method::None,
                registered: None,
            },
        };
        let source = self
            .source(auth_server, client, Grant::Workload, scopes)
            .await;
        let audience = auth_server.audience().to_owned();
        let granted = self
            .request_as_workload(&source, &audience)
            .await
            .map_err(|error| self.token_error(&error))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Requests new tokens with the same grant as before.
    pub(super) async fn renew_tokens(&self, record: &Record) -> Result<Record, TokenError> {
        let source = Source {
            issuer: record.issuer.clone(),
            resource: record.resource.clone(),
            token_endpoint: record.token_endpoint.clone(),
            client: record.client.clone(),
            grant: record.grant,
            scopes: record.scopes.clone(),
            proof_key: record.proof_key.clone(),
        };
        let audience = record.issuer.as_deref().unwrap_or(&record.token_endpoint);
        let mut granted = match (&record.refresh, record.grant) {
            (Some(refresh), _) => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("refresh_token", refresh.expose()),
                    ("resource", &record.resource),
                ];
                self.request_token(&source, audience, &form).await?
            }
            (None, Grant::Client) => self.request_as_client(&source, audience).await?,
            (None, Grant::Enterprise) => self.request_by_identity(&source, audience).await?,
            (None, Grant::Workload) => self.request_as_workload(&source, audience).await?,
            (None, Grant::Person) => return Err(TokenError::Rejected("invalid_grant".to_owned())),
        };
        if granted.refresh.is_none() {
            granted.refresh = record
                .refresh
                .as_ref()
                .map(|refresh| refresh.expose().to_owned());
        }
        Ok(source.record(granted, self.world.now()))
    }

    /// Requests tokens with the client's own credentials.
    async fn request_as_client(
        &self,
        source: &Source,
        audience: &str,
    ) -> Result<TokenResponse, TokenError> {
        let scopes = source.scopes.join(" ");
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", &*source.resource),
            ("scope", &scopes),
        ];
        self.request_token(source, audience, &form).await
    }

    /// Requests tokens with the JWT of this workload, after checking its audience. The JWT is read
    /// again for each request, because platforms replace it.
    async fn request_as_workload(
        &self,
        source: &Source,
        audience: &str,
    ) -> Result<TokenResponse, TokenError> {
        let rejected = |text: &str| TokenError::Rejected(text.to_owned());
        let workload = self
            .settings
            .workload
            .as_ref()
            .ok_or_else(|| rejected("no_workload_setting"))?;
        let token = workload.id_token().await;
        let token = token.map_err(|error| {
            TokenError::Temporary(format!(
                "cannot read the identity token of this workload: {}",
                error.kind()
            ))
        })?;
        self.secrets.add([&*token]);
        if !has_audience(&token, [audience, &source.token_endpoint]) {
            return Err(rejected("assertion_for_another_server"));
        }
        let scopes = source.scopes.join(" ");
        let form = [
            ("grant_type", JWT_BEARER),
            ("assertion", &*token),
            ("resource", &source.resource),
            ("scope", &scopes),
        ];
        self.request_token(source, audience, &form).await
    }

    /// Requests tokens with an assertion of the identity provider.
    async fn request_by_identity(
        &self,
        source: &Source,
        audience: &str,
    ) -> Result<TokenResponse, TokenError> {
        let assertion = self.request_assertion(source, audience).await?;
        let scopes = source.scopes.join(" ");
        let form = [
            ("grant_type", JWT_BEARER),
            ("assertion", &*assertion),
            ("resource", &source.resource),
            ("scope", &scopes),
        ];
        self.request_token(source, audience, &form).await
    }

    /// Requests an assertion for the authorization server from the identity provider, and checks
    /// its audience.
    async fn request_assertion(
        &self,
        source: &Source,
        audience: &str,
    ) -> Result<String, TokenError> {
        let rejected = |text: &str| TokenError::Rejected(text.to_owned());
        let enterprise = self
            .settings
            .enterprise
            .as_ref()
            .ok_or_else(|| rejected("no_enterprise_setting"))?;
        if !is_safe(&enterprise.token_endpoint) {
            return Err(rejected("identity_provider_without_https"));
        }
        let identity = enterprise.identity.id_token().await;
        let identity = identity.map_err(|_| {
            TokenError::Temporary("cannot obtain an ID token of the person".to_owned())
        })?;
        self.secrets.add([&*identity]);
        let scopes = source.scopes.join(" ");
        let secret = enterprise.client_secret.as_ref();
        let endpoint = Endpoint {
            http: &self.http,
            url: &enterprise.token_endpoint,
            client_id: &enterprise.client_id,
            proof: secret.map_or(Proof::None, |secret| Proof::Basic(secret.expose())),
            possession: None,
            secrets: &self.secrets,
        };
        let form = [
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            ("requested_token_type", JAG),
            (
                "subject_token_type",
                "urn:ietf:params:oauth:token-type:id_token",
            ),
            ("subject_token", &identity),
            ("audience", audience),
            ("resource", &source.resource),
            ("scope", &scopes),
        ];
        let assertion = endpoint.request(&form).await?.access;
        self.secrets.add([&*assertion]);
        let claims = claims(&assertion).ok_or_else(|| rejected("no_assertion"))?;
        if claims
            .get("aud")
            .is_some_and(|claim| claim.as_str().is_some_and(|claim| claim != audience))
        {
            return Err(rejected("assertion_for_another_server"));
        }
        Ok(assertion)
    }

    /// Requests a token from a token endpoint, and repeats the request once if it requires a nonce.
    pub(super) async fn request_token(
        &self,
        source: &Source,
        audience: &str,
        form: &[(&str, &str)],
    ) -> Result<TokenResponse, TokenError> {
        let granted = match self.request_token_once(source, audience, form).await {
            Err(TokenError::NonceRequired(nonce)) => {
                self.nonces().authority = Some(nonce);
                self.request_token_once(source, audience, form).await?
            }
            other => other?,
        };
        if let Some(nonce) = &granted.nonce {
            self.nonces().authority = Some(nonce.clone());
        }
        let bound = source.proof_key.is_some() && granted.kind.eq_ignore_ascii_case(BOUND_TYPE);
        if bound || granted.kind.eq_ignore_ascii_case("bearer") {
            Ok(granted)
        } else {
            Err(TokenError::Rejected("unknown_token_type".to_owned()))
        }
    }

    /// Sends one token request. A registered secret takes precedence over a configured one.
    async fn request_token_once(
        &self,
        source: &Source,
        audience: &str,
        form: &[(&str, &str)],
    ) -> Result<TokenResponse, TokenError> {
        let client = &source.client;
        let registered = client
            .registered
            .as_ref()
            .and_then(|registered| registered.secret.as_ref());
        let secret = registered
            .or(self.settings.client_secret.as_ref())
            .map(Secret::expose);
        let proof = proof(client.method, secret, || self.sign(&client.id, audience))
            .ok_or_else(|| TokenError::Rejected("no_client_secret_or_key".to_owned()))?;
        let possession = source.proof_key.as_ref().and_then(|key| {
            let url = Url::parse(&source.token_endpoint).ok()?;
            let nonce = self.nonces().authority.clone();
            self.prove(key, "POST", &url, None, nonce.as_deref())
        });
        let (http, url, client_id) = (&*self.http, &*source.token_endpoint, &*client.id);
        let secrets = &self.secrets;
        secrets.add(possession.as_deref());
        if let Proof::Signed(assertion) = &proof {
            secrets.add([&**assertion]);
        }
        Endpoint {
            http,
            url,
            client_id,
            proof,
            possession,
            secrets,
        }
        .request(form)
        .await
    }

    /// Creates a proof that the client has the key.
    pub(super) fn prove(
        &self,
        key: &Secret,
        method: &str,
        url: &Url,
        token: Option<&str>,
        nonce: Option<&str>,
    ) -> Option<String> {
        let (now, id) = (self.world.now().as_millis() / 1000, self.id());
        ProofKey::read(key)?.prove(&ProofRequest {
            method,
            url,
            token,
            nonce,
            now,
            id: &id,
        })
    }

    /// Creates a unique value.
    fn id(&self) -> String {
        format!("{:016x}{:016x}", self.world.random(), self.world.random())
    }

    /// Describes the tokens to request: issuer, resource, endpoint and a new key for proofs.
    async fn source(
        &self,
        auth_server: &mut AuthServer,
        client: Client,
        grant: Grant,
        scopes: Vec<String>,
    ) -> Source {
        let resource = auth_server.resource(&client.id, &self.url).await;
        Source {
            issuer: auth_server.issuer().map(str::to_owned),
            resource,
            token_endpoint: auth_server.metadata.token_endpoint.clone(),
            client,
            grant,
            scopes,
            proof_key: auth_server.proof_key(),
        }
    }

    /// Returns the configured client, which grants without interaction require.
    fn known_client(&self, auth_server: &AuthServer) -> Result<Client> {
        let settings = &self.settings;
        let invalid = |text: &str| self.error(ErrorKind::Config, text);
        let id = settings
            .client_id
            .clone()
            .ok_or_else(|| invalid("its login needs `OAuth::client_id`"))?;
        let key = read_key(settings.client_key.as_ref().map(Secret::expose)).map_err(invalid)?;
        let method = auth_server.method(settings.client_secret.is_some(), key.is_some());
        let has_assertion = settings.enterprise.is_some() || settings.workload.is_some();
        if method == Method::None && !has_assertion {
            let text = "its login needs `OAuth::client_secret` or `OAuth::client_key`, \
                        of a kind that its authorization server accepts";
            return Err(invalid(text));
        }
        Ok(Client {
            id,
            method,
            registered: None,
        })
    }

    /// Signs an assertion of the client's identity, valid for 300 s and for this audience only.
    fn sign(&self, client: &str, audience: &str) -> Option<String> {
        let key = read_key(self.settings.client_key.as_ref().map(Secret::expose)).ok()??;
        key.assert(
            client,
            audience,
            self.world.now().as_millis() / 1000,
            &self.id(),
        )
    }

    /// Converts the error of a token endpoint; only temporary ones are retried by the supervisor.
    pub(super) fn token_error(&self, error: &TokenError) -> Error {
        let kind = match error {
            TokenError::Temporary(_) => ErrorKind::Start,
            TokenError::Rejected(_) | TokenError::NonceRequired(_) => ErrorKind::Auth,
        };
        self.error(kind, &error.text())
    }
}

/// Returns `true` if a JWT names one of these as its audience. A JWT without an audience could be
/// used anywhere, so it is sent nowhere.
fn has_audience(jwt: &str, receivers: [&str; 2]) -> bool {
    let without_slash = |name: &str| name.trim_end_matches('/').to_owned();
    let is_receiver = |name: &Value| {
        name.as_str().is_some_and(|name| {
            receivers
                .iter()
                .any(|receiver| without_slash(receiver) == without_slash(name))
        })
    };
    match claims(jwt).as_ref().and_then(|claims| claims.get("aud")) {
        Some(Value::Array(names)) => names.iter().any(is_receiver),
        Some(name) => is_receiver(name),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::jwt::part;
    use super::*;

    #[track_caller]
    fn check(claims: &Value, expected: bool) {
        let jwt = format!("x.{}.y", part(claims));
        assert_eq!(
            has_audience(
                &jwt,
                ["https://login.example", "https://login.example/token"]
            ),
            expected,
            "{claims}"
        );
    }

    #[test]
    fn has_audience_accepts_only_named_receivers() {
        check(&json!({ "aud": "https://login.example" }), true);
        check(&json!({ "aud": "https://login.example/" }), true);
        check(&json!({ "aud": "https://login.example/token" }), true);
        check(&json!({ "aud": ["other", "https://login.example"] }), true);
        check(&json!({ "aud": "https://login.example.evil" }), false);
        check(&json!({ "aud": "https://evil.example" }), false);
        check(&json!({ "aud": [] }), false);
        check(&json!({ "aud": 7 }), false);
        check(&json!({ "sub": "me" }), false);
        assert!(!has_audience("no JWT", ["no JWT", ""]));
    }
}
