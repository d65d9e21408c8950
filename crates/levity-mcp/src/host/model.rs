//! The sampler that answers servers with a model.
//!
//! The order of checks is fixed: the allow list, the form of the request, the approver, then the
//! budget. A request that is denied costs nothing and is not counted. The reservation is made
//! directly before the model is called, so requests that wait for a person block no budget.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, CallId, Decision, EffectId, History, Model, Money, Options, Part, Price,
    Request, Response, RunId, ToolCall,
};
use serde_json::{Value, json};

use super::budget::{Allowance, Ledger};
use super::{Refusal, SampleReply, SampleRequest, Sampler};

/// A sampler that answers servers with a model, within limits.
///
/// A server sees only the replies to its own requests. The model receives nothing of the agent's
/// instructions, conversation or tools. The usage of each server is counted for the lifetime of the
/// sampler. The maximum cost of a request is reserved before it is sent.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::Money;
/// use levity_mcp::{ModelSampler, SampleRequest, Sampler};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_mcp::Refusal> {
/// let model = Arc::new(ScriptedModel::new().reply("Two files about birds."));
/// let sampler = ModelSampler::new(model).only(["files"]).max_requests(5);
/// let reply = sampler.sample("files", SampleRequest::new("Sum this up: ..", 200)).await?;
/// assert_eq!(reply.parts[0], "Two files about birds.".into());
/// assert!(sampler.sample("other", SampleRequest::new("Hello", 200)).await.is_err());
/// # Ok(())
/// # }
/// ```
pub struct ModelSampler {
    model: Arc<dyn Model>,
    servers: Option<Vec<String>>,
    approver: Option<Arc<dyn Approver>>,
    tools: bool,
    max_tokens: u64,
    limits: Allowance,
    assumed_price: Option<Price>,
    ledger: Ledger,
}

impl ModelSampler {
    /// The default maximum length of a reply, in tokens.
    pub const DEFAULT_MAX_TOKENS: u64 = 2_048;
    /// The default maximum number of requests per server.
    pub const DEFAULT_REQUESTS: u64 = 50;
    /// The default maximum number of tokens per server.
    pub const DEFAULT_TOTAL_TOKENS: u64 = 200_000;

    /// Creates a sampler that offers this model to every server.
    pub fn new(model: Arc<dyn Model>) -> Self {
        let limits = Allowance {
            requests: Self::DEFAULT_REQUESTS,
            tokens: Self::DEFAULT_TOTAL_TOKENS,
            money: None,
        };
        Self {
            model,
            servers: None,
            approver: None,
            tools: false,
            max_tokens: Self::DEFAULT_MAX_TOKENS,
            limits,
            assumed_price: None,
            ledger: Ledger::default(),
        }
    }

    /// Restricts the sampler to these servers.
    ///
    /// Several calls add up. Without a call, every server may use the model.
    #[must_use]
    pub fn only(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers
            .get_or_insert_default()
            .extend(servers.into_iter().map(Into::into));
        self
    }

    /// Asks for approval of each request. The approver sees a call of `sampling` with the server's
    /// request as its arguments. A text answer goes to the server in place of the model's reply.
    ///
    /// Any other decision than to allow or to answer denies the request.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_core::{Ask, Decision};
    /// use levity_mcp::{ModelSampler, RefusalKind, SampleRequest, Sampler as _};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let careful = |ask: &Ask| match ask.call.args["server"].as_str() {
    ///     Some("files") => Decision::Allow,
    ///     _ => Decision::deny("unknown server"),
    /// };
    /// let model = Arc::new(ScriptedModel::new().reply("Fine."));
    /// let sampler = ModelSampler::new(model).approver(Arc::new(careful));
    /// assert!(sampler.sample("files", SampleRequest::new("Hello", 50)).await.is_ok());
    /// let refusal = sampler.sample("other", SampleRequest::new("Hello", 50)).await.unwrap_err();
    /// assert_eq!(refusal.kind(), RefusalKind::Denied);
    /// # }
    /// ```
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Allows requests with tools, which the server runs.
    ///
    /// The model only proposes calls; levity never runs them. The tools are the server's own, and
    /// the agent's tools are not offered.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_mcp::{ModelSampler, Sampler as _};
    /// use levity_test::ScriptedModel;
    ///
    /// let sampler = || ModelSampler::new(Arc::new(ScriptedModel::new()));
    /// assert!(!sampler().supports_tools());
    /// assert!(sampler().allow_tools().supports_tools());
    /// ```
    #[must_use]
    pub fn allow_tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// Sets the maximum length of a reply, in tokens; 2,048 by default. A request for more is
    /// reduced to this limit.
    ///
    /// The limit of the model's card applies as well.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// Sets the maximum number of requests per server; 50 by default.
    ///
    /// The count lasts as long as the sampler, and includes requests whose model call failed.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_mcp::{ModelSampler, RefusalKind, SampleRequest, Sampler as _};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Arc::new(ScriptedModel::new().reply("Hi."));
    /// let sampler = ModelSampler::new(model).max_requests(1);
    /// assert!(sampler.sample("files", SampleRequest::new("Hello", 50)).await.is_ok());
    /// let refusal = sampler.sample("files", SampleRequest::new("Again", 50)).await.unwrap_err();
    /// assert_eq!(refusal.kind(), RefusalKind::Limit);
    /// # }
    /// ```
    #[must_use]
    pub fn max_requests(mut self, requests: u64) -> Self {
        self.limits.requests = requests;
        self
    }

