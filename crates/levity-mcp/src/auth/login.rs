//! The login of one server: when it is loaded, renewed, replaced and stored.
//!
//! A login lives in three places: in memory, in the store, and at the authorization server, which
//! may accept a refresh token only once. The rules that keep them consistent:
//!
//! - One task at a time loads, renews or logs in, by `login_lock`. Others wait and then use its
//!   result.
//! - A renewal runs in a task of its own, so a dropped caller cannot lose a token between the
//!   response and its storage.
//! - Before a renewal, the store's lock is taken and the store is read again, because another
//!   process may have renewed the login already.
//! - A rejected refresh token is removed, so that it is not sent again; the access token is used
//!   until it expires.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::World;
use levity_rpc::mcp::auth::WWWAuthenticateParams;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use url::Url;

use super::clock::PausableClock;
use super::discover::{AuthServer, is_safe, sanitize};
use super::dpop;
use super::http::Http;
use super::record::{Grant, Record};
use super::settings::OAuth;
use super::store::TokenLock;
use super::token::{TokenError, split};
use crate::link::authorize::{Authorize, Challenge, Credentials};
use crate::redact::Redactor;
use crate::{Error, ErrorKind, Result};

/// The time before its expiry at which a token is renewed, because it must be valid until the
/// server reads it.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// The maximum wait for another process that renews the same login, and the polling interval.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
const LOCK_POLL: Duration = Duration::from_millis(50);

/// The login of one server.
pub(crate) struct Login {
    inner: Arc<Inner>,
    /// The renewals in progress. They are separate tasks, because a dropped caller must not end one
    /// between the response and its saving, which would lose the only valid token.
    renewals: Mutex<JoinSet<()>>,
}

pub(super) struct Inner {
    pub(super) server: Arc<str>,
    pub(super) url: Url,
    pub(super) settings: OAuth,
    pub(super) http: Arc<Http>,
    pub(super) world: Arc<dyn World>,
    clock: Arc<PausableClock>,
    /// Receives every token and proof before it is sent.
    pub(super) secrets: Redactor,
    key: String,
    state: Mutex<State>,
    nonces: Mutex<Nonces>,
    /// Held while a task loads, renews or logs in.
    login_lock: Arc<tokio::sync::Mutex<()>>,
}

/// The login in memory. `loaded` is set after the store was read once.
#[derive(Default)]
struct State {
    loaded: bool,
    record: Option<Record>,
    /// `true` if the record is from a login, and not from the store or a renewal.
    fresh: bool,
}

/// The stored binding of a client secret to an authorization server.
#[derive(Serialize, Deserialize)]
struct SecretBinding {
    client: String,
    issuer: String,
}

/// Returns `true` if two names identify the same authorization server.
fn is_same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The last nonces for proofs of possession: of the authorization server, and of the server itself.
#[derive(Default)]
pub(super) struct Nonces {
    pub(super) authority: Option<String>,
    server: Option<String>,
}

impl Login {
    /// Creates the login, or returns `None` if the URL is invalid. `clock` stops during a login.
    pub(crate) fn new(
        server: Arc<str>,
        url: &str,
        settings: OAuth,
        world: Arc<dyn World>,
        clock: Arc<PausableClock>,
        secrets: Redactor,
    ) -> Option<Self> {
        let mut url = Url::parse(url).ok()?;
        // A key in the query is not part of the server's name, and must not reach the authorization
        // server.
        url.set_query(None);
        url.set_fragment(None);
        let http = Arc::new(Http::new().ok()?);
        let key = format!("{server} {url}");
        let state = Mutex::default();
        let (nonces, login_lock) = Default::default();
        let inner = Inner {
            server,
            url,
            settings,
            http,
            world,
            clock,
            secrets,
            key,
            state,
            nonces,
            login_lock,
        };
        Some(Self {
            inner: Arc::new(inner),
            renewals: Mutex::default(),
        })
    }

    /// Renews the login in a separate task and waits for it.
    async fn renew(&self) -> Result<Option<Record>> {
        let _pause = self.inner.clock.pause();
        let (to, from) = oneshot::channel();
        let inner = self.inner.clone();
        {
            let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
            while renewals.try_join_next().is_some() {}
            renewals.spawn(async move {
                let _ = to.send(inner.renew_if_needed().await);
            });
        }
        from.await
            .unwrap_or_else(|_| Err(self.inner.error(ErrorKind::Closed, "its login was closed")))
    }
}

