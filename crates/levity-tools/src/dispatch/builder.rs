use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use levity_system::SystemWorld;
use tokio::sync::Semaphore;

use super::backoff::Backoff;
use super::find::Search;
use super::{Dispatcher, Inner, READERS};
use crate::error::Error;
use crate::policy::Policy;
use crate::registry::Registry;

/// Room for what is said around a cut text, and at least as much text.
pub(super) const MIN_OUTPUT: usize = 512;

/// Settings of a [`Dispatcher`].
#[must_use = "a builder does nothing until `build`"]
pub struct DispatcherBuilder {
    registry: Registry,
    world: Arc<dyn World>,
    policy: Policy,
    timeout: Duration,
    retries: u32,
    backoff: Backoff,
    max_output: usize,
    max_media: usize,
    max_concurrent: usize,
    search_above: Option<usize>,
    corrects: bool,
}

impl DispatcherBuilder {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            world: Arc::new(SystemWorld),
            policy: Policy::new(),
            timeout: Duration::from_secs(60),
            retries: 2,
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(10)),
            max_output: 32 << 10,
            max_media: 10 << 20,
            max_concurrent: 1024,
            search_above: None,
            corrects: false,
        }
    }

    /// The clock that time limits and retries go by; the system's by default.
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// What may be called. By default, calls of tools that may destroy something are asked about.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How long an attempt may take, unless the tool's hints say otherwise. 60 seconds by default.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// How often a failure that may pass is retried, if the tool may be called again, as it is or
    /// once the failed call was undone. 2 by default.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// How long to wait before a retry: a random part of `base`, which doubles each time up to
    /// `max`. 200 milliseconds and 10 seconds by default.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.backoff = Backoff::new(base, max);
        self
    }

    /// How many bytes of text a result shows. 32 KiB by default, 512 at least.
    ///
    /// The whole of what is longer, 8 MiB of it at most, is in
    /// [`ToolResult::whole`](levity_core::ToolResult::whole). A value whose JSON is longer is left
    /// out of the result as well. A tool whose hints say how much its results may show is held to
    /// that instead.
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes.max(MIN_OUTPUT);
        self
    }

    /// How many bytes of images, sounds and documents a result may have. 10 MiB by default.
    pub fn max_media(mut self, bytes: usize) -> Self {
        self.max_media = bytes;
        self
    }

    /// How many attempts may run at once; the others wait for their turn, and the wait is not part
    /// of their time limit. 1,024 by default.
    ///
    /// A tool that calls others through the same dispatcher holds its place meanwhile.
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.max_concurrent = calls;
        self
    }

    /// With more tools than this, models are told only of those that were added one by one, and
    /// find those of sources by a tool `find_tools`; see [`Dispatcher::offer`]. They are told of
    /// all by default.
    pub fn tool_search(mut self, above: usize) -> Self {
        self.search_above = Some(above);
        self
    }

    /// Corrects arguments in the wrong type where nothing is lost (`"5"` for 5, one value for a
    /// list of one), and tells the model in the result. Agents do this; by default, such arguments
    /// are refused.
    pub fn correct_arguments(mut self) -> Self {
        self.corrects = true;
        self
    }

    /// Makes the dispatcher.
    ///
    /// # Errors
    /// When `max_concurrent` is 0.
    pub fn build(self) -> Result<Dispatcher, Error> {
        if self.max_concurrent == 0 {
            return Err(Error::NoConcurrency);
        }
        let taken = self
            .registry
            .specs()
            .iter()
            .any(|spec| spec.name == READERS[0]);
        Ok(Dispatcher(Arc::new(Inner {
            reader: READERS[usize::from(taken)],
            search: Search::new(self.search_above, &self.registry),
            slots: Semaphore::new(self.max_concurrent.min(Semaphore::MAX_PERMITS)),
            registry: self.registry,
            world: self.world,
            policy: self.policy,
            timeout: self.timeout,
            retries: self.retries,
            backoff: self.backoff,
            max_output: self.max_output,
            max_media: self.max_media,
            corrects: self.corrects,
        })))
    }
}

impl fmt::Debug for DispatcherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatcherBuilder")
            .field("registry", &self.registry)
            .field("policy", &self.policy)
            .field("timeout", &self.timeout)
            .field("retries", &self.retries)
            .field("backoff", &self.backoff)
            .field("max_output", &self.max_output)
            .field("max_media", &self.max_media)
            .field("max_concurrent", &self.max_concurrent)
            .field("search_above", &self.search_above)
            .finish_non_exhaustive()
    }
}
