use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::World;
use levity_rpc::mcp::auth::WWWAuthenticateParams;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use url::Url;

use super::discover::{Found, is_safe, shown};
use super::dpop;
use super::http::Http;
use super::patience::Patience;
use super::record::{Grant, Record};
use super::settings::OAuth;
use super::store::TokenLock;
use super::token::{Refusal, split};
use crate::link::authorize::{Authorize, Challenge, Credentials};
use crate::redact::Redactor;
use crate::{Error, ErrorKind, Result};

/// A token is renewed when it ends within this time: it has to last until the server reads it.
const EARLY: Duration = Duration::from_secs(30);
/// How long to wait for another process that renews the same login, and how often to look.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
const LOCK_STEP: Duration = Duration::from_millis(50);

/// The login of one server.
pub(crate) struct Login {
    inner: Arc<Inner>,
    /// Renewals: a caller who goes away must not end one between the answer and its saving, which
    /// would lose the only good token.
    renewals: Mutex<JoinSet<()>>,
}

pub(super) struct Inner {
    pub(super) server: Arc<str>,
    pub(super) url: Url,
    pub(super) settings: OAuth,
    pub(super) http: Arc<Http>,
    pub(super) world: Arc<dyn World>,
    patience: Arc<Patience>,
    /// Is told every token and proof before it is sent anywhere.
    pub(super) secrets: Redactor,
    key: String,
    state: Mutex<State>,
    nonces: Mutex<Nonces>,
    /// Held by the one who loads, renews or logs in.
    gate: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    loaded: bool,
    record: Option<Record>,
    /// Whether the record came from a login, and not from the store or a renewal.
    fresh: bool,
}

/// The authorization server that a client's secret belongs to, as it is kept.
#[derive(Serialize, Deserialize)]
struct Bound {
    client: String,
    issuer: String,
}

/// Whether two names mean one authorization server.
fn is_same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The nonces that were given last for proofs of possession.
#[derive(Default)]
pub(super) struct Nonces {
    pub(super) authority: Option<String>,
    server: Option<String>,
}

impl Login {
    /// Nothing when the address is none. The clock of `patience` stands still during a login.
    pub(crate) fn new(
        server: Arc<str>,
        url: &str,
        settings: OAuth,
        world: Arc<dyn World>,
        patience: Arc<Patience>,
        secrets: Redactor,
    ) -> Option<Self> {
        let mut url = Url::parse(url).ok()?;
        // A key in the query is no part of the server's name, and none of the authorization
        // server's business.
        url.set_query(None);
        url.set_fragment(None);
        let http = Arc::new(Http::new().ok()?);
        let key = format!("{server} {url}");
        let state = Mutex::default();
        let (nonces, gate) = Default::default();
        let inner = Inner {
            server,
            url,
            settings,
            http,
            world,
            patience,
            secrets,
            key,
            state,
            nonces,
            gate,
        };
        Some(Self {
            inner: Arc::new(inner),
            renewals: Mutex::default(),
        })
    }

