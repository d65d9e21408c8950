//! Tests with servers that require a login.

mod authority;
mod http;
mod loopback;
mod store;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_mcp::{
    Browser, Error, ErrorKind, MemoryTokenStore, OAuth, Server, ServerConfig, ServerState, Servers,
    TokenStore, WaitFor,
};
use serde_json::json;

use authority::{Authority, Quirks};

/// A person who logs in immediately, every time.
#[derive(Clone, Default)]
struct Person(Arc<AtomicUsize>);

impl Person {
    fn visits(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Browser for Person {
    fn redirect_url(&self) -> String {
        "http://127.0.0.1:9/callback".to_owned()
    }

    async fn visit(&self, url: &str) -> io::Result<String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let reply = client.get(url).send().await.map_err(io::Error::other)?;
        let redirect = reply
            .headers()
            .get("location")
            .ok_or_else(|| io::Error::other("there is no redirect"))?;
        Ok(redirect.to_str().unwrap().to_owned())
    }
}

fn oauth(person: &Person) -> OAuth {
    OAuth::new().client_name("a test").browser(person.clone())
}

fn start(authority: &Authority, oauth: OAuth) -> Servers {
    let config = ServerConfig::http("guarded", authority.url.clone()).oauth(oauth);
    Servers::builder().server(config).start().unwrap()
}

async fn ready(authority: &Authority, oauth: OAuth) -> (Servers, Server) {
    let servers = start(authority, oauth);
    let status = servers.wait(WaitFor::All).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    let server = servers.get("guarded").unwrap();
    (servers, server)
}

async fn login_error(authority: &Authority, oauth: OAuth) -> Error {
    let servers = start(authority, oauth);
    match servers.wait(WaitFor::All).await.remove(0).state {
        // levity does not repeat a login on its own.
        ServerState::Unavailable {
            error,
            retry_after: None,
            ..
        } => error,
        state => panic!("the login was not rejected: {state:?}"),
    }
}

async fn call(server: &Server, tool: &str) -> levity_mcp::Result<String> {
    server
        .call(tool, json!({}))
        .await
        .map(|output| output.as_text().to_string())
}

#[tokio::test]
async fn person_logs_in_once() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!((person.visits(), authority.clients()), (1, 1));
    assert_eq!(authority.pages(), ["read"]);
    let grants = authority.grants("authorization_code");
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0]["resource"], authority.url);
    assert!(grants[0]["code_verifier"].len() >= 43);
}

/// A person who takes longer than the timeout of a server.
#[derive(Clone, Default)]
struct SlowPerson(Person);

#[async_trait]
impl Browser for SlowPerson {
    fn redirect_url(&self) -> String {
        self.0.redirect_url()
    }

    async fn visit(&self, url: &str) -> io::Result<String> {
        let answer = self.0.visit(url).await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        answer
    }
}

#[tokio::test]
async fn timeouts_pause_during_login() {
    let (authority, slow) = (
        Authority::start(Quirks::default()).await,
        SlowPerson::default(),
    );
    let config = ServerConfig::http("guarded", authority.url.clone())
        .oauth(OAuth::new().browser(slow.clone()))
        .probe_timeout(Duration::from_millis(300));
    let servers = Servers::builder().server(config).start().unwrap();
    let status = servers.wait(WaitFor::All).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    assert_eq!(slow.0.visits(), 1, "the login was started again");
}

#[tokio::test]
async fn stored_login_is_used() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let store = Arc::new(MemoryTokenStore::new());
    drop(ready(&authority, oauth(&person).store(store.clone())).await);
    let (_servers, server) = ready(&authority, OAuth::new().store(store)).await;
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!(person.visits(), 1);
}

#[tokio::test]
async fn token_is_renewed_before_expiry() {
    let quirks = Quirks {
        expires: Some(20),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    let (before, rejected) = (
        authority.grants("refresh_token").len(),
        authority.rejected_count(),
    );
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert!(authority.grants("refresh_token").len() > before);
    assert_eq!(
        (authority.rejected_count(), person.visits()),
        (rejected, 1),
        "an expired token was sent"
    );
}

#[tokio::test]
async fn concurrent_requests_renew_token_once() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    authority.revoke();
    let calls = (0..16).map(|_| call(&server, "read"));
    for outcome in futures_util::future::join_all(calls).await {
        assert_eq!(outcome.unwrap(), "read");
    }
    assert_eq!(
        (authority.grants("refresh_token").len(), person.visits()),
        (1, 1)
    );
}

