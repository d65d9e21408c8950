use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, CallId, Decision, EffectId, History, Model, Money, Options, Part, Price,
    Request, Response, RunId, ToolCall,
};
use serde_json::{Value, json};

use super::budget::{Allowance, Ledger};
use super::{Refusal, SampleAsk, SampleReply, Sampler};

/// Lends a model to servers, within limits.
///
/// A server sees the replies to its own requests and nothing else: nothing of the agent's
/// instructions, conversation or tools goes to the model. What each server may use is counted as
/// long as the sampler lives, and the most that a request can take is set aside before it is sent.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::Money;
/// use levity_mcp::{ModelSampler, SampleAsk, Sampler};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_mcp::Refusal> {
/// let model = Arc::new(ScriptedModel::new().reply("Two files about birds."));
/// let sampler = ModelSampler::new(model).only(["files"]).max_requests(5);
/// let reply = sampler.sample("files", SampleAsk::new("Sum this up: ..", 200)).await?;
/// assert_eq!(reply.parts[0], "Two files about birds.".into());
/// assert!(sampler.sample("other", SampleAsk::new("Hello", 200)).await.is_err());
/// # Ok(())
/// # }
/// ```
pub struct ModelSampler {
    model: Arc<dyn Model>,
    servers: Option<Vec<String>>,
    approver: Option<Arc<dyn Approver>>,
    tools: bool,
    max_tokens: u64,
    most: Allowance,
    assumed_price: Option<Price>,
    ledger: Ledger,
}

impl ModelSampler {
    /// The longest reply, in tokens, unless set.
    pub const DEFAULT_MAX_TOKENS: u64 = 2_048;
    /// How many requests a server may make, unless set.
    pub const DEFAULT_REQUESTS: u64 = 50;
    /// How many tokens a server may use, unless set.
    pub const DEFAULT_TOTAL_TOKENS: u64 = 200_000;

    /// Lends this model to every server that asks.
    pub fn new(model: Arc<dyn Model>) -> Self {
        let most = Allowance {
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
            most,
            assumed_price: None,
            ledger: Ledger::default(),
        }
    }

    /// Lends it to these servers alone.
    #[must_use]
    pub fn only(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers
            .get_or_insert_default()
            .extend(servers.into_iter().map(Into::into));
        self
    }

