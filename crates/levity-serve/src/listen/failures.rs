//! Wrong tokens: counted for each address, answered slowly when there are many, and reported.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{Timestamp, World};

use super::ListenNotice;

/// How many addresses are remembered.
const ADDRESSES: usize = 4_096;

pub(super) type Tell = dyn Fn(&ListenNotice) + Send + Sync;

/// The addresses that showed wrong tokens of late.
pub(crate) struct Failures {
    world: Arc<dyn World>,
    /// How many wrong tokens of one address are answered at once.
    free: u32,
    delay: Duration,
    tell: Option<Arc<Tell>>,
    table: Mutex<HashMap<IpAddr, Failed>>,
}

#[derive(Clone, Copy)]
struct Failed {
    since: Timestamp,
    count: u32,
    /// How many of its answers are being held back.
    held: u32,
}

/// What is to be done about a wrong token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Penalty {
    /// It is answered at once.
    None,
    /// It is one of many.
    Throttled,
}

impl Failures {
    /// How long wrong tokens are remembered: one minute.
    pub(super) const WINDOW: Duration = Duration::from_secs(60);
    /// How many answers of one address are held back at once.
    const HELD: u32 = 16;

    pub(super) fn new(
        world: Arc<dyn World>,
        free: u32,
        delay: Duration,
        tell: Option<Arc<Tell>>,
    ) -> Self {
        Self {
            world,
            free,
            delay,
            tell,
            table: Mutex::default(),
        }
    }

    /// Counts a wrong token. When there are many, this takes as long as the answer is to be held
    /// back; a right one never comes here.
    pub(crate) async fn wrong(self: &Arc<Self>, address: IpAddr) -> Penalty {
        let (count, hold) = self.count(address);
        // Each power of ten is reported, so that a flood is some lines and not millions.
        if count.ilog10() != (count - 1).checked_ilog10().unwrap_or(u32::MAX)
            && let Some(tell) = &self.tell
        {
            tell(&ListenNotice::WrongTokens { address, count });
        }
        if count <= self.free {
            return Penalty::None;
        }
        if hold {
            // Whoever leaves while it waits has waited long enough.
            let _held = Held {
                failures: self.clone(),
                address,
            };
            self.world.sleep(self.delay).await;
        }
        Penalty::Throttled
    }

    fn count(&self, address: IpAddr) -> (u32, bool) {
        let now = self.world.now();
        let mut table = self.table();
        if table.len() >= ADDRESSES && !table.contains_key(&address) {
            table.retain(|_, failed| failed.held > 0 || now.since(failed.since) < Self::WINDOW);
            let oldest = table
                .iter()
                .filter(|(_, failed)| failed.held == 0)
                .min_by_key(|(_, failed)| failed.since);
            if let Some(oldest) = oldest
                .map(|(address, _)| *address)
                .filter(|_| table.len() >= ADDRESSES)
            {
                table.remove(&oldest);
            }
        }
        let failed = table.entry(address).or_insert(Failed {
            since: now,
            count: 0,
            held: 0,
        });
        if now.since(failed.since) >= Self::WINDOW {
            (failed.since, failed.count) = (now, 0);
        }
        failed.count = failed.count.saturating_add(1);
        let hold = failed.count > self.free && failed.held < Self::HELD;
        failed.held += u32::from(hold);
        (failed.count, hold)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<IpAddr, Failed>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Held {
    failures: Arc<Failures>,
    address: IpAddr,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(failed) = self.failures.table().get_mut(&self.address) {
            failed.held = failed.held.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::poll;
    use levity_test::ManualWorld;

    use super::*;

    #[tokio::test]
    async fn wrong_tokens_are_reported_at_powers_of_ten_and_forgotten() {
        let world = Arc::new(ManualWorld::new());
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let tell: Arc<Tell> = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let failures = Arc::new(Failures::new(
            world.clone(),
            u32::MAX,
            Duration::ZERO,
            Some(tell),
        ));
        let (one, two): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..150 {
            assert_eq!(failures.wrong(one).await, Penalty::None);
        }
        assert_eq!(told.load(Ordering::Relaxed), 3, "1, 10 and 100");
        failures.wrong(two).await;
        assert_eq!(told.load(Ordering::Relaxed), 4);
        world.advance(Failures::WINDOW);
        failures.wrong(one).await;
        assert_eq!(told.load(Ordering::Relaxed), 5, "it begins anew");
    }

    #[tokio::test]
    async fn answers_to_many_wrong_tokens_are_held_back() {
        let world = Arc::new(ManualWorld::new());
        let delay = Duration::from_secs(2);
        let failures = Arc::new(Failures::new(world.clone(), 1, delay, None));
        let (guesser, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(failures.wrong(guesser).await, Penalty::None);
        let mut held: Vec<_> = (0..Failures::HELD)
            .map(|_| Box::pin(failures.wrong(guesser)))
            .collect();
        for answer in &mut held {
            assert!(poll!(answer).is_pending());
        }
        // Those that find no place to wait are refused at once, and other addresses are not held
        // up.
        assert_eq!(failures.wrong(guesser).await, Penalty::Throttled);
        assert_eq!(failures.wrong(other).await, Penalty::None);
        world.advance(delay);
        assert_eq!(
            futures_util::future::join_all(held).await,
            [Penalty::Throttled; Failures::HELD as usize]
        );
        assert!(
            poll!(Box::pin(failures.wrong(guesser))).is_pending(),
            "the places are free again"
        );
    }

    #[tokio::test]
    async fn table_of_addresses_is_bounded() {
        let failures = Arc::new(Failures::new(
            Arc::new(ManualWorld::new()),
            10,
            Duration::ZERO,
            None,
        ));
        for number in 0..u32::try_from(ADDRESSES).unwrap() + 100 {
            failures.wrong(IpAddr::V4(number.into())).await;
        }
        assert!(failures.table().len() <= ADDRESSES);
    }
}
