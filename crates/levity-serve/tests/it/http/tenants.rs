//! Named tokens: each sees its own runs and conversations, within its scopes.

use levity_core::CancelToken;
use levity_loop::AgentBuilder;
use levity_memory::{Conversations, InMemory};
use levity_runtime::MemoryJournal;
use levity_serve::http::HttpApi;
use levity_serve::{AccessControl, Listener, Runs, Token, TokenScope, Tokens};
use levity_test::ScriptedModel;
use serde_json::{Value, json};

use super::client::{Client, HttpResponse, TOKEN};
use super::support::{Server, agent};

/// A client with its own token.
pub(super) struct TokenClient<'a>(pub(super) Client, pub(super) &'a str);

impl TokenClient<'_> {
    pub(super) async fn ask(&self, method: &str, path: &str, body: Value) -> HttpResponse {
        let mut headers = vec![("Authorization", format!("Bearer {}", self.1))];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json".to_owned()));
        }
        self.0.ask_as(method, path, &headers, &body).await
    }

    pub(super) async fn get(&self, path: &str) -> HttpResponse {
        self.ask("GET", path, Value::Null).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        self.ask("POST", path, body).await
    }

    async fn runs(&self) -> Vec<String> {
        let mut ids = Vec::new();
        let mut path = "/v1/runs?limit=2".to_owned();
        loop {
            let page = self.get(&path).await.is(200);
            ids.extend(
                page["runs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|run| run["id"].as_str().unwrap().to_owned()),
            );
            let Value::String(next) = &page["next"] else {
                break;
            };
            path = format!("/v1/runs?limit=2&cursor={}", next.replace('~', "%7E"));
        }
        ids.sort();
        ids
    }
}

pub(super) struct Site {
    pub(super) server: Server,
    tokens: Vec<(&'static str, Token)>,
}

impl Site {
    pub(super) async fn new(model: ScriptedModel) -> Self {
        Self::with(model, |agent| agent, |runs| runs).await
    }

    async fn with(
        model: ScriptedModel,
        set: impl FnOnce(AgentBuilder) -> AgentBuilder,
        set_runs: impl FnOnce(Runs) -> Runs,
    ) -> Self {
        Self::offering(model, set, set_runs, |api| api).await
    }

    pub(super) async fn offering(
        model: ScriptedModel,
        set: impl FnOnce(AgentBuilder) -> AgentBuilder,
        set_runs: impl FnOnce(Runs) -> Runs,
        set_api: impl FnOnce(HttpApi) -> HttpApi,
    ) -> Self {
        let mut tokens = Tokens::new();
        let mut all = Vec::new();
        for (name, scopes) in [
            ("ann", &[TokenScope::Run][..]),
            ("bob", &[TokenScope::Run, TokenScope::Approve]),
            ("eye", &[TokenScope::Read]),
            ("yes", &[TokenScope::Approve]),
            ("top", &[TokenScope::Admin]),
            ("ann.boss", &[TokenScope::Approve]),
        ] {
            all.push((name, tokens.add(name, scopes.iter().copied()).unwrap()));
        }
        let conversations = Conversations::new(InMemory::new()).never_expire();
        let agent = agent(model, &MemoryJournal::new());
        let agent = set(agent.to_builder().conversations(conversations.clone()))
            .build()
            .unwrap();
        let stop = CancelToken::new();
        let access = AccessControl::new(Token::new(TOKEN).unwrap()).tokens(tokens);
        let listener = Listener::bind("127.0.0.1:0", access)
            .await
            .unwrap()
            .stop_on(stop.clone());
        let tools = agent.dispatcher().clone();
        let runs = set_runs(Runs::new(agent));
        let server = Server::on(listener, stop, runs, |api| {
            set_api(api.conversations(conversations).tools(tools))
        });
        Self {
            server,
            tokens: all,
        }
    }

    pub(super) fn as_(&self, name: &str) -> TokenClient<'_> {
        let (_, token) = self
            .tokens
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap();
        TokenClient(self.server.client, token.reveal())
    }
}

