//! The promises that every machine makes, under inputs of all kinds.

use std::sync::Arc;

use levity_test::conformance::{machine, machine_damaged, machine_restored};
use serde_json::json;

use super::driver::start;
use super::fate::Dice;
use super::made::{Taste, made};
use super::rules;
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
async fn it_keeps_what_machines_promise() {
    for (seed, planner, approve) in [(0, false, false), (1, true, false), (2, true, true)] {
        let made = made(
            &mut Dice(seed),
            Taste {
                steps: 6,
                early: true,
            },
        );
        let settings = Settings {
            approve,
            parallel: 3,
            ..Settings::default()
        };
        check(&rules(planner), &start(&made, settings)).await;
    }
}

#[tokio::test]
async fn so_it_does_without_a_plan() {
    let files = serde_json::from_value(json!([])).ok();
    let start = Start {
        goal: "Go.".to_owned(),
        files,
        ..Start::default()
    };
    check(&rules(true), &start).await;
    check(&rules(false), &start).await;
}
