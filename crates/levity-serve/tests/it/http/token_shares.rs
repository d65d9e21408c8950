//! One named token uses its share of the server, and leaves the rest to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Journal, JournalError, OpenRun, Record, RunId, RunQuery, RunSummary};
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::http::HttpApi;
use levity_serve::{NewRun, Runs};
use levity_test::ScriptedModel;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::TOKEN;
use super::support::{HeldTool, agent};
use super::tenants::{Site, TokenClient};

/// Opens an event stream, and returns the status and the stream.
async fn follow(who: &TokenClient<'_>, path: &str) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(who.0.0).await.unwrap();
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        who.0.0, who.1
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let (mut lines, mut line) = (BufReader::new(stream), String::new());
    lines.read_line(&mut line).await.unwrap();
    (line.split(' ').nth(1).unwrap().parse().unwrap(), lines)
}

#[tokio::test]
async fn named_token_is_limited_to_a_quarter_of_the_runs() {
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let site = Site::offering(
        model,
        |agent| agent.tool(held),
        |runs| runs.max_runs(8),
        |api| api,
    )
    .await;
    let owner = TokenClient(site.server.client, TOKEN);
    for (who, status) in [
        ("ann", 201),
        ("ann", 201),
        ("ann", 429),
        ("bob", 201),
        ("ann", 429),
        ("bob", 201),
    ] {
        let answer = site
            .as_(who)
            .post("/v1/runs", json!({"goal": "Hold."}))
            .await;
        assert_eq!(answer.status, status, "{who}: {answer:?}");
    }
    // An admin may use all that remains.
    for who in [&owner, &site.as_("top"), &owner, &owner] {
        who.post("/v1/runs", json!({"goal": "Hold."})).await.is(201);
    }
    owner
        .post("/v1/runs", json!({"goal": "Hold."}))
        .await
        .assert_error(429, "full");
    site.server.stop().await;
}

#[tokio::test]
async fn runs_started_at_once_stay_within_the_share() {
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let site = Site::offering(
        model,
        |agent| agent.tool(held),
        |runs| runs.max_runs(16),
        |api| api,
    )
    .await;
    let ann = site.as_("ann");
    let starts = (0..16).map(|_| ann.post("/v1/runs", json!({"goal": "Hold."})));
    let answers = futures_util::future::join_all(starts).await;
    assert_eq!(
        answers.iter().filter(|answer| answer.status == 201).count(),
        4,
        "{answers:?}"
    );
    site.server.stop().await;
}

#[tokio::test]
async fn tool_routes_reserve_calls_for_other_tokens() {
    let (held, permits) = HeldTool::new();
    let model = ScriptedModel::new().reply("1");
    let set_api = |api: HttpApi| api.tool_calls(8);
    let site = Site::offering(model, |agent| agent.tool(held), |runs| runs, set_api).await;
    let (client, token) = (site.server.client, site.as_("ann").1.to_owned());
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let token = token.clone();
        calls.spawn(async move {
            TokenClient(client, &token)
                .post("/v1/tools/hold", json!({}))
                .await
                .status
        });
    }
    // Calls beyond the limit are rejected at once, and the others wait for a permit.
    while site
        .as_("ann")
        .post("/v1/tools/look", json!({}))
        .await
        .status
        != 429
    {
        tokio::task::yield_now().await;
    }
    for who in [
        site.as_("bob"),
        site.as_("eye"),
        site.as_("top"),
        TokenClient(client, TOKEN),
    ] {
        who.post("/v1/tools/look", json!({})).await.is(200);
    }
    site.as_("ann.boss")
        .post("/v1/tools/look", json!({}))
        .await
        .assert_error(429, "full");
    permits.add_permits(8);
    let mut statuses = calls.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429, 429, 429]);
    site.as_("ann")
        .post("/v1/tools/look", json!({}))
        .await
        .is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn event_streams_reserve_readers_for_other_tokens() {
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let set_api = |api: HttpApi| api.readers(8);
    let site = Site::offering(model, |agent| agent.tool(held), |runs| runs, set_api).await;
    for who in ["ann", "bob"] {
        site.as_(who)
            .post("/v1/runs", json!({"goal": "Hold.", "id": "r"}))
            .await
            .is(201);
    }
    let mut streams = Vec::new();
    for expected in [200, 200, 503, 503, 503, 503, 503, 503] {
        let (status, stream) = follow(&site.as_("ann"), "/v1/runs/r/events").await;
        assert_eq!(status, expected, "{}", streams.len());
        streams.push(stream);
    }
    let (status, _stream) = follow(&site.as_("bob"), "/v1/runs/r/events").await;
    assert_eq!(status, 200);
    site.as_("ann")
        .get("/v1/runs/r/events")
        .await
        .assert_error(503, "too_many_readers");
    streams.clear();
    while follow(&site.as_("ann"), "/v1/runs/r/events").await.0 != 200 {
        tokio::task::yield_now().await;
    }
    site.server.stop().await;
}

