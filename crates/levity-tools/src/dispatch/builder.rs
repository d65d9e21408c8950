//! The settings of a dispatcher and their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{WorkspaceSource, World};
use levity_system::SystemWorld;
use tokio::sync::Semaphore;

use super::backoff::Backoff;
use super::find::Search;
use super::{Dispatcher, Inner, READERS};
use crate::error::Error;
use crate::policy::Policy;
use crate::registry::Registry;

/// The minimum output: room for the note around a cut text, and at least as much text.
pub(super) const MIN_OUTPUT: usize = 512;

/// A builder of a [`Dispatcher`].
///
/// ```
/// use std::time::Duration;
///
/// use levity_tools::{Dispatcher, Policy, Registry};
///
/// let dispatcher = Dispatcher::builder(Registry::builder().build()?)
///     .policy(Policy::ask_all())
///     .timeout(Duration::from_secs(10))
///     .retries(0)
///     .max_output(4 << 10)
///     .build()?;
/// assert_eq!(dispatcher.max_output(), 4_096);
/// # Ok::<(), levity_tools::Error>(())
/// ```
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
    workspace: Option<Arc<dyn WorkspaceSource>>,
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
            workspace: None,
        }
    }

    /// Sets the clock for timeouts and retries; the system's by default.
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Sets the policy of calls. By default, calls of destructive tools require approval.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the timeout of an attempt, unless the tool's hints set another; 60 seconds by default.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets the number of retries after a transient failure; 2 by default. A call is retried only
    /// if the tool may be called again, directly or after an undo.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the pause before a retry: a random part of `base`, which doubles each time up to `max`.
    /// 200 milliseconds and 10 seconds by default.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.backoff = Backoff::new(base, max);
        self
    }

    /// Sets how many bytes of text a result shows; 32 KiB by default, and at least 512.
    ///
    /// The whole of a longer output, up to 8 MiB, is in
    /// [`ToolResult::whole`](levity_core::ToolResult::whole). A value whose JSON is longer is left
    /// out of the result as well. The limit in a tool's hints takes precedence.
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes.max(MIN_OUTPUT);
        self
    }

    /// Sets the maximum bytes of images, sounds and documents in a result; 10 MiB by default.
    pub fn max_media(mut self, bytes: usize) -> Self {
        self.max_media = bytes;
        self
    }

    /// Sets the maximum number of concurrent attempts; 1,024 by default. Further attempts wait, and
    /// the wait does not count towards their timeout.
    ///
    /// A tool that calls others through the same dispatcher holds its place meanwhile.
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.max_concurrent = calls;
        self
    }

    /// Sets the number of tools above which models have to search for them; by default, all are
    /// listed.
    ///
    /// Above it, models see only the tools that were added one by one, and find those of sources
    /// with a tool `find_tools`; see [`Dispatcher::offer`].
    pub fn tool_search(mut self, above: usize) -> Self {
        self.search_above = Some(above);
        self
    }

    /// Corrects arguments of the wrong type where nothing is lost (`"5"` for 5, one value for a
    /// list of one), and notes it in the result. Agents enable this; by default, such arguments are
    /// rejected.
    pub fn correct_arguments(mut self) -> Self {
        self.corrects = true;
        self
    }

    /// Sets the workspace in which the dispatcher finds the files that calls change; none by
    /// default.
    ///
    /// It compares the workspace before and after each call of a tool that is not read-only and
    /// does not report its changes itself. The changes are in
    /// [`ToolResult::changes`](levity_core::ToolResult::changes), and a line of the result names
    /// them. If calls run at the same time, each of them reports the changes of all.
    pub fn workspace(mut self, source: impl WorkspaceSource + 'static) -> Self {
        self.workspace = Some(Arc::new(source));
        self
    }

    /// Builds the dispatcher.
    ///
    /// # Errors
    /// Returns an error if `max_concurrent` is 0.
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
            workspace: self.workspace,
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
