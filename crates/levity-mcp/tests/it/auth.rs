//! Servers that want a login.

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
    Browser, Error, ErrorKind, MemoryTokens, OAuth, Server, ServerConfig, ServerState, Servers,
    TokenStore, WaitFor,
};
use serde_json::json;

use authority::{Authority, Quirks};

/// A person who logs in at once, every time.
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
        let back = reply
            .headers()
            .get("location")
            .ok_or_else(|| io::Error::other("no way back"))?;
        Ok(back.to_str().unwrap().to_owned())
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

async fn refused(authority: &Authority, oauth: OAuth) -> Error {
    let servers = start(authority, oauth);
    match servers.wait(WaitFor::All).await.remove(0).state {
        // Nobody is asked to log in again by itself.
        ServerState::Away {
            error, retry: None, ..
        } => error,
        state => panic!("it was not refused: {state:?}"),
    }
}

async fn call(server: &Server, tool: &str) -> levity_mcp::Result<String> {
    server
        .call(tool, json!({}))
        .await
        .map(|output| output.as_text().to_string())
}

#[tokio::test]
async fn a_person_logs_in_once() {
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

/// A person who takes longer than a server may.
#[derive(Clone, Default)]
struct Slow(Person);

#[async_trait]
impl Browser for Slow {
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
async fn no_limit_runs_out_while_a_person_logs_in() {
    let (authority, slow) = (Authority::start(Quirks::default()).await, Slow::default());
    let config = ServerConfig::http("guarded", authority.url.clone())
        .oauth(OAuth::new().browser(slow.clone()))
        .probe_limit(Duration::from_millis(300));
    let servers = Servers::builder().server(config).start().unwrap();
    let status = servers.wait(WaitFor::All).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    assert_eq!(slow.0.visits(), 1, "the login was begun again");
}

#[tokio::test]
async fn a_login_that_was_kept_is_used() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let store = Arc::new(MemoryTokens::new());
    drop(ready(&authority, oauth(&person).store(store.clone())).await);
    let (_servers, server) = ready(&authority, OAuth::new().store(store)).await;
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!(person.visits(), 1);
}

#[tokio::test]
async fn a_token_that_is_about_to_end_is_renewed_first() {
    let quirks = Quirks {
        expires: Some(20),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    let (before, refused) = (authority.grants("refresh_token").len(), authority.refused());
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert!(authority.grants("refresh_token").len() > before);
    assert_eq!(
        (authority.refused(), person.visits()),
        (refused, 1),
        "a token that had ended was sent"
    );
}

#[tokio::test]
async fn many_requests_renew_once() {
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
async fn tokens_that_another_holder_renewed_are_taken() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let store = Arc::new(MemoryTokens::new());
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

/// A store that shows an older login for a while, as when another process saves a moment later.
#[derive(Default)]
struct Late {
    store: Arc<MemoryTokens>,
    shown: Mutex<Option<String>>,
    times: AtomicUsize,
}

#[async_trait]
impl TokenStore for Late {
    async fn load(&self, key: &str) -> io::Result<Option<String>> {
        let late = self.times.load(Ordering::SeqCst) > 0;
        if late {
            self.times.fetch_sub(1, Ordering::SeqCst);
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
async fn a_refresh_token_that_was_used_by_another_holder_is_no_end() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let store = Arc::new(MemoryTokens::new());
    let (_servers, one) = ready(&authority, oauth(&person).store(store.clone())).await;
    let late = Arc::new(Late {
        store,
        ..Late::default()
    });
    let (_others, other) = ready(&authority, OAuth::new().store(late.clone())).await;
    authority.revoke();
    assert_eq!(call(&one, "read").await.unwrap(), "read");
    // Once when the token is refused, and once before the refresh token is used.
    late.times.store(2, Ordering::SeqCst);
    assert_eq!(call(&other, "read").await.unwrap(), "read");
    assert_eq!(
        (authority.grants("refresh_token").len(), person.visits()),
        (2, 1)
    );
}

#[tokio::test]
async fn more_scopes_are_asked_for_when_they_are_needed() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    assert_eq!(call(&server, "write").await.unwrap(), "write");
    assert_eq!(authority.pages(), ["read", "read write"]);
    assert_eq!(authority.clients(), 1, "the client was registered twice");
}

#[tokio::test]
async fn a_server_that_is_never_content_is_given_up() {
    let quirks = Quirks {
        stingy: true,
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
async fn a_refresh_token_that_is_refused_leads_to_a_login() {
    let (authority, person) = (Authority::start(Quirks::default()).await, Person::default());
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    authority.revoke();
    authority.revoke_refresh();
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!(person.visits(), 2);
}

#[tokio::test]
async fn without_a_browser_the_error_says_what_to_set() {
    let authority = Authority::start(Quirks::default()).await;
    let error = refused(&authority, OAuth::new()).await;
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.message().contains("`OAuth::browser`"), "{error}");
}

#[track_caller]
fn no_token_was_given(authority: &Authority, error: &Error, part: &str) {
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(error.message().contains(part), "{error}");
    assert!(authority.grants("authorization_code").is_empty());
}

#[tokio::test]
async fn an_answer_to_another_login_is_refused() {
    let quirks = Quirks {
        state: Some("another".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = refused(&authority, oauth(&person)).await;
    no_token_was_given(&authority, &error, "another login");
}

#[tokio::test]
async fn an_answer_of_another_issuer_is_refused() {
    let quirks = Quirks {
        iss: Some("http://127.0.0.1:1".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = refused(&authority, oauth(&person)).await;
    no_token_was_given(&authority, &error, "another authorization server");
}

#[tokio::test]
async fn metadata_of_another_issuer_are_refused() {
    let quirks = Quirks {
        issuer: Some("http://127.0.0.1:1".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = refused(&authority, oauth(&person)).await;
    no_token_was_given(&authority, &error, "`http://127.0.0.1:1`");
    assert_eq!(person.visits(), 0);
}

#[tokio::test]
async fn metadata_of_another_server_are_refused() {
    let quirks = Quirks {
        resource: Some("http://127.0.0.1:1/mcp".into()),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let error = refused(&authority, oauth(&person)).await;
    no_token_was_given(&authority, &error, "metadata");
    assert_eq!(person.visits(), 0);
}

#[tokio::test]
async fn a_page_that_is_no_safe_address_is_not_opened() {
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
        let error = refused(&authority, oauth(&person)).await;
        no_token_was_given(&authority, &error, "neither https");
        assert_eq!(person.visits(), 0);
    }
}

#[tokio::test]
async fn a_token_goes_to_no_other_place() {
    let (authority, other) = (
        Authority::start(Quirks::default()).await,
        Authority::start(Quirks::default()).await,
    );
    let person = Person::default();
    let (_servers, server) = ready(&authority, oauth(&person)).await;
    authority.quirks().elsewhere = Some(other.url.clone());
    call(&server, "read").await.unwrap_err();
    assert!(
        other.logins().iter().all(Option::is_none),
        "{:?}",
        other.logins()
    );
}

/// A client with a secret, which logs in by itself.
fn machine() -> OAuth {
    OAuth::new()
        .client_id("me")
        .client_secret("hush")
        .client_credentials()
}

fn machines() -> Quirks {
    Quirks {
        machines: true,
        refreshes: false,
        ..Quirks::default()
    }
}

#[track_caller]
fn kept_its_secret(thief: &Authority, error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    let way_out = format!("`OAuth::issuer(\"{}\")`", thief.issuer());
    assert!(error.message().contains(&way_out), "{error}");
    assert!(thief.grants("client_credentials").is_empty());
}

#[tokio::test]
async fn client_secret_goes_to_the_issuer_that_was_set_and_no_other() {
    let (authority, thief) = (
        Authority::start(machines()).await,
        Authority::start(machines()).await,
    );
    for issuer in [
        authority.issuer().to_owned(),
        format!("{}/", authority.issuer()),
    ] {
        let (_servers, server) = ready(&authority, machine().issuer(issuer)).await;
        assert_eq!(call(&server, "read").await.unwrap(), "read");
    }
    let grants = authority.grants("client_credentials");
    assert_eq!((grants.len(), &*grants[0]["client_secret"]), (2, "hush"));
    authority.quirks().authority = Some(thief.issuer().to_owned());
    let error = refused(&authority, machine().issuer(authority.issuer())).await;
    kept_its_secret(&thief, &error);
    assert!(error.message().contains(authority.issuer()), "{error}");
    // One that only begins in the same way is another.
    let error = refused(
        &authority,
        machine().issuer(format!("{}/x", thief.issuer())),
    )
    .await;
    kept_its_secret(&thief, &error);
    // Nobody's browser is sent there, either.
    let person = Person::default();
    let error = refused(&authority, oauth(&person).issuer(authority.issuer())).await;
    assert_eq!(
        (error.kind(), person.visits()),
        (ErrorKind::Auth, 0),
        "{error}"
    );
}

#[tokio::test]
async fn client_secret_goes_to_the_issuer_of_its_first_login_and_no_other() {
    let (authority, thief) = (
        Authority::start(machines()).await,
        Authority::start(machines()).await,
    );
    let store = Arc::new(MemoryTokens::new());
    let (_servers, server) = ready(&authority, machine().store(store.clone())).await;
    authority.revoke();
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    authority.quirks().authority = Some(thief.issuer().to_owned());
    authority.revoke();
    kept_its_secret(&thief, &call(&server, "read").await.unwrap_err());
    // Another process that shares the store knows it as well, also without the login.
    kept_its_secret(
        &thief,
        &refused(&authority, machine().store(store.clone())).await,
    );
    let key = format!("guarded {}", authority.url);
    store.remove(&key).await.unwrap();
    kept_its_secret(
        &thief,
        &refused(&authority, machine().store(store.clone())).await,
    );
    // A login that an earlier version kept binds it, too.
    let old = json!({
        "issuer": authority.issuer(), "resource": authority.url, "scopes": [], "refresh": null, "expires": null,
        "token_endpoint": format!("{}/token", authority.issuer()), "grant": "client", "access": "x",
        "client": { "id": "me", "method": "post", "registered": null },
    });
    let earlier = Arc::new(MemoryTokens::new());
    earlier.save(&key, &old.to_string()).await.unwrap();
    kept_its_secret(&thief, &refused(&authority, machine().store(earlier)).await);
    // Who trusts it says so.
    let trusting = machine().store(store).issuer(thief.issuer());
    let error = refused(&authority, trusting).await;
    assert!(error.message().contains("refuses the token"), "{error}");
    assert_eq!(thief.grants("client_credentials").len(), 1);
}

#[tokio::test]
async fn login_of_another_issuer_than_the_one_that_is_set_is_not_used() {
    let authority = Authority::start(machines()).await;
    let store = Arc::new(MemoryTokens::new());
    drop(ready(&authority, machine().store(store.clone())).await);
    let before = authority.logins().iter().flatten().count();
    let error = refused(
        &authority,
        machine().store(store).issuer("https://login.example"),
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
fn secrets_are_not_shown() {
    let oauth = OAuth::new()
        .client_id("me")
        .client_secret("hush")
        .client_key("hush");
    let enterprise =
        levity_mcp::Enterprise::new("https://id.example/token", "me", "hush".to_owned());
    let oauth = oauth.enterprise(enterprise.client_secret("hush"));
    let config = ServerConfig::http("guarded", "https://guarded.example/mcp").oauth(oauth.clone());
    for shown in [format!("{oauth:?}"), format!("{config:?}")] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[tokio::test]
async fn bound_token_is_sent_with_a_fresh_proof_each_time() {
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
async fn bound_token_is_renewed_with_its_key_also_by_another_process() {
    let quirks = Quirks {
        bound: true,
        nonce: Some("n-1"),
        ..Quirks::default()
    };
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    let store = Arc::new(MemoryTokens::new());
    drop(ready(&authority, oauth(&person).store(store.clone())).await);
    let (_servers, server) = ready(&authority, OAuth::new().store(store)).await;
    authority.revoke();
    // Nonces change now and then.
    authority.quirks().nonce = Some("n-2");
    assert_eq!(call(&server, "read").await.unwrap(), "read");
    assert_eq!((person.visits(), authority.refused()), (1, 1));
    // Asked once without the new nonce and once with it.
    assert_eq!(authority.grants("refresh_token").len(), 2);
}

/// An identity token of a platform for these receivers.
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
async fn workload_logs_in_by_the_token_of_its_platform() {
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
        let error = refused(&authority, oauth).await;
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
async fn workload_token_that_cannot_be_read_is_named() {
    let authority = Authority::start(Quirks::default()).await;
    let oauth = OAuth::new().workload_identity(levity_mcp::TokenFile::new("no-such-folder/token"));
    let servers = start(&authority, oauth);
    let status = servers.wait(WaitFor::All).await;
    let ServerState::Away { error, .. } = &status[0].state else {
        panic!("{status:?}")
    };
    assert!(
        error
            .message()
            .contains("identity token of this workload cannot be read"),
        "{error}"
    );
}

/// Checks that no token, proof or assertion is shown, not even its beginning.
#[track_caller]
fn shows_no_token(shown: &str) {
    for part in ["access-", "acces", "refresh-", "code-", "eyJ"] {
        assert!(!shown.contains(part), "`{part}` in {shown}");
    }
}

#[tokio::test]
async fn tokens_that_a_server_repeats_in_its_errors_are_not_shown() {
    for (bound, before) in [
        (false, 0),
        (false, 8_185),
        (true, 0),
        (true, 8_180),
        (true, 8_250),
    ] {
        let repeats = Some(("tools/call", before));
        let quirks = Quirks {
            bound,
            repeats,
            write: "read",
            ..Quirks::default()
        };
        let (authority, person) = (Authority::start(quirks).await, Person::default());
        let (servers, server) = ready(&authority, oauth(&person)).await;
        let mut events = servers.events();
        for tool in ["read", "write"] {
            let error = call(&server, tool).await.unwrap_err();
            shows_no_token(&format!("{error} {error:?}"));
            assert!(error.message().contains("***") || before > 0, "{error}");
        }
        // Renewed tokens are as secret as the first.
        authority.revoke();
        let error = call(&server, "read").await.unwrap_err();
        shows_no_token(&format!("{error} {error:?}"));
        servers.stop().await;
        drop((servers, server));
        while let Some(event) = events.next().await {
            shows_no_token(&format!("{event:?}"));
        }
    }
}

#[tokio::test]
async fn tokens_that_a_server_repeats_when_it_does_not_start_are_not_shown() {
    for bound in [false, true] {
        for (method, before) in [("tools/list", 0), ("initialize", 0), ("initialize", 8_186)] {
            let quirks = Quirks {
                bound,
                repeats: Some((method, before)),
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
            shows_no_token(&format!("{status:?}"));
            let error = servers
                .get("guarded")
                .unwrap()
                .call("read", json!({}))
                .await
                .unwrap_err();
            shows_no_token(&format!("{error} {error:?}"));
            servers.stop().await;
            drop(servers);
            while let Some(event) = events.next().await {
                shows_no_token(&format!("{event:?}"));
            }
        }
    }
}

#[tokio::test]
async fn secrets_that_a_token_endpoint_repeats_as_its_error_are_not_shown() {
    let quirks = Quirks {
        repeats_grant: true,
        ..Quirks::default()
    };
    let authority = Authority::start(quirks.clone()).await;
    let token = workload_token(&json!([authority.issuer()]));
    shows_no_token(
        &refused(&authority, OAuth::new().workload_identity(token))
            .await
            .to_string(),
    );
    let (authority, person) = (Authority::start(quirks).await, Person::default());
    shows_no_token(&refused(&authority, oauth(&person)).await.to_string());
}
