use levity_core::Timestamp;
use serde_json::Value;
use url::Url;

use super::discover::{Found, is_safe};
use super::dpop::{ProofKey, Proven};
use super::jwt::claims;
use super::login::Inner;
use super::record::{Client, Grant, Method, Record};
use super::secret::Secret;
use super::token::{Endpoint, Granted, Proof, Refusal, proof, read_key};
use crate::{Error, ErrorKind, Result};

/// The type of tokens that are bound to a key.
const BOUND: &str = "DPoP";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// Where tokens come from, and for what.
pub(super) struct Source {
    pub(super) issuer: Option<String>,
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) client: Client,
    pub(super) grant: Grant,
    pub(super) scopes: Vec<String>,
    /// The key that tokens are to be bound to.
    pub(super) proof_key: Option<Secret>,
}

impl Source {
    /// What is kept of tokens that came at `now`.
    pub(super) fn record(self, granted: Granted, now: Timestamp) -> Record {
        let bound = granted.kind.eq_ignore_ascii_case(BOUND);
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
            // Nothing said means that what was asked for was given.
            scopes: granted.scopes.unwrap_or(self.scopes),
            proof_key: self.proof_key.filter(|_| bound),
        }
    }
}

impl Inner {
    /// Logs in as the client itself.
    pub(super) async fn by_client(&self, found: &mut Found, scopes: Vec<String>) -> Result<Record> {
        let client = self.known_client(found)?;
        let source = self.source(found, client, Grant::Client, scopes).await;
        let audience = found.audience().to_owned();
        let granted = self
            .ask_as_client(&source, &audience)
            .await
            .map_err(|refusal| self.refused(&refusal))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Logs in by the word of a company's identity provider.
    pub(super) async fn by_enterprise(
        &self,
        found: &mut Found,
        scopes: Vec<String>,
    ) -> Result<Record> {
        let client = self.known_client(found)?;
        let source = self.source(found, client, Grant::Enterprise, scopes).await;
        let audience = found.audience().to_owned();
        let granted = self
            .ask_by_identity(&source, &audience)
            .await
            .map_err(|refusal| self.refused(&refusal))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Logs in by a JWT of the platform that this program runs on.
    pub(super) async fn by_workload(
        &self,
        found: &mut Found,
        scopes: Vec<String>,
    ) -> Result<Record> {
        let client = match self.settings.client_id {
            Some(_) => self.known_client(found)?,
            None => Client {
                id: String::new(),
                method: Method::None,
                registered: None,
            },
        };
        let source = self.source(found, client, Grant::Workload, scopes).await;
        let audience = found.audience().to_owned();
        let granted = self
            .ask_as_workload(&source, &audience)
            .await
            .map_err(|refusal| self.refused(&refusal))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Asks for the next token in the way that the last one came.
    pub(super) async fn ask_again(&self, record: &Record) -> Result<Record, Refusal> {
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
                self.ask(&source, audience, &form).await?
            }
            (None, Grant::Client) => self.ask_as_client(&source, audience).await?,
            (None, Grant::Enterprise) => self.ask_by_identity(&source, audience).await?,
            (None, Grant::Workload) => self.ask_as_workload(&source, audience).await?,
            (None, Grant::Person) => return Err(Refusal::No("invalid_grant".to_owned())),
        };
        if granted.refresh.is_none() {
            granted.refresh = record
                .refresh
                .as_ref()
                .map(|refresh| refresh.expose().to_owned());
        }
        Ok(source.record(granted, self.world.now()))
    }

    async fn ask_as_client(&self, source: &Source, audience: &str) -> Result<Granted, Refusal> {
        let scopes = source.scopes.join(" ");
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", &*source.resource),
            ("scope", &scopes),
        ];
        self.ask(source, audience, &form).await
    }

