use serde::{Deserialize, Serialize};

use crate::response::json_size;
use crate::{ModelCard, Money, Price, Request, ToolSpec};

/// The most that a call of a model can take: what is reserved before the request leaves.
///
/// ```
/// # use levity_core::{Message, ModelCard, Price, Request, Worst};
/// let card = ModelCard::new("test", "small").with_price(Price::new(1.0, 4.0)).with_max_output(1_000);
/// let worst = Worst::of(&card, &Request::new().with_message(Message::user("Good morning")));
/// assert!(worst.input >= 12, "a token has a byte at least");
/// assert_eq!(worst.output, Some(1_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worst {
    /// Tokens sent.
    pub input: u64,
    /// Tokens received, where there is a limit on them.
    pub output: Option<u64>,
    /// What the model costs, where known.
    pub price: Option<Price>,
    /// How often the request may be sent: once, unless a wrapper repeats it. Such a wrapper adds what its
    /// attempts took to the usage it returns; when it fails, all of them count in full.
    pub sends: u64,
}

impl Worst {
    /// How long a reply may be whose length nobody limits, in tokens, while money or tokens are limited.
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
        Self { input, output: None, price: None, sends: 1 }
    }

    /// What a model with this card can take for `request`.
    ///
    /// A token has at least one byte of text, so each byte counts as one: of messages, instructions, tools,
    /// schemas, provider data. Something is added for each message, part and tool. An image counts as 40,000
    /// tokens; other media as a token per byte and no less than that, or as 2,097,152 when its bytes do not
    /// tell, as in a PDF or when the provider fetches it from a URL. All together is no more than the model's window.
    pub fn of(card: &ModelCard, request: &Request) -> Self {
        let length = |bytes: usize| bytes as u64;
        let options = &request.options;
        let mut input = Self::REQUEST.saturating_add(request.history.most_tokens());
        input = input.saturating_add(request.system.as_ref().map_or(0, |system| length(system.len())));
        input = input.saturating_add(request.output.as_ref().map_or(0, |output| length(json_size(output))));
        input = input.saturating_add(length(json_size(&options.extra) + json_size(&options.stop)));
        input = input.saturating_add(tools(&request.tools));
        let output = [options.max_tokens, card.max_output].into_iter().flatten().min();
        let input = input.min(card.window.unwrap_or(u64::MAX));
        Self { input, output, price: card.price, ..Self::new(input) }
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
    pub fn reserved(&self, output: u64) -> Reserved {
        let tokens = self.input.saturating_add(output).saturating_mul(self.sends);
        let cost = self.price.map(|price| price.most(self.input, output).saturating_mul(self.sends));
        Reserved { tokens, cost }
    }

    /// How many tokens a reply may have within so many tokens and so much money; `None` when not even the
    /// request fits, or money counts and nobody knows what the model costs.
    pub fn affordable(&self, tokens: Option<u64>, money: Option<Money>) -> Option<u64> {
        let sends = self.sends.max(1);
        let by_tokens = match tokens {
            Some(tokens) => (tokens / sends).checked_sub(self.input)?,
            None => u64::MAX,
        };
        let by_money = match money {
            Some(money) => self.price?.affords(self.input, Money::from_nanos(money.nanos() / sends))?,
            None => u64::MAX,
        };
        Some(by_tokens.min(by_money))
    }
}

fn tools(tools: &[std::sync::Arc<ToolSpec>]) -> u64 {
    if tools.is_empty() {
        return 0;
    }
    let each = tools.iter().map(|tool| Worst::TOOL.saturating_add(json_size(tool) as u64));
    each.fold(Worst::TOOLS, u64::saturating_add)
}

/// What was set aside for a call of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reserved {
    /// Tokens to be sent and received.
    pub tokens: u64,
    /// Money, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl Reserved {
    /// So much.
    pub fn new(tokens: u64, cost: Option<Money>) -> Self {
        Self { tokens, cost }
    }
}

#[cfg(test)]
mod tests;
