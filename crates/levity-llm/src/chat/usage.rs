//! Token counts, under the various names that servers use.
//!
//! OpenAI, DeepSeek, OpenRouter, Groq and others put the same counts under different names. The
//! first name that is present counts.
//!
//! OpenAI nests the details, DeepSeek puts the cached tokens at the top level:
//!
//! ```json
//! {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
//! {"prompt_tokens": 90, "completion_tokens": 7, "prompt_cache_hit_tokens": 64}
//! ```

use levity_core::{Money, Usage};
use serde::de::{DeserializeSeed as _, MapAccess};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::chunk::{Fields, InPlace, ignore};
use super::number::Number;

/// The counts that a server reports for a call, field by field.
///
/// A count that no server reports stays unknown. Unknown is not zero: budgets treat it differently.
#[derive(Default)]
pub(super) struct Counts {
    /// True if any count is present.
    pub(super) any: bool,
    prompt_tokens: Number,
    input_tokens: Number,
    completion_tokens: Number,
    output_tokens: Number,
    total_tokens: Number,
    prompt: Details,
    completion: Details,
    /// Counts that other servers put into the details.
    top_level: Details,
    prompt_cache_hit_tokens: Number,
    cache_read_input_tokens: Number,
    cache_creation_input_tokens: Number,
    /// The cost in dollars as a number, or as an object with `total_cost`.
    cost: Value,
}

/// The details of the prompt or of the reply, which most servers nest.
#[derive(Default)]
struct Details {
    cached_tokens: Number,
    cache_write_tokens: Number,
    reasoning_tokens: Number,
}