    async fn ask_as_workload(&self, source: &Source, audience: &str) -> Result<Granted, Refusal> {
        let no = |text: &str| Refusal::No(text.to_owned());
        let workload = self
            .settings
            .workload
            .as_ref()
            .ok_or_else(|| no("no_workload_setting"))?;
        let token = workload.id_token().await;
        let token = token.map_err(|error| {
            Refusal::Later(format!(
                "the identity token of this workload cannot be read: {}",
                error.kind()
            ))
        })?;
        self.secrets.add([&*token]);
        if !is_meant_for(&token, [audience, &source.token_endpoint]) {
            return Err(no("assertion_for_another_server"));
        }
        let scopes = source.scopes.join(" ");
        let form = [
            ("grant_type", JWT_BEARER),
            ("assertion", &*token),
            ("resource", &source.resource),
            ("scope", &scopes),
        ];
        self.ask(source, audience, &form).await
    }

    async fn ask_by_identity(&self, source: &Source, audience: &str) -> Result<Granted, Refusal> {
        let word = self.ask_provider(source, audience).await?;
        let scopes = source.scopes.join(" ");
        let form = [
            ("grant_type", JWT_BEARER),
            ("assertion", &*word),
            ("resource", &source.resource),
            ("scope", &scopes),
        ];
        self.ask(source, audience, &form).await
    }

    /// Gets the identity provider's word for the authorization server, and looks whether it is for
    /// that and for us.
    async fn ask_provider(&self, source: &Source, audience: &str) -> Result<String, Refusal> {
        let no = |text: &str| Refusal::No(text.to_owned());
        let enterprise = self
            .settings
            .enterprise
            .as_ref()
            .ok_or_else(|| no("no_enterprise_setting"))?;
        if !is_safe(&enterprise.token_endpoint) {
            return Err(no("identity_provider_without_https"));
        }
        let identity = enterprise.identity.id_token().await;
        let identity = identity
            .map_err(|_| Refusal::Later("no ID token of the person could be got".to_owned()))?;
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
        let word = endpoint.ask(&form).await?.access;
        self.secrets.add([&*word]);
        let claims = claims(&word).ok_or_else(|| no("no_assertion"))?;
        if claims
            .get("aud")
            .is_some_and(|claim| claim.as_str().is_some_and(|claim| claim != audience))
        {
            return Err(no("assertion_for_another_server"));
        }
        Ok(word)
    }

    /// Asks a token endpoint as the client that we are there, once more if it gives a nonce to do
    /// it with.
    pub(super) async fn ask(
        &self,
        source: &Source,
        audience: &str,
        form: &[(&str, &str)],
    ) -> Result<Granted, Refusal> {
        let granted = match self.ask_once(source, audience, form).await {
            Err(Refusal::Nonce(nonce)) => {
                self.nonces().authority = Some(nonce);
                self.ask_once(source, audience, form).await?
            }
            other => other?,
        };
        if let Some(nonce) = &granted.nonce {
            self.nonces().authority = Some(nonce.clone());
        }
        let bound = source.proof_key.is_some() && granted.kind.eq_ignore_ascii_case(BOUND);
        if bound || granted.kind.eq_ignore_ascii_case("bearer") {
            Ok(granted)
        } else {
            Err(Refusal::No("unknown_token_type".to_owned()))
        }
    }

    async fn ask_once(
        &self,
        source: &Source,
        audience: &str,
        form: &[(&str, &str)],
    ) -> Result<Granted, Refusal> {
        let client = &source.client;
        let registered = client
            .registered
            .as_ref()
            .and_then(|registered| registered.secret.as_ref());
        let secret = registered
            .or(self.settings.client_secret.as_ref())
            .map(Secret::expose);
        let proof = proof(client.method, secret, || self.sign(&client.id, audience))
            .ok_or_else(|| Refusal::No("no_client_secret_or_key".to_owned()))?;
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
        .ask(form)
        .await
    }

