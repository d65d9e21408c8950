//! The suite for executors.
//!
//! An executor reports every failure as an outcome, because only outcomes are recorded. The suite
//! therefore adds effects that no executor can perform, under a name that none has.

use levity_core::{
    Ask, ChildRun, Effect, EffectCx, EffectId, Executor, LiveEvents, Message, ModelCall, Offer,
    Outcome, PrepareCx, Prepared, Request, RunId, ToolCall, ToolRun,
};
use serde_json::json;

use super::check::{abandon, no_panic, no_panic_sync, same};

/// Checks an [`Executor`] against its contract.
///
/// `make` returns an executor that can perform `effects`. A question among them is only asked if
/// the executor [answers](levity_core::Prepared::answered) it, and a child run is only created. The
/// suite adds unknown effects: another model slot, another tool, arguments that are not JSON,
/// another agent.
///
/// The suite checks:
/// - `execute` returns an outcome of the effect's kind, never panics, and a tool's answer has the
///   id of its call;
/// - a tool and a model that do not exist give a failure as the outcome; an agent that does not
///   exist is an error;
/// - `prepare` returns the same each time, and `inspect` does not panic;
/// - dropping `execute` and `prepare`, polled or not, is harmless.
///
/// Not checked: that `prepare` never blocks its thread, and that a dropped effect is cancelled.
///
/// # Panics
/// Panics if a promise is broken.
pub async fn executor<E: Executor>(make: impl Fn() -> E, effects: Vec<Effect>) {
    for effect in effects.into_iter().chain(unknown()) {
        let executor = make();
        no_panic_sync(|| executor.inspect(), "executor: `inspect` does not panic");
        drop(executor.prepare(&effect, &PrepareCx::new()));
        let promise = "executor: dropping a preparation is harmless";
        no_panic(
            async {
                drop(abandon(
                    executor.prepare(&effect, &PrepareCx::new()).into_future(),
                ));
            },
            promise,
        )
        .await;
        let mut prepared = Prepared::default();
        for cx in [PrepareCx::new(), PrepareCx::new().with_cost(true)] {
            let prepare = async || {
                let prepare = async { executor.prepare(&effect, &cx).await };
                no_panic(prepare, "executor: `prepare` does not panic").await
            };
            prepared = prepare().await;
            same(
                &prepared,
                &prepare().await,
                "executor: `prepare` gives the same each time",
            );
        }
        match &effect {
            Effect::Child(child) => check_child(&executor, child).await,
            Effect::Ask(_) if !prepared.answered => {}
            _ => check_effect(&executor, &make(), effect).await,
        }
    }
    let nobody = ChildRun::new("no_such_agent", json!({}));
    let nobody = no_panic(async { make().child(&nobody, None).await }, CHILD).await;
    assert!(
        nobody.is_err(),
        "executor: an agent that does not exist is an error"
    );
}

const CHILD: &str = "executor: `child` does not panic";

async fn check_child(executor: &impl Executor, child: &ChildRun) {
    let made = no_panic(executor.child(child, None), CHILD).await;
    if let Ok(made) = made {
        assert!(
            made.machine.ending().is_none(),
            "executor: a child's machine has not ended before it began"
        );
    }
}

async fn check_effect(executor: &impl Executor, other: &impl Executor, effect: Effect) {
    drop(other.execute(effect.clone(), cx()));
    let promise = "executor: dropping an effect is harmless";
    no_panic(
        async { drop(abandon(other.execute(effect.clone(), cx()))) },
        promise,
    )
    .await;

    let outcome = no_panic(
        executor.execute(effect.clone(), cx()),
        "executor: failures are outcomes",
    )
    .await;
    let fits = match (&effect, &outcome) {
        (_, Outcome::Refused(_) | Outcome::Unknown) => false,
        (Effect::Model(call), Outcome::Model(reply)) => &*call.slot != NOBODY || reply.is_err(),
        (Effect::Tool(run), Outcome::Tool(result)) => {
            let promise = "executor: a tool's answer bears the id of its call";
            same(&result.call, &run.call.id, promise);
            let must_fail = run.call.name == NOBODY || run.call.raw.is_some();
            !must_fail || result.is_error()
        }
        (Effect::Tool(run), Outcome::NeedsApproval { .. }) => !run.approved,
        (Effect::Ask(_), Outcome::Decision(_)) => true,
        _ => false,
    };
    let promise = "executor: `execute` gives an outcome of the effect's kind, and a failure for \
        what is unknown";
    assert!(fits, "{promise}\nfound: {outcome:?}\n  for: {effect:?}");
}

const NOBODY: &str = "no_such_name";

fn unknown() -> Vec<Effect> {
    let request = || Request::new().with_message(Message::user("What is 2 + 5?"));
    let call = ToolCall::new("c1", NOBODY, json!({}));
    let broken = ToolCall::from_text("c2", NOBODY, "{broken");
    let question = Ask::new(RunId::new("r1"), EffectId::new(1), call.clone(), "why not");
    vec![
        Effect::Model(ModelCall::new(NOBODY, request(), Offer::None)),
        Effect::Tool(ToolRun::new(call.clone())),
        Effect::Tool(ToolRun::approved(call)),
        Effect::Tool(ToolRun::approved(broken)),
        Effect::Ask(question),
    ]
}

fn cx() -> EffectCx {
    EffectCx::new(RunId::new("r1"), EffectId::new(1), LiveEvents::default())
}
