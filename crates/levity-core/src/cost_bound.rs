use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use crate::response::json_size;
use crate::{ModelCard, Money, Price, Request, ToolSpec};

/// An upper bound on the cost of a model call, reserved before the request is sent.
///
/// ```
/// # use levity_core::{Message, ModelCard, Price, Request, CostBound};
/// let price = Price::new(1.0, 4.0);
/// let card = ModelCard::new("test", "small").with_price(price).with_max_output(1_000);
/// let worst = CostBound::of(&card, &Request::new().with_message(Message::user("Good morning")));
/// assert!(worst.input >= 12, "a token has a byte at least");
/// assert_eq!(worst.output, Some(1_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostBound {
    /// The maximum number of tokens sent; `u64::MAX` if it is not limited.
    pub input: u64,
    /// The maximum number of tokens received, if it is limited.
    pub output: Option<u64>,
    /// The price of the model, if known.
    pub price: Option<Price>,
    /// The maximum fees of tools that the provider runs, per sending of the request.
    pub fees: Money,
    /// A part of the request whose cost is unknown, with the remedy. The request is not sent if
    /// money is limited, or if tokens are limited and `input` is not.
    pub unknown: Option<&'static str>,
    /// The maximum number of times that the request is sent: once, unless a wrapper repeats it.
    /// Such a wrapper adds the usage of all attempts to the usage it returns. If it fails, all
    /// attempts count in full.
    pub sends: u64,
}

impl CostBound {
    /// The maximum tokens of a reply without its own limit, used while money or tokens are limited.
    pub const DEFAULT_OUTPUT: u64 = 8_192;
    /// The smallest reply limit worth a call, in tokens, unless the request sets a smaller one.
    pub const LEAST_OUTPUT: u64 = 64;
    /// The overhead of a request, in tokens.
    const REQUEST: u64 = 256;
    /// The overhead in tokens that providers add to a request with tools, and to each tool.
    const TOOLS: u64 = 1_024;
    const TOOL: u64 = 64;

    /// Creates a bound for one sending of this many tokens, with everything else unknown.
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

    /// Computes the bound of `request` for a model with this card.
    ///
    /// Each byte of text counts as one token, because a token has at least one byte: in messages,
    /// instructions, tools, schemas and provider data. An overhead is added for each message, part
    /// and tool.
    ///
    /// An image counts as 40,000 tokens. Other media count as one token per byte, and at least as
    /// much as an image. They count as 2,097,152 tokens if their bytes do not determine the size,
    /// as in a PDF or a URL that the provider fetches. The total is no more than the model's
    /// window.
    pub fn of(card: &ModelCard, request: &Request) -> Self {
        let length = |bytes: usize| bytes as u64;
        let options = &request.options;
        let mut input = Self::REQUEST.saturating_add(request.history.max_tokens());
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
        input = input.saturating_add(tools_tokens(&request.tools));
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

    /// Adds the cost of provider-specific fields: tools that the provider runs and priority service
    /// tiers.
    ///
    /// Each use of such a tool has a fee, and the model reads the result, each time up to its whole
    /// window. The request must limit the number of uses (`max_uses`, `max_tool_calls`), or
    /// [`Fees::max_uses`](crate::Fees::max_uses) must; otherwise the input has no limit.
    #[must_use]
    pub fn with_fields(mut self, card: &ModelCard, fields: &Map<String, Value>) -> Self {
        if let Some(price) = self.price.filter(|_| hosted::is_prioritised(fields)) {
            if price.priority.is_none() {
                self.unknown = Some(
                    "a separate service tier; set `priority` of its price, or leave out the field",
                );
            }
            self.price = Some(price.prioritised());
        }
        let fees = card.price.map(|price| price.fees).unwrap_or_default();
        let (mut uses, mut is_unlimited) = (0_u64, false);
        for tool in hosted::tools(fields) {
            let max_uses = if tool.is_free {
                Some(0)
            } else {
                tool.most_uses.or(fees.max_uses)
            };
            let fee = match tool.kind {
                _ if tool.is_free => Some(Money::ZERO),
                hosted::Kind::Search => fees.search,
                hosted::Kind::Session => fees.session,
                hosted::Kind::Other => None,
            };
            let Some(max_uses) = max_uses else {
                is_unlimited = true;
                continue;
            };
            uses = uses.saturating_add(max_uses.max(1));
            match fee {
                Some(fee) => self.fees += fee.saturating_mul(max_uses),
                None => {
                    self.unknown = Some(
                        "a provider tool without a known fee; set its fee in the model's price",
                    );
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
        if is_unlimited {
            self.input = u64::MAX;
            self.unknown = Some(
                "a provider tool with an unlimited number of uses; limit it by `max_uses` or \
                 `max_tool_calls`, or by `max_uses` in the fees of its price",
            );
        }
        self
    }

    /// Sets the maximum number of tokens received.
    #[must_use]
    pub const fn with_output(mut self, tokens: u64) -> Self {
        self.output = Some(tokens);
        self
    }

    /// Sets the price of the model.
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

    /// Returns the cost to reserve if the reply may have `output` tokens.
    pub fn reserved(&self, output: u64) -> ReservedCost {
        let tokens = self.input.saturating_add(output).saturating_mul(self.sends);
        let once = |price: Price| price.max_cost(self.input, output).saturating_add(self.fees);
        let cost = self
            .price
            .map(|price| once(price).saturating_mul(self.sends));
        ReservedCost { tokens, cost }
    }

    /// Returns the maximum tokens of a reply within this many tokens and this much money. Returns
    /// `None` if the request alone does not fit, or if money is limited and the price is unknown.
    ///
    /// ```
    /// # use levity_core::{CostBound, Money, Price};
    /// let bound = CostBound::new(1_000).with_price(Price::new(1.0, 4.0));
    /// // 0.1 cents pay for the request, and the rest for 250 tokens of reply.
    /// assert_eq!(bound.affordable(None, Some(Money::from_dollars(0.002))), Some(250));
    /// assert_eq!(bound.affordable(Some(900), None), None); // the request alone is larger
    /// ```
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

fn tools_tokens(tools: &[std::sync::Arc<ToolSpec>]) -> u64 {
    if tools.is_empty() {
        return 0;
    }
    let each = tools
        .iter()
        .map(|tool| CostBound::TOOL.saturating_add(json_size(tool) as u64));
    each.fold(CostBound::TOOLS, u64::saturating_add)
}

/// The cost reserved for a model call.
///
/// The runtime writes it to the journal before the request leaves, so a crash during the call
/// cannot lose what the call may have cost.
///
/// ```
/// # use levity_core::{CostBound, Price};
/// let bound = CostBound::new(1_000).with_price(Price::new(1.0, 4.0)).with_sends(2);
/// let reserved = bound.reserved(250);
/// assert_eq!(reserved.tokens, 2_500);
/// assert_eq!(reserved.cost.map(|cost| cost.to_string()).as_deref(), Some("$0.004"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReservedCost {
    /// The tokens to be sent and received.
    pub tokens: u64,
    /// The money, if the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl ReservedCost {
    /// Creates a reservation of these amounts.
    pub fn new(tokens: u64, cost: Option<Money>) -> Self {
        Self { tokens, cost }
    }
}

mod hosted;

#[cfg(test)]
mod tests;