    /// Sets the maximum number of tokens per server, sent and received; 200,000 by default.
    #[must_use]
    pub fn max_total_tokens(mut self, tokens: u64) -> Self {
        self.limits.tokens = tokens;
        self
    }

    /// Sets the maximum cost per server; unlimited by default. With a limit, a model whose card has
    /// no price is not called, unless a price is [assumed](Self::assumed_price).
    ///
    /// The highest possible cost of a request is reserved before it is sent, so concurrent requests
    /// cannot pass the limit together.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_core::{Money, Price};
    /// use levity_mcp::{ModelSampler, SampleRequest, Sampler as _};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let sampler = || {
    ///     let model = Arc::new(ScriptedModel::new().reply("Hi."));
    ///     ModelSampler::new(model).max_cost(Money::from_dollars(0.5))
    /// };
    /// let ask = || SampleRequest::new("Hello", 50);
    /// let refusal = sampler().sample("files", ask()).await.unwrap_err();
    /// assert!(refusal.to_string().contains("the price of the model is unknown"));
    /// let priced = sampler().assumed_price(Price::new(1.0, 5.0));
    /// assert!(priced.sample("files", ask()).await.is_ok());
    /// # }
    /// ```
    #[must_use]
    pub fn max_cost(mut self, money: Money) -> Self {
        self.limits.money = Some(money);
        self
    }

    /// Sets the price to assume if the model's card has none.
    #[must_use]
    pub fn assumed_price(mut self, price: Price) -> Self {
        self.assumed_price = Some(price);
        self
    }

    /// Returns the number of tokens that a server has used, and their cost if known. Requests in
    /// progress count with their full reservation.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_core::{Message, Money, Response, Usage};
    /// use levity_mcp::{ModelSampler, SampleRequest, Sampler as _};
    /// use levity_test::FunctionModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let reply = || Response::new(Message::assistant("Hi.")).with_usage(Usage::new(10, 5));
    /// let sampler = ModelSampler::new(Arc::new(FunctionModel::new(move |_| Ok(reply()))));
    /// assert!(sampler.sample("files", SampleRequest::new("Hello", 50)).await.is_ok());
    /// assert_eq!(sampler.used("files"), (15, Money::ZERO));
    /// # }
    /// ```
    pub fn used(&self, server: &str) -> (u64, Money) {
        let (_, tokens, money) = self.ledger.used(server);
        (tokens, money)
    }

    /// Checks a request without calling anyone: the server, its tools, the length and the media.
    fn admit(&self, server: &str, ask: &SampleRequest) -> Result<(), Refusal> {
        let named = |servers: &Vec<String>| servers.iter().any(|known| known == server);
        if !self.servers.as_ref().is_none_or(named) {
            return Err(Refusal::denied("sampling is not enabled for this server"));
        }
        if !ask.tools.is_empty() && !self.tools {
            return Err(Refusal::denied("requests with tools are not allowed"));
        }
        if ask.max_tokens == 0 {
            return Err(Refusal::bad("`maxTokens` must be more than 0"));
        }
        let media = ask.messages.iter().flat_map(|message| &message.parts);
        if !self.model.card().capabilities.images
            && media.into_iter().any(|part| matches!(part, Part::Media(_)))
        {
            return Err(Refusal::bad("the model accepts text only"));
        }
        Ok(())
    }

