//! Counts invalid tokens by address, delays the responses when there are many, and reports them.
//!
//! The delay slows a guesser down without locking out valid clients behind the same address: a
//! valid token is neither counted nor delayed. At most 16 responses per address are delayed at
//! once; further ones are sent at once with status 429, so that a flood cannot hold connections
//! open. The table has at most 4,096 addresses and drops the oldest one first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{Timestamp, World};

use super::ListenNotice;

/// The maximum number of remembered addresses.
const ADDRESSES: usize = 4_096;

pub(super) type NoticeFn = dyn Fn(&ListenNotice) + Send + Sync;

/// The addresses that recently presented invalid tokens.
pub(crate) struct Failures {
    world: Arc<dyn World>,
    /// The number of invalid tokens from one address that are answered without delay.
    free: u32,
    delay: Duration,
    on_notice: Option<Arc<NoticeFn>>,
    table: Mutex<HashMap<IpAddr, AddressFailures>>,
}

/// The invalid tokens of one address within the current window of one minute.
#[derive(Clone, Copy)]
struct AddressFailures {
    since: Timestamp,
    count: u32,
    /// The number of responses to this address that are being delayed.
    delayed: u32,
}

/// The response to an invalid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Penalty {
    /// The response is sent without delay.
    None,
    /// The address has presented too many invalid tokens.
    Throttled,
}

impl Failures {
    /// The time for which invalid tokens are remembered: one minute.
    pub(super) const WINDOW: Duration = Duration::from_secs(60);
    /// The maximum number of concurrently delayed responses to one address.
    const MAX_DELAYED: u32 = 16;

    pub(super) fn new(
        world: Arc<dyn World>,
        free: u32,
        delay: Duration,
        on_notice: Option<Arc<NoticeFn>>,
    ) -> Self {
        Self {
            world,
            free,
            delay,
            on_notice,
            table: Mutex::default(),
        }
    }

    /// Counts an invalid token. When there are many, this call also waits for the delay of the
    /// response. Valid tokens are never counted or delayed.
    pub(crate) async fn wrong(self: &Arc<Self>, address: IpAddr) -> Penalty {
        let (count, delay_response) = self.count(address);
        // Reporting only powers of ten reduces a flood to a few lines.
        if count.ilog10() != (count - 1).checked_ilog10().unwrap_or(u32::MAX) {
            self.report(&ListenNotice::WrongTokens { address, count });
        }
        if count <= self.free {
            return Penalty::None;
        }
        if delay_response {
            // A client that disconnects during the delay frees its place.
            let _guard = DelayGuard {
                failures: self.clone(),
                address,
            };
            self.world.sleep(self.delay).await;
        }
        Penalty::Throttled
    }

    /// Passes a notice to the operator.
    pub(crate) fn report(&self, notice: &ListenNotice) {
        if let Some(on_notice) = &self.on_notice {
            on_notice(notice);
        }
    }

    /// Returns the number of invalid tokens in this window, and `true` if the response must be
    /// delayed. Addresses with delayed responses are never dropped, because their counter must be
    /// decreased later.
    fn count(&self, address: IpAddr) -> (u32, bool) {
        let now = self.world.now();
        let mut table = self.table();
        if table.len() >= ADDRESSES && !table.contains_key(&address) {
            table.retain(|_, failed| failed.delayed > 0 || now.since(failed.since) < Self::WINDOW);
            let oldest = table
                .iter()
                .filter(|(_, failed)| failed.delayed == 0)
                .min_by_key(|(_, failed)| failed.since);
            if let Some(oldest) = oldest
                .map(|(address, _)| *address)
                .filter(|_| table.len() >= ADDRESSES)
            {
                table.remove(&oldest);
            }
        }
        let failed = table.entry(address).or_insert(AddressFailures {
            since: now,
            count: 0,
            delayed: 0,
        });
        if now.since(failed.since) >= Self::WINDOW {
            (failed.since, failed.count) = (now, 0);
        }
        failed.count = failed.count.saturating_add(1);
        let delay_response = failed.count > self.free && failed.delayed < Self::MAX_DELAYED;
        failed.delayed += u32::from(delay_response);
        (failed.count, delay_response)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<IpAddr, AddressFailures>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one delayed response. It is released on drop, so that a client that disconnects during
/// the delay does not count any longer.
struct DelayGuard {
    failures: Arc<Failures>,
    address: IpAddr,
}

impl Drop for DelayGuard {
    fn drop(&mut self) {
        if let Some(failed) = self.failures.table().get_mut(&self.address) {
            failed.delayed = failed.delayed.saturating_sub(1);
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
    async fn wrong_tokens_are_reported_at_powers_of_ten_until_the_window_ends() {
        let world = Arc::new(ManualWorld::new());
        let reports = Arc::new(AtomicUsize::new(0));
        let count = reports.clone();
        let on_notice: Arc<NoticeFn> = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let failures = Arc::new(Failures::new(
            world.clone(),
            u32::MAX,
            Duration::ZERO,
            Some(on_notice),
        ));
        let (one, two): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..150 {
            assert_eq!(failures.wrong(one).await, Penalty::None);
        }
        assert_eq!(reports.load(Ordering::Relaxed), 3, "1, 10 and 100");
        failures.wrong(two).await;
        assert_eq!(reports.load(Ordering::Relaxed), 4);
        world.advance(Failures::WINDOW);
        failures.wrong(one).await;
        assert_eq!(reports.load(Ordering::Relaxed), 5, "the count starts again");
    }

    #[tokio::test]
    async fn responses_to_many_wrong_tokens_are_delayed() {
        let world = Arc::new(ManualWorld::new());
        let delay = Duration::from_secs(2);
        let failures = Arc::new(Failures::new(world.clone(), 1, delay, None));
        let (guesser, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(failures.wrong(guesser).await, Penalty::None);
        let mut delayed: Vec<_> = (0..Failures::MAX_DELAYED)
            .map(|_| Box::pin(failures.wrong(guesser)))
            .collect();
        for answer in &mut delayed {
            assert!(poll!(answer).is_pending());
        }
        // Requests beyond the limit of delayed ones are rejected at once, and other addresses are
        // not delayed.
        assert_eq!(failures.wrong(guesser).await, Penalty::Throttled);
        assert_eq!(failures.wrong(other).await, Penalty::None);
        world.advance(delay);
        assert_eq!(
            futures_util::future::join_all(delayed).await,
            [Penalty::Throttled; Failures::MAX_DELAYED as usize]
        );
        assert!(
            poll!(Box::pin(failures.wrong(guesser))).is_pending(),
            "the delayed places are free again"
        );
    }

    #[tokio::test]
    async fn address_table_stays_within_its_limit() {
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