#[tokio::test]
async fn tokens_renewed_by_another_holder_are_used() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let store = Arc::new(MemoryTokenStore::new());
    let (_servers, one) = ready(&authority, oauth(&person).store(store.clone())).await;
    let (_others, other) = ready(&authority, oauth(&person).store(store)).await;
    authority.revoke();
    assert_eq!(call(&one, "read").await.unwrap(), "read");
    assert_eq!(call(&other, "read").await.unwrap(), "read");
    assert_eq!(
        (authority.grants("refresh_token").len(), person.visits()),
        (1, 1)
    );
}

/// A store that returns an older login for a while, as if another process saved a moment later.
#[derive(Default)]
struct DelayedStore {
    store: Arc<MemoryTokenStore>,
    shown: Mutex<Option<String>>,
    remaining: AtomicUsize,
}

#[async_trait]
impl TokenStore for DelayedStore {
    async fn load(&self, key: &str) -> io::Result<Option<String>> {
        let delayed = self.remaining.load(Ordering::SeqCst) > 0;
        if delayed {
            self.remaining.fetch_sub(1, Ordering::SeqCst);
            return Ok(self.shown.lock().unwrap().clone());
        }
        let now = self.store.load(key).await?;
        self.shown.lock().unwrap().clone_from(&now);
        Ok(now)
    }

    async fn save(&self, key: &str, login: &str) -> io::Result<()> {
        self.store.save(key, login).await
    }

    async fn remove(&self, key: &str) -> io::Result<()> {
        self.store.remove(key).await
    }
}

#[tokio::test]
async fn used_refresh_token_falls_back_to_stored_login() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let store = Arc::new(MemoryTokenStore::new());
    let (_servers, one) = ready(&authority, oauth(&person).store(store.clone())).await;
    let delayed = Arc::new(DelayedStore {
        store,
        ..DelayedStore::default()
    });
    let (_others, other) = ready(&authority, OAuth::new().store(delayed.clone())).await;
    authority.revoke();
    assert_eq!(call(&one, "read").await.unwrap(), "read");
    // The first load follows the rejected token, and the second one precedes the use of the refresh
    // token.
    delayed.remaining.store(2, Ordering::SeqCst);
    assert_eq!(call(&other, "read").await.unwrap(), "read");
    assert_eq!(
        (authority.grants("refresh_token").len(), person.visits()),
        (2, 1)
    );
}

#[tokio::test]
async fn missing_scope_leads_to_login_with_more_scopes() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    assert_eq!(call(&server, "write").await.unwrap(), "write");
    assert_eq!(authority.pages(), ["read", "read write"]);
    assert_eq!(authority.clients(), 1, "the client was registered twice");
}

#[tokio::test]
async fn repeated_scope_challenges_return_auth_error() {
    let quirks = Quirks {
        withholds_scope: true,
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    let error = call(&server, "write").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert_eq!(person.visits(), 4);
    assert_eq!(call(&server, "read").await.unwrap(), "read");
}

#[tokio::test]
async fn rejected_refresh_token_leads_to_login() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    authority.revoke();
    authority.revoke_refresh();
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!(person.visits(), 2);
}

#[tokio::test]
async fn missing_browser_error_names_setting() {
    let authority = Authority::start(Quirks::default()).await;
    let error = login_error(&authority, OAuth::new()).await;
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.message().contains("`OAuth::browser`"), "{error}");
}

#[track_caller]
fn check_no_token_issued(authority: &Authority, error: &Error, part: &str) {
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(error.message().contains(part), "{error}");
    assert!(authority.grants("authorization_code").is_empty());
}

