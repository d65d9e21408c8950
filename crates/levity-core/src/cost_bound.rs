use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use crate::response::json_size;
use crate::{ModelCard, Money, Price, Request, ToolSpec};

/// The most that a call of a model can take: what is reserved before the request leaves.
///
/// ```
/// # use levity_core::{Message, ModelCard, Price, Request, CostBound};
/// let card = ModelCard::new("test", "small").with_price(Price::new(1.0, 4.0)).with_max_output(1_000);
/// let worst = CostBound::of(&card, &Request::new().with_message(Message::user("Good morning")));
/// assert!(worst.input >= 12, "a token has a byte at least");
/// assert_eq!(worst.output, Some(1_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostBound {
    /// Tokens sent.
    pub input: u64,
    /// Tokens received, where there is a limit on them.
    pub output: Option<u64>,
    /// What the model costs, where known.
    pub price: Option<Price>,
    /// What tools that the provider runs itself can cost each time the request is sent.
    pub fees: Money,
    /// Something that the request asks for and whose cost nobody knows, with the way out. Where
    /// money is limited, the request is then not sent.
    pub unknown: Option<&'static str>,
    /// How often the request may be sent: once, unless a wrapper repeats it. Such a wrapper adds
    /// what its attempts took to the usage it returns; when it fails, all of them count in full.
    pub sends: u64,
}

impl CostBound {
    /// How long a reply may be whose length nobody limits, in tokens, while money or tokens are
    /// limited.
    pub const DEFAULT_OUTPUT: u64 = 8_192;
    /// The shortest reply worth a call, in tokens, unless an even shorter one is wanted.
    pub const LEAST_OUTPUT: u64 = 64;
    /// What a request is beside what is in it, in tokens.
    const REQUEST: u64 = 256;
    /// What providers add to a request that offers tools, in tokens, and to each tool.
    const TOOLS: u64 = 1_024;
    const TOOL: u64 = 64;

    /// One sending of this many tokens, of a model of which nothing else is known.
    pub const fn new(input: u64) -> Self {
        Self {
            input,
            output: None,
            price: None,
            fees: Money::ZERO,
            unknown: None,
            sends: 1,
        }
    }

    /// What a model with this card can take for `request`.
    ///
    /// A token has at least one byte of text, so each byte counts as one: of messages,
    /// instructions, tools, schemas, provider data. Something is added for each message, part and
    /// tool. An image counts as 40,000 tokens; other media as a token per byte and no less than
    /// that, or as 2,097,152 when its bytes do not tell, as in a PDF or when the provider fetches
    /// it from a URL. All together is no more than the model's window.
    pub fn of(card: &ModelCard, request: &Request) -> Self {
        let length = |bytes: usize| bytes as u64;
        let options = &request.options;
        let mut input = Self::REQUEST.saturating_add(request.history.most_tokens());
        input = input.saturating_add(
            request
                .system
                .as_ref()
                .map_or(0, |system| length(system.len())),
        );
        input = input.saturating_add(
            request
                .output
                .as_ref()
                .map_or(0, |output| length(json_size(output))),
        );
        input = input.saturating_add(length(json_size(&options.extra) + json_size(&options.stop)));
        input = input.saturating_add(tools(&request.tools));
        let output = [options.max_tokens, card.max_output]
            .into_iter()
            .flatten()
            .min();
        let input = input.min(card.window.unwrap_or(u64::MAX));
        let worst = Self {
            input,
            output,
            price: card.price,
            ..Self::new(input)
        };
        worst.with_fields(card, &options.extra)
    }