    /// Asks before each request. The question is a call of `sampling` whose arguments are what the
    /// server asks. An answer in words goes to the server in place of the model's reply.
    #[must_use]
    pub fn ask(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Lets requests bring tools, which the server runs.
    #[must_use]
    pub fn allow_tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// The longest reply, in tokens; 2,048 by default. Who asks for more gets that many.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// How many requests each server may make; 50 by default.
    #[must_use]
    pub fn max_requests(mut self, requests: u64) -> Self {
        self.most.requests = requests;
        self
    }

    /// How many tokens each server may use, sent and received; 200,000 by default.
    #[must_use]
    pub fn max_total_tokens(mut self, tokens: u64) -> Self {
        self.most.tokens = tokens;
        self
    }

    /// How much each server may cost; not limited by default. A model whose card has no price is
    /// not called then, unless one is [assumed](Self::assumed_price).
    #[must_use]
    pub fn max_money(mut self, money: Money) -> Self {
        self.most.money = Some(money);
        self
    }

    /// What the model is taken to cost if its card does not say.
    #[must_use]
    pub fn assumed_price(mut self, price: Price) -> Self {
        self.assumed_price = Some(price);
        self
    }

    /// How many tokens a server has used, and what they cost as far as that is known; what is under
    /// way counts in full.
    pub fn used(&self, server: &str) -> (u64, Money) {
        let (_, tokens, money) = self.ledger.used(server);
        (tokens, money)
    }

    fn admit(&self, server: &str, ask: &SampleAsk) -> Result<(), Refusal> {
        let named = |servers: &Vec<String>| servers.iter().any(|known| known == server);
        if !self.servers.as_ref().is_none_or(named) {
            return Err(Refusal::denied("no model is lent to this server"));
        }
        if !ask.tools.is_empty() && !self.tools {
            return Err(Refusal::denied("requests with tools are not served"));
        }
        if ask.max_tokens == 0 {
            return Err(Refusal::bad("`maxTokens` must be more than 0"));
        }
        let media = ask.messages.iter().flat_map(|message| &message.parts);
        if !self.model.card().abilities.images
            && media.into_iter().any(|part| matches!(part, Part::Media(_)))
        {
            return Err(Refusal::bad("the model takes text only"));
        }
        Ok(())
    }

    /// Asks whoever is to be asked: what they say in place of the model, if they do.
    async fn approved(&self, server: &str, ask: &SampleAsk) -> Result<Option<String>, Refusal> {
        let Some(approver) = &self.approver else {
            return Ok(None);
        };
        let call = ToolCall::new(CallId::from("sampling"), "sampling", shown(server, ask));
        let reason = format!("MCP server `{server}` asks for a reply of the model");
        let question = Ask::new(RunId::from("mcp"), EffectId::new(0), call, reason);
        match approver.decide(&question).await {
            Decision::Allow => Ok(None),
            Decision::Answer { text } => Ok(Some(text)),
            _ => Err(Refusal::denied("the request was turned down")),
        }
    }

    fn request(ask: SampleAsk, max_tokens: u64) -> Result<Request, Refusal> {
        let history = History::renamed(ask.messages);
        let history =
            history.map_err(|_| Refusal::bad("calls of tools and their results do not match"))?;
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
        let wanted = |part: &&Part| match part {
            Part::Text(_) => true,
            Part::ToolCall(_) => tools,
            _ => false,
        };
        let parts: Vec<Part> = response
            .message
            .parts
            .iter()
            .filter(wanted)
            .cloned()
            .collect();
        if parts.is_empty() {
            return Err(Refusal::failed("the model had nothing to say"));
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
    async fn sample(&self, server: &str, ask: SampleAsk) -> Result<SampleReply, Refusal> {
        self.admit(server, &ask)?;
        if let Some(text) = self.approved(server, &ask).await? {
            return Ok(SampleReply::text("person", text));
        }
        let wanted = ask
            .max_tokens
            .min(self.max_tokens)
            .min(self.model.card().max_output.unwrap_or(u64::MAX));
        let tools = !ask.tools.is_empty();
        let mut request = Self::request(ask, wanted)?;
        let mut worst = self.model.cost_bound(&request);
        worst.price = worst.price.or(self.assumed_price);
        let held = self.ledger.hold(server, &worst, wanted, &self.most)?;
        if held.output < wanted {
            Arc::make_mut(&mut request.options).max_tokens = Some(held.output);
        }
        match self.model.complete(request).await {
            Ok(response) => {
                held.settle(&response.usage);
                self.reply(&response, tools)
            }
            Err(error) => {
                if !error.may_cost() {
                    held.release();
                }
                // What the provider says is not for the server.
                Err(Refusal::failed("the model gave no reply"))
            }
        }
    }

    fn takes_tools(&self) -> bool {
        self.tools
    }
}

/// What is asked, for whoever decides.
fn shown(server: &str, ask: &SampleAsk) -> Value {
    let messages: Vec<Value> = ask
        .messages
        .iter()
        .map(|message| json!({"role": message.role, "text": message.text()}))
        .collect();
    let tools: Vec<&str> = ask.tools.iter().map(|tool| tool.name.as_str()).collect();
    json!({"server": server, "system": ask.system, "messages": messages, "max_tokens": ask.max_tokens, "tools": tools})
}

impl fmt::Debug for ModelSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = self.model.card();
        let mut debug = f.debug_struct("ModelSampler");
        debug
            .field("model", &card.id)
            .field("servers", &self.servers)
            .field("most", &self.most);
        debug.finish_non_exhaustive()
    }
}