    /// Proves to the receiver of a request that we have the key.
    pub(super) fn prove(
        &self,
        key: &Secret,
        method: &str,
        url: &Url,
        token: Option<&str>,
        nonce: Option<&str>,
    ) -> Option<String> {
        let (now, id) = (self.world.now().as_millis() / 1000, self.id());
        ProofKey::read(key)?.prove(&Proven {
            method,
            url,
            token,
            nonce,
            now,
            id: &id,
        })
    }

    /// A value that is used once.
    fn id(&self) -> String {
        format!("{:016x}{:016x}", self.world.random(), self.world.random())
    }

    async fn source(
        &self,
        found: &mut Found,
        client: Client,
        grant: Grant,
        scopes: Vec<String>,
    ) -> Source {
        let resource = found.resource(&client.id, &self.url).await;
        Source {
            issuer: found.issuer().map(str::to_owned),
            resource,
            token_endpoint: found.metadata.token_endpoint.clone(),
            client,
            grant,
            scopes,
            proof_key: found.proof_key(),
        }
    }

    /// The client that was set; a grant that asks nobody needs one.
    fn known_client(&self, found: &Found) -> Result<Client> {
        let settings = &self.settings;
        let wrong = |text: &str| self.error(ErrorKind::Config, text);
        let id = settings
            .client_id
            .clone()
            .ok_or_else(|| wrong("its login needs `OAuth::client_id`"))?;
        let key = read_key(settings.client_key.as_ref().map(Secret::expose)).map_err(wrong)?;
        let method = found.method(settings.client_secret.is_some(), key.is_some());
        let vouched = settings.enterprise.is_some() || settings.workload.is_some();
        if method == Method::None && !vouched {
            let text = "its login needs `OAuth::client_secret` or `OAuth::client_key`, \
                        of a kind that its authorization server takes";
            return Err(wrong(text));
        }
        Ok(Client {
            id,
            method,
            registered: None,
        })
    }

    fn sign(&self, client: &str, audience: &str) -> Option<String> {
        let key = read_key(self.settings.client_key.as_ref().map(Secret::expose)).ok()??;
        key.assert(
            client,
            audience,
            self.world.now().as_millis() / 1000,
            &self.id(),
        )
    }

    pub(super) fn refused(&self, refusal: &Refusal) -> Error {
        let kind = match refusal {
            Refusal::Later(_) => ErrorKind::Start,
            Refusal::No(_) | Refusal::Nonce(_) => ErrorKind::Auth,
        };
        self.error(kind, &refusal.text())
    }
}

/// Whether a JWT names one of these as its audience. One that names nobody could be used anywhere,
/// and is sent nowhere.
fn is_meant_for(jwt: &str, receivers: [&str; 2]) -> bool {
    let plain = |name: &str| name.trim_end_matches('/').to_owned();
    let meant = |name: &Value| {
        name.as_str().is_some_and(|name| {
            receivers
                .iter()
                .any(|receiver| plain(receiver) == plain(name))
        })
    };
    match claims(jwt).as_ref().and_then(|claims| claims.get("aud")) {
        Some(Value::Array(names)) => names.iter().any(meant),
        Some(name) => meant(name),
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
            is_meant_for(
                &jwt,
                ["https://login.example", "https://login.example/token"]
            ),
            expected,
            "{claims}"
        );
    }

    #[test]
    fn workload_token_is_meant_only_for_whom_it_names() {
        check(&json!({ "aud": "https://login.example" }), true);
        check(&json!({ "aud": "https://login.example/" }), true);
        check(&json!({ "aud": "https://login.example/token" }), true);
        check(&json!({ "aud": ["other", "https://login.example"] }), true);
        check(&json!({ "aud": "https://login.example.evil" }), false);
        check(&json!({ "aud": "https://evil.example" }), false);
        check(&json!({ "aud": [] }), false);
        check(&json!({ "aud": 7 }), false);
        check(&json!({ "sub": "me" }), false);
        assert!(!is_meant_for("no JWT", ["no JWT", ""]));
    }
}