#[async_trait]
impl Authorize for Login {
    async fn credentials(&self, method: &str, url: &Url) -> Result<Option<Credentials>> {
        self.inner.load().await?;
        let Some(record) = self.inner.record() else {
            return Ok(None);
        };
        let record = if self.inner.ends_soon(&record) {
            self.renew().await?
        } else {
            Some(record)
        };
        Ok(record.map(|record| {
            let proof = record.proof_key.as_ref().and_then(|key| {
                let nonce = self.inner.nonces().server.clone();
                self.inner.prove(
                    key,
                    method,
                    url,
                    Some(record.access.expose()),
                    nonce.as_deref(),
                )
            });
            self.inner
                .secrets
                .add(record.secrets().chain(proof.as_deref()));
            Credentials {
                authorization: record.header(),
                proof,
            }
        }))
    }

    fn store_nonce(&self, value: &str) {
        if let Some(nonce) = dpop::nonce(value) {
            self.inner.nonces().server = Some(nonce.to_owned());
        }
    }

    async fn handle_challenge(&self, challenge: &Challenge<'_>) -> Result<bool> {
        let params = WWWAuthenticateParams::parse(challenge.text, &self.inner.url);
        if challenge.status == 403 && !params.is_insufficient_scope() {
            return Ok(false);
        }
        let _pause = self.inner.clock.pause();
        let _guard = self.inner.login_lock.lock().await;
        if self.inner.is_replaced(challenge.sent).await? {
            return Ok(true);
        }
        let scopes = split(params.scope.as_deref().unwrap_or_default());
        self.inner
            .answer_challenge(challenge, &scopes)
            .await
            .map(|()| true)
    }
}

impl Inner {
    /// Obtains another login for a challenge. The caller holds the lock.
    async fn answer_challenge(&self, challenge: &Challenge<'_>, scopes: &[String]) -> Result<()> {
        let (refused, attempt) = (challenge.status == 401, challenge.attempt);
        let mut auth_server = AuthServer::find(
            &self.server,
            &self.url,
            self.http.clone(),
            challenge.text,
            &self.secrets,
        )
        .await?;
        self.check_authority(&auth_server).await?;
        let mut before = self.record();
        if before
            .as_ref()
            .is_some_and(|record| record.issuer.as_deref() != auth_server.issuer())
        {
            // Tokens and client ids are meaningless to another authorization server.
            self.remove_record().await?;
            before = None;
        }
        if refused
            && attempt == 1
            && before
                .as_ref()
                .is_some_and(|record| record.refresh.is_some())
        {
            if self.renew_now(before.clone()).await?.is_some() {
                return Ok(());
            }
        } else if refused && attempt > 1 && self.state().fresh {
            let text = "it rejects the token that its authorization server issued for it";
            return Err(self.error(ErrorKind::Auth, text));
        }
        let wanted = self.scopes(&auth_server, before.as_ref(), scopes).await;
        let record = self
            .log_in(&mut auth_server, before.as_ref(), wanted)
            .await?;
        self.store_record(record, true).await
    }

    /// Obtains tokens by the grant that the settings and the authorization server allow.
    async fn log_in(
        &self,
        auth_server: &mut AuthServer,
        before: Option<&Record>,
        scopes: Vec<String>,
    ) -> Result<Record> {
        match self.grant(auth_server) {
            Grant::Person => self.log_in_by_person(auth_server, before, scopes).await,
            Grant::Client => self.log_in_as_client(auth_server, scopes).await,
            Grant::Enterprise => self.log_in_by_enterprise(auth_server, scopes).await,
            Grant::Workload => self.log_in_by_workload(auth_server, scopes).await,
        }
    }

    /// Chooses the grant: enterprise, workload, client credentials, or a person, in this order.
    fn grant(&self, auth_server: &AuthServer) -> Grant {
        let settings = &self.settings;
        let known = settings.client_secret.is_some() || settings.client_key.is_some();
        let only_machines = auth_server.offers_grant("client_credentials")
            && !auth_server.offers_grant("authorization_code");
        if settings.enterprise.is_some() {
            Grant::Enterprise
        } else if settings.workload.is_some() {
            Grant::Workload
        } else if settings.machine || known && only_machines {
            Grant::Client
        } else {
            Grant::Person
        }
    }