    /// Renews in a task of its own and waits for it.
    async fn renew(&self) -> Result<Option<Record>> {
        let _pause = self.inner.patience.pause();
        let (to, from) = oneshot::channel();
        let inner = self.inner.clone();
        {
            let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
            while renewals.try_join_next().is_some() {}
            renewals.spawn(async move {
                let _ = to.send(inner.renewed().await);
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

    fn keep_nonce(&self, value: &str) {
        if let Some(nonce) = dpop::nonce(value) {
            self.inner.nonces().server = Some(nonce.to_owned());
        }
    }

    async fn challenged(&self, challenge: &Challenge<'_>) -> Result<bool> {
        let asked = WWWAuthenticateParams::parse(challenge.text, &self.inner.url);
        if challenge.status == 403 && !asked.is_insufficient_scope() {
            return Ok(false);
        }
        let _pause = self.inner.patience.pause();
        let _gate = self.inner.gate.lock().await;
        if self.inner.is_replaced(challenge.sent).await? {
            return Ok(true);
        }
        let scopes = split(asked.scope.as_deref().unwrap_or_default());
        self.inner.answer(challenge, &scopes).await.map(|()| true)
    }
}

impl Inner {
    /// Gets another login for a challenge. The gate is held.
    async fn answer(&self, challenge: &Challenge<'_>, scopes: &[String]) -> Result<()> {
        let (refused, attempt) = (challenge.status == 401, challenge.attempt);
        let mut found = Found::find(
            &self.server,
            &self.url,
            self.http.clone(),
            challenge.text,
            &self.secrets,
        )
        .await?;
        self.check_authority(&found).await?;
        let mut before = self.record();
        if before
            .as_ref()
            .is_some_and(|record| record.issuer.as_deref() != found.issuer())
        {
            // Neither a token nor a client's id means anything to another authorization server.
            self.forget().await?;
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
            let text = "it refuses the token that its authorization server gave for it";
            return Err(self.error(ErrorKind::Auth, text));
        }
        let wanted = self.scopes(&found, before.as_ref(), scopes).await;
        let record = self.log_in(&mut found, before.as_ref(), wanted).await?;
        self.keep(record, true).await
    }

    async fn log_in(
        &self,
        found: &mut Found,
        before: Option<&Record>,
        scopes: Vec<String>,
    ) -> Result<Record> {
        match self.grant(found) {
            Grant::Person => self.by_person(found, before, scopes).await,
            Grant::Client => self.by_client(found, scopes).await,
            Grant::Enterprise => self.by_enterprise(found, scopes).await,
            Grant::Workload => self.by_workload(found, scopes).await,
        }
    }

    fn grant(&self, found: &Found) -> Grant {
        let settings = &self.settings;
        let known = settings.client_secret.is_some() || settings.client_key.is_some();
        let only_machines =
            found.offers_grant("client_credentials") && !found.offers_grant("authorization_code");
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

    /// What to ask for: what was asked for before, and what the server wants now.
    async fn scopes(
        &self,
        found: &Found,
        before: Option<&Record>,
        asked: &[String],
    ) -> Vec<String> {
        let mut scopes = before
            .map(|record| record.scopes.clone())
            .unwrap_or_default();
        let more = match self.settings.scopes.as_slice() {
            [] => found.manager.select_initial_scopes(&[]).await,
            set => set.iter().chain(asked).cloned().collect(),
        };
        for scope in more {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// The login to send when the one there is ends soon: another one, the same while it lasts, or
    /// none.
    async fn renewed(&self) -> Result<Option<Record>> {
        let before = self.record();
        let _gate = self.gate.lock().await;
        match self.record() {
            Some(record) if self.ends_soon(&record) => {
                let still = !record.ends_by(self.world.now());
                match self.renew_now(Some(record.clone())).await {
                    Ok(Some(renewed)) => Ok(Some(renewed)),
                    Ok(None) => Ok(Some(record).filter(|_| still)),
                    Err(_) if still => Ok(Some(record)),
                    Err(error) => Err(error),
                }
            }
            other => Ok(other.or(before)),
        }
    }

    /// Renews a login, unless another process has done so; none when it cannot be renewed any more.
    /// The gate is held.
    async fn renew_now(&self, record: Option<Record>) -> Result<Option<Record>> {
        let Some(record) = record.filter(Record::is_renewable) else {
            return Ok(None);
        };
        let _lock = self.lock().await?;
        if let Some(other) = self.stored_other(&record).await? {
            return Ok(Some(other));
        }
        match self.ask_again(&record).await {
            Ok(renewed) => {
                self.keep(renewed.clone(), false).await?;
                Ok(Some(renewed))
            }
            Err(Refusal::Later(text)) => Err(self.error(ErrorKind::Start, &text)),
            Err(Refusal::No(_) | Refusal::Nonce(_)) => {
                // Somebody who does not take the lock may have used the refresh token in the
                // meantime.
                let other = self.stored_other(&record).await?;
                if other.is_none() {
                    self.keep(
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

    /// The login in the store, when it is another one than this and lasts. It becomes ours.
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

    /// Whether the login that was sent is not the one there is now, here or in the store.
    async fn is_replaced(&self, sent: Option<&str>) -> Result<bool> {
        match self.record() {
            Some(now) if sent != Some(now.header().as_str()) => Ok(!self.ends_soon(&now)),
            Some(now) => Ok(self.stored_other(&now).await?.is_some()),
            None => Ok(false),
        }
    }

    async fn load(&self) -> Result<()> {
        if self.state().loaded {
            return Ok(());
        }
        let _gate = self.gate.lock().await;
        if !self.state().loaded {
            let record = self.read().await?;
            let mut state = self.state();
            (state.record, state.loaded) = (record, true);
        }
        Ok(())
    }

    /// What is in the store, if it is of use with these settings.
    async fn read(&self) -> Result<Option<Record>> {
        let text = self
            .settings
            .store
            .load(&self.key)
            .await
            .map_err(|error| self.store_failed(&error))?;
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

    /// Refuses an authorization server other than the one that was set, and keeps the secret of a
    /// client from any but the first.
    async fn check_authority(&self, found: &Found) -> Result<()> {
        let named = found.audience();
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
        let kept = self
            .settings
            .store
            .load(&key)
            .await
            .map_err(|error| self.store_failed(&error))?;
        let kept: Option<Bound> = kept.and_then(|text| serde_json::from_str(&text).ok());
        let kept = kept
            .filter(|bound| bound.client == *client)
            .map(|bound| bound.issuer);
        // A login that is there says where the secret went before.
        let before = || {
            self.record()
                .map(|record| record.issuer.unwrap_or(record.token_endpoint))
        };
        match kept.or_else(before) {
            Some(issuer) if !is_same(&issuer, named) => {
                return Err(self.wrong_authority(named, &issuer));
            }
            _ => {}
        }
        let bound = Bound {
            client: client.clone(),
            issuer: named.to_owned(),
        };
        let text = serde_json::to_string(&bound).unwrap_or_default();
        self.settings
            .store
            .save(&key, &text)
            .await
            .map_err(|error| self.store_failed(&error))
    }

    fn wrong_authority(&self, named: &str, bound: &str) -> Error {
        let (named, bound) = (shown(named), shown(bound));
        let text = format!(
            "it leads to the authorization server `{named}`, and its login belongs to `{bound}`, \
                so nothing was sent there; \
             if you trust it with this client, set `OAuth::issuer(\"{named}\")`"
        );
        self.error(ErrorKind::Auth, &text)
    }

    async fn keep(&self, record: Record, fresh: bool) -> Result<()> {
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
            .map_err(|error| self.store_failed(&error))
    }

    async fn forget(&self) -> Result<()> {
        self.state().record = None;
        self.settings
            .store
            .remove(&self.key)
            .await
            .map_err(|error| self.store_failed(&error))
    }

    /// Waits until no other process renews this login. One that takes too long has died or hangs,
    /// and is not waited for.
    async fn lock(&self) -> Result<Option<TokenLock>> {
        let end = self.world.now().after(LOCK_LIMIT);
        loop {
            let lock = self.settings.store.try_lock(&self.key).await;
            let lock = lock.map_err(|error| self.store_failed(&error))?;
            if lock.is_some() || self.world.now() >= end {
                return Ok(lock);
            }
            self.world.sleep(LOCK_STEP).await;
        }
    }

    pub(super) fn record(&self) -> Option<Record> {
        self.state().record.clone()
    }

    fn ends_soon(&self, record: &Record) -> bool {
        record.ends_by(self.world.now().after(EARLY))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn nonces(&self) -> MutexGuard<'_, Nonces> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn error(&self, kind: ErrorKind, text: &str) -> Error {
        Error::new(kind, self.server.clone(), text).without(&self.secrets)
    }

    fn store_failed(&self, error: &std::io::Error) -> Error {
        self.error(
            ErrorKind::Auth,
            &format!("its login could not be kept or read: {error}"),
        )
    }
}
