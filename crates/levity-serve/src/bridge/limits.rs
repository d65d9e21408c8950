use std::time::Duration;

/// How much a host takes and gives.
///
/// ```
/// # use levity_serve::bridge::HostLimits;
/// let limits = HostLimits::new().read(20_000).clients(8);
/// assert_eq!(limits.write, 500_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostLimits {
    /// The longest file that is read whole, in bytes: 100,000.
    pub read: u64,
    /// The longest file that is written, in bytes: 500,000.
    pub write: usize,
    /// The longest message that is taken, in bytes: 1 MiB. Whoever sends a longer one is let go,
    /// with 1009.
    pub message: usize,
    /// The longest prompt, in bytes: 100,000.
    pub prompt: usize,
    /// How many clients there may be at once: 1,024.
    pub clients: usize,
    /// How many requests of a client are worked on at once: 16.
    pub requests: usize,
    /// How many tasks' events a client reads at once: 64.
    pub subscriptions: usize,
    /// How many requests of all clients wait for files at once: 256.
    pub waits: usize,
    /// How long a client may take to take what it is sent: 20 seconds.
    pub send: Duration,
    /// How often clients are asked whether they are still there: every 20 seconds. One that is
    /// silent for two such times is let go.
    pub ping: Duration,
}

impl HostLimits {
    /// The defaults.
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

    /// The longest file that is read whole.
    #[must_use]
    pub fn read(self, bytes: u64) -> Self {
        Self {
            read: bytes.max(1),
            ..self
        }
    }

    /// The longest file that is written; a message must have room for it.
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

    /// How many clients there may be at once.
    #[must_use]
    pub fn clients(self, most: usize) -> Self {
        Self {
            clients: most,
            ..self
        }
    }

    /// How often clients are asked whether they are still there.
    #[must_use]
    pub fn ping(self, every: Duration) -> Self {
        Self {
            ping: every.max(Duration::from_millis(10)),
            ..self
        }
    }

    /// How long a client may take to take what it is sent.
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