    /// Adds what fields of the provider's own ask for: tools that the provider runs itself, and
    /// being served before others.
    ///
    /// Each use of such a tool has a fee, and the model reads what came of it: up to its whole
    /// window, each time. How often it is used must be limited by the request (`max_uses`,
    /// `max_tool_calls`) or by [`Fees::most_uses`](crate::Fees::most_uses).
    #[must_use]
    pub fn with_fields(mut self, card: &ModelCard, fields: &Map<String, Value>) -> Self {
        if let Some(price) = self.price.filter(|_| hosted::is_prioritised(fields)) {
            if price.priority.is_none() {
                self.unknown =
                    Some("a tier of its own; set `priority` of its price, or leave out the field");
            }
            self.price = Some(price.prioritised());
        }
        let fees = card.price.map(|price| price.fees).unwrap_or_default();
        let mut uses = 0_u64;
        for tool in hosted::tools(fields) {
            let most = if tool.is_free {
                Some(0)
            } else {
                tool.most_uses.or(fees.most_uses)
            };
            let fee = match tool.kind {
                _ if tool.is_free => Some(Money::ZERO),
                hosted::Kind::Search => fees.search,
                hosted::Kind::Session => fees.session,
                hosted::Kind::Other => None,
            };
            match (most, fee) {
                (Some(most), Some(fee)) => {
                    uses = uses.saturating_add(most.max(1));
                    self.fees += fee.saturating_mul(most);
                }
                (None, _) => {
                    self.unknown = Some(
                        "a tool of the provider's that it may use any number of times; limit it by \
                            `max_uses` or \
                         `max_tool_calls`, or by `most_uses` in the fees of its price",
                    );
                }
                (_, None) => {
                    self.unknown =
                        Some("a tool of the provider's; set its fee in the price of the model");
                }
            }
        }
        if uses > 0 {
            let window = card.window.unwrap_or(u64::MAX);
            self.input = self
                .input
                .max(window)
                .saturating_mul(uses.saturating_add(1));
        }
        self
    }

    /// Sets how many tokens may be received.
    #[must_use]
    pub const fn with_output(mut self, tokens: u64) -> Self {
        self.output = Some(tokens);
        self
    }

    /// Sets what the model costs.
    #[must_use]
    pub const fn with_price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Sets how often the request may be sent; at least once.
    #[must_use]
    pub fn with_sends(mut self, sends: u64) -> Self {
        self.sends = sends.max(1);
        self
    }

    /// What is reserved when a reply may have `output` tokens.
    pub fn reserved(&self, output: u64) -> ReservedCost {
        let tokens = self.input.saturating_add(output).saturating_mul(self.sends);
        let once = |price: Price| price.most(self.input, output).saturating_add(self.fees);
        let cost = self
            .price
            .map(|price| once(price).saturating_mul(self.sends));
        ReservedCost { tokens, cost }
    }

    /// How many tokens a reply may have within so many tokens and so much money; `None` when not
    /// even the request fits, or money counts and nobody knows what the model costs.
    pub fn affordable(&self, tokens: Option<u64>, money: Option<Money>) -> Option<u64> {
        let sends = self.sends.max(1);
        let by_tokens = match tokens {
            Some(tokens) => (tokens / sends).checked_sub(self.input)?,
            None => u64::MAX,
        };
        let by_money = match money {
            Some(money) => {
                let once = (money.nanos() / sends).checked_sub(self.fees.nanos())?;
                self.price?.affords(self.input, Money::from_nanos(once))?
            }
            None => u64::MAX,
        };
        Some(by_tokens.min(by_money))
    }
}

fn tools(tools: &[std::sync::Arc<ToolSpec>]) -> u64 {
    if tools.is_empty() {
        return 0;
    }
    let each = tools
        .iter()
        .map(|tool| CostBound::TOOL.saturating_add(json_size(tool) as u64));
    each.fold(CostBound::TOOLS, u64::saturating_add)
}

/// What was set aside for a call of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReservedCost {
    /// Tokens to be sent and received.
    pub tokens: u64,
    /// Money, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl ReservedCost {
    /// So much.
    pub fn new(tokens: u64, cost: Option<Money>) -> Self {
        Self { tokens, cost }
    }
}

mod hosted;

#[cfg(test)]
mod tests;