    /// Asks the approver, and returns its text answer in place of the model's, if any.
    async fn ask_approver(
        &self,
        server: &str,
        ask: &SampleRequest,
    ) -> Result<Option<String>, Refusal> {
        let Some(approver) = &self.approver else {
            return Ok(None);
        };
        let call = ToolCall::new(CallId::from("sampling"), "sampling", describe(server, ask));
        let reason = format!("MCP server `{server}` requests a reply from the model");
        let question = Ask::new(RunId::from("mcp"), EffectId::new(0), call, reason);
        match approver.decide(&question).await {
            Decision::Allow => Ok(None),
            Decision::Answer { text } => Ok(Some(text)),
            _ => Err(Refusal::denied("the request was denied")),
        }
    }

    /// Converts the server's request for the model. A tool call whose id occurred before gets a new
    /// one, because some servers number the calls of each reply from the start.
    fn request(ask: SampleRequest, max_tokens: u64) -> Result<Request, Refusal> {
        let history = History::renamed(ask.messages);
        let history =
            history.map_err(|_| Refusal::bad("tool calls and tool results do not match"))?;
        let mut options = Options::new();
        options.max_tokens = Some(max_tokens);
        options.temperature = ask.temperature;
        options.stop = ask.stop;
        let mut request = Request::new()
            .with_history(history)
            .with_tools(ask.tools)
            .with_options(options);
        request.system = ask.system.map(Into::into);
        request.tool_choice = ask.tool_choice;
        Ok(request)
    }

    /// Returns the parts of a response that the server may see. Thinking and provider state stay
    /// here.
    fn reply(&self, response: &Response, tools: bool) -> Result<SampleReply, Refusal> {
        let is_allowed = |part: &&Part| match part {
            Part::Text(_) => true,
            Part::ToolCall(_) => tools,
            _ => false,
        };
        let parts: Vec<Part> = response
            .message
            .parts
            .iter()
            .filter(is_allowed)
            .cloned()
            .collect();
        if parts.is_empty() {
            return Err(Refusal::failed("the model returned no content"));
        }
        Ok(SampleReply {
            parts,
            model: self.model.card().id.clone(),
            finish: response.finish.clone(),
        })
    }
}

#[async_trait]
impl Sampler for ModelSampler {
    async fn sample(&self, server: &str, ask: SampleRequest) -> Result<SampleReply, Refusal> {
        self.admit(server, &ask)?;
        if let Some(text) = self.ask_approver(server, &ask).await? {
            return Ok(SampleReply::text("person", text));
        }
        let max_output = ask
            .max_tokens
            .min(self.max_tokens)
            .min(self.model.card().max_output.unwrap_or(u64::MAX));
        let tools = !ask.tools.is_empty();
        let mut request = Self::request(ask, max_output)?;
        let mut worst = self.model.cost_bound(&request);
        worst.price = worst.price.or(self.assumed_price);
        let reservation = self
            .ledger
            .reserve(server, &worst, max_output, &self.limits)?;
        if reservation.output < max_output {
            Arc::make_mut(&mut request.options).max_tokens = Some(reservation.output);
        }
        match self.model.complete(request).await {
            Ok(response) => {
                reservation.settle(&response.usage);
                self.reply(&response, tools)
            }
            Err(error) => {
                if !error.may_cost() {
                    reservation.release();
                }
                // The provider's message is not meant for the server.
                Err(Refusal::failed("the model request failed"))
            }
        }
    }

    fn supports_tools(&self) -> bool {
        self.tools
    }
}

/// Describes the request for the approver.
fn describe(server: &str, ask: &SampleRequest) -> Value {
    let messages: Vec<Value> = ask
        .messages
        .iter()
        .map(|message| json!({"role": message.role, "text": message.text()}))
        .collect();
    let tools: Vec<&str> = ask.tools.iter().map(|tool| tool.name.as_str()).collect();
    json!({
        "server": server,
        "system": ask.system,
        "messages": messages,
        "max_tokens": ask.max_tokens,
        "tools": tools,
    })
}

impl fmt::Debug for ModelSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = self.model.card();
        let mut debug = f.debug_struct("ModelSampler");
        debug
            .field("model", &card.id)
            .field("servers", &self.servers)
            .field("limits", &self.limits);
        debug.finish_non_exhaustive()
    }
}
