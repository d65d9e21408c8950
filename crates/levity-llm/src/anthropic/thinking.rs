//! The maximum length of a reply, and the part of it for thinking.
//!
//! The API counts thoughts toward the maximum reply length and rejects a budget that is not below
//! it. Both numbers are therefore decided together.

use levity_core::ThinkingMode;
use serde_json::{Value, json};

use super::generation::Generation;

/// The minimum number of thinking tokens that the API accepts.
const MIN_TOKENS: u64 = 1_024;

/// The thinking settings of a request.
#[derive(Debug, PartialEq)]
pub(super) struct ThinkingPlan {
    /// The maximum reply length, which includes the thoughts.
    pub(super) max_tokens: u64,
    /// The field `thinking`, or `None` to omit it.
    pub(super) thinking: Option<Value>,
    /// The effort of models that decide themselves how much to think.
    pub(super) effort: Option<&'static str>,
}

/// Combines thinking with the maximum reply length. `wanted` is the length that the request sets,
/// `longest` the model's limit, and `fixed` a thinking budget that the user sets outside the
/// options.
///
/// Example: `High` for Claude 4.5 without a length yields a budget of 24,576 tokens and a length of
/// 8,192 + 24,576 tokens.
pub(super) fn plan(
    mode: Option<ThinkingMode>,
    generation: Generation,
    wanted: Option<u64>,
    longest: Option<u64>,
    fixed: Option<u64>,
) -> ThinkingPlan {
    let adaptive = generation.is_adaptive();
    // Models that cannot think reject the parameter.
    let budget = mode
        .filter(|_| !adaptive && fixed.is_none() && generation.may_think())
        .and_then(tokens);
    // The length includes thoughts, so without an explicit length they are added to the default.
    let default_length = || {
        generation
            .max_tokens()
            .saturating_add(fixed.or(budget).unwrap_or(0))
    };
    let max_tokens = wanted.or(longest).unwrap_or_else(default_length);
    let mut plan = ThinkingPlan {
        max_tokens,
        thinking: None,
        effort: None,
    };
    match mode {
        None => {}
        Some(mode) if is_off(mode) => {
            plan.thinking = generation.may_think().then(|| json!({"type": "disabled"}));
        }
        Some(mode) if adaptive => {
            // Later models hide their thoughts unless the request asks for them.
            plan.thinking = Some(json!({"type": "adaptive", "display": "summarized"}));
            plan.effort = effort(mode);
        }
        Some(_) => {
            let tokens = budget.and_then(|budget| below(budget, max_tokens));
            plan.thinking =
                tokens.map(|tokens| json!({"type": "enabled", "budget_tokens": tokens}));
        }
    }
    plan
}

/// Returns `true` for modes that disable thinking; a budget of zero is one of them.
pub(super) fn is_off(mode: ThinkingMode) -> bool {
    matches!(mode, ThinkingMode::Off | ThinkingMode::Budget(0))
}

/// Returns the token budget of a mode, at least the minimum of the API.
fn tokens(mode: ThinkingMode) -> Option<u64> {
    match mode {
        ThinkingMode::Low => Some(2_048),
        ThinkingMode::High => Some(24_576),
        ThinkingMode::Budget(tokens) => Some(tokens.max(MIN_TOKENS)),
        ThinkingMode::Off => None,
        _ => Some(8_192),
    }
}

/// Returns the effort of a mode; `None` leaves the choice to the model.
fn effort(mode: ThinkingMode) -> Option<&'static str> {
    match mode {
        ThinkingMode::Low | ThinkingMode::Budget(..4_096) => Some("low"),
        ThinkingMode::Medium | ThinkingMode::Budget(..16_384) => Some("medium"),
        ThinkingMode::High | ThinkingMode::Budget(_) => Some("high"),
        _ => None,
    }
}

/// Returns a budget below the maximum reply length that leaves room for an answer.
///
/// A budget that is too large becomes three quarters of the length, but not less than 1,024 tokens.
/// Returns `None` if even that does not fit.
fn below(budget: u64, max_tokens: u64) -> Option<u64> {
    if budget < max_tokens {
        return Some(budget);
    }
    let lowered = (max_tokens - max_tokens / 4).max(MIN_TOKENS);
    (lowered < max_tokens).then_some(lowered)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks thinking tokens and the maximum reply length of a model with a token budget.
    #[track_caller]
    fn check(
        mode: ThinkingMode,
        wanted: Option<u64>,
        longest: Option<u64>,
        expected: (Option<u64>, u64),
    ) {
        let plan = plan(Some(mode), Generation(4, 5), wanted, longest, None);
        let tokens = plan
            .thinking
            .and_then(|thinking| thinking["budget_tokens"].as_u64());
        assert_eq!((tokens, plan.max_tokens), expected, "{mode:?}");
    }

    #[test]
    fn thinking_budget_stays_below_reply_length() {
        check(ThinkingMode::Low, None, None, (Some(2_048), 10_240));
        check(
            ThinkingMode::Auto,
            None,
            Some(64_000),
            (Some(8_192), 64_000),
        );
        check(ThinkingMode::Budget(10), None, None, (Some(1_024), 9_216));
        check(
            ThinkingMode::Budget(4_000),
            Some(4_001),
            None,
            (Some(4_000), 4_001),
        );
        check(ThinkingMode::High, Some(4_000), None, (Some(3_000), 4_000));
        check(ThinkingMode::High, Some(1_100), None, (Some(1_024), 1_100));
        check(ThinkingMode::High, Some(1_024), None, (None, 1_024));
        check(
            ThinkingMode::Budget(u64::MAX),
            Some(u64::MAX),
            None,
            (Some(u64::MAX - u64::MAX / 4), u64::MAX),
        );
        check(
            ThinkingMode::Budget(u64::MAX),
            None,
            None,
            (Some(u64::MAX - u64::MAX / 4), u64::MAX),
        );
    }

    #[test]
    fn model_that_cannot_think_receives_no_budget() {
        let plan = plan(Some(ThinkingMode::High), Generation(3, 5), None, None, None);
        assert!(plan.thinking.is_none());
    }

    #[test]
    fn later_models_receive_effort() {
        let ask = |mode| plan(Some(mode), Generation(4, 6), None, None, None);
        let modes = [
            (ThinkingMode::Auto, None),
            (ThinkingMode::Low, Some("low")),
            (ThinkingMode::Budget(4_096), Some("medium")),
            (ThinkingMode::Budget(16_384), Some("high")),
        ];
        for (mode, effort) in modes {
            let plan = ask(mode);
            let thinking = Some(json!({"type": "adaptive", "display": "summarized"}));
            assert_eq!(
                plan,
                ThinkingPlan {
                    max_tokens: 8_192,
                    thinking,
                    effort
                },
                "{mode:?}"
            );
        }
        assert_eq!(
            ask(ThinkingMode::Budget(0)).thinking,
            Some(json!({"type": "disabled"}))
        );
        assert_eq!(
            plan(Some(ThinkingMode::Off), Generation(3, 5), None, None, None).thinking,
            None
        );
    }

    #[test]
    fn user_budget_outside_options_extends_reply_length() {
        let plan = plan(None, Generation(3, 7), None, None, Some(5_000));
        assert_eq!((plan.max_tokens, plan.thinking), (13_192, None));
    }
}
