use futures_util::future::{Either, select};
use levity_rpc::mcp::auth::{InMemoryStateStore, StateStore, StoredAuthorizationState};

use super::browser::Browser;
use super::discover::{Found, parameter};
use super::grant::Source;
use super::login::Inner;
use super::record::{Client, Grant, Record, Registered};
use super::secret::Secret;
use super::token::{clean, read_key};
use crate::{ErrorKind, Result};

impl Inner {
    /// Lets a person log in.
    pub(super) async fn by_person(
        &self,
        found: &mut Found,
        before: Option<&Record>,
        mut scopes: Vec<String>,
    ) -> Result<Record> {
        let browser = self.settings.browser.as_deref().ok_or_else(|| {
            let text =
                "it wants a person to log in: set `OAuth::browser`, or a header with a token";
            self.error(ErrorKind::Auth, text)
        })?;
        found.add_offline(&mut scopes);
        let redirect = browser.redirect_url();
        let client = self.client(found, before, &redirect, &scopes).await?;
        let states = InMemoryStateStore::new();
        found.manager.set_state_store(states.clone());
        let page = found.page(&client.id, &redirect, &scopes).await?;
        let answer = self.visit(browser, &page).await?;
        let state = states
            .load(&parameter(&answer, "state").unwrap_or_default())
            .await
            .ok()
            .flatten();
        let state = state.ok_or_else(|| {
            self.error(
                ErrorKind::Auth,
                "the browser came back from another login than the one that was begun",
            )
        })?;
        let code = self.code(&answer, &state)?;
        self.secrets.add([&*code, &*state.pkce_verifier]);
        let source = Source {
            issuer: found.issuer().map(str::to_owned),
            resource: parameter(&page, "resource").unwrap_or_else(|| self.url.to_string()),
            token_endpoint: found.metadata.token_endpoint.clone(),
            client,
            grant: Grant::Person,
            scopes,
            proof_key: found.proof_key(),
        };
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("redirect_uri", &redirect),
            ("code_verifier", &state.pkce_verifier),
            ("resource", &source.resource),
        ];
        let granted = self
            .ask(&source, found.audience(), &form)
            .await
            .map_err(|no| self.refused(&no))?;
        Ok(source.record(granted, self.world.now()))
    }

    /// Who we are: the client that was set, our metadata document, the client of the last login, or
    /// a new one.
    async fn client(
        &self,
        found: &mut Found,
        before: Option<&Record>,
        redirect: &str,
        scopes: &[String],
    ) -> Result<Client> {
        let settings = &self.settings;
        if let Some(id) = &settings.client_id {
            let key = read_key(settings.client_key.as_ref().map(Secret::expose));
            let key = key.map_err(|text| self.error(ErrorKind::Config, text))?;
            let method = found.method(settings.client_secret.is_some(), key.is_some());
            return Ok(Client {
                id: id.clone(),
                method,
                registered: None,
            });
        }
        if let Some(url) = settings
            .metadata_url
            .as_ref()
            .filter(|_| found.takes_metadata_url())
        {
            return Ok(Client {
                id: url.clone(),
                method: found.method(false, false),
                registered: None,
            });
        }
        let last = before.map(|record| &record.client);
        let same = |client: &&Client| {
            client
                .registered
                .as_ref()
                .is_some_and(|known| known.redirect == redirect)
        };
        if let Some(client) = last.filter(same) {
            return Ok(client.clone());
        }
        self.register(found, redirect, scopes).await
    }

    async fn register(
        &self,
        found: &mut Found,
        redirect: &str,
        scopes: &[String],
    ) -> Result<Client> {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let registered = found
            .manager
            .register_client(&self.settings.name, redirect, &scopes)
            .await;
        let registered = registered.map_err(|error| found.explain(&error))?;
        self.secrets.add(registered.client_secret.as_deref());
        let secret = registered.client_secret.map(Secret::new);
        Ok(Client {
            id: registered.client_id,
            method: found.method(secret.is_some(), false),
            registered: Some(Registered {
                redirect: redirect.to_owned(),
                secret,
            }),
        })
    }

    async fn visit(&self, browser: &dyn Browser, page: &str) -> Result<String> {
        let limit = self.settings.login_limit;
        match select(browser.visit(page), self.world.sleep(limit)).await {
            Either::Left((Ok(answer), _)) => Ok(answer),
            Either::Left((Err(error), _)) => Err(self.error(
                ErrorKind::Auth,
                &format!("the browser did not come back from the login: {error}"),
            )),
            Either::Right(_) => Err(self.error(
                ErrorKind::Auth,
                &format!("nobody logged in within {limit:?} (`OAuth::login_limit`)"),
            )),
        }
    }

    /// The code of an answer that came from the right authorization server (RFC 9207).
    fn code(&self, answer: &str, state: &StoredAuthorizationState) -> Result<String> {
        let refuse = |text: &str| Err(self.error(ErrorKind::Auth, text));
        match (parameter(answer, "iss"), &state.expected_issuer) {
            (Some(issuer), expected) if expected.as_ref() != Some(&issuer) => {
                return refuse("the answer to the login came from another authorization server");
            }
            (None, _) if state.require_issuer => {
                return refuse(
                    "the answer to the login does not say which authorization server it is from",
                );
            }
            _ => {}
        }
        if let Some(code) = parameter(answer, "error") {
            return refuse(&format!(
                "the login was refused: `{}`",
                clean(&self.secrets.text(&code))
            ));
        }
        parameter(answer, "code")
            .map_or_else(|| refuse("the answer to the login has no code in it"), Ok)
    }
}
