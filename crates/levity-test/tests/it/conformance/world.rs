use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Timestamp, World};
use levity_test::{ManualWorld, conformance};

use crate::{block_on, refuses};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    EndsEarly,
    EndsAtOnce,
    OneAfterTheOther,
    Remembers,
    Repeats,
    HalfRandom,
}

struct Broken {
    flaw: Flaw,
    inner: ManualWorld,
    number: AtomicU64,
    bed: tokio::sync::Mutex<()>,
}

impl Broken {
    fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            inner: ManualWorld::auto(),
            number: AtomicU64::new(0),
            bed: tokio::sync::Mutex::default(),
        }
    }
}

#[async_trait]
impl World for Broken {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn random(&self) -> u64 {
        match self.flaw {
            Flaw::Repeats => self.number.fetch_add(1, Ordering::SeqCst) % 900,
            Flaw::HalfRandom => self.inner.random() >> 8,
            _ => self.inner.random(),
        }
    }

    async fn sleep(&self, time: Duration) {
        match self.flaw {
            Flaw::EndsAtOnce => {}
            Flaw::EndsEarly => self.inner.sleep(time / 2).await,
            Flaw::OneAfterTheOther => {
                let _alone = self.bed.lock().await;
                self.inner.sleep(time).await;
            }
            Flaw::Remembers => {
                // The clock has moved before the sleep can be dropped.
                self.inner.advance(time);
                tokio::task::yield_now().await;
            }
            _ => self.inner.sleep(time).await,
        }
    }
}

#[test]
fn world_suite_accepts_correct_world() {
    block_on(conformance::world(ManualWorld::auto));
}

#[test]
fn world_suite_rejects_every_flaw() {
    let check = |flaw, promise| refuses(conformance::world(|| Broken::new(flaw)), promise);
    let sleep = "world: `sleep` ends once `now` has advanced by the given time, and not before";
    check(Flaw::EndsEarly, sleep);
    check(Flaw::EndsAtOnce, sleep);
    check(
        Flaw::OneAfterTheOther,
        "world: a shorter sleep beside a longer one ends no later",
    );
    check(
        Flaw::Remembers,
        "world: a sleep that is dropped is forgotten",
    );
    check(Flaw::Repeats, "world: random numbers do not repeat");
    check(
        Flaw::HalfRandom,
        "world: every bit of the random numbers takes both values",
    );
}
