//! Token counts, under the names that servers have for them.

use levity_core::{Money, Usage};
use serde_json::Value;

/// What a server says that a call took.
pub(super) fn count(usage: &Value) -> Usage {
    let number = |paths: &[&str]| paths.iter().find_map(|path| usage.pointer(path)?.as_u64());
    let mut counts = Usage::default();
    counts.input = number(&["/prompt_tokens", "/input_tokens"]);
    counts.output = number(&["/completion_tokens", "/output_tokens"]);
    counts.cached = number(&[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cache_read_input_tokens",
        "/cached_tokens",
    ]);
    counts.cache_written =
        number(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]);
    counts.reasoning = number(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    // Some count reasoning beside the output; the total tells.
    if let (Some(input), Some(output), Some(reasoning)) = (counts.input, counts.output, counts.reasoning)
        && reasoning > 0
        && number(&["/total_tokens"]) == input.checked_add(output).and_then(|sum| sum.checked_add(reasoning))
    {
        counts.output = Some(output + reasoning);
    }
    counts.cost = cost(usage);
    counts
}

/// The money, of servers that say it in dollars.
fn cost(usage: &Value) -> Option<Money> {
    let cost = usage.get("cost")?;
    let dollars = cost.as_f64().or_else(|| cost.get("total_cost")?.as_f64())?;
    (dollars >= 0.0).then(|| Money::from_dollars(dollars))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(usage: &Value, expected: [Option<u64>; 5]) {
        let counts = count(usage);
        let found = [counts.input, counts.output, counts.cached, counts.cache_written, counts.reasoning];
        assert_eq!(found, expected, "{usage}");
    }

    #[test]
    fn counts_have_many_names() {
        let details = json!({"cached_tokens": 3, "cache_write_tokens": 2});
        check(
            &json!({"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": details, "completion_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 16}),
            [Some(9), Some(7), Some(3), Some(2), Some(5)],
        );
        check(&json!({"prompt_tokens": 9, "prompt_tokens_details": null}), [Some(9), None, None, None, None]);
        check(
            &json!({"prompt_cache_hit_tokens": 4, "prompt_tokens": 9}),
            [Some(9), None, Some(4), None, None],
        );
        check(&json!({"cached_tokens": 4, "reasoning_tokens": 1}), [None, None, Some(4), None, Some(1)]);
        let named = json!({"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4});
        check(&named, [Some(1), Some(2), Some(3), Some(4), None]);
        check(&json!({"prompt_tokens": "many", "completion_tokens": -1}), [None; 5]);
    }

    #[test]
    fn reasoning_is_a_part_of_the_output() {
        let beside = json!({"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 116, "completion_tokens_details": {"reasoning_tokens": 100}});
        check(&beside, [Some(9), Some(107), None, None, Some(100)]);
        // A total that does not tell, and one that overflows.
        check(
            &json!({"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16, "reasoning_tokens": 8}),
            [Some(9), Some(7), None, None, Some(8)],
        );
        let most = u64::MAX;
        check(
            &json!({"prompt_tokens": most, "completion_tokens": most, "total_tokens": 1, "reasoning_tokens": most}),
            [Some(most), Some(most), None, None, Some(most)],
        );
    }

    #[test]
    fn money_is_told_in_dollars() {
        let cost = |value: Value| count(&json!({ "cost": value })).cost.map(Money::nanos);
        assert_eq!(cost(json!(0.0002365)), Some(236_500));
        assert_eq!(cost(json!({"total_cost": 0.006, "request_cost": 0.005})), Some(6_000_000));
        assert_eq!((cost(json!(null)), cost(json!("free")), cost(json!(-1))), (None, None, None));
    }
}
