//! What a tool says of its own calls, and what policy makes of it.

use async_trait::async_trait;
use levity_core::{Permit, Tool, ToolCx};

use super::*;

/// Asks about 1, forbids 2, allows the rest.
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
            Some(1) => Permit::Ask { reason: "it is 1".into() },
            Some(2) => Permit::Deny { reason: "it is 2".into() },
            Some(3) => panic!("it is 3"),
            _ => Permit::Allow,
        }
    }
}

fn verdicts(hints: Hints, policy: Policy) -> Vec<Permit> {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let careful = Careful(spec("careful", hints).with_input(input));
    let registry = Registry::builder().tool_as("renamed", careful).build().unwrap();
    let dispatcher = Dispatcher::builder(registry).world(Clock::skipping()).policy(policy).build().unwrap();
    (0..4).map(|n| dispatcher.permit(&ToolCall::new("c", "renamed", json!({"n": n})))).collect()
}

#[test]
fn a_tool_speaks_where_no_rule_does() {
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
fn rules_come_before_what_a_tool_says() {
    assert_eq!(verdicts(Hints::new(), Policy::allow_all()), vec![Permit::Allow; 4]);
    let rule = Policy::new().rule(Rule::tool("renamed").deny("not now"));
    assert_eq!(verdicts(Hints::new(), rule), vec![Permit::deny("not now"); 4]);
}

#[test]
fn a_tool_says_how_much_its_results_show() {
    let long = |hints| {
        let tool = FnTool::ready(spec("long", hints), |_| Ok(ToolOutput::text("x".repeat(50_000))));
        call(&dispatcher(tool), "long", json!({})).text().len()
    };
    assert!(long(Hints::new()) <= 32 << 10);
    assert_eq!(long(Hints::new().max_output(100_000)), 50_000);
    assert!(long(Hints::new().max_output(1_000)) <= 1_000);
    // Too little to say what was left out.
    assert!(long(Hints::new().max_output(0)) <= 512);
}
