//! The extension trait [`ModelExt`], which offers each layer as a method.
//!
//! The trait has a blanket implementation for every sized model, so no type implements it by hand.
//! [`Route`](super::Route) and [`Replay`](super::Replay) are absent: a router has no single inner
//! model, and a replay needs none.

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
///
/// # Contract
/// - Each method consumes the model and returns it wrapped in one layer with its default settings.
/// - No method sends a request or reads the clock. Only [`record`](Self::record) touches a file.
/// - An `Arc<dyn Model>` is a model as well, so the methods work on a model of unknown type:
///
/// ```
/// use levity_core::Model;
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
/// use std::sync::Arc;
///
/// let shared: Arc<dyn Model> = Arc::new(ScriptedModel::new());
/// let model: Arc<dyn Model> = Arc::new(shared.retry());
/// assert_eq!(model.card().id, "scripted");
/// ```
pub trait ModelExt: Model + Sized + 'static {
    /// Retries a request after a transient failure: see [`Retry`].
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// let model = ScriptedModel::new().retry().attempts(2);
    /// assert_eq!(model.cost_bound(&Request::new()).sends, 2);
    /// ```
    fn retry(self) -> Retry<Self> {
        Retry::new(self)
    }

    /// Limits the rate of calls: see [`RateLimit`].
    ///
    /// The returned layer shares its limit with all layers of the same key in the process.
    fn rate_limit(self, rate: Rate) -> RateLimit<Self> {
        RateLimit::new(self, rate)
    }

    /// Calls another model when this one fails: see [`Fallback`].
    ///
    /// The layer calls `next` after a transient error of this model. Chain several calls for more
    /// models: they are tried in the order of the chain.
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let down = || ScriptedModel::new().fail(ModelErrorKind::Overloaded);
    /// let model = down().fallback(down()).fallback(ScriptedModel::new().reply("third"));
    /// assert_eq!(model.complete(Request::new()).await?.message.text(), "third");
    /// # Ok(())
    /// # }
    /// ```
    fn fallback<B: Model + 'static>(self, next: B) -> Fallback<Self, B> {
        Fallback::new(self, next)
    }

    /// Answers repeated requests from a cache: see [`Cached`].
    ///
    /// Pass a clone of the same [`Cache`] to several models to let them share one store. Their
    /// replies do not mix, because the key contains the provider and the id of the model.
    fn cached(self, cache: Cache) -> Cached<Self> {
        Cached::new(self, cache)
    }

    /// Records calls to a file for use in tests: see [`Record`].
    ///
    /// An existing file at `path` is replaced, and a missing folder is created.
    ///
    /// # Errors
    /// Returns an error with the path if the file cannot be created.
    fn record(self, path: impl AsRef<Path>) -> io::Result<Record<Self>> {
        Record::new(self, path)
    }

    /// Writes every prompt and reply to a folder: see [`DebugLog`].
    ///
    /// The folder is created with the first call. On Unix, only the current user can read it.
    fn debug_log(self, folder: impl Into<PathBuf>) -> DebugLog<Self> {
        DebugLog::new(self, folder)
    }

    /// Adds tool calls to a model that lacks them: see [`TextTools`].
    ///
    /// The card of the wrapped model states that it supports tools.
    fn text_tools(self) -> TextTools<Self> {
        TextTools::new(self)
    }

    /// Detects how to send tools to the model: see [`AdaptTools`].
    ///
    /// Use it for a server whose support for tools is unknown. `levity_llm::model` adds this layer
    /// to models of Ollama and of compatible servers.
    fn adapt_tools(self) -> AdaptTools<Self> {
        AdaptTools::new(self)
    }

    /// Sets options that requests do not set themselves: see [`Defaults`].
    ///
    /// ```
    /// use levity_core::{Model, Options, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let mut short = Options::new();
    /// short.max_tokens = Some(100);
    /// let inner = ScriptedModel::new().reply("yes");
    /// let mut own = Options::new();
    /// own.max_tokens = Some(500);
    /// inner.clone().defaults(short).complete(Request::new().with_options(own)).await?;
    /// assert_eq!(inner.requests()[0].options.max_tokens, Some(500)); // the request wins
    /// # Ok(())
    /// # }
    /// ```
    fn defaults(self, options: Options) -> Defaults<Self> {
        Defaults::new(self, options)
    }

    /// Enables thinking for queries that need it: see [`AutoThinking`].
    ///
    /// Call it after [`defaults`](Self::defaults) if those set a thinking mode. In the other order
    /// the defaults come first, and a request with a thinking mode stays unchanged.
    fn auto_thinking(self) -> AutoThinking<Self> {
        AutoThinking::new(self)
    }
}

impl<M: Model + 'static> ModelExt for M {}