#[tokio::test]
async fn redirect_of_another_login_is_rejected() {
    let quirks = Quirks {
        state: Some("another".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = login_error(&authority, oauth(&person)).await;
    check_no_token_issued(&authority, &error, "another login");
}

#[tokio::test]
async fn redirect_of_another_issuer_is_rejected() {
    let quirks = Quirks {
        iss: Some("http://127.0.0.1:1".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = login_error(&authority, oauth(&person)).await;
    check_no_token_issued(&authority, &error, "another authorization server");
}

#[tokio::test]
async fn metadata_of_another_issuer_is_rejected() {
    let quirks = Quirks {
        issuer: Some("http://127.0.0.1:1".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = login_error(&authority, oauth(&person)).await;
    check_no_token_issued(&authority, &error, "`http://127.0.0.1:1`");
    assert_eq!(person.visits(), 0);
}

#[tokio::test]
async fn metadata_of_another_server_is_rejected() {
    let quirks = Quirks {
        resource: Some("http://127.0.0.1:1/mcp".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = login_error(&authority, oauth(&person)).await;
    check_no_token_issued(&authority, &error, "metadata");
    assert_eq!(person.visits(), 0);
}

#[tokio::test]
async fn unsafe_login_page_is_not_opened() {
    for page in [
        "file:///etc/passwd",
        "http://example.com/authorize",
        "javascript:alert(1)",
    ] {
        let quirks = Quirks {
            page: Some(page.into()),
            ..Quirks::default()
        };
        let (authority, person) = (Authority::start(quirks).await, Person::default());
        let error = login_error(&authority, oauth(&person)).await;
        check_no_token_issued(&authority, &error, "neither https");
        assert_eq!(person.visits(), 0);
    }
}

#[tokio::test]
async fn token_is_not_sent_to_redirect_target() {
    let (authority, other) = (
        Authority::start(Quirks::default()).await,
        Authority::start(Quirks::default()).await,
    );
    let person = Person::default();
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    authority.quirks().redirect_to = Some(other.url.clone());
    call(&server, "read").await.unwrap_err();
    assert!(
        other.logins().iter().all(Option::is_none),
        "{:?}",
        other.logins()
    );
}

/// Returns a client with a secret, which logs in without a person.
fn machine_oauth() -> OAuth {
    OAuth::new()
        .client_id("me")
        .client_secret("hush")
        .client_credentials()
}

fn machine_quirks() -> Quirks {
    Quirks {
        only_machines: true,
        refreshes: false,
        ..Quirks::default()
    }
}

#[track_caller]
fn check_secret_not_sent(attacker: &Authority, error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    let hint = format!("`OAuth::issuer(\"{}\")`", attacker.issuer());
    assert!(error.message().contains(&hint), "{error}");
    assert!(attacker.grants("client_credentials").is_empty());
}

#[tokio::test]
async fn client_secret_is_sent_only_to_configured_issuer() {
    let (authority, attacker) = (
        Authority::start(machine_quirks()).await,
        Authority::start(machine_quirks()).await,
    );
    for issuer in [
        authority.issuer().to_owned(),
        format!("{}/", authority.issuer()),
    ] {
        let (_servers, server) = ready(&authority, machine_oauth().issuer(issuer)).await;
        assert_eq!(call(&server, "read").await.unwrap(), "read");
    }
    let grants = authority.grants("client_credentials");
    assert_eq!((grants.len(), &*grants[0]["client_secret"]), (2, "hush"));
    authority.quirks().authority = Some(attacker.issuer().to_owned());
    let error = login_error(&authority, machine_oauth().issuer(authority.issuer())).await;
    check_secret_not_sent(&attacker, &error);
    assert!(error.message().contains(authority.issuer()), "{error}");
    // An issuer that only starts in the same way is another one.
    let error = login_error(
        &authority,
        machine_oauth().issuer(format!("{}/x", attacker.issuer())),
    )
    .await;
    check_secret_not_sent(&attacker, &error);
    // No browser is sent there, either.
    let person = Person::default();
    let error = login_error(&authority, oauth(&person).issuer(authority.issuer())).await;
    assert_eq!(
        (error.kind(), person.visits()),
        (ErrorKind::Auth, 0),
        "{error}"
    );
}

#[tokio::test]
async fn client_secret_is_sent_only_to_issuer_of_first_login() {
    let (authority, attacker) = (
        Authority::start(machine_quirks()).await,
        Authority::start(machine_quirks()).await,
    );
    let store = Arc::new(MemoryTokenStore::new());
    let (_servers, server) = ready(&authority, machine_oauth().store(store.clone())).await;
    authority.revoke();
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    authority.quirks().authority = Some(attacker.issuer().to_owned());
    authority.revoke();
    check_secret_not_sent(&attacker, &call(&server, "read").await.unwrap_err());
    // Another process with the same store has the binding as well, even without the login.
    check_secret_not_sent(
        &attacker,
        &login_error(&authority, machine_oauth().store(store.clone())).await,
    );
    let key = format!("guarded {}", authority.url);
    store.remove(&key).await.unwrap();
    check_secret_not_sent(
        &attacker,
        &login_error(&authority, machine_oauth().store(store.clone())).await,
    );
    // A login that an earlier version stored has the same effect.
    let old = json!({
        "issuer": authority.issuer(), "resource": authority.url, "scopes": [], "refresh": null,
        "expires": null,
        "token_endpoint": format!("{}/token", authority.issuer()), "grant": "client", "access": "x",
        "client": { "id": "me", "method": "post", "registered": null },
    });
    let earlier = Arc::new(MemoryTokenStore::new());
    earlier.save(&key, &old.to_string()).await.unwrap();
    check_secret_not_sent(
        &attacker,
        &login_error(&authority, machine_oauth().store(earlier)).await,
    );
    // Setting the issuer expresses trust in it.
    let trusting = machine_oauth().store(store).issuer(attacker.issuer());
    let error = login_error(&authority, trusting).await;
    assert!(error.message().contains("rejects the token"), "{error}");
    assert_eq!(attacker.grants("client_credentials").len(), 1);
}

#[tokio::test]
async fn stored_login_of_another_issuer_is_not_used() {
    let authority = Authority::start(machine_quirks()).await;
    let store = Arc::new(MemoryTokenStore::new());
    drop(ready(&authority, machine_oauth().store(store.clone())).await);
    let before = authority.logins().iter().flatten().count();
    let error = login_error(
        &authority,
        machine_oauth().store(store).issuer("https://login.example"),
    )
    .await;
    assert!(
        error.message().contains("`https://login.example`"),
        "{error}"
    );
    assert_eq!(
        authority.logins().iter().flatten().count(),
        before,
        "an old token was sent"
    );
}

#[test]
fn debug_of_oauth_settings_hides_secrets() {
    let oauth = OAuth::new()
        .client_id("me")
        .client_secret("hush")
        .client_key("hush");
    let enterprise =
        levity_mcp::EnterpriseLogin::new("https://id.example/token", "me", "hush".to_owned());
    let oauth = oauth.enterprise(enterprise.client_secret("hush"));
    let config = ServerConfig::http("guarded", "https://guarded.example/mcp").oauth(oauth.clone());
    for shown in [format!("{oauth:?}"), format!("{config:?}")] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[tokio::test]
async fn bound_token_is_sent_with_new_proof_each_time() {
    for nonce in [None, Some("n-1")] {
        let quirks = Quirks {
            bound: true,
            nonce,
            ..Quirks::default()
        };
        let (authority, person) = (Authority::start(quirks).await, Person::default());
        let (_servers, server) = ready(&authority, oauth(&person)).await;
        assert_eq!(call(&server, "read").await.unwrap(), "read");
        let logins = authority.logins().into_iter().flatten();
        assert!(
            logins.clone().count() > 1
                && logins
                    .clone()
                    .all(|login| login.starts_with("DPoP access-"))
        );
        let proofs = authority.proofs();
        let different: std::collections::BTreeSet<_> = proofs.iter().collect();
        assert_eq!((proofs.len(), person.visits()), (different.len(), 1));
        assert!(proofs.len() > 2, "{proofs:?}");
    }
}

#[tokio::test]
async fn bound_token_is_renewed_with_its_key_by_another_process() {
    let quirks = Quirks {
        bound: true,
        nonce: Some("n-1"),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let store = Arc::new(MemoryTokenStore::new());
    drop(ready(&authority, oauth(&person).store(store.clone())).await);
    let (_servers, server) = ready(&authority, OAuth::new().store(store)).await;
    authority.revoke();
    // Nonces may change over time.
    authority.quirks().nonce = Some("n-2");
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!((person.visits(), authority.rejected_count()), (1, 1));
    // The first request lacks the new nonce, and the second one has it.
    assert_eq!(authority.grants("refresh_token").len(), 2);
}

/// Creates an identity token of a platform for these receivers.
fn workload_token(audience: &serde_json::Value) -> String {
    use base64::Engine;
    let claims = json!({ "iss": "https://platform.example", "sub": "job", "aud": audience });
    let part = |value: &serde_json::Value| {
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string())
    };
    format!(
        "{}.{}.c2ln",
        part(&json!({ "alg": "RS256" })),
        part(&claims)
    )
}

#[tokio::test]
async fn workload_logs_in_with_token_of_platform() {
    let authority = Authority::start(Quirks::default()).await;
    let token = workload_token(&json!([authority.issuer()]));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{token}\n")).unwrap();
    let oauth = OAuth::new().workload_identity(levity_mcp::TokenFile::new(file.path()));
    let (_servers, server) = ready(&authority, oauth).await;
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    let grants = authority.grants("urn:ietf:params:oauth:grant-type:jwt-bearer");
    assert_eq!((grants.len(), &grants[0]["assertion"]), (1, &token));
    assert!(!grants[0].contains_key("client_id"));
}

#[tokio::test]
async fn workload_token_for_another_server_is_not_sent() {
    for audience in [json!("https://login.example"), json!(null), json!([])] {
        let authority = Authority::start(Quirks::default()).await;
        let oauth = OAuth::new()
            .client_id("job")
            .workload_identity(workload_token(&audience));
        let error = login_error(&authority, oauth).await;
        assert!(
            error.message().contains("assertion_for_another_server"),
            "{error}"
        );
        assert!(
            authority
                .grants("urn:ietf:params:oauth:grant-type:jwt-bearer")
                .is_empty()
        );
    }
}

#[tokio::test]
async fn unreadable_workload_token_is_reported() {
    let authority = Authority::start(Quirks::default()).await;
    let oauth = OAuth::new().workload_identity(levity_mcp::TokenFile::new("no-such-folder/token"));
    let servers = start(&authority, oauth);
    let status = servers.wait(WaitFor::All).await;
    let ServerState::Unavailable { error, .. } = &status[0].state else {
        panic!("{status:?}")
    };
    assert!(
        error
            .message()
            .contains("cannot read the identity token of this workload"),
        "{error}"
    );
}

/// Checks that no token, proof or assertion appears, not even its start.
#[track_caller]
fn check_no_token_shown(shown: &str) {
    for part in ["access-", "acces", "refresh-", "code-", "eyJ"] {
        assert!(!shown.contains(part), "`{part}` in {shown}");
    }
}

#[tokio::test]
async fn tokens_repeated_in_errors_are_masked() {
    for (bound, before) in [
        (false, 0),
        (false, 8_185),
        (true, 0),
        (true, 8_180),
        (true, 8_250),
    ] {
        let echoes = Some(("tools/call", before));
        let quirks = Quirks {
            bound,
            echoes,
            write: "read",
            ..Quirks::default()
        };
        let (authority, person) = (Authority::start(quirks).await, Person::default());
        let (servers, server) = ready(&authority, oauth(&person)).await;
        let mut events = servers.events();
        for tool in ["read", "write"] {
            let error = call(&server, tool).await.unwrap_err();
            check_no_token_shown(&format!("{error} {error:?}"));
            assert!(error.message().contains("***") || before > 0, "{error}");
        }
        // Renewed tokens are secret as well.
        authority.revoke();
        let error = call(&server, "read").await.unwrap_err();
        check_no_token_shown(&format!("{error} {error:?}"));
        servers.stop().await;
        drop((servers, server));
        while let Some(event) = events.next().await {
            check_no_token_shown(&format!("{event:?}"));
        }
    }
}

#[tokio::test]
async fn tokens_repeated_in_start_errors_are_masked() {
    for bound in [false, true] {
        for (method, before) in [("tools/list", 0), ("initialize", 0), ("initialize", 8_186)] {
            let quirks = Quirks {
                bound,
                echoes: Some((method, before)),
                ..Quirks::default()
            };
            let (authority, person) = (Authority::start(quirks).await, Person::default());
            let config = ServerConfig::http("guarded", authority.url.clone())
                .oauth(oauth(&person))
                .retries(0);
            let servers = Servers::builder().server(config).start().unwrap();
            let mut events = servers.events();
            let status = servers.wait(WaitFor::All).await;
            assert!(!status[0].state.is_ready(), "{status:?}");
            check_no_token_shown(&format!("{status:?}"));
            let error = servers
                .get("guarded")
                .unwrap()
                .call("read", json!({}))
                .await
                .unwrap_err();
            check_no_token_shown(&format!("{error} {error:?}"));
            servers.stop().await;
            drop(servers);
            while let Some(event) = events.next().await {
                check_no_token_shown(&format!("{event:?}"));
            }
        }
    }
}

#[tokio::test]
async fn secrets_repeated_by_token_endpoint_are_masked() {
    let quirks = Quirks {
        echoes_grant: true,
        ..Quirks::default()
    };
    let authority = Authority::start(quirks.clone()).await;
    let token = workload_token(&json!([authority.issuer()]));
    check_no_token_shown(
        &login_error(&authority, OAuth::new().workload_identity(token))
            .await
            .to_string(),
    );
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    check_no_token_shown(&login_error(&authority, oauth(&person)).await.to_string());
}
