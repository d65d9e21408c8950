//! Routers and workers of all kinds, and everything that can happen to them.

use levity_test::conformance::{machine, machine_damaged, machine_restored};

use self::world::{Setting, swarm};

mod cases;
mod driver;
mod random;
mod world;

#[tokio::test]
async fn it_keeps_what_machines_promise() {
    for (plans, host) in [(true, false), (false, true)] {
        let swarm = swarm(&Setting {
            plans,
            ..Setting::default()
        });
        let make = || match host {
            true => swarm.planned_machine("Go.", world::chain(5)),
            false => swarm.machine("Go."),
        };
        machine(make).await;
        machine_restored(make, |state| swarm.restore(&state).unwrap()).await;
        machine_damaged(make, |state| swarm.restore(state)).await;
    }
}
