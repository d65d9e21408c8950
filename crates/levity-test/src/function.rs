//! A model that computes its reply from the request.
//!
//! Use it instead of a script if the number or the order of the calls is not fixed, as with
//! parallel workers. The response is streamed as its deltas, so observers see the same events as
//! with a provider.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Deltas, Model, ModelCard, ModelError, Request, Response};

/// A model that is a function from request to response.
///
/// ```
/// use levity_core::{Message, Model, Request, Response};
/// use levity_test::FunctionModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let count = FunctionModel::new(|request: &Request| {
///     Ok(Response::new(Message::assistant(format!("{} messages", request.history.len()))))
/// });
/// let reply = count.complete(Request::new().with_message(Message::user("How many?"))).await?;
/// assert_eq!(reply.message.text(), "1 messages");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FunctionModel {
    card: Arc<ModelCard>,
    answer: Arc<Answer>,
}

/// The function behind a model; it is shared by clones and may be called in parallel.
type Answer = dyn Fn(&Request) -> Result<Response, ModelError> + Send + Sync;

impl FunctionModel {
    /// Creates a model that answers with the result of `answer`.
    pub fn new(
        answer: impl Fn(&Request) -> Result<Response, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            card: Arc::new(ModelCard::new("test", "function")),
            answer: Arc::new(answer),
        }
    }

    /// Sets the card; by default the provider is `test` and the id `function`.
    #[must_use]
    pub fn with_card(mut self, card: ModelCard) -> Self {
        self.card = Arc::new(card);
        self
    }
}

#[async_trait]
impl Model for FunctionModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        (self.answer)(&request).map(|response| Deltas::from_response(&response))
    }
}

impl fmt::Debug for FunctionModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionModel")
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}
