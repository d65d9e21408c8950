//! Tests that the machine keeps the contract of every machine, with all kinds of inputs.

use std::sync::Arc;

use levity_test::conformance::{machine, machine_damaged, machine_restored};
use serde_json::json;

use super::driver::start;
use super::generated_plan::{PlanShape, generate_plan};
use super::rules;
use super::seeded_outcomes::SeededRng;
use crate::machine::{GraphMachine, Rules, Settings, Start};

async fn check(rules: &Arc<Rules>, start: &Start) {
    let make = || GraphMachine::new(rules.clone(), start.clone());
    machine(make).await;
    machine_restored(make, |state| {
        GraphMachine::restore(rules.clone(), &state).unwrap()
    })
    .await;
    machine_damaged(make, |state| GraphMachine::restore(rules.clone(), state)).await;
}

#[tokio::test]
async fn machine_with_plan_passes_conformance_suite() {
    for (seed, planner, approve) in [(0, false, false), (1, true, false), (2, true, true)] {
        let generated = generate_plan(
            &mut SeededRng(seed),
            PlanShape {
                steps: 6,
                early: true,
            },
        );
        let settings = Settings {
            approve,
            parallel: 3,
            ..Settings::default()
        };
        check(&rules(planner), &start(&generated, settings)).await;
    }
}

#[tokio::test]
async fn machine_without_plan_passes_conformance_suite() {
    let files = serde_json::from_value(json!([])).ok();
    let start = Start {
        goal: "Go.".to_owned(),
        files,
        ..Start::default()
    };
    check(&rules(true), &start).await;
    check(&rules(false), &start).await;
}
