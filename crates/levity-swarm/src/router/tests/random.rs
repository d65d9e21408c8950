//! Tests with random events in random order.

use std::sync::Arc;

use levity_core::{EffectId, Input, Limit, Message, Outcome, RunId};
use proptest::prelude::*;

use super::driver::Driver;
use super::scenario::{Answer, AttemptOutcome, Setting, answers, completed, outcomes, settings};

/// An event caused by the host or a limit.
#[derive(Clone, Debug)]
enum HostEvent {
    Say,
    Wrap,
    Low,
    Stop,
    Cancel,
    BeginAgain,
    /// An outcome of an effect that was not requested, or that has finished.
    Stray(u64, bool),
}

fn host_events() -> impl Strategy<Value = Vec<(u8, HostEvent)>> {
    let host_event = prop_oneof![
        3 => Just(HostEvent::Say),
        3 => Just(HostEvent::Wrap),
        2 => Just(HostEvent::Low),
        1 => Just(HostEvent::Stop),
        1 => Just(HostEvent::Cancel),
        2 => Just(HostEvent::BeginAgain),
        3 => (0_u64..40, any::<bool>()).prop_map(|(effect, known)| HostEvent::Stray(effect, known)),
    ];
    prop::collection::vec((0_u8..20, host_event), 0..5)
}

impl HostEvent {
    /// Returns the input, unless its effect is in progress.
    fn input(&self, driver: &Driver) -> Option<Input> {
        Some(match self {
            Self::Say => Input::Say(Arc::new(Message::user("Mind the gap."))),
            Self::Wrap => Input::FinishSoon(Limit::Tokens),
            Self::Low => Input::Low(Limit::WallTime),
            Self::Stop => Input::Stop(Limit::Money),
            Self::Cancel => Input::Cancel {
                reason: "enough".to_owned(),
            },
            Self::BeginAgain => Input::Begin {
                run: RunId::new("other"),
                wrap: Some(Limit::Turns),
            },
            Self::Stray(effect, known) => {
                let effect = EffectId::new(*effect);
                if driver.open.iter().any(|(open, _)| *open == effect) {
                    return None;
                }
                let outcome = if *known {
                    completed("stray".to_owned())
                } else {
                    Outcome::Unknown
                };
                Input::Finished { effect, outcome }
            }
        })
    }
}

/// Finishes all effects in this order.
fn drive_to_end(driver: &mut Driver, order: &[u16], host_events: &[(u8, HostEvent)]) {
    /// Three rounds of twelve delegations, each attempted by four workers three times, and the
    /// router.
    const MAX_TURNS: usize = 3 * 12 * 4 * 3 + 20;
    for turn in 0..MAX_TURNS {
        for (_, host_event) in host_events
            .iter()
            .filter(|(when, _)| usize::from(*when) == turn)
        {
            if let Some(input) = host_event.input(driver) {
                driver.apply(input, 1_000);
            }
        }
        let pick = order[turn % order.len()];
        // The clock of a machine may go backwards.
        driver.finish(usize::from(pick), u64::from(pick) % 977);
    }
    driver.check_end();
}

fn run_to_end(
    setting: &Setting,
    answers: &[Answer],
    outcomes: &[AttemptOutcome],
    order: &[u16],
) -> Driver {
    let mut driver = Driver::new(setting, answers, outcomes);
    driver.begin();
    drive_to_end(&mut driver, order, &[]);
    driver.check_settled();
    driver
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn run_always_ends_and_keeps_its_guarantees(
        setting in settings(), answers in answers(), outcomes in outcomes(),
        host_events in host_events(),
        order in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        let mut driver = Driver::new(&setting, &answers, &outcomes);
        driver.begin();
        drive_to_end(&mut driver, &order, &host_events);
        if !host_events
            .iter()
            .any(|(_, host_event)| matches!(host_event, HostEvent::Stop | HostEvent::Cancel))
        {
            driver.check_settled();
        }
        for (_, host_event) in &host_events {
            if let Some(input) = host_event.input(&driver) {
                driver.apply(input, 2_000);
            }
        }
        prop_assert!(driver.again() == driver.trace, "the same inputs give another trace");
    }

    #[test]
    fn speed_of_workers_makes_no_difference(
        setting in settings(), answers in answers(), outcomes in outcomes(),
        parallel in 1_usize..12,
        order in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        let first = run_to_end(&setting, &answers, &outcomes, &[0]);
        let other = run_to_end(&Setting { parallel, ..setting }, &answers, &outcomes, &order);
        prop_assert_eq!(first.log(), other.log());
    }
}
