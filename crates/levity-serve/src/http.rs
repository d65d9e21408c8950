//! Runs by HTTP: started, followed, told what to do. For a web page, and for any program.
//!
//! ```
//! use levity_loop::Agent;
//! use levity_serve::http::HttpApi;
//! use levity_serve::{AccessControl, Listener, Runs, Token};
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
//! let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?)).await?;
//! println!("http://{}/v1", listener.address());
//! let serving = HttpApi::new(Runs::new(agent)).serve(listener); // an agent, a swarm or a team
//! # let _ = tokio::time::timeout(std::time::Duration::from_millis(1), serving).await;
//! # Ok(())
//! # }
//! ```
//!
//! What can be asked for is described by [`openapi`], which the server also answers at
//! `/v1/openapi.json`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use levity_core::CancelToken;
use levity_memory::Conversations;
use levity_tools::Dispatcher;

use crate::body::BodyReader;
use crate::error::Result;
use crate::listen::Listener;
use crate::quota::Quota;
use crate::runs::Runs;

mod answer;
mod asks;
mod events;
mod input;
mod list;
mod openapi;
mod routes;
mod sessions;
mod shown;
mod start;
mod target;
mod tell;
mod tools;

pub(crate) use answer::runtime_error;
pub use openapi::openapi;

/// Runs by HTTP.
#[must_use = "it serves nobody until `serve` is called"]
pub struct HttpApi {
    runs: Runs,
    settings: Settings,
}

struct Settings {
    conversations: Option<Conversations>,
    #[cfg(feature = "dag")]
    plans: Option<levity_observe::SessionFolder>,
    tools: Option<Dispatcher>,
    tool_calls: usize,
    requests: usize,
    body_limit: usize,
    body_time: Duration,
    answer_time: Duration,
    goal_limit: usize,
    readers: usize,
    heartbeat: Duration,
    patience: Duration,
}

/// What those who answer share.
struct Api {
    runs: Runs,
    settings: Settings,
    requests: Arc<Quota>,
    bodies: BodyReader,
    readers: Arc<Quota>,
    /// How many may read old runs from the journal at once: each holds all of its run.
    old_readers: Arc<Quota>,
    tool_calls: Arc<Quota>,
    /// Tells calls of tools by this server from those by others, and from each other.
    mark: u64,
    calls: AtomicU64,
    stop: CancelToken,
}

impl HttpApi {
    /// How large the body of a request may be: 1 MiB.
    pub const DEFAULT_BODY_LIMIT: usize = 1 << 20;
    /// How long a client may take to send the body of a request: 20 seconds.
    pub const DEFAULT_BODY_TIME: Duration = Duration::from_secs(20);
    /// How long a client may take for an answer: 60 seconds. Streams of events have no such time.
    pub const DEFAULT_ANSWER_TIME: Duration = Duration::from_secs(60);
    /// How long a goal may be: 256 KiB, as for all [`Runs`].
    pub const DEFAULT_GOAL_LIMIT: usize = Runs::DEFAULT_PROMPT_LIMIT;
    /// How many tools may be called at once by their routes: 64.
    pub const DEFAULT_TOOL_CALLS: usize = 64;
    /// How many requests are worked on at once, until their answers are sent: 1,024. Those who
    /// follow events are not among them.
    pub const DEFAULT_REQUESTS: usize = 1024;
    /// How many may follow events at once: 1,024.
    pub const DEFAULT_READERS: usize = 1024;
    /// How many of them may read runs that have ended from the journal: 16. Each of them holds all
    /// of its run.
    pub const OLD_READERS: usize = 16;
    /// How long nothing is sent to somebody who follows events before a sign of life: 15 seconds.
    pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(15);
    /// How long an answer waits for a run to begin, or to take in what it is told, unless told
    /// otherwise: 10 seconds.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Offers these runs.
    pub fn new(runs: Runs) -> Self {
        let settings = Settings {
            conversations: None,
            #[cfg(feature = "dag")]
            plans: None,
            tools: None,
            tool_calls: Self::DEFAULT_TOOL_CALLS,
            requests: Self::DEFAULT_REQUESTS,
            body_limit: Self::DEFAULT_BODY_LIMIT,
            body_time: Self::DEFAULT_BODY_TIME,
            answer_time: Self::DEFAULT_ANSWER_TIME,
            goal_limit: Self::DEFAULT_GOAL_LIMIT,
            readers: Self::DEFAULT_READERS,
            heartbeat: Self::DEFAULT_HEARTBEAT,
            patience: Self::PATIENCE,
        };
        Self { runs, settings }
    }

