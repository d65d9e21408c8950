//! Permits of tools, and their combination with a policy.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Permit, Tool, ToolCx};

use super::*;

/// A tool that asks approval for 1, denies 2, and allows the rest.
struct Careful(ToolSpec);

#[async_trait]
impl Tool for Careful {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("done"))
    }

    fn permit(&self, args: &Value) -> Permit {
        match args["n"].as_u64() {
            Some(1) => Permit::Ask {
                reason: "it is 1".into(),
            },
            Some(2) => Permit::Deny {
                reason: "it is 2".into(),
            },
            Some(3) => panic!("it is 3"),
            _ => Permit::Allow,
        }
    }
}

fn verdicts(hints: Hints, policy: Policy) -> Vec<Permit> {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let careful = Careful(spec("careful", hints).with_input(input));
    let registry = Registry::builder()
        .tool_as("renamed", careful)
        .build()
        .unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::skipping())
        .policy(policy)
        .build()
        .unwrap();
    (0..4)
        .map(|n| permit(&dispatcher, &ToolCall::new("c", "renamed", json!({"n": n}))))
        .collect()
}

#[test]
fn tool_permit_applies_without_matching_rule() {
    let own = [
        Permit::Allow,
        Permit::ask("it is 1"),
        Permit::deny("it is 2"),
        Permit::deny("the policy panicked on this call"),
    ];
    assert_eq!(verdicts(Hints::new(), Policy::new()), own);
    let [_, rest @ ..] = own;
    let destructive = verdicts(Hints::new().destructive(), Policy::new());
    assert_eq!(destructive[0], Permit::ask("it may destroy something"));
    assert_eq!(destructive[1..], rest);
}

#[test]
fn rules_take_precedence_over_tool_permit() {
    assert_eq!(
        verdicts(Hints::new(), Policy::allow_all()),
        vec![Permit::Allow; 4]
    );
    let rule = Policy::new().rule(Rule::tool("renamed").deny("not now"));
    assert_eq!(
        verdicts(Hints::new(), rule),
        vec![Permit::deny("not now"); 4]
    );
}

#[test]
fn tool_hint_limits_shown_output() {
    let long = |hints| {
        let tool = FnTool::ready(spec("long", hints), |_| {
            Ok(ToolOutput::text("x".repeat(50_000)))
        });
        call(&dispatcher(tool), "long", json!({})).text().len()
    };
    assert!(long(Hints::new()) <= 32 << 10);
    assert_eq!(long(Hints::new().max_output(100_000)), 50_000);
    assert!(long(Hints::new().max_output(1_000)) <= 1_000);
    // This is too little to describe the omitted part.
    assert!(long(Hints::new().max_output(0)) <= 512);
}

/// A tool that blocks its thread for a decision until another task of the program has sent it
/// something.
struct Slow(ToolSpec, Mutex<Receiver<()>>);

impl Slow {
    fn decide(&self) -> Permit {
        // It takes this long only if no other task runs on the thread.
        match self.1.lock().unwrap().recv_timeout(Duration::from_secs(20)) {
            Ok(()) => Permit::Allow,
            Err(_) => Permit::deny("the thread was held"),
        }
    }
}

#[async_trait]
impl Tool for Slow {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("done"))
    }

    fn permit(&self, _: &Value) -> Permit {
        self.decide()
    }

    fn permit_blocks(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "current_thread")]
async fn blocking_tool_permit_does_not_block_other_tasks() {
    let (send, receive) = channel();
    let slow = Slow(spec("slow", Hints::new()), Mutex::new(receive));
    let registry = Registry::builder()
        .tool_as("renamed", slow)
        .build()
        .unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Arc::new(Clock::skipping()))
        .build()
        .unwrap();
    let call = ToolCall::new("c", "renamed", json!({}));
    let (permit, ()) = tokio::join!(dispatcher.permit(&call).into_future(), async {
        send.send(()).unwrap();
    });
    assert_eq!(permit, Permit::Allow);
    let (dispatched, ()) = tokio::join!(dispatcher.dispatch(&call, false, cx()), async {
        send.send(()).unwrap();
    });
    assert!(matches!(dispatched, Dispatched::Done(result) if result.text() == "done"));
}

#[tokio::test(flavor = "current_thread")]
async fn blocking_rule_does_not_block_other_tasks() {
    let (send, receive) = channel();
    let slow = Slow(spec("slow", Hints::new()), Mutex::new(receive));
    let rule = Rule::tool("weather")
        .when_blocking(move |_, _| slow.decide() == Permit::Allow)
        .deny("no");
    let registry = Registry::builder().tool(weather()).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Arc::new(Clock::skipping()))
        .policy(Policy::new().rule(rule))
        .build()
        .unwrap();
    let call = ToolCall::new("c", "weather", json!({"city": "Rome"}));
    let (permit, ()) = tokio::join!(dispatcher.permit(&call).into_future(), async {
        send.send(()).unwrap();
    });
    assert_eq!(permit, Permit::deny("no"));
}

#[tokio::test(flavor = "current_thread")]
async fn panicking_blocking_permit_denies() {
    let rule = Rule::any().when_blocking(|_, _| panic!("no idea")).allow();
    let registry = Registry::builder().tool(weather()).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Arc::new(Clock::skipping()))
        .policy(Policy::new().rule(rule))
        .build()
        .unwrap();
    let call = ToolCall::new("c", "weather", json!({"city": "Rome"}));
    assert_eq!(
        dispatcher.permit(&call).await,
        Permit::deny("the policy panicked on this call")
    );
}
