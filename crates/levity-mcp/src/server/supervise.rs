//! The supervisor of a server: starts it, checks its health, follows its changes and restarts it.
//!
//! One task per server runs this loop: start, run the connection until it ends, clean up, wait,
//! start again. The delay doubles from 0.5 s to 60 s, with jitter of a quarter in both directions.
//! A server that was up for 30 s starts again with the first delay. After more than `retries`
//! consecutive failures, and at once after an error of the configuration or the login, the loop
//! waits for a caller that needs the server.
//!
//! Cleanup comes before the delay: the process and its descendants have ended before the next
//! start, so two processes of one server never run at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levity_core::Timestamp;
use serde_json::json;

use super::{Phase, ServerInner, Tools, lock};
use crate::client::{Client, Era, RequestLimits};
use crate::event::ServerEventKind;
use crate::{Error, ErrorKind, Result};

/// The uptime after which a server's count of failures is reset.
const STABLE_UPTIME: Duration = Duration::from_secs(30);
/// The first delay before a restart; each further delay is twice the previous one.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The timeout of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum time between two requests for the list of tools.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// The time that a server has to exit voluntarily.
pub(super) const GRACE: Duration = Duration::from_secs(2);

impl ServerInner {
    /// Supervises the server until it is stopped.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let _guard = StopOnDrop(&self);
        let mut failures: u32 = 0;
        loop {
            let mut uptime = Duration::ZERO;
            let ended = match self.start().await {
                Ok(client) => {
                    let ready = self.world.now();
                    let ended = self.run_connection(&client).await;
                    uptime = self.world.now().since(ready);
                    ended
                }
                Err(error) => {
                    // The server may now use another version of the protocol.
                    *lock(&self.era) = None;
                    Some(error)
                }
            };
            let Some(error) = ended else {
                self.set_phase(Phase::Starting);
                self.end_process().await;
                continue;
            };
            failures = if uptime >= STABLE_UPTIME {
                1
            } else {
                failures.saturating_add(1)
            };
            let pause = self.mark_unavailable(error, failures);
            self.end_process().await;
            self.wait_for_restart(pause).await;
        }
    }

    /// Starts the server within its timeout, and publishes the phases on the way.
    async fn start(self: &Arc<Self>) -> Result<Arc<Client>> {
        self.enter_phase(Phase::Starting, ServerEventKind::Starting);
        self.starts.fetch_add(1, Ordering::Relaxed);
        let limit = self.config.start_timeout;
        let client = tokio::select! {
            client = self.open() => client?,
            () = self.world.sleep(limit) => {
                let message = format!("it was not ready within {limit:?}");
                let error = Error::new(ErrorKind::Start, self.config.name.clone(), message);
                return Err(self.with_exit_status(error).await);
            }
        };
        let tools = self.tools().list.len();
        self.enter_phase(
            Phase::Ready(client.clone()),
            ServerEventKind::Ready { tools },
        );
        Ok(client)
    }

    /// Adds the exit status of the process to an error, if the server has a process.
    async fn with_exit_status(&self, error: Error) -> Error {
        let process = lock(&self.process).clone();
        match process {
            Some(process) => match process.exit_status().await {
                Some(death) => error.with_exit(death),
                None => error,
            },
            None => error,
        }
    }

    /// Ends the remaining process and all its descendants.
    async fn end_process(&self) {
        // The process stays in the slot meanwhile, so that a caller that stops the server finds it.
        let process = lock(&self.process).clone();
        if let Some(process) = process {
            process.stop(GRACE).await;
            lock(&self.process).take();
        }
    }

    /// Supervises a connection. Returns the reason why it ended, or `None` for an immediate
    /// restart.
    async fn run_connection(self: &Arc<Self>, client: &Client) -> Option<Error> {
        let error = tokio::select! {
            () = client.process_cancellations() => {
                Error::new(
                    ErrorKind::Closed,
                    self.config.name.clone(),
                    "the connection ended",
                )
            }
            error = self.check_health(client) => error,
            () = self.restart_requested.notified() => {
                client.end();
                return None;
            }
            () = self.follow_changes(client) => return None,
        };
        let error = self.with_exit_status(error).await;
        client.end();
        Some(error)
    }

    /// Pings the server at intervals and after a call without a response. Returns an error when two
    /// pings in a row fail.
    async fn check_health(&self, client: &Client) -> Error {
        let interval = self.config.ping_every.unwrap_or(Duration::MAX);
        let mut missed = 0;
        loop {
            let was_requested = tokio::select! {
                () = self.check_requested.notified() => true,
                () = self.pause(interval) => false,
            };
            // A server that processes one request at a time cannot answer a ping during a call, and
            // the call has its own limits.
            if !was_requested && client.is_busy() {
                continue;
            }
            match self.check_alive(client).await {
                Err(error) if error.suggests_dead_server() && missed > 0 => {
                    return self.ping_error(error);
                }
                Err(error) if error.suggests_dead_server() => {
                    missed += 1;
                    self.check_requested.notify_one();
                }
                _ => missed = 0,
            }
        }
    }

    /// Returns the error after two failed pings, with both attempts named.
    fn ping_error(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Timeout {
            return error;
        }
        let message = format!(
            "it did not respond to two pings within {:?} each",
            self.ping_limit()
        );
        Error::new(ErrorKind::Timeout, self.config.name.clone(), message)
    }

    /// Sleeps; `Duration::MAX` means forever, without a timer.
    async fn pause(&self, time: Duration) {
        if time == Duration::MAX {
            return std::future::pending().await;
        }
        self.world.sleep(time).await;
    }

    /// Pings the server. An error response also counts as alive.
    pub(super) async fn check_alive(&self, client: &Client) -> Result<()> {
        // The newer protocol has no ping.
        let method = if client.era() == Era::Modern {
            "server/discover"
        } else {
            "ping"
        };
        match client
            .send_request(
                method,
                json!({}),
                &RequestLimits::background(self.ping_limit()),
            )
            .await
        {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Rejected(_) | ErrorKind::Unsupported
                ) =>
            {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    /// Returns the timeout of a ping: 10 s, or the idle timeout if that is shorter.
    fn ping_limit(&self) -> Duration {
        PING_TIMEOUT.min(self.config.idle_timeout)
    }

    /// Follows the server's changes until the connection ends.
    async fn follow_changes(self: &Arc<Self>, client: &Client) {
        let changes = async {
            loop {
                self.tools_changed.notified().await;
                self.refresh_tools(client).await;
                // A server may report changes without end.
                self.world.sleep(REFRESH_INTERVAL).await;
            }
        };
        tokio::select! {
            () = self.listen(client) => {}
            () = changes => {}
        }
    }

    /// Reloads the server's tools after a change.
    async fn refresh_tools(self: &Arc<Self>, client: &Client) {
        match self.list_tools(client).await {
            Ok(tools) => {
                let count = tools.list.len();
                if self.replace_tools(tools) {
                    self.events
                        .send(ServerEventKind::ToolsChanged { tools: count });
                }
            }
            Err(error) => {
                let text =
                    format!("its tools have changed, and the new list cannot be loaded: {error}");
                self.events.send(ServerEventKind::Log {
                    level: "warning".into(),
                    text,
                });
                if error.kind() == ErrorKind::Timeout {
                    self.check_requested.notify_one();
                    self.tools_changed.notify_one();
                }
            }
        }
    }

    /// Replaces the server's tools. Returns `true` if they have changed.
    pub(super) fn replace_tools(&self, tools: Tools) -> bool {
        let mut current = lock(&self.tools);
        let same = current.problems == tools.problems
            && current.list.len() == tools.list.len()
            && current
                .list
                .iter()
                .zip(tools.list.iter())
                .all(|(old, new)| old.has_same_definition(new));
        if same {
            return false;
        }
        *current = tools;
        drop(current);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Marks the server as unavailable. Returns the delay until the restart, or `None` if levity
    /// gives up.
    fn mark_unavailable(&self, error: Error, failures: u32) -> Option<Duration> {
        let error = error.redacted(&self.secrets);
        // A retry does not fix settings, and a user should not be asked to log in repeatedly.
        let is_permanent = matches!(error.kind(), ErrorKind::Auth | ErrorKind::Config);
        let gives_up = is_permanent || failures > self.config.retries;
        let pause = (!gives_up).then(|| self.backoff(failures));
        let retry: Option<Timestamp> = pause.map(|pause| self.world.now().after(pause));
        let event = ServerEventKind::Unavailable {
            error: error.clone(),
            retry_after: pause,
        };
        self.enter_phase(Phase::Away { error, retry }, event);
        pause
    }

    /// Waits until it is time for a restart.
    async fn wait_for_restart(&self, pause: Option<Duration>) {
        tokio::select! {
            () = self.retry_requested.notified(), if pause.is_none() => {}
            () = self.restart_requested.notified() => {}
            () = self.pause(pause.unwrap_or(Duration::MAX)) => {}
        }
    }

    /// Returns the delay before the next start: `500ms << (failures - 1)`, at most 60 s, times 0.75
    /// to 1.25.
    fn backoff(&self, failures: u32) -> Duration {
        let pause = MIN_BACKOFF
            .saturating_mul(1 << failures.saturating_sub(1).min(16))
            .min(MAX_BACKOFF);
        // Random jitter prevents many servers from restarting at the same moment.
        pause.mul_f64(0.75 + (self.world.random() % 1000) as f64 / 2000.0)
    }

    /// Changes the phase and publishes the event, unless the server was stopped.
    pub(super) fn enter_phase(&self, phase: Phase, event: ServerEventKind) {
        if self.set_phase(phase) {
            self.events.send(event);
        }
    }

    /// Changes the phase, except after a stop, which is final.
    fn set_phase(&self, mut phase: Phase) -> bool {
        self.phase.send_if_modified(|now| {
            let is_running = !matches!(now, Phase::Stopped);
            if is_running {
                std::mem::swap(now, &mut phase);
            }
            is_running
        })
    }

    /// Requests a restart; the supervisor performs it.
    pub(crate) fn restart(&self) {
        self.restart_requested.notify_one();
    }

    /// Kills the server at once; running calls fail.
    pub(crate) fn kill(&self) {
        let last = self.phase.send_replace(Phase::Stopped);
        if let Phase::Ready(client) = last {
            client.end();
        }
        if let Some(process) = lock(&self.process).take() {
            process.kill();
        }
        self.permits.close();
    }

    /// Stops the server in bounded time. Its supervisor task must have ended before.
    pub(crate) async fn stop(&self) {
        let last = self.phase.send_replace(Phase::Stopped);
        if let Phase::Ready(client) = last {
            client.close(GRACE).await;
        }
        self.end_process().await;
        if !self.permits.is_closed() {
            self.permits.close();
            self.events.send(ServerEventKind::Stopped);
        }
    }
}

/// Prevents callers from waiting for a server without a supervisor, for example after its runtime
/// was shut down.
struct StopOnDrop<'a>(&'a ServerInner);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // A ready connection must be closed by the caller that stops the server.
        if !matches!(*self.0.phase.borrow(), Phase::Ready(_)) {
            self.0.set_phase(Phase::Stopped);
        }
    }
}
