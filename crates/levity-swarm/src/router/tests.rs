//! Tests of routers and workers of all kinds with all kinds of events.

use levity_test::conformance::{machine, machine_damaged, machine_restored};

use self::scenario::{Setting, swarm};

mod cases;
mod driver;
mod random;
mod scenario;

#[tokio::test]
async fn router_machine_passes_conformance_suite() {
    for (plans, host) in [(true, false), (false, true)] {
        let swarm = swarm(&Setting {
            plans,
            ..Setting::default()
        });
        let make = || match host {
            true => swarm.planned_machine("Go.", scenario::chain(5)),
            false => swarm.machine("Go."),
        };
        machine(make).await;
        machine_restored(make, |state| swarm.restore(&state).unwrap()).await;
        machine_damaged(make, |state| swarm.restore(state)).await;
    }
}