impl<'de> Fields<'de> for Counts {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error> {
        self.any = true;
        match name {
            "prompt_tokens" => self.prompt_tokens = fields.next_value()?,
            "input_tokens" => self.input_tokens = fields.next_value()?,
            "completion_tokens" => self.completion_tokens = fields.next_value()?,
            "output_tokens" => self.output_tokens = fields.next_value()?,
            "total_tokens" => self.total_tokens = fields.next_value()?,
            "prompt_tokens_details" => fields.next_value_seed(InPlace(&mut self.prompt))?,
            "completion_tokens_details" => fields.next_value_seed(InPlace(&mut self.completion))?,
            "prompt_cache_hit_tokens" => self.prompt_cache_hit_tokens = fields.next_value()?,
            "cache_read_input_tokens" => self.cache_read_input_tokens = fields.next_value()?,
            "cache_creation_input_tokens" => {
                self.cache_creation_input_tokens = fields.next_value()?;
            }
            "cost" => self.cost = fields.next_value()?,
            _ => self.top_level.set(name, fields)?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Details {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error> {
        match name {
            "cached_tokens" => self.cached_tokens = fields.next_value()?,
            "cache_write_tokens" => self.cache_write_tokens = fields.next_value()?,
            "reasoning_tokens" => self.reasoning_tokens = fields.next_value()?,
            _ => ignore(fields)?,
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut counts = Self::default();
        InPlace(&mut counts).deserialize(deserializer)?;
        Ok(counts)
    }
}

impl Counts {
    /// Converts the counts to levity's form.
    ///
    /// The output of levity includes reasoning. A server that counts reasoning separately is
    /// recognised by a total that is the sum of all three.
    pub(super) fn usage(&self) -> Usage {
        let first = |numbers: &[Number]| numbers.iter().find_map(|number| number.0);
        let mut counts = Usage::default();
        counts.input = first(&[self.prompt_tokens, self.input_tokens]);
        counts.output = first(&[self.completion_tokens, self.output_tokens]);
        let (hit, read) = (self.prompt_cache_hit_tokens, self.cache_read_input_tokens);
        counts.cached = first(&[
            self.prompt.cached_tokens,
            hit,
            read,
            self.top_level.cached_tokens,
        ]);
        counts.cache_written = first(&[
            self.prompt.cache_write_tokens,
            self.cache_creation_input_tokens,
        ]);
        counts.reasoning = first(&[
            self.completion.reasoning_tokens,
            self.top_level.reasoning_tokens,
        ]);
        // Some servers count reasoning in addition to the output, which the total reveals.
        if let (Some(input), Some(output), Some(reasoning)) =
            (counts.input, counts.output, counts.reasoning)
            && reasoning > 0
            && self.total_tokens.0
                == input
                    .checked_add(output)
                    .and_then(|sum| sum.checked_add(reasoning))
        {
            counts.output = Some(output.saturating_add(reasoning));
        }
        counts.cost = self.cost();
        counts
    }

    /// Returns the cost, for servers that report it in dollars.
    ///
    /// A negative cost counts as unknown.
    fn cost(&self) -> Option<Money> {
        let dollars = self
            .cost
            .as_f64()
            .or_else(|| self.cost.get("total_cost")?.as_f64())?;
        (dollars >= 0.0).then(|| Money::from_dollars(dollars))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn count(usage: &Value) -> Usage {
        Counts::deserialize(usage)
            .map(|counts| counts.usage())
            .unwrap_or_default()
    }

    #[track_caller]
    fn check(usage: &Value, expected: [Option<u64>; 5]) {
        let counts = count(usage);
        let found = [
            counts.input,
            counts.output,
            counts.cached,
            counts.cache_written,
            counts.reasoning,
        ];
        assert_eq!(found, expected, "{usage}");
    }

    #[test]
    fn counts_are_read_under_all_known_names() {
        let details = json!({"cached_tokens": 3, "cache_write_tokens": 2});
        check(
            &json!({
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "prompt_tokens_details": details,
                "completion_tokens_details": {"reasoning_tokens": 5},
                "total_tokens": 16,
            }),
            [Some(9), Some(7), Some(3), Some(2), Some(5)],
        );
        check(
            &json!({"prompt_tokens": 9, "prompt_tokens_details": null}),
            [Some(9), None, None, None, None],
        );
        check(
            &json!({"prompt_cache_hit_tokens": 4, "prompt_tokens": 9}),
            [Some(9), None, Some(4), None, None],
        );
        check(
            &json!({"cached_tokens": 4, "reasoning_tokens": 1}),
            [None, None, Some(4), None, Some(1)],
        );
        let named = json!({
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 4,
        });
        check(&named, [Some(1), Some(2), Some(3), Some(4), None]);
        check(
            &json!({"prompt_tokens": "many", "completion_tokens": -1}),
            [None; 5],
        );
    }

    #[test]
    fn reasoning_is_part_of_output() {
        let top_level = json!({
            "prompt_tokens": 9,
            "completion_tokens": 7,
            "total_tokens": 116,
            "completion_tokens_details": {"reasoning_tokens": 100},
        });
        check(&top_level, [Some(9), Some(107), None, None, Some(100)]);
        // A total that does not reveal it, and one that overflows.
        check(
            &json!({
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "reasoning_tokens": 8,
            }),
            [Some(9), Some(7), None, None, Some(8)],
        );
        let max = u64::MAX;
        check(
            &json!({
                "prompt_tokens": max,
                "completion_tokens": max,
                "total_tokens": 1,
                "reasoning_tokens": max,
            }),
            [Some(max), Some(max), None, None, Some(max)],
        );
    }

    #[test]
    fn cost_is_read_in_dollars() {
        let cost = |value: Value| count(&json!({ "cost": value })).cost.map(Money::nanos);
        assert_eq!(cost(json!(0.0002365)), Some(236_500));
        assert_eq!(
            cost(json!({"total_cost": 0.006, "request_cost": 0.005})),
            Some(6_000_000)
        );
        assert_eq!(
            (cost(json!(null)), cost(json!("free")), cost(json!(-1))),
            (None, None, None)
        );
    }
}
