//! The login by a person: authorization code with PKCE (RFC 7636).
//!
//! The steps are: choose or register a client, show the login page, check the redirect, exchange
//! the code for tokens. The `state` of the redirect must be one that this login created, and its
//! issuer (RFC 9207) must be the expected one, before the code is sent anywhere. The code and its
//! verifier count as secrets from then on.

use futures_util::future::{Either, select};
use levity_rpc::mcp::auth::{InMemoryStateStore, StateStore, StoredAuthorizationState};

use super::browser::Browser;
use super::discover::{AuthServer, parameter};
use super::grant::Source;
use super::login::Inner;
use super::record::{Client, Grant, Record, Registration};
use super::secret::Secret;
use super::token::{read_key, sanitize_code};
use crate::{ErrorKind, Result};

impl Inner {
    /// Lets a person log in.
    pub(super) async fn log_in_by_person(
        &self,
        auth_server: &mut AuthServer,
        before: Option<&Record>,
        mut scopes: Vec<String>,
    ) -> Result<Record> {
        let browser = self.settings.browser.as_deref().ok_or_else(|| {
            let text =
                "it requires a person to log in; set `OAuth::browser`, or a header with a token";
            self.error(ErrorKind::Auth, text)
        })?;
        auth_server.add_offline(&mut scopes);
        let redirect = browser.redirect_url();
        let client = self.client(auth_server, before, &redirect, &scopes).await?;
        let states = InMemoryStateStore::new();
        auth_server.manager.set_state_store(states.clone());
        let login_url = auth_server
            .login_url(&client.id, &redirect, &scopes)
            .await?;
        let answer = self.visit(browser, &login_url).await?;
        let state = states
            .load(&parameter(&answer, "state").unwrap_or_default())
            .await
            .ok()
            .flatten();
        let state = state.ok_or_else(|| {
            self.error(
                ErrorKind::Auth,
                "the redirect of the browser belongs to another login; start the login again",
            )
        })?;
        let code = self.code(&answer, &state)?;
        self.secrets.add([&*code, &*state.pkce_verifier]);
        let source = Source {
            issuer: auth_server.issuer().map(str::to_owned),
            resource: parameter(&login_url, "resource").unwrap_or_else(|| self.url.to_string()),
            token_endpoint: auth_server.metadata.token_endpoint.clone(),
            client,
            grant: Grant::Person,
            scopes,
            proof_key: auth_server.proof_key(),
        };
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("redirect_uri", &redirect),
            ("code_verifier", &state.pkce_verifier),
            ("resource", &source.resource),
        ];
        let granted = self
            .request_token(&source, auth_server.audience(), &form)
            .await
            .map_err(|no| self.token_error(&no))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Returns the client: the configured one, the metadata document, the client of the last login,
    /// or a new registration.
    async fn client(
        &self,
        auth_server: &mut AuthServer,
        before: Option<&Record>,
        redirect: &str,
        scopes: &[String],
    ) -> Result<Client> {
        let settings = &self.settings;
        if let Some(id) = &settings.client_id {
            let key = read_key(settings.client_key.as_ref().map(Secret::expose));
            let key = key.map_err(|text| self.error(ErrorKind::Config, text))?;
            let method = auth_server.method(settings.client_secret.is_some(), key.is_some());
            return Ok(Client {
                id: id.clone(),
                method,
                registered: None,
            });
        }
        if let Some(url) = settings
            .metadata_url
            .as_ref()
            .filter(|_| auth_server.supports_metadata_url())
        {
            return Ok(Client {
                id: url.clone(),
                method: auth_server.method(false, false),
                registered: None,
            });
        }
        let last = before.map(|record| &record.client);
        let has_same_redirect = |client: &&Client| {
            client
                .registered
                .as_ref()
                .is_some_and(|known| known.redirect == redirect)
        };
        if let Some(client) = last.filter(has_same_redirect) {
            return Ok(client.clone());
        }
        self.register(auth_server, redirect, scopes).await
    }

    /// Registers a client at the authorization server (RFC 7591). The registration is stored with
    /// the login and reused while the redirect URL stays the same.
    async fn register(
        &self,
        auth_server: &mut AuthServer,
        redirect: &str,
        scopes: &[String],
    ) -> Result<Client> {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let registered = auth_server
            .manager
            .register_client(&self.settings.name, redirect, &scopes)
            .await;
        let registered = registered.map_err(|error| auth_server.convert_error(&error))?;
        self.secrets.add(registered.client_secret.as_deref());
        let secret = registered.client_secret.map(Secret::new);
        Ok(Client {
            id: registered.client_id,
            method: auth_server.method(secret.is_some(), false),
            registered: Some(Registration {
                redirect: redirect.to_owned(),
                secret,
            }),
        })
    }

    /// Lets the browser show the page, within the login timeout.
    async fn visit(&self, browser: &dyn Browser, login_url: &str) -> Result<String> {
        let limit = self.settings.login_limit;
        match select(browser.visit(login_url), self.world.sleep(limit)).await {
            Either::Left((Ok(answer), _)) => Ok(answer),
            Either::Left((Err(error), _)) => Err(self.error(
                ErrorKind::Auth,
                &format!("the browser did not return from the login: {error}"),
            )),
            Either::Right(_) => Err(self.error(
                ErrorKind::Auth,
                &format!(
                    "no person logged in within {limit:?}; raise `OAuth::login_timeout` to wait \
                    longer"
                ),
            )),
        }
    }

    /// Returns the code of a redirect, after checking its authorization server (RFC 9207).
    fn code(&self, answer: &str, state: &StoredAuthorizationState) -> Result<String> {
        let reject = |text: &str| Err(self.error(ErrorKind::Auth, text));
        match (parameter(answer, "iss"), &state.expected_issuer) {
            (Some(issuer), expected) if expected.as_ref() != Some(&issuer) => {
                return reject("the result of the login is from another authorization server");
            }
            (None, _) if state.require_issuer => {
                return reject("the result of the login does not name its authorization server");
            }
            _ => {}
        }
        if let Some(code) = parameter(answer, "error") {
            return reject(&format!(
                "the login was refused: `{}`",
                sanitize_code(&self.secrets.text(&code))
            ));
        }
        parameter(answer, "code")
            .map_or_else(|| reject("the result of the login contains no code"), Ok)
    }
}
