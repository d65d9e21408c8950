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
/// The least time between two lists of its tools.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a server has to go by itself.
pub(super) const GRACE: Duration = Duration::from_secs(2);

impl Shared {
    /// Keeps the server running until it is stopped.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let _over = Over(&self);
        let mut failures: u32 = 0;
        loop {
            let mut lived = Duration::ZERO;
            let ended = match self.start().await {
                Ok(client) => {
                    let ready = self.world.now();
                    let ended = self.live(&client).await;
                    lived = self.world.now().since(ready);
                    ended
                }
                Err(error) => {
                    // It may speak another form of the protocol than it did.
                    *lock(&self.era) = None;
                    Some(error)
                }
            };
            let Some(error) = ended else {
                self.turn(Phase::Starting);
                self.bury().await;
                continue;
            };
            failures = if lived >= SOUND {
                1
            } else {
                failures.saturating_add(1)
            };
            let pause = self.away_for(error, failures);
            self.bury().await;
            self.rest(pause).await;
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
        self.set(
            Phase::Ready(client.clone()),
            ServerEventKind::Ready { tools },
        );
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
        // It stays where it is meanwhile: whoever stops the server must find it there.
        let lifeline = lock(&self.lifeline).clone();
        if let Some(lifeline) = lifeline {
            lifeline.end(GRACE).await;
            lock(&self.lifeline).take();
        }
    }

    /// Goes along with a live connection; returns why it ended, or nothing when it is to be started
    /// again at once.
    async fn live(self: &Arc<Self>, client: &Client) -> Option<Error> {
        let error = tokio::select! {
            () = client.tend() => Error::new(ErrorKind::Closed, self.config.name.clone(), "the connection ended"),
            error = self.watch(client) => error,
            () = self.restarted.notified() => {
                client.end();
                return None;
            }
            () = self.follow(client) => return None,
        };
        let error = self.with_last_words(error).await;
        client.end();
        Some(error)
    }

    /// Asks whether it lives, now and then and when a call went without an answer; returns when it
    /// does not say so, twice.
    async fn watch(&self, client: &Client) -> Error {
        let every = self.config.ping_every.unwrap_or(Duration::MAX);
        let mut missed = 0;
        loop {
            let doubtful = tokio::select! {
                () = self.doubt.notified() => true,
                () = self.pause(every) => false,
            };
            // A server that does one thing at a time cannot answer beside a call, and the call has
            // limits of its own.
            if !doubtful && client.is_busy() {
                continue;
            }
            match self.is_alive(client).await {
                Err(error) if error.is_silence() && missed > 0 => return self.silent(error),
                Err(error) if error.is_silence() => {
                    missed += 1;
                    self.doubt.notify_one();
                }
                _ => missed = 0,
            }
        }
    }

    fn silent(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Timeout {
            return error;
        }
        let words = format!(
            "it did not say within {:?} that it lives, twice",
            self.ping_limit()
        );
        Error::new(ErrorKind::Timeout, self.config.name.clone(), words)
    }

    async fn pause(&self, time: Duration) {
        if time == Duration::MAX {
            return std::future::pending().await;
        }
        self.world.sleep(time).await;
    }