#[tokio::test]
async fn named_token_sees_only_its_own_runs() {
    let site = Site::new(ScriptedModel::new().reply("1")).await;
    let (ann, bob, owner) = (
        site.as_("ann"),
        site.as_("bob"),
        TokenClient(site.server.client, TOKEN),
    );
    let mut ids = Vec::new();
    for (who, id) in [
        (&ann, "monday"),
        (&bob, "monday"),
        (&ann, "tuesday"),
        (&owner, "root"),
        (&ann, "wednesday"),
    ] {
        let run = who
            .post("/v1/runs", json!({"goal": "Go", "id": id}))
            .await
            .is(201);
        ids.push(run["id"].as_str().unwrap().to_owned());
        site.server
            .runs
            .get(&ids.last().unwrap().as_str().into())
            .unwrap()
            .outcome()
            .await;
    }
    assert_eq!(
        ids,
        [
            "ann-monday",
            "bob-monday",
            "ann-tuesday",
            "root",
            "ann-wednesday"
        ]
    );
    let random = ann.post("/v1/runs", json!({"goal": "Go"})).await.is(201)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(random.starts_with("ann-"), "{random}");
    let keyed = [
        ("Authorization", format!("Bearer {}", bob.1)),
        ("Content-Type", "application/json".to_owned()),
        ("Idempotency-Key", "k".to_owned()),
    ];
    let keyed = site
        .server
        .client
        .ask_as("POST", "/v1/runs", &keyed, r#"{"goal": "Go"}"#)
        .await
        .is(201);
    assert!(keyed["id"].as_str().unwrap().starts_with("bob-k"));
    let mut expected = vec![
        "ann-monday".to_owned(),
        "ann-tuesday".to_owned(),
        "ann-wednesday".to_owned(),
        random,
    ];
    expected.sort();
    assert_eq!(ann.runs().await, expected);
    assert_eq!(bob.runs().await.len(), 2);
    assert_eq!(
        (
            site.as_("eye").runs().await.len(),
            site.as_("yes").runs().await.len()
        ),
        (0, 0)
    );
    assert_eq!(
        (site.as_("top").runs().await.len(), owner.runs().await.len()),
        (7, 7)
    );
    // Its own runs are reachable with and without the prefix, those of others not at all.
    assert_eq!(ann.get("/v1/runs/monday").await.is(200)["id"], "ann-monday");
    assert_eq!(
        ann.get("/v1/runs/ann-monday").await.is(200)["id"],
        "ann-monday"
    );
    assert_eq!(
        site.as_("top").get("/v1/runs/ann-monday").await.is(200)["id"],
        "ann-monday"
    );
    for other in ["bob-monday", "root", "bob-monday.1", "ann-bob-monday"] {
        ann.get(&format!("/v1/runs/{other}"))
            .await
            .assert_error(404, "no_run");
        ann.get(&format!("/v1/runs/{other}/events"))
            .await
            .assert_error(404, "no_run");
        ann.get(&format!("/v1/runs/{other}/asks"))
            .await
            .assert_error(404, "no_run");
        ann.ask("DELETE", &format!("/v1/runs/{other}"), Value::Null)
            .await;
        for verb in ["pause", "resume", "cancel"] {
            let refused = ann
                .post(&format!("/v1/runs/{other}/{verb}"), json!({}))
                .await;
            assert!(
                matches!(refused.status, 404 | 409),
                "{other} {verb}: {refused:?}"
            );
        }
        ann.post(
            &format!("/v1/runs/{other}/message"),
            json!({"text": "Hello"}),
        )
        .await
        .assert_error(404, "no_run");
    }
    owner.get("/v1/runs/bob-monday").await.is(200);
    owner.get("/v1/runs/root").await.is(200);
    ann.post("/v1/runs", json!({"goal": "Go", "id": "x".repeat(126)}))
        .await
        .assert_error(422, "bad_id");
    site.server.stop().await;
}

#[tokio::test]
async fn named_token_sees_only_its_own_conversations() {
    let site = Site::new(ScriptedModel::new().reply("1").reply("2")).await;
    let (ann, bob) = (site.as_("ann"), site.as_("bob"));
    for who in [&ann, &bob] {
        let run = who
            .post(
                "/v1/runs",
                json!({"goal": "Good morning", "conversation": "day"}),
            )
            .await
            .is(201);
        site.server
            .runs
            .get(&run["id"].as_str().unwrap().into())
            .unwrap()
            .outcome()
            .await;
    }
    let listed = ann.get("/v1/sessions").await.is(200);
    assert_eq!(
        (
            listed["sessions"].as_array().unwrap().len(),
            &listed["sessions"][0]["id"]
        ),
        (1, &json!("ann-day"))
    );
    assert_eq!(ann.get("/v1/sessions/day").await.is(200)["end"], 2);
    assert_eq!(
        site.as_("top").get("/v1/sessions").await.is(200)["sessions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    ann.get("/v1/sessions/bob-day")
        .await
        .assert_error(404, "no_session");
    ann.ask("DELETE", "/v1/sessions/bob-day", Value::Null)
        .await
        .assert_error(404, "no_session");
    site.as_("eye")
        .get("/v1/sessions/ann-day")
        .await
        .assert_error(404, "no_session");
    ann.get("/v1/sessions?kind=plan")
        .await
        .assert_error(403, "scope_missing");
    ann.get("/v1/sessions/x?kind=plan")
        .await
        .assert_error(403, "scope_missing");
    ann.ask("DELETE", "/v1/sessions/day", Value::Null)
        .await
        .is(204);
    bob.get("/v1/sessions/day").await.is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn every_route_requires_its_scope() {
    let site = Site::new(ScriptedModel::new().reply("1")).await;
    // The requests that each token is denied for lack of a scope; `ann` may run, `yes` may approve,
    // `eye` may read.
    let (run, approve, read): (&[&str], &[&str], &[&str]) = (
        &["ann", "bob"],
        &["bob", "yes"],
        &["ann", "bob", "eye", "yes"],
    );
    let both: &[&str] = &["ann", "bob", "yes"];
    for (method, path, may) in [
        ("GET", "/v1/runs", read),
        ("GET", "/v1/openapi.json", read),
        ("GET", "/v1/runs/none", read),
        ("GET", "/v1/runs/none/events", read),
        ("GET", "/v1/runs/none/asks", read),
        ("GET", "/v1/sessions", read),
        ("GET", "/v1/sessions/none", read),
        ("GET", "/v1/tools", read),
        ("HEAD", "/v1/runs", read),
        ("POST", "/v1/runs", run),
        ("DELETE", "/v1/runs/none", run),
        ("POST", "/v1/runs/none/pause", run),
        ("POST", "/v1/runs/none/resume", run),
        ("POST", "/v1/runs/none/cancel", run),
        ("POST", "/v1/runs/none/message", run),
        ("POST", "/v1/runs/none/asks/none:1:0", both),
        ("DELETE", "/v1/sessions/none", run),
        ("POST", "/v1/tools/look", read),
        ("POST", "/v1/tools/delete", run),
    ] {
        for name in ["ann", "bob", "eye", "yes", "top"] {
            let answer = site.as_(name).ask(method, path, Value::Null).await;
            let allowed = name == "top" || may.contains(&name);
            assert_eq!(
                answer.status != 403,
                allowed,
                "{name} {method} {path}: {answer:?}"
            );
            if !allowed && method != "HEAD" {
                answer.assert_error(403, "scope_missing");
            }
        }
    }
    for name in ["ann", "bob", "eye", "yes"] {
        let may = approve.contains(&name) && run.contains(&name);
        let answer = site
            .as_(name)
            .post("/v1/tools/delete", json!({"args": {}, "approved": true}))
            .await;
        assert_eq!(answer.status == 200, may, "{name}: {answer:?}");
    }
    site.server.stop().await;
}

#[tokio::test]
async fn no_spelling_of_an_id_reaches_the_run_of_another_token() {
    let site = Site::new(ScriptedModel::new().reply("The secret answer.")).await;
    let (ann, bob) = (site.as_("ann"), site.as_("bob"));
    let order = json!({"goal": "A secret goal", "id": "plan", "conversation": "talk"});
    bob.post("/v1/runs", order).await.is(201);
    site.server
        .runs
        .get(&"bob-plan".into())
        .unwrap()
        .outcome()
        .await;
    let spellings = [
        "bob-plan",
        "bob%2Dplan",
        "%62ob-plan",
        "bob-plan.",
        ".bob-plan",
        "bob-plan.1",
        "ann-.bob-plan",
        "ann-%2e%2e%2fbob-plan",
        "..%2Fbob-plan",
        "../runs/bob-plan",
        "ann-x/../bob-plan",
        "ann-x%2f..%2fbob-plan",
        "bob-plan%00",
        "bob-plan%20",
        "BOB-plan",
        "plan",
        "-plan",
        "ann",
        "ann-",
        "ann-bob-plan",
        "bob-plan%3A1",
        "~bob-plan",
        "*",
        "%25%36%32ob-plan",
    ];
    for id in spellings {
        for path in [
            format!("/v1/runs/{id}"),
            format!("/v1/runs/{id}/events"),
            format!("/v1/runs/{id}/asks"),
            format!("/v1/sessions/{}", id.replace("plan", "talk")),
        ] {
            let answer = ann.get(&path).await;
            let text = format!("{answer:?}");
            assert!(
                (400..500).contains(&answer.status) && !text.contains("secret"),
                "{path}: {text}"
            );
        }
        for (method, path) in [
            ("DELETE", format!("/v1/runs/{id}")),
            (
                "DELETE",
                format!("/v1/sessions/{}", id.replace("plan", "talk")),
            ),
            ("POST", format!("/v1/runs/{id}/resume")),
            ("POST", format!("/v1/runs/{id}/cancel")),
        ] {
            let answer = ann.ask(method, &path, Value::Null).await;
            assert!(
                (400..500).contains(&answer.status),
                "{method} {path}: {answer:?}"
            );
        }
    }
    for query in [
        "cursor=9999999999999~bob-plan",
        "cursor=0~",
        "roots=0",
        "since=0",
        "state=answered",
    ] {
        let listed = ann
            .get(&format!("/v1/runs?{}", query.replace('~', "%7E")))
            .await
            .is(200);
        assert_eq!(listed["runs"], json!([]), "{query}");
    }
    // Starting the same run does not reveal it either.
    let same = ann
        .post(
            "/v1/runs",
            json!({"goal": "A secret goal", "id": "bob-plan"}),
        )
        .await
        .is(201);
    assert_eq!(same["id"], "ann-bob-plan");
    bob.get("/v1/runs/plan").await.is(200);
    bob.get("/v1/sessions/talk").await.is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn decision_requires_the_scope_approve() {
    let model = || {
        ScriptedModel::new()
            .call("delete", json!({"path": "x"}))
            .reply("Done.")
    };
    let site = Site::new(model()).await;
    let (ann, bob) = (site.as_("ann"), site.as_("bob"));
    for who in [&ann, &bob] {
        who.post("/v1/runs", json!({"goal": "Delete it", "id": "d"}))
            .await
            .is(201);
    }
    let mut questions = Vec::new();
    for who in [&ann, &bob] {
        questions.push(loop {
            let asks = who.get("/v1/runs/d/asks").await.is(200);
            match asks["asks"][0]["id"].as_str() {
                Some(id) => break id.to_owned(),
                None => tokio::task::yield_now().await,
            }
        });
    }
    let path = |id: &str| format!("/v1/runs/d/asks/{}", id.replace(':', "%3A"));
    let allow = json!({"decision": "allow"});
    ann.post(&path(&questions[0]), allow.clone())
        .await
        .assert_error(403, "scope_missing");
    // A user of the same tenant may decide, and do nothing else.
    let boss = site.as_("ann.boss");
    assert_eq!(boss.runs().await, ["ann-d"]);
    boss.post("/v1/runs", json!({"goal": "Go"}))
        .await
        .assert_error(403, "scope_missing");
    boss.post("/v1/runs/d/cancel", json!({}))
        .await
        .assert_error(403, "scope_missing");
    // The question of another token is not visible.
    let other = bob.post(&path(&questions[0]), allow.clone()).await;
    assert!(matches!(other.status, 404 | 409), "{other:?}");
    bob.post(&path(&questions[1]), allow).await.is(200);
    let done = site
        .server
        .runs
        .get(&"bob-d".into())
        .unwrap()
        .outcome()
        .await;
    assert_eq!(done.ending().unwrap().text, "Done.");
    boss.post(&path(&questions[0]), json!({"decision": "deny"}))
        .await
        .is(200);
    site.server
        .runs
        .get(&"ann-d".into())
        .unwrap()
        .outcome()
        .await;
    site.server.stop().await;
}

#[tokio::test]
async fn answer_to_the_model_requires_the_scope_run() {
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let site = Site::new(model).await;
    let (ann, boss) = (site.as_("ann"), site.as_("ann.boss"));
    ann.post("/v1/runs", json!({"goal": "Ask me", "id": "q"}))
        .await
        .is(201);
    let ask = loop {
        let asks = ann.get("/v1/runs/q/asks").await.is(200);
        match asks["asks"][0]["id"].as_str() {
            Some(id) => break format!("/v1/runs/q/asks/{}", id.replace(':', "%3A")),
            None => tokio::task::yield_now().await,
        }
    };
    let answer = json!({"decision": "answer", "text": "This."});
    boss.post(&ask, answer.clone())
        .await
        .assert_error(403, "scope_missing");
    boss.post(&ask, json!({"decision": "deny"}))
        .await
        .assert_error(403, "scope_missing");
    site.as_("eye")
        .post(&ask, answer.clone())
        .await
        .assert_error(403, "scope_missing");
    for blank in ["", " ", "\u{200b}", "\0\u{feff}"] {
        ann.post(&ask, json!({"decision": "answer", "text": blank}))
            .await
            .assert_error(422, "invalid");
    }
    let long = "x".repeat((256 << 10) + 1);
    for (path, body) in [
        (&*ask, json!({"decision": "answer", "text": long})),
        (&*ask, json!({"decision": "deny", "reason": long})),
        ("/v1/runs/q/cancel", json!({"reason": long})),
    ] {
        ann.post(path, body)
            .await
            .assert_error(413, "goal_too_long");
    }
    ann.post(&ask, answer).await.is(200);
    let done = site
        .server
        .runs
        .get(&"ann-q".into())
        .unwrap()
        .outcome()
        .await;
    assert_eq!(done.ending().unwrap().text, "Done.");
    site.server.stop().await;
}
