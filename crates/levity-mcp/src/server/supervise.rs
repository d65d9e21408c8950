//! Keeps a server running: starts it, asks whether it lives, follows its changes, starts it again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levity_core::Timestamp;
use serde_json::json;

use super::{Phase, Shared, Tools, lock};
use crate::client::{Client, Era, Patience};
use crate::event::ServerEventKind;
use crate::{Error, ErrorKind, Result};

/// A server that lived this long begins anew with its count of failures.
const SOUND: Duration = Duration::from_secs(30);
/// The first pause before a server is started again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a server may take to say that it lives.
const PING: Duration = Duration::from_secs(10);
/// How long a server has to go by itself.
pub(super) const GRACE: Duration = Duration::from_secs(2);

impl Shared {
    /// Keeps the server running until it is stopped.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let mut failures: u32 = 0;
        loop {
            let started = self.world.now();
            let ended = match self.start().await {
                Ok(client) => self.live(client).await,
                Err(error) => Some(error),
            };
            self.bury().await;
            let Some(error) = ended else { continue };
            if self.world.now().since(started) >= SOUND {
                failures = 0;
            }
            failures = failures.saturating_add(1);
            self.rest(error, failures).await;
        }
    }

    async fn start(self: &Arc<Self>) -> Result<Arc<Client>> {
        self.set(Phase::Starting, ServerEventKind::Starting);
        self.starts.fetch_add(1, Ordering::Relaxed);
        let limit = self.config.start_limit;
        let client = tokio::select! {
            client = self.open() => client?,
            () = self.world.sleep(limit) => {
                let words = format!("it was not ready within {limit:?}");
                let error = Error::new(ErrorKind::Start, self.config.name.clone(), words);
                return Err(self.with_last_words(error).await);
            }
        };
        let tools = self.tools().list.len();
        self.set(Phase::Ready(client.clone()), ServerEventKind::Ready { tools });
        Ok(client)
    }

    async fn with_last_words(&self, error: Error) -> Error {
        let lifeline = lock(&self.lifeline).clone();
        match lifeline {
            Some(lifeline) => match lifeline.death().await {
                Some(death) => error.with_death(death),
                None => error,
            },
            None => error,
        }
    }

    /// Ends what is left of the process and all it started.
    async fn bury(&self) {
        let lifeline = lock(&self.lifeline).take();
        if let Some(lifeline) = lifeline {
            lifeline.end(GRACE).await;
        }
    }

    /// Goes along with a live connection; returns why it ended, or nothing when it is to be started again at once.
    async fn live(self: &Arc<Self>, client: Arc<Client>) -> Option<Error> {
        let mut tend = std::pin::pin!(client.tend());
        let mut listen = std::pin::pin!(self.listen(&client));
        let mut missed = 0;
        loop {
            let every = self.config.ping_every.unwrap_or(Duration::MAX);
            tokio::select! {
                () = &mut tend => {
                    let error = Error::new(ErrorKind::Closed, self.config.name.clone(), "the connection ended");
                    return Some(self.with_last_words(error).await);
                }
                () = &mut listen => {}
                () = self.tools_changed.notified() => self.refresh(&client).await,
                () = self.pause(every) => missed = self.ping(&client, missed).await,
                () = self.doubt.notified() => missed = self.ping(&client, missed).await,
                () = self.restarted.notified() => {
                    client.close(GRACE).await;
                    return None;
                }
            }
            if missed >= 2 {
                let words = format!("it did not say within {PING:?} that it lives, twice");
                let error = Error::new(ErrorKind::Timeout, self.config.name.clone(), words);
                return Some(self.with_last_words(error).await);
            }
        }
    }

    async fn pause(&self, time: Duration) {
        if time == Duration::MAX {
            return std::future::pending().await;
        }
        self.world.sleep(time).await;
    }

    /// Asks whether it lives; returns how often in a row there was no answer.
    async fn ping(&self, client: &Client, missed: u32) -> u32 {
        match self.is_alive(client).await {
            Err(error) if error.kind() == ErrorKind::Timeout => {
                self.doubt.notify_one();
                missed + 1
            }
            // An error is a sign of life too; an end of the connection is seen elsewhere.
            _ => 0,
        }
    }

    pub(super) async fn is_alive(&self, client: &Client) -> Result<()> {
        // The newer protocol has no ping.
        let method = if client.era() == Era::Modern { "server/discover" } else { "ping" };
        let limit = PING.min(self.config.idle_limit);
        client.ask(method, json!({}), &Patience::of(limit)).await.map(drop)
    }

    /// Takes in that the server's tools are other ones.
    async fn refresh(self: &Arc<Self>, client: &Client) {
        match self.list_tools(client).await {
            Ok(tools) => {
                let count = tools.list.len();
                if self.put(tools) {
                    self.events.send(ServerEventKind::ToolsChanged { tools: count });
                }
            }
            Err(error) => {
                let text = format!("its tools have changed and cannot be listed: {error}");
                self.events.send(ServerEventKind::Log { level: "warning".into(), text });
            }
        }
    }

    /// Takes these tools for the server's; says whether they are others than before.
    pub(super) fn put(&self, tools: Tools) -> bool {
        let mut kept = lock(&self.tools);
        let same = kept.problems == tools.problems
            && kept.list.len() == tools.list.len()
            && kept.list.iter().zip(tools.list.iter()).all(|(old, new)| old.same(new));
        if same {
            return false;
        }
        *kept = tools;
        drop(kept);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Waits until it is time to start again.
    async fn rest(&self, error: Error, failures: u32) {
        // Settings do not mend themselves, and nobody likes to be asked to log in again and again.
        let hopeless = matches!(error.kind(), ErrorKind::Auth | ErrorKind::Config);
        let gone = hopeless || failures > self.config.retries;
        let pause = (!gone).then(|| self.backoff(failures));
        let retry: Option<Timestamp> = pause.map(|pause| self.world.now().after(pause));
        let event = ServerEventKind::Away { error: error.clone(), retry: pause };
        self.set(Phase::Away { error, retry }, event);
        tokio::select! {
            () = self.revive.notified(), if gone => {}
            () = self.restarted.notified() => {}
            () = self.pause(pause.unwrap_or(Duration::MAX)) => {}
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
        // Many servers that went away together should not come back together.
        pause.mul_f64(0.75 + (self.world.random() % 1000) as f64 / 2000.0)
    }

    pub(super) fn set(&self, phase: Phase, event: ServerEventKind) {
        self.phase.send_replace(phase);
        self.events.send(event);
    }

    pub(crate) fn restart(&self) {
        self.restarted.notify_one();
    }

    /// Ends the server at once.
    pub(crate) fn kill(&self) {
        if let Some(lifeline) = lock(&self.lifeline).take() {
            lifeline.kill();
        }
        self.phase.send_replace(Phase::Stopped);
        self.permits.close();
    }

    /// Ends the server in bounded time. Its task must have been ended before.
    pub(crate) async fn stop(&self) {
        let last = self.phase.send_replace(Phase::Stopped);
        if let Phase::Ready(client) = last {
            client.close(GRACE).await;
        }
        self.bury().await;
        self.permits.close();
        self.events.send(ServerEventKind::Stopped);
    }
}
