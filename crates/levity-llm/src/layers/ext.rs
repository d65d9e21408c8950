use std::io;
use std::path::{Path, PathBuf};

use levity_core::{Model, Options};

use super::{
    AdaptTools, AutoThinking, Cache, Cached, DebugLog, Defaults, Fallback, Rate, RateLimit, Record,
    Retry, TextTools,
};

/// Methods that wrap any model in a layer.
///
/// The last layer in the chain is the outermost. `model.rate_limit(..).retry()` counts every
/// attempt against the rate. `model.retry().cached(..)` retries only requests that are not in the
/// cache.
///
/// ```
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Rate;
/// use levity_test::ScriptedModel;
///
/// let model = ScriptedModel::new().rate_limit(Rate::new().requests(60)).retry().auto_thinking();
/// # let _ = model;
/// ```
pub trait ModelExt: Model + Sized + 'static {
    /// Retries a request after a transient failure: see [`Retry`].
    fn retry(self) -> Retry<Self> {
        Retry::new(self)
    }

    /// Limits the rate of calls: see [`RateLimit`].
    fn rate_limit(self, rate: Rate) -> RateLimit<Self> {
        RateLimit::new(self, rate)
    }

    /// Calls another model when this one fails: see [`Fallback`].
    fn fallback<B: Model + 'static>(self, next: B) -> Fallback<Self, B> {
        Fallback::new(self, next)
    }

    /// Answers repeated requests from a cache: see [`Cached`].
    fn cached(self, cache: Cache) -> Cached<Self> {
        Cached::new(self, cache)
    }

    /// Records calls to a file for use in tests: see [`Record`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    fn record(self, path: impl AsRef<Path>) -> io::Result<Record<Self>> {
        Record::new(self, path)
    }

    /// Writes every prompt and reply to a folder: see [`DebugLog`].
    fn debug_log(self, folder: impl Into<PathBuf>) -> DebugLog<Self> {
        DebugLog::new(self, folder)
    }

    /// Adds tool calls to a model that lacks them: see [`TextTools`].
    fn text_tools(self) -> TextTools<Self> {
        TextTools::new(self)
    }

    /// Detects how to send tools to the model: see [`AdaptTools`].
    fn adapt_tools(self) -> AdaptTools<Self> {
        AdaptTools::new(self)
    }

    /// Sets options that requests do not set themselves: see [`Defaults`].
    fn defaults(self, options: Options) -> Defaults<Self> {
        Defaults::new(self, options)
    }

    /// Enables thinking for queries that need it: see [`AutoThinking`].
    fn auto_thinking(self) -> AutoThinking<Self> {
        AutoThinking::new(self)
    }
}

impl<M: Model + 'static> ModelExt for M {}
