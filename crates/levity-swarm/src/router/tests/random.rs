//! Whatever comes, and in whatever order.

use std::sync::Arc;

use levity_core::{EffectId, Input, Limit, Message, Outcome, RunId};
use proptest::prelude::*;

use super::driver::Driver;
use super::world::{Answer, Fate, Setting, answers, fates, said, settings};

/// What the host and the limits do in between.
#[derive(Clone, Debug)]
enum Stir {
    Say,
    Wrap,
    Low,
    Stop,
    Cancel,
    BeginAgain,
    /// An outcome of something that nobody wants, or that came before.
    Stray(u64, bool),
}

fn stirs() -> impl Strategy<Value = Vec<(u8, Stir)>> {
    let stir = prop_oneof![
        3 => Just(Stir::Say),
        3 => Just(Stir::Wrap),
        2 => Just(Stir::Low),
        1 => Just(Stir::Stop),
        1 => Just(Stir::Cancel),
        2 => Just(Stir::BeginAgain),
        3 => (0_u64..40, any::<bool>()).prop_map(|(effect, known)| Stir::Stray(effect, known)),
    ];
    prop::collection::vec((0_u8..20, stir), 0..5)
}

impl Stir {
    /// The input, unless it is of something that is under way.
    fn input(&self, driver: &Driver) -> Option<Input> {
        Some(match self {
            Self::Say => Input::Say(Arc::new(Message::user("Mind the gap."))),
            Self::Wrap => Input::Wrap(Limit::Tokens),
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
                    said("stray".to_owned())
                } else {
                    Outcome::Unknown
                };
                Input::Finished { effect, outcome }
            }
        })
    }
}

/// All outcomes come, in this order.
fn to_the_end(driver: &mut Driver, order: &[u16], stirs: &[(u8, Stir)]) {
    /// Three rounds of twelve delegations, each tried by four workers three times, and the router.
    const MOST: usize = 3 * 12 * 4 * 3 + 20;
    for turn in 0..MOST {
        for (_, stir) in stirs.iter().filter(|(when, _)| usize::from(*when) == turn) {
            if let Some(input) = stir.input(driver) {
                driver.apply(input, 1_000);
            }
        }
        let pick = order[turn % order.len()];
        // The clock of a machine may be set back.
        driver.finish(usize::from(pick), u64::from(pick) % 977);
    }
    driver.check_end();
}

fn play(setting: &Setting, answers: &[Answer], fates: &[Fate], order: &[u16]) -> Driver {
    let mut driver = Driver::new(setting, answers, fates);
    driver.begin();
    to_the_end(&mut driver, order, &[]);
    driver.check_settled();
    driver
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_it_ends_and_keeps_its_promises(
        setting in settings(), answers in answers(), fates in fates(), stirs in stirs(),
        order in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        let mut driver = Driver::new(&setting, &answers, &fates);
        driver.begin();
        to_the_end(&mut driver, &order, &stirs);
        if !stirs.iter().any(|(_, stir)| matches!(stir, Stir::Stop | Stir::Cancel)) {
            driver.check_settled();
        }
        for (_, stir) in &stirs {
            if let Some(input) = stir.input(&driver) {
                driver.apply(input, 2_000);
            }
        }
        prop_assert!(driver.again() == driver.trace, "the same inputs give something else");
    }

    #[test]
    fn who_is_faster_makes_no_difference(
        setting in settings(), answers in answers(), fates in fates(), parallel in 1_usize..12,
        order in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        let first = play(&setting, &answers, &fates, &[0]);
        let other = play(&Setting { parallel, ..setting }, &answers, &fates, &order);
        prop_assert_eq!(first.log(), other.log());
    }
}
