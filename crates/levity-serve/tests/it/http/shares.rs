//! One named token takes a share of what the server has, and leaves the rest to others.

use levity_test::ScriptedModel;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::TOKEN;
use super::support::Held;
use super::tenants::{As, Site};

/// Opens a stream of events, and gives the status and the stream.
async fn follow(who: &As<'_>, path: &str) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(who.0.0).await.unwrap();
    let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n", who.0.0, who.1);
    stream.write_all(text.as_bytes()).await.unwrap();
    let (mut lines, mut line) = (BufReader::new(stream), String::new());
    lines.read_line(&mut line).await.unwrap();
    (line.split(' ').nth(1).unwrap().parse().unwrap(), lines)
}

#[tokio::test]
async fn named_token_has_a_quarter_of_the_runs() {
    let (held, _permits) = Held::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let site = Site::offering(model, |agent| agent.tool(held), |runs| runs.most(8), |api| api).await;
    let owner = As(site.server.client, TOKEN);
    for (who, status) in [("ann", 201), ("ann", 201), ("ann", 429), ("bob", 201), ("ann", 429), ("bob", 201)]
    {
        let answer = site.as_(who).post("/v1/runs", json!({"goal": "Hold."})).await;
        assert_eq!(answer.status, status, "{who}: {answer:?}");
    }
    // Who may do everything may have all that is left.
    for who in [&owner, &site.as_("top"), &owner, &owner] {
        who.post("/v1/runs", json!({"goal": "Hold."})).await.is(201);
    }
    owner.post("/v1/runs", json!({"goal": "Hold."})).await.refused(429, "full");
    site.server.stop().await;
}

#[tokio::test]
async fn runs_started_at_once_stay_within_the_share() {
    let (held, _permits) = Held::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let site = Site::offering(model, |agent| agent.tool(held), |runs| runs.most(16), |api| api).await;
    let ann = site.as_("ann");
    let starts = (0..16).map(|_| ann.post("/v1/runs", json!({"goal": "Hold."})));
    let answers = futures_util::future::join_all(starts).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 4, "{answers:?}");
    site.server.stop().await;
}

#[tokio::test]
async fn tool_routes_keep_places_for_other_tokens() {
    let (held, permits) = Held::new();
    let model = ScriptedModel::new().reply("1");
    let set_api = |api: levity_serve::http::HttpApi| api.tool_calls(8);
    let site = Site::offering(model, |agent| agent.tool(held), |runs| runs, set_api).await;
    let (client, token) = (site.server.client, site.as_("ann").1.to_owned());
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let token = token.clone();
        calls.spawn(async move { As(client, &token).post("/v1/tools/hold", json!({})).await.status });
    }
    // Those that are too many are refused at once, and the others wait for a permit.
    while site.as_("ann").post("/v1/tools/look", json!({})).await.status != 429 {
        tokio::task::yield_now().await;
    }
    for who in [site.as_("bob"), site.as_("eye"), site.as_("top"), As(client, TOKEN)] {
        who.post("/v1/tools/look", json!({})).await.is(200);
    }
    site.as_("ann.boss").post("/v1/tools/look", json!({})).await.refused(429, "full");
    permits.add_permits(8);
    let mut statuses = calls.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429, 429, 429]);
    site.as_("ann").post("/v1/tools/look", json!({})).await.is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn event_streams_keep_places_for_other_tokens() {
    let (held, _permits) = Held::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let set_api = |api: levity_serve::http::HttpApi| api.readers(8);
    let site = Site::offering(model, |agent| agent.tool(held), |runs| runs, set_api).await;
    for who in ["ann", "bob"] {
        site.as_(who).post("/v1/runs", json!({"goal": "Hold.", "id": "r"})).await.is(201);
    }
    let mut streams = Vec::new();
    for expected in [200, 200, 503, 503, 503, 503, 503, 503] {
        let (status, stream) = follow(&site.as_("ann"), "/v1/runs/r/events").await;
        assert_eq!(status, expected, "{}", streams.len());
        streams.push(stream);
    }
    let (status, _stream) = follow(&site.as_("bob"), "/v1/runs/r/events").await;
    assert_eq!(status, 200);
    site.as_("ann").get("/v1/runs/r/events").await.refused(503, "too_many_readers");
    streams.clear();
    while follow(&site.as_("ann"), "/v1/runs/r/events").await.0 != 200 {
        tokio::task::yield_now().await;
    }
    site.server.stop().await;
}

#[tokio::test]
async fn token_share_can_be_set() {
    let (held, _permits) = Held::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let set_runs = |runs: levity_serve::Runs| runs.most(4).token_share(100);
    let site = Site::offering(model, |agent| agent.tool(held), set_runs, |api| api).await;
    for status in [201, 201, 201, 201, 429] {
        let answer = site.as_("ann").ask("POST", "/v1/runs", json!({"goal": "Hold."})).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert_eq!(site.as_("bob").get("/v1/runs").await.is(200)["runs"], Value::Array(vec![]));
    site.server.stop().await;
}

#[tokio::test]
async fn large_bodies_that_do_not_come_leave_room_for_other_tokens() {
    let site = Site::new(ScriptedModel::new().reply("1")).await;
    let goal = json!({"goal": "x".repeat(100_000)});
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(site.server.client.0).await.unwrap();
        let (address, token) = (site.server.client.0, site.as_("ann").1);
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let refused = loop {
        let answer = site.as_("ann").post("/v1/runs", goal.clone()).await;
        if answer.status != 201 {
            break answer;
        }
    };
    assert!(refused.has("retry-after: 1"), "{refused:?}");
    refused.refused(503, "too_many_bodies");
    site.as_("bob").post("/v1/runs", goal).await.is(201);
    // Small requests need no such place.
    site.as_("ann").post("/v1/tools/look", json!({})).await.is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn requests_that_wait_leave_room_for_other_tokens() {
    let model = ScriptedModel::new().reply("1");
    let set_api = |api: levity_serve::http::HttpApi| api.requests(8);
    let site = Site::offering(model, |agent| agent, |runs| runs, set_api).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(site.server.client.0).await.unwrap();
        let (address, token) = (site.server.client.0, site.as_("ann").1);
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    while site.as_("ann").get("/v1/runs").await.status != 429 {
        tokio::task::yield_now().await;
    }
    for who in [site.as_("bob"), site.as_("eye"), site.as_("top"), As(site.server.client, TOKEN)] {
        who.get("/v1/runs").await.is(200);
    }
    site.server.client.ask_as("GET", "/v1/health", &[], "").await.is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn runs_of_one_token_do_not_push_ended_runs_of_others_out_of_memory() {
    let site = Site::new(ScriptedModel::new().reply("1")).await;
    let start = async |who: &As<'_>, id: String| {
        let run = who.post("/v1/runs", json!({"goal": "Go", "id": id})).await.is(201);
        site.server.runs.get(&run["id"].as_str().unwrap().into()).unwrap().outcome().await;
    };
    start(&site.as_("bob"), "r".to_owned()).await;
    start(&As(site.server.client, TOKEN), "mine".to_owned()).await;
    for number in 0..70 {
        start(&site.as_("ann"), format!("r{number}")).await;
    }
    for (id, kept) in [("bob-r", true), ("mine", true), ("ann-r0", false), ("ann-r69", true)] {
        assert_eq!(site.server.runs.get(&id.into()).is_some(), kept, "{id}");
    }
    site.server.stop().await;
}
