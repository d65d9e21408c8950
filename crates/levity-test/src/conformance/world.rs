//! The suite for clocks and randomness.
//!
//! It sleeps at most a few milliseconds, because a real world waits in real time.

use std::collections::HashSet;
use std::time::Duration;

use levity_core::World;

use super::check::{abandon, both, same};

/// Checks a [`World`] against its contract.
///
/// `make` returns a world whose sleeps end automatically: the real one, or
/// [`ManualWorld::auto`](crate::ManualWorld::auto). With a real one this takes some milliseconds.
///
/// The suite checks:
/// - a sleep ends once `now` has advanced by the given time, and not before; a sleep of zero ends
///   too;
/// - two concurrent sleeps both end, and they wait in parallel;
/// - a dropped sleep is forgotten, and does not block others;
/// - a thousand random numbers are all different, and every bit of them takes both values.
///
/// Not checked: that the numbers are unpredictable.
///
/// ```
/// use levity_test::{ManualWorld, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance::world(ManualWorld::auto).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn world<W: World>(make: impl Fn() -> W) {
    let world = make();
    check_sleep(&world).await;
    check_beside(&world).await;
    check_dropped(&world).await;
    check_random(&world);
}

const SLEEP: &str = "world: `sleep` ends once `now` has advanced by the given time, and not before";

async fn check_sleep(world: &impl World) {
    for millis in [0, 1, 5] {
        let time = Duration::from_millis(millis);
        let start = world.now();
        world.sleep(time).await;
        let passed = world.now().since(start);
        assert!(passed >= time, "{SLEEP}\nfound: {passed:?} for {time:?}");
    }
}

async fn check_beside(world: &impl World) {
    let (short, long) = (Duration::from_millis(2), Duration::from_millis(4));
    let start = world.now();
    let slept = async |time| {
        world.sleep(time).await;
        world.now().since(start)
    };
    let (long_passed, short_passed) = both(slept(long), slept(short)).await;
    assert!(
        short_passed >= short && long_passed >= long,
        "{SLEEP}\nfound: {short_passed:?}, {long_passed:?}"
    );
    assert!(
        short_passed <= long_passed,
        "world: a shorter sleep beside a longer one ends no later"
    );
}

async fn check_dropped(world: &impl World) {
    let start = world.now();
    let day = Duration::from_secs(86_400);
    drop(world.sleep(day));
    same(&abandon(world.sleep(day)), &None, SLEEP);
    world.sleep(Duration::from_millis(1)).await;
    let passed = world.now().since(start);
    assert!(
        passed < day,
        "world: a sleep that is dropped is forgotten\nfound: {passed:?}"
    );
}

fn check_random(world: &impl World) {
    let numbers: Vec<u64> = (0..1_000).map(|_| world.random()).collect();
    let different = numbers.iter().collect::<HashSet<_>>().len();
    same(
        &different,
        &numbers.len(),
        "world: random numbers do not repeat",
    );
    let (ones, zeros) = numbers
        .iter()
        .fold((0, 0), |(ones, zeros), n| (ones | n, zeros | !n));
    same(
        &(ones & zeros),
        &u64::MAX,
        "world: every bit of the random numbers takes both values",
    );
}
