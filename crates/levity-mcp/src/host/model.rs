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
    #[must_use]
    pub fn only(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers
            .get_or_insert_default()
            .extend(servers.into_iter().map(Into::into));
        self
    }

    /// Asks for approval of each request. The approver sees a call of `sampling` with the server's
    /// request as its arguments. A text answer goes to the server in place of the model's reply.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Allows requests with tools, which the server runs.
    #[must_use]
    pub fn allow_tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// Sets the maximum length of a reply, in tokens; 2,048 by default. A request for more is
    /// reduced to this limit.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// Sets the maximum number of requests per server; 50 by default.
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
    pub fn used(&self, server: &str) -> (u64, Money) {
        let (_, tokens, money) = self.ledger.used(server);
        (tokens, money)
    }

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
