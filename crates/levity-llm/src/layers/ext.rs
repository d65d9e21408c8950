use std::io;
use std::path::{Path, PathBuf};

use levity_core::{Model, Options};

use super::{
    AdaptTools, AutoThinking, Cache, Cached, DebugLog, Defaults, Fallback, Rate, RateLimit, Record,
    Retry, TextTools,
};

/// Wraps a model in layers; every model has these methods.
///
/// The layer named last is the outermost, so `model.rate_limit(..).retry()` counts every attempt
/// against the rate, and `model.retry().cached(..)` retries only what is not in the cache.
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
    /// Sends a request again when it failed for a reason that may pass: see [`Retry`].
    fn retry(self) -> Retry<Self> {
        Retry::new(self)
    }

    /// Keeps calls to a rate: see [`RateLimit`].
    fn rate_limit(self, rate: Rate) -> RateLimit<Self> {
        RateLimit::new(self, rate)
    }

    /// Calls another model when this one fails: see [`Fallback`].
    fn fallback<B: Model + 'static>(self, next: B) -> Fallback<Self, B> {
        Fallback::new(self, next)
    }

    /// Answers the same request from a cache: see [`Cached`].
    fn cached(self, cache: Cache) -> Cached<Self> {
        Cached::new(self, cache)
    }

    /// Writes calls to a file that tests answer from: see [`Record`].
    ///
    /// # Errors
    /// When the file cannot be made.
    fn record(self, path: impl AsRef<Path>) -> io::Result<Record<Self>> {
        Record::new(self, path)
    }

    /// Writes every prompt and reply to a folder: see [`DebugLog`].
    fn debug_log(self, folder: impl Into<PathBuf>) -> DebugLog<Self> {
        DebugLog::new(self, folder)
    }

    /// Gives tool calls to a model that has none: see [`TextTools`].
    fn text_tools(self) -> TextTools<Self> {
        TextTools::new(self)
    }

    /// Finds out how tools reach the model: see [`AdaptTools`].
    fn adapt_tools(self) -> AdaptTools<Self> {
        AdaptTools::new(self)
    }

    /// Sets options that requests do not set themselves: see [`Defaults`].
    fn defaults(self, options: Options) -> Defaults<Self> {
        Defaults::new(self, options)
    }

    /// Switches thinking on for queries that need it: see [`AutoThinking`].
    fn auto_thinking(self) -> AutoThinking<Self> {
        AutoThinking::new(self)
    }
}

impl<M: Model + 'static> ModelExt for M {}