    /// Asks whether it lives. An answer that is an error is a sign of life.
    pub(super) async fn is_alive(&self, client: &Client) -> Result<()> {
        // The newer protocol has no ping.
        let method = if client.era() == Era::Modern {
            "server/discover"
        } else {
            "ping"
        };
        match client
            .ask(method, json!({}), &Patience::aside(self.ping_limit()))
            .await
        {
            Err(error)
                if matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Unsupported) =>
            {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    fn ping_limit(&self) -> Duration {
        PING.min(self.config.idle_limit)
    }

    /// Follows what changes about the server as long as the connection lives.
    async fn follow(self: &Arc<Self>, client: &Client) {
        let changes = async {
            loop {
                self.tools_changed.notified().await;
                self.refresh(client).await;
                // A server may tell of changes without end.
                self.world.sleep(SETTLE).await;
            }
        };
        tokio::select! {
            () = self.listen(client) => {}
            () = changes => {}
        }
    }

    /// Takes in that the server's tools are other ones.
    async fn refresh(self: &Arc<Self>, client: &Client) {
        match self.list_tools(client).await {
            Ok(tools) => {
                let count = tools.list.len();
                if self.put(tools) {
                    self.events
                        .send(ServerEventKind::ToolsChanged { tools: count });
                }
            }
            Err(error) => {
                let text = format!("its tools have changed and cannot be listed: {error}");
                self.events.send(ServerEventKind::Log {
                    level: "warning".into(),
                    text,
                });
                if error.kind() == ErrorKind::Timeout {
                    self.doubt.notify_one();
                    self.tools_changed.notify_one();
                }
            }
        }
    }

    /// Takes these tools for the server's; says whether they are others than before.
    pub(super) fn put(&self, tools: Tools) -> bool {
        let mut kept = lock(&self.tools);
        let same = kept.problems == tools.problems
            && kept.list.len() == tools.list.len()
            && kept
                .list
                .iter()
                .zip(tools.list.iter())
                .all(|(old, new)| old.same(new));
        if same {
            return false;
        }
        *kept = tools;
        drop(kept);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Tells why the server is away; returns for how long, or nothing when it is given up.
    fn away_for(&self, error: Error, failures: u32) -> Option<Duration> {
        let error = error.without(&self.secrets);
        // Settings do not mend themselves, and nobody likes to be asked to log in again and again.
        let hopeless = matches!(error.kind(), ErrorKind::Auth | ErrorKind::Config);
        let gone = hopeless || failures > self.config.retries;
        let pause = (!gone).then(|| self.backoff(failures));
        let retry: Option<Timestamp> = pause.map(|pause| self.world.now().after(pause));
        let event = ServerEventKind::Away {
            error: error.clone(),
            retry: pause,
        };
        self.set(Phase::Away { error, retry }, event);
        pause
    }

    /// Waits until it is time to start again.
    async fn rest(&self, pause: Option<Duration>) {
        tokio::select! {
            () = self.revive.notified(), if pause.is_none() => {}
            () = self.restarted.notified() => {}
            () = self.pause(pause.unwrap_or(Duration::MAX)) => {}
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let pause = FIRST_PAUSE
            .saturating_mul(1 << failures.saturating_sub(1).min(16))
            .min(LONGEST_PAUSE);
        // Many servers that went away together should not come back together.
        pause.mul_f64(0.75 + (self.world.random() % 1000) as f64 / 2000.0)
    }

    pub(super) fn set(&self, phase: Phase, event: ServerEventKind) {
        if self.turn(phase) {
            self.events.send(event);
        }
    }

    /// Goes over to another phase, unless it was stopped: that is the last.
    fn turn(&self, mut phase: Phase) -> bool {
        self.phase.send_if_modified(|now| {
            let goes_on = !matches!(now, Phase::Stopped);
            if goes_on {
                std::mem::swap(now, &mut phase);
            }
            goes_on
        })
    }

    pub(crate) fn restart(&self) {
        self.restarted.notify_one();
    }

    /// Ends the server at once; calls that are under way fail.
    pub(crate) fn kill(&self) {
        let last = self.phase.send_replace(Phase::Stopped);
        if let Phase::Ready(client) = last {
            client.end();
        }
        if let Some(lifeline) = lock(&self.lifeline).take() {
            lifeline.kill();
        }
        self.permits.close();
    }

    /// Ends the server in bounded time. Its task must have been ended before.
    pub(crate) async fn stop(&self) {
        let last = self.phase.send_replace(Phase::Stopped);
        if let Phase::Ready(client) = last {
            client.close(GRACE).await;
        }
        self.bury().await;
        if !self.permits.is_closed() {
            self.permits.close();
            self.events.send(ServerEventKind::Stopped);
        }
    }
}

/// Sees to it that nobody waits for a server that nothing keeps running any more: when its runtime
/// was shut down, for instance.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // What was ready has to be closed by whoever ends it.
        if !matches!(*self.0.phase.borrow(), Phase::Ready(_)) {
            self.0.turn(Phase::Stopped);
        }
    }
}
