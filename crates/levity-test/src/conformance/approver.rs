//! The suite for approvers.
//!
//! Futures are polled up to 100,000 times without waiting for a wake-up. So an approver that never
//! answers fails the test instead of blocking it.

use levity_core::{Approver, Ask, Decision, EffectId, RunId, ToolCall};
use serde_json::{Value, json};

use super::check::{abandon, no_panic, poll_until_ready, same};

/// Checks an [`Approver`] against its contract.
///
/// `make` returns an approver that answers automatically, within moments; replace the person of an
/// interactive one with a stub.
///
/// The suite checks:
/// - every question is answered, whatever the call, and none makes it panic;
/// - a pending question does not block others;
/// - dropping a question withdraws it, and the next is answered;
/// - new arguments are an object, since nothing else can be a tool's arguments.
///
/// ```
/// use levity_core::{Ask, Decision};
/// use levity_test::conformance;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// fn cautious(ask: &Ask) -> Decision {
///     match ask.call.name.as_str() {
///         "read" => Decision::Allow,
///         _ => Decision::deny("only reading is allowed"),
///     }
/// }
/// conformance::approver(|| cautious).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn approver<A: Approver>(make: impl Fn() -> A) {
    let approver = make();
    for (n, args) in (1..).zip([json!({}), json!({"path": "/"}), json!(null), json!("junk")]) {
        let decision = decide(&approver, &ask(n, args)).await;
        check_decision(&decision);
    }

    let (first, second) = (ask(1, json!({"a": 1})), ask(2, json!({"a": 2})));
    let mut waiting = approver.decide(&first);
    let early = abandon(&mut waiting);
    let promise = "approver: a pending question does not block others";
    check_decision(&poll_until_ready(approver.decide(&second), promise).await);
    let late = if early.is_some() {
        early
    } else {
        Some(waiting.await)
    };
    late.iter().for_each(check_decision);

    let promise = "approver: dropping a question withdraws it";
    let fresh = make();
    no_panic(async { drop(abandon(fresh.decide(&first))) }, promise).await;
    drop(fresh.decide(&first));
    check_decision(&poll_until_ready(fresh.decide(&second), promise).await);
}

async fn decide(approver: &impl Approver, ask: &Ask) -> Decision {
    let promise = "approver: every question is answered";
    poll_until_ready(no_panic(approver.decide(ask), promise), promise).await
}

fn ask(n: u64, args: Value) -> Ask {
    let call = ToolCall::new(format!("c{n}"), "delete", args);
    Ask::new(
        RunId::new("r1"),
        EffectId::new(n),
        call,
        "it may destroy something",
    )
}

fn check_decision(decision: &Decision) {
    if let Decision::Edit { args } = decision {
        same(
            &args.is_object(),
            &true,
            "approver: new arguments are an object",
        );
    }
}