    /// Returns the scopes to request: the previous ones, and those that the server requires now.
    async fn scopes(
        &self,
        auth_server: &AuthServer,
        before: Option<&Record>,
        params: &[String],
    ) -> Vec<String> {
        let mut scopes = before
            .map(|record| record.scopes.clone())
            .unwrap_or_default();
        let more = match self.settings.scopes.as_slice() {
            [] => auth_server.manager.select_initial_scopes(&[]).await,
            set => set.iter().chain(params).cloned().collect(),
        };
        for scope in more {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// Returns the login to send: a renewed one if it expires soon, the same one while it is valid,
    /// or none.
    async fn renew_if_needed(&self) -> Result<Option<Record>> {
        let before = self.record();
        let _guard = self.login_lock.lock().await;
        match self.record() {
            Some(record) if self.ends_soon(&record) => {
                let is_valid = !record.ends_by(self.world.now());
                match self.renew_now(Some(record.clone())).await {
                    Ok(Some(renewed)) => Ok(Some(renewed)),
                    Ok(None) => Ok(Some(record).filter(|_| is_valid)),
                    Err(_) if is_valid => Ok(Some(record)),
                    Err(error) => Err(error),
                }
            }
            other => Ok(other.or(before)),
        }
    }

    /// Renews a login, unless another process has done so. Returns `None` if it cannot be renewed
    /// any more. The caller holds the lock.
    async fn renew_now(&self, record: Option<Record>) -> Result<Option<Record>> {
        let Some(record) = record.filter(Record::is_renewable) else {
            return Ok(None);
        };
        let _lock = self.lock().await?;
        if let Some(other) = self.stored_other(&record).await? {
            return Ok(Some(other));
        }
        match self.renew_tokens(&record).await {
            Ok(renewed) => {
                self.store_record(renewed.clone(), false).await?;
                Ok(Some(renewed))
            }
            Err(TokenError::Temporary(text)) => Err(self.error(ErrorKind::Start, &text)),
            Err(TokenError::Rejected(_) | TokenError::NonceRequired(_)) => {
                // A process without the lock may have used the refresh token in the meantime.
                let other = self.stored_other(&record).await?;
                if other.is_none() {
                    self.store_record(
                        Record {
                            refresh: None,
                            ..record
                        },
                        false,
                    )
                    .await?;
                }
                Ok(other)
            }
        }
    }

    /// Returns the login in the store and adopts it, if it differs from this one and is valid.
    async fn stored_other(&self, record: &Record) -> Result<Option<Record>> {
        let stored = self.read().await?;
        let other =
            stored.filter(|stored| stored.access != record.access && !self.ends_soon(stored));
        if let Some(other) = &other {
            let mut state = self.state();
            (state.record, state.fresh) = (Some(other.clone()), false);
        }
        Ok(other)
    }

    /// Returns `true` if the login that was sent has been replaced, here or in the store.
    async fn is_replaced(&self, sent: Option<&str>) -> Result<bool> {
        match self.record() {
            Some(now) if sent != Some(now.header().as_str()) => Ok(!self.ends_soon(&now)),
            Some(now) => Ok(self.stored_other(&now).await?.is_some()),
            None => Ok(false),
        }
    }

    /// Reads the store once, before the first request.
    async fn load(&self) -> Result<()> {
        if self.state().loaded {
            return Ok(());
        }
        let _guard = self.login_lock.lock().await;
        if !self.state().loaded {
            let record = self.read().await?;
            let mut state = self.state();
            (state.record, state.loaded) = (record, true);
        }
        Ok(())
    }

    /// Reads the login from the store, if it is valid with these settings.
    async fn read(&self) -> Result<Option<Record>> {
        let text = self
            .settings
            .store
            .load(&self.key)
            .await
            .map_err(|error| self.store_error(&error))?;
        let record: Option<Record> = text.and_then(|text| serde_json::from_str(&text).ok());
        self.secrets.add(record.iter().flat_map(Record::secrets));
        let client = self.settings.client_id.as_deref();
        let issuer = self.settings.issuer.as_deref();
        Ok(record.filter(|record| {
            let authority = record.issuer.as_ref().unwrap_or(&record.token_endpoint);
            is_safe(&record.token_endpoint)
                && client.is_none_or(|client| client == record.client.id)
                && issuer.is_none_or(|issuer| is_same(issuer, authority))
        }))
    }

    /// Rejects an authorization server other than the configured one. Without configuration, sends
    /// a client secret only to the first one.
    async fn check_authority(&self, auth_server: &AuthServer) -> Result<()> {
        let named = auth_server.audience();
        if let Some(issuer) = &self.settings.issuer {
            return if is_same(issuer, named) {
                Ok(())
            } else {
                Err(self.wrong_authority(named, issuer))
            };
        }
        let (Some(_), Some(client)) = (&self.settings.client_secret, &self.settings.client_id)
        else {
            return Ok(());
        };
        let key = format!("{} issuer", self.key);
        let stored = self
            .settings
            .store
            .load(&key)
            .await
            .map_err(|error| self.store_error(&error))?;
        let stored: Option<SecretBinding> =
            stored.and_then(|text| serde_json::from_str(&text).ok());
        let stored = stored
            .filter(|bound| bound.client == *client)
            .map(|bound| bound.issuer);
        // An existing login shows where the secret was sent before.
        let before = || {
            self.record()
                .map(|record| record.issuer.unwrap_or(record.token_endpoint))
        };
        match stored.or_else(before) {
            Some(issuer) if !is_same(&issuer, named) => {
                return Err(self.wrong_authority(named, &issuer));
            }
            _ => {}
        }
        let bound = SecretBinding {
            client: client.clone(),
            issuer: named.to_owned(),
        };
        let text = serde_json::to_string(&bound).unwrap_or_default();
        self.settings
            .store
            .save(&key, &text)
            .await
            .map_err(|error| self.store_error(&error))
    }

    /// Creates the error for a server that names another authorization server than before, with the
    /// setting that allows it.
    fn wrong_authority(&self, named: &str, bound: &str) -> Error {
        let (named, bound) = (sanitize(named), sanitize(bound));
        let text = format!(
            "it names the authorization server `{named}`, but its login belongs to `{bound}`, \
                so nothing was sent there; \
             if you trust it with this client, set `OAuth::issuer(\"{named}\")`"
        );
        self.error(ErrorKind::Auth, &text)
    }

    /// Keeps a login in memory and in the store. Memory comes first, so a store that fails does not
    /// lose the tokens of this process.
    async fn store_record(&self, record: Record, fresh: bool) -> Result<()> {
        self.secrets.add(record.secrets());
        let text = serde_json::to_string(&record).unwrap_or_default();
        {
            let mut state = self.state();
            (state.record, state.loaded, state.fresh) = (Some(record), true, fresh);
        }
        self.settings
            .store
            .save(&self.key, &text)
            .await
            .map_err(|error| self.store_error(&error))
    }

    /// Forgets the login of another authorization server.
    async fn remove_record(&self) -> Result<()> {
        self.state().record = None;
        self.settings
            .store
            .remove(&self.key)
            .await
            .map_err(|error| self.store_error(&error))
    }

    /// Waits until no other process renews this login. A process that takes too long has ended or
    /// hangs, so the wait stops.
    async fn lock(&self) -> Result<Option<TokenLock>> {
        let end = self.world.now().after(LOCK_LIMIT);
        loop {
            let lock = self.settings.store.try_lock(&self.key).await;
            let lock = lock.map_err(|error| self.store_error(&error))?;
            if lock.is_some() || self.world.now() >= end {
                return Ok(lock);
            }
            self.world.sleep(LOCK_POLL).await;
        }
    }

    pub(super) fn record(&self) -> Option<Record> {
        self.state().record.clone()
    }

    /// Returns `true` if the token expires within 30 s.
    fn ends_soon(&self, record: &Record) -> bool {
        record.ends_by(self.world.now().after(RENEW_BEFORE))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn nonces(&self) -> MutexGuard<'_, Nonces> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an error of this server, with secrets masked.
    pub(super) fn error(&self, kind: ErrorKind, text: &str) -> Error {
        Error::new(kind, self.server.clone(), text).redacted(&self.secrets)
    }

    fn store_error(&self, error: &std::io::Error) -> Error {
        self.error(
            ErrorKind::Auth,
            &format!("its login cannot be stored or loaded: {error}"),
        )
    }
}
