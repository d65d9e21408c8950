//! The limits of a bridge host, and their defaults.

use std::time::Duration;

/// The limits of a bridge host.
///
/// ```
/// # use levity_serve::bridge::HostLimits;
/// let limits = HostLimits::new().read(20_000).clients(8);
/// assert_eq!(limits.write, 500_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostLimits {
    /// The maximum size of a file that is read whole, in bytes. 100,000 by default.
    pub read: u64,
    /// The maximum size of a file that is written, in bytes. 500,000 by default.
    pub write: usize,
    /// The maximum size of a message, in bytes. 1 MiB by default. A client that sends a longer one
    /// is disconnected with code 1009.
    pub message: usize,
    /// The maximum length of a prompt, or of the reason of a cancellation, in bytes. 100,000 by
    /// default.
    pub prompt: usize,
    /// The maximum number of connected clients. 1,024 by default.
    pub clients: usize,
    /// The maximum number of requests in progress of one client. 16 by default.
    pub requests: usize,
    /// The maximum number of tasks whose events one client reads at the same time. 64 by default.
    pub subscriptions: usize,
    /// The maximum number of requests of all clients that wait for files. 256 by default.
    pub waits: usize,
    /// The time in which a client must receive a message. 20 seconds by default.
    pub send: Duration,
    /// The interval of pings to clients. 20 seconds by default. A client that is silent for two
    /// intervals is disconnected.
    pub ping: Duration,
}

impl HostLimits {
    /// Creates the default limits.
    pub fn new() -> Self {
        Self {
            read: 100_000,
            write: 500_000,
            message: 1 << 20,
            prompt: 100_000,
            clients: 1024,
            requests: 16,
            subscriptions: 64,
            waits: 256,
            send: Duration::from_secs(20),
            ping: Duration::from_secs(20),
        }
    }

    /// Sets the maximum size of a file that is read whole.
    ///
    /// Longer files can still be read in parts, by `start_line` and `lines`.
    #[must_use]
    pub fn read(self, bytes: u64) -> Self {
        Self {
            read: bytes.max(1),
            ..self
        }
    }

    /// Sets the maximum size of a file that is written, and raises the message limit to fit it.
    ///
    /// A message is at least twice as large as a file, because JSON escapes characters.
    ///
    /// ```
    /// use levity_serve::bridge::HostLimits;
    /// let limits = HostLimits::new().write(2_000_000);
    /// assert!(limits.message > 2 * limits.write);
    /// ```
    #[must_use]
    pub fn write(self, bytes: usize) -> Self {
        let message = self
            .message
            .max(bytes.saturating_mul(2).saturating_add(64 << 10));
        Self {
            write: bytes,
            message,
            ..self
        }
    }

    /// Sets the maximum number of connected clients.
    #[must_use]
    pub fn clients(self, limit: usize) -> Self {
        Self {
            clients: limit,
            ..self
        }
    }

    /// Sets the interval of pings to clients.
    ///
    /// An interval below 10 ms counts as 10 ms.
    #[must_use]
    pub fn ping(self, every: Duration) -> Self {
        Self {
            ping: every.max(Duration::from_millis(10)),
            ..self
        }
    }

    /// Sets the time in which a client must receive a message.
    #[must_use]
    pub fn send(self, time: Duration) -> Self {
        Self { send: time, ..self }
    }
}

impl Default for HostLimits {
    fn default() -> Self {
        Self::new()
    }
}
