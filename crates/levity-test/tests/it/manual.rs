use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use levity_core::{Timestamp, World};
use levity_test::ManualWorld;

use crate::block_on;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A waker that records its name when it is woken.
struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn clock_stops_until_it_is_advanced() {
    let world = ManualWorld::new();
    assert_eq!(world.now().to_string(), "2025-01-01T00:00:00.000Z");
    assert_eq!(world.now(), ManualWorld::START);
    world.clone().advance(secs(90));
    assert_eq!(world.now().since(ManualWorld::START), secs(90));
    world.set(Timestamp::from_millis(5));
    assert_eq!(world.now(), Timestamp::from_millis(5));
    world.advance(Duration::MAX);
    assert_eq!(world.now(), Timestamp::from_millis(u64::MAX));
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    let (world, woken) = (ManualWorld::new(), Arc::new(Mutex::new(Vec::new())));
    let mut sleeps =
        [("c", 3), ("a", 1), ("b", 2), ("b again", 2), ("late", 9)].map(|(name, time)| {
            let waker = Waker::from(Arc::new(Named(name, woken.clone())));
            let world = &world;
            let mut sleep = Box::pin(async move { world.sleep(secs(time)).await });
            assert!(
                sleep
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            sleep
        });
    assert_eq!(world.sleepers(), 5);
    world.advance(secs(3));
    assert_eq!(*woken.lock().unwrap(), ["a", "b", "b again", "c"]);
    assert_eq!(world.sleepers(), 1);
    let ended = sleeps
        .iter_mut()
        .map(|sleep| poll(sleep.as_mut()).is_ready());
    assert_eq!(ended.collect::<Vec<_>>(), [true, true, true, true, false]);
}

#[test]
fn sleep_ends_at_its_time_and_not_before() {
    for time in [
        Duration::from_nanos(1),
        Duration::from_micros(1500),
        secs(3),
    ] {
        let world = ManualWorld::new();
        let mut sleep = pin!(world.sleep(time));
        assert!(poll(sleep.as_mut()).is_pending());
        world.advance(time - Duration::from_nanos(1));
        assert!(poll(sleep.as_mut()).is_pending());
        world.advance(Duration::from_nanos(1));
        assert!(poll(sleep).is_ready());
    }
    assert!(poll(pin!(ManualWorld::new().sleep(Duration::ZERO))).is_ready());
}

#[test]
fn dropped_sleep_is_forgotten() {
    let world = ManualWorld::new();
    let mut sleep = world.sleep(secs(1));
    assert!(poll(sleep.as_mut()).is_pending());
    assert_eq!(world.sleepers(), 1);
    drop(sleep);
    assert_eq!(world.sleepers(), 0);
    drop(world.sleep(secs(1)));
    assert_eq!(world.sleepers(), 0);
}

#[test]
fn sleepers_wait_for_their_time_after_clock_is_set_back() {
    let world = ManualWorld::new();
    let (mut early, mut late) = (pin!(world.sleep(secs(1))), pin!(world.sleep(secs(20))));
    assert!(poll(early.as_mut()).is_pending() && poll(late.as_mut()).is_pending());
    world.advance(secs(10));
    world.set(ManualWorld::START);
    assert!(poll(early).is_ready());
    world.advance(secs(19));
    assert!(poll(late.as_mut()).is_pending());
    world.set(ManualWorld::START.after(secs(20)));
    assert!(poll(late).is_ready());
}

#[test]
fn until_sleeping_waits_for_sleepers() {
    let world = ManualWorld::new();
    assert!(poll(pin!(world.until_sleeping(0))).is_ready());
    block_on(async {
        let turn = async {
            world.until_sleeping(2).await;
            assert_eq!(world.sleepers(), 2);
            world.advance(secs(2));
        };
        tokio::join!(turn, world.sleep(secs(1)), world.sleep(secs(2)));
    });
    assert_eq!(world.sleepers(), 0);
}

#[test]
fn automatic_clock_advances_in_order() {
    let world = ManualWorld::auto();
    let slept = async |time| {
        world.sleep(time).await;
        world.now().since(ManualWorld::START)
    };
    let ended =
        block_on(async { tokio::join!(slept(secs(86_400)), slept(secs(1)), slept(secs(60))) });
    assert_eq!(ended, (secs(86_400), secs(1), secs(60)));
    assert_eq!(world.sleepers(), 0);
}

#[test]
fn random_numbers_depend_on_seed_only() {
    let numbers = |seed| {
        let world = ManualWorld::new().with_seed(seed);
        [world.random(), world.random()]
    };
    // The first numbers of splitmix64, as its authors give them for the seed 1234567.
    assert_eq!(
        numbers(1_234_567),
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
    );
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}
