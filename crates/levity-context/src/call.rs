//! Context from a function, such as a query to an issue tracker.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource};

/// Any error of the function.
type Failure = Box<dyn Error + Send + Sync>;
/// The pending text of the function.
type Text = Pin<Box<dyn Future<Output = Result<String, Failure>> + Send>>;

/// A block of context whose text comes from a function, called each time.
///
/// ```
/// use levity_context::ContextFn;
/// use levity_core::{ContextRequest, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tickets = ContextFn::new("open tickets", |_| async {
///     Ok::<_, std::io::Error>("#12 the button is too small\n#15 it is slow".to_owned())
/// });
/// let blocks = tickets.blocks(&ContextRequest::new(100)).await?;
/// assert_eq!(blocks[0].name, "open tickets");
/// # Ok(())
/// # }
/// ```
///
/// A text that is too long is cut with a note; an empty one yields no block. The block is valid for
/// one run, unless [`lifetime`](Self::lifetime) sets a longer lifetime. An error fails the run that
/// requests the context; see [`with_fallback_note`](crate::ContextExt::with_fallback_note).
#[derive(Clone)]
#[must_use]
pub struct ContextFn {
    name: String,
    lasts: ContextLifetime,
    call: Arc<dyn Fn(ContextRequest) -> Text + Send + Sync>,
}

impl ContextFn {
    /// Creates a block with this name. The function receives the remaining budget and the goal of
    /// the run.
    ///
    /// ```
    /// use levity_context::ContextFn;
    /// use levity_core::{ContextRequest, ContextSource};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ContextError> {
    /// let search = ContextFn::new("search", |ask: ContextRequest| async move {
    ///     Ok::<_, std::io::Error>(format!("results for: {}", ask.goal))
    /// });
    /// let blocks = search.blocks(&ContextRequest::new(100).for_goal("rust agents")).await?;
    /// assert_eq!(blocks[0].text, "results for: rust agents");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new<F, R, E>(name: impl Into<String>, call: F) -> Self
    where
        F: Fn(ContextRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<Failure>,
    {
        let call = move |ask| {
            let text = call(ask);
            Box::pin(async { text.await.map_err(Into::into) }) as Text
        };
        Self {
            name: name.into(),
            lasts: ContextLifetime::Run,
            call: Arc::new(call),
        }
    }

    /// Sets how long the text stays unchanged; for one run by default.
    ///
    /// A block with a long lifetime precedes the instructions of the agent, where the prompt cache
    /// of a provider can reuse it. Set it only if the text is the same in most runs.
    pub fn lifetime(mut self, lasts: ContextLifetime) -> Self {
        self.lasts = lasts;
        self
    }
}

#[async_trait]
impl ContextSource for ContextFn {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let text = (self.call)(ask.clone()).await;
        let text = text.map_err(|error| ContextError::new(self.name.as_str(), error))?;
        let block = ContextBlock::new(self.name.as_str(), text).lasting(self.lasts);
        let block = Some(block).filter(|block| !block.text.trim().is_empty());
        Ok(block
            .and_then(|block| block.cut_to(ask.budget))
            .into_iter()
            .collect())
    }
}

impl fmt::Debug for ContextFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextFn")
            .field("name", &self.name)
            .field("lasts", &self.lasts)
            .finish_non_exhaustive()
    }
}