    /// Offers the conversations that the runs are part of, to be read and forgotten; none by
    /// default.
    pub fn conversations(mut self, conversations: Conversations) -> Self {
        self.settings.conversations = Some(conversations);
        self
    }

    /// Offers plans that were carried out and kept, to be read; none by default.
    #[cfg(feature = "dag")]
    pub fn plans(mut self, sessions: levity_observe::SessionFolder) -> Self {
        self.settings.plans = Some(sessions);
        self
    }

    /// Offers tools, to be listed and called under their policy; none by default.
    /// `agent.dispatcher().clone()` gives those of an agent.
    pub fn tools(mut self, tools: Dispatcher) -> Self {
        self.settings.tools = Some(tools);
        self
    }

    /// How many tools may be called at once; [`DEFAULT_TOOL_CALLS`](Self::DEFAULT_TOOL_CALLS) by
    /// default. One named token has the share of them that [`Runs::token_share`] says.
    pub fn tool_calls(mut self, most: usize) -> Self {
        self.settings.tool_calls = most;
        self
    }

    /// How many requests are worked on at once; [`DEFAULT_REQUESTS`](Self::DEFAULT_REQUESTS) by
    /// default. One named token has the share of them that [`Runs::token_share`] says.
    pub fn requests(mut self, most: usize) -> Self {
        self.settings.requests = most;
        self
    }

    /// How large the body of a request may be; [`DEFAULT_BODY_LIMIT`](Self::DEFAULT_BODY_LIMIT) by
    /// default.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// How long a client may take to send it; [`DEFAULT_BODY_TIME`](Self::DEFAULT_BODY_TIME) by
    /// default.
    pub fn body_time(mut self, time: Duration) -> Self {
        self.settings.body_time = time;
        self
    }

    /// How long a client may take for an answer, but for streams of events; the connection is
    /// closed then. [`DEFAULT_ANSWER_TIME`](Self::DEFAULT_ANSWER_TIME) by default.
    pub fn answer_time(mut self, time: Duration) -> Self {
        self.settings.answer_time = time;
        self
    }

    /// How long a goal may be; [`DEFAULT_GOAL_LIMIT`](Self::DEFAULT_GOAL_LIMIT) by default.
    /// [`Runs::prompt_limit`] holds beside it.
    pub fn goal_limit(mut self, bytes: usize) -> Self {
        self.settings.goal_limit = bytes;
        self
    }

    /// How many may follow events at once; [`DEFAULT_READERS`](Self::DEFAULT_READERS) by default.
    /// One named token has the share of them that [`Runs::token_share`] says.
    pub fn readers(mut self, most: usize) -> Self {
        self.settings.readers = most;
        self
    }

    /// After how long without an event those who follow get a sign of life;
    /// [`DEFAULT_HEARTBEAT`](Self::DEFAULT_HEARTBEAT) by default.
    pub fn heartbeat(mut self, time: Duration) -> Self {
        self.settings.heartbeat = time;
        self
    }

    /// How long an answer waits for a run to begin, or to take in what it is told;
    /// [`PATIENCE`](Self::PATIENCE) by default. What was taken by then is done in any case, and the
    /// answer says so.
    pub fn patience(mut self, time: Duration) -> Self {
        self.settings.patience = time;
        self
    }

    /// Serves until the listener is told to stop. Dropping the future closes all connections; the
    /// runs go on as long as somebody holds their [`Runs`].
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: Listener) -> Result<()> {
        let listener = listener.open_at("/v1/health");
        let share = self.runs.share();
        let api = Arc::new(Api {
            requests: Quota::new(self.settings.requests, share),
            bodies: BodyReader::new(self.settings.body_limit, self.settings.body_time, share),
            readers: Quota::new(self.settings.readers, share),
            old_readers: Quota::new(Self::OLD_READERS, share),
            tool_calls: Quota::new(self.settings.tool_calls, share),
            mark: self.runs.runtime().world().random(),
            calls: AtomicU64::new(1),
            stop: listener.stopped(),
            runs: self.runs,
            settings: self.settings,
        });
        listener.serve_callers(routes::router(&api)).await
    }
}

impl fmt::Debug for HttpApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpApi")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}
