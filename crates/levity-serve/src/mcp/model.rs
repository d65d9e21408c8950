//! The model of a client behind levity's [`Model`] trait.
//!
//! The protocol has no streaming for sampling, so `stream` yields the whole reply at once. Failures
//! of the question become model errors, so that layers such as retry work as usual.

use async_trait::async_trait;
use levity_core::{
    Capabilities as ModelAbilities, Deltas, Message, Model, ModelCard, ModelError, ModelErrorKind,
    Request, Response, Role,
};
use levity_mcp::SampleRequest;

use super::Client;
use super::ask::{AskError, AskErrorKind};

/// The maximum length of replies if a request sets none, because the protocol requires a value.
const MAX_TOKENS: u64 = 4096;

/// The model of a client, used through sampling.
///
/// Its card lists its capabilities: it calls tools only if the client supports that, and does not
/// enforce a schema. The client chooses the model; the reply does not report its cost.
///
/// ```
/// use levity_core::{Message, Model as _, Request};
/// use levity_serve::mcp::{HandlerCall, RequestError, HandlerReply};
///
/// async fn summarise(call: HandlerCall) -> Result<HandlerReply, RequestError> {
///     let model = call.client.model().prefer("small");
///     let request = Request::new().with_message(Message::user("Sum it up: ..."));
///     let reply = model
///         .complete(request)
///         .await
///         .map_err(|error| RequestError::failed(error.to_string()))?;
///     Ok(HandlerReply::text(reply.message.text()))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ClientModel {
    client: Client,
    card: ModelCard,
    hints: Vec<String>,
}

impl ClientModel {
    pub(super) fn new(client: Client) -> Self {
        let able = client.capabilities();
        let mut capabilities = ModelAbilities::default();
        (capabilities.tools, capabilities.output_schema) = (able.sample_tools, false);
        // The protocol does not say if the model supports images. A client that does not support
        // them rejects the request.
        capabilities.images = true;
        let name = client
            .info()
            .map_or("unknown", |info| &info.name)
            .to_owned();
        let card = ModelCard::new("mcp-client", name).with_capabilities(capabilities);
        Self {
            client,
            card,
            hints: Vec::new(),
        }
    }

    /// Prefers a model whose name contains `name`; of several preferences, the first has the most
    /// weight.
    ///
    /// A preference is a hint; the client decides.
    ///
    /// ```
    /// use levity_serve::mcp::{ClientModel, HandlerCall};
    /// fn small_model(call: &HandlerCall) -> ClientModel {
    ///     call.client.model().prefer("haiku").prefer("mini")
    /// }
    /// ```
    #[must_use]
    pub fn prefer(mut self, name: impl Into<String>) -> Self {
        self.hints.push(name.into());
        self
    }

    /// Converts a request. Replies are limited to 4,096 tokens if the request sets no limit.
    fn ask(&self, request: &Request) -> Result<SampleRequest, ModelError> {
        let messages = request.history.messages();
        let Some(first) = messages.first() else {
            return Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "the request has no messages; add at least one",
            ));
        };
        let options = &request.options;
        let mut ask =
            SampleRequest::new((**first).clone(), options.max_tokens.unwrap_or(MAX_TOKENS));
        ask.messages = messages.to_vec();
        ask.system = request.system.as_ref().map(ToString::to_string);
        ask.temperature = options.temperature;
        ask.stop.clone_from(&options.stop);
        ask.tools = request.tools.to_vec();
        ask.tool_choice = request.tool_choice.clone();
        ask.hints.clone_from(&self.hints);
        Ok(ask)
    }
}

#[async_trait]
impl Model for ClientModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        Ok(Deltas::from_response(&self.complete(request).await?))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let reply = self
            .client
            .sample(self.ask(&request)?)
            .await
            .map_err(failed)?;
        let model = Some(reply.model)
            .filter(|name| !name.is_empty())
            .map(Into::into);
        let message = Message::new(Role::Assistant, reply.parts);
        Ok(Response::new(message)
            .with_finish(reply.finish)
            .with_model(model))
    }
}

fn failed(error: AskError) -> ModelError {
    let kind = match error.kind() {
        AskErrorKind::Unsupported | AskErrorKind::Refused | AskErrorKind::Invalid => {
            ModelErrorKind::BadRequest
        }
        AskErrorKind::BadAnswer => ModelErrorKind::Malformed,
        AskErrorKind::Timeout => ModelErrorKind::Timeout,
        AskErrorKind::Disconnected => ModelErrorKind::Transport,
    };
    ModelError::new(kind, error.to_string()).with_source(error)
}