#[tokio::test]
async fn token_share_can_be_set() {
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let set_runs = |runs: Runs| runs.max_runs(4).token_share(100);
    let site = Site::offering(model, |agent| agent.tool(held), set_runs, |api| api).await;
    for status in [201, 201, 201, 201, 429] {
        let answer = site
            .as_("ann")
            .ask("POST", "/v1/runs", json!({"goal": "Hold."}))
            .await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert_eq!(
        site.as_("bob").get("/v1/runs").await.is(200)["runs"],
        Value::Array(vec![])
    );
    site.server.stop().await;
}

#[tokio::test]
async fn pending_large_bodies_leave_room_for_other_tokens() {
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
    refused.assert_error(503, "too_many_bodies");
    site.as_("bob").post("/v1/runs", goal).await.is(201);
    // Small requests need no such permit.
    site.as_("ann")
        .post("/v1/tools/look", json!({}))
        .await
        .is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn waiting_requests_leave_room_for_other_tokens() {
    let model = ScriptedModel::new().reply("1");
    let set_api = |api: HttpApi| api.requests(8);
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
    for who in [
        site.as_("bob"),
        site.as_("eye"),
        site.as_("top"),
        TokenClient(site.server.client, TOKEN),
    ] {
        who.get("/v1/runs").await.is(200);
    }
    site.server
        .client
        .ask_as("GET", "/v1/health", &[], "")
        .await
        .is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn ended_runs_of_one_token_do_not_evict_those_of_others() {
    let site = Site::new(ScriptedModel::new().reply("1")).await;
    let start = async |who: &TokenClient<'_>, id: String| {
        let run = who
            .post("/v1/runs", json!({"goal": "Go", "id": id}))
            .await
            .is(201);
        site.server
            .runs
            .get(&run["id"].as_str().unwrap().into())
            .unwrap()
            .outcome()
            .await;
    };
    start(&site.as_("bob"), "r".to_owned()).await;
    start(&TokenClient(site.server.client, TOKEN), "mine".to_owned()).await;
    for number in 0..70 {
        start(&site.as_("ann"), format!("r{number}")).await;
    }
    for (id, kept) in [
        ("bob-r", true),
        ("mine", true),
        ("ann-r0", false),
        ("ann-r69", true),
    ] {
        assert_eq!(site.server.runs.get(&id.into()).is_some(), kept, "{id}");
    }
    site.server.stop().await;
}

/// A journal that counts concurrent reads of whole runs, and makes those of one tenant wait for
/// permits.
#[derive(Clone)]
pub(crate) struct SlowJournal(Arc<Slow>);

struct Slow {
    journal: MemoryJournal,
    slow: &'static str,
    permits: Semaphore,
    reads: AtomicUsize,
    under_way: AtomicUsize,
    peak: AtomicUsize,
}

impl SlowJournal {
    pub(crate) fn new(journal: MemoryJournal, slow: &'static str) -> Self {
        let (reads, under_way, peak) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
        Self(Arc::new(Slow {
            journal,
            slow,
            permits: Semaphore::new(0),
            reads,
            under_way,
            peak,
        }))
    }

    /// Releases all waiting and later reads.
    pub(crate) fn hurry(&self) {
        self.0.permits.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Returns the number of reads, and the maximum number of concurrent ones.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (
            self.0.reads.load(Ordering::SeqCst),
            self.0.peak.load(Ordering::SeqCst),
        )
    }

    async fn wait(&self, run: &RunId) {
        let Slow {
            slow,
            permits,
            reads,
            under_way,
            peak,
            ..
        } = &*self.0;
        reads.fetch_add(1, Ordering::SeqCst);
        if run.as_str().starts_with(slow) {
            peak.fetch_max(
                under_way.fetch_add(1, Ordering::SeqCst) + 1,
                Ordering::SeqCst,
            );
            permits.acquire().await.unwrap().forget();
            under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Journal for SlowJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.wait(run).await;
        self.0.journal.open(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.0.journal.list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.wait(run).await;
        self.0.journal.read(run).await
    }
}

/// Returns a journal in which these runs have ended.
pub(crate) async fn with_ended(runs: &[&str]) -> MemoryJournal {
    let journal = MemoryJournal::new();
    let there = Runs::new(agent(ScriptedModel::new().reply("1"), &journal));
    for run in runs {
        there
            .start(NewRun::new("Go").id(*run))
            .unwrap()
            .outcome()
            .await;
    }
    journal
}

#[tokio::test]
async fn command_to_ended_run_is_rejected_without_reading_records() {
    let journal = SlowJournal::new(with_ended(&["r"]).await, "nobody-");
    let runtime = Runtime::new().with_journal(journal.clone());
    let site = Site::offering(
        ScriptedModel::new().reply("1"),
        |agent| agent.runtime(runtime),
        |runs| runs,
        |api| api,
    )
    .await;
    let owner = TokenClient(site.server.client, TOKEN);
    for (command, body) in [
        ("message", json!({"text": "x"})),
        ("pause", json!({})),
        ("cancel", json!({})),
        ("resume", json!({})),
    ] {
        owner
            .post(&format!("/v1/runs/r/{command}"), body)
            .await
            .assert_error(409, "not_running");
    }
    // This journal removes nothing.
    owner
        .ask("DELETE", "/v1/runs/r", Value::Null)
        .await
        .assert_error(422, "refused");
    assert_eq!(journal.counts().0, 0);
    owner
        .post("/v1/runs/none/message", json!({"text": "x"}))
        .await
        .assert_error(404, "no_run");
    site.server.stop().await;
}

#[tokio::test]
async fn reads_of_old_runs_leave_room_for_other_tokens() {
    let journal = SlowJournal::new(with_ended(&["ann-r", "bob-r"]).await, "ann-");
    let runtime = Runtime::new().with_journal(journal.clone());
    let site = Site::offering(
        ScriptedModel::new().reply("1"),
        |agent| agent.runtime(runtime),
        |runs| runs,
        |api| api.requests(24),
    )
    .await;
    let (client, token) = (site.server.client, site.as_("ann").1.to_owned());
    let mut asking = JoinSet::new();
    // The number of reads that the token may have in progress.
    for path in ["", "", "", "/asks", "/asks", "/events"] {
        let token = token.clone();
        let path = format!("/v1/runs/r{path}");
        asking.spawn(async move { TokenClient(client, &token).get(&path).await.status });
    }
    while site.as_("ann").get("/v1/tools").await.status != 429 {
        tokio::task::yield_now().await;
    }
    site.as_("bob").get("/v1/runs/r").await.is(200);
    site.as_("bob").get("/v1/runs").await.is(200);
    journal.hurry();
    assert_eq!(asking.join_all().await, [200; 6]);
    assert!(
        journal.counts().1 <= Runs::JOURNAL_READS / 4,
        "{:?}",
        journal.counts()
    );
    site.server.stop().await;
}

/// A journal that counts lists of its runs, and holds new ones until the test releases them.
#[derive(Clone)]
pub(crate) struct HeldLists(Arc<Lists>);

struct Lists {
    journal: MemoryJournal,
    held: Semaphore,
    passes: AtomicBool,
    started: AtomicUsize,
}

impl HeldLists {
    pub(crate) fn new(journal: MemoryJournal) -> Self {
        let (held, passes, started) = (
            Semaphore::new(0),
            AtomicBool::new(false),
            AtomicUsize::new(0),
        );
        Self(Arc::new(Lists {
            journal,
            held,
            passes,
            started,
        }))
    }

    /// Waits until this many lists have started, and lets later ones pass.
    pub(crate) async fn hold(&self, lists: usize) {
        while self.started() < lists {
            tokio::task::yield_now().await;
        }
        self.0.passes.store(true, Ordering::SeqCst);
    }

    pub(crate) fn release(&self) {
        self.0.held.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    pub(crate) fn started(&self) -> usize {
        self.0.started.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Journal for HeldLists {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.0.journal.open(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        if !self.0.passes.load(Ordering::SeqCst) {
            self.0.held.acquire().await.unwrap().forget();
        }
        self.0.journal.list(query).await
    }
}

#[tokio::test]
async fn lists_of_one_token_leave_room_for_other_tokens() {
    let journal = HeldLists::new(with_ended(&["ann-r", "bob-r"]).await);
    let runtime = Runtime::new().with_journal(journal.clone());
    let model = ScriptedModel::new().reply("1");
    let site = Site::offering(
        model,
        |agent| agent.runtime(runtime),
        |runs| runs,
        |api| api,
    )
    .await;
    let (client, token) = (site.server.client, site.as_("ann").1.to_owned());
    let mut asking = JoinSet::new();
    let mut ask = |path: &'static str| {
        let token = token.clone();
        asking.spawn(async move { TokenClient(client, &token).get(path).await.status })
    };
    ask("/v1/runs");
    journal.hold(1).await;
    for path in [
        "/v1/runs",
        "/v1/runs?limit=1",
        "/v1/sessions",
        "/v1/runs?roots=false",
    ] {
        ask(path);
    }
    for who in ["bob", "eye", "top"] {
        site.as_(who).get("/v1/runs").await.is(200);
        site.as_(who).get("/v1/sessions").await.is(200);
    }
    // A command to a run that no process drives looks it up, and does not wait for a list.
    site.as_("ann")
        .post("/v1/runs/r/message", json!({"text": "x"}))
        .await
        .assert_error(409, "not_running");
    assert_eq!(
        journal.started(),
        5,
        "one of ann's, three of others, and the run that was looked up"
    );
    journal.release();
    assert_eq!(asking.join_all().await, [200; 5]);
    site.server.stop().await;
}

#[tokio::test]
async fn disconnected_client_holds_its_permit_until_its_list_ends() {
    let journal = HeldLists::new(with_ended(&["ann-r"]).await);
    let runtime = Runtime::new().with_journal(journal.clone());
    let model = ScriptedModel::new().reply("1");
    let set_api = |api: HttpApi| api.requests(4);
    let site = Site::offering(model, |agent| agent.runtime(runtime), |runs| runs, set_api).await;
    let (client, token) = (site.server.client, site.as_("ann").1.to_owned());
    for _ in 0..4 {
        let mut asking = JoinSet::new();
        let token = token.clone();
        asking.spawn(async move { TokenClient(client, &token).get("/v1/runs").await.status });
        // The list is in progress: this token has one permit.
        while site.as_("ann").get("/v1/tools").await.status != 429 {
            tokio::task::yield_now().await;
        }
        while journal.started() == 0 {
            tokio::task::yield_now().await;
        }
        asking.abort_all();
        while site.as_("ann").get("/v1/tools").await.status == 429 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(journal.started(), 1);
    journal.release();
    site.as_("ann").get("/v1/runs").await.is(200);
    site.server.stop().await;
}

#[tokio::test]
async fn disconnected_client_holds_its_permit_until_its_read_ends() {
    let journal = SlowJournal::new(with_ended(&["ann-r"]).await, "ann-");
    let runtime = Runtime::new().with_journal(journal.clone());
    let site = Site::offering(
        ScriptedModel::new().reply("1"),
        |agent| agent.runtime(runtime),
        |runs| runs,
        |api| api.requests(4),
    )
    .await;
    let (client, token) = (site.server.client, site.as_("ann").1.to_owned());
    for _ in 0..6 {
        let before = journal.counts().0;
        let mut asking = JoinSet::new();
        let token = token.clone();
        asking.spawn(async move { TokenClient(client, &token).get("/v1/runs/r").await.status });
        // The read is in progress: this token has one permit.
        while site.as_("ann").get("/v1/tools").await.status != 429 {
            tokio::task::yield_now().await;
        }
        while journal.counts().0 == before && before < 2 {
            tokio::task::yield_now().await;
        }
        asking.abort_all();
        while site.as_("ann").get("/v1/tools").await.status == 429 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(journal.counts().0, 2);
    journal.hurry();
    site.as_("ann").get("/v1/runs/r").await.is(200);
    site.server.stop().await;
}

/// Sends a request on a connection, and reads only the beginning of the response.
async fn ask_and_wait(who: &TokenClient<'_>, path: &str) -> BufReader<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(who.0.0).await.unwrap();
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        who.0.0, who.1
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let (mut lines, mut line) = (BufReader::with_capacity(256, stream), String::new());
    lines.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    lines
}

/// The size of the unread response: more than the system buffers.
const LARGE: usize = 8 << 20;

async fn large_answers(set_api: impl FnOnce(HttpApi) -> HttpApi) -> Site {
    let model = ScriptedModel::new().reply("x".repeat(LARGE));
    let site = Site::offering(model, |agent| agent, |runs| runs, set_api).await;
    site.as_("ann")
        .post("/v1/runs", json!({"goal": "Go", "id": "r"}))
        .await
        .is(201);
    site.server
        .runs
        .get(&"ann-r".into())
        .unwrap()
        .outcome()
        .await;
    site
}

#[tokio::test]
async fn request_holds_its_permit_until_its_response_is_sent() {
    let site = large_answers(|api| api.requests(4)).await;
    let ann = site.as_("ann");
    let mut slow = ask_and_wait(&ann, "/v1/runs/r").await;
    ann.get("/v1/runs").await.assert_error(429, "full");
    site.as_("bob").get("/v1/runs").await.is(200);
    let mut rest = vec![0; LARGE];
    slow.read_exact(&mut rest).await.unwrap();
    while ann.get("/v1/runs").await.status != 200 {
        tokio::task::yield_now().await;
    }
    // A client that disconnects releases its permit.
    drop(ask_and_wait(&ann, "/v1/runs/r").await);
    while ann.get("/v1/runs").await.status != 200 {
        tokio::task::yield_now().await;
    }
    site.server.stop().await;
}

#[tokio::test]
async fn client_that_reads_a_response_too_slowly_is_closed() {
    let site = large_answers(|api| api.requests(4).answer_time(Duration::from_secs(1))).await;
    let ann = site.as_("ann");
    let mut slow = ask_and_wait(&ann, "/v1/runs/r").await;
    ann.get("/v1/runs").await.assert_error(429, "full");
    while ann.get("/v1/runs").await.status != 200 {
        tokio::task::yield_now().await;
    }
    let mut taken = Vec::new();
    let _ = slow.read_to_end(&mut taken).await;
    assert!(taken.len() < LARGE, "{}", taken.len());
    site.server.stop().await;
}
