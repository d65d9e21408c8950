//! Places that callers share, so that no named token takes all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::access::Caller;

/// How much of a limit one named token may take, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenShare(u8);

impl TokenShare {
    pub(crate) const DEFAULT: Self = Self(25);

    pub(crate) fn percent(percent: u8) -> Self {
        Self(percent.min(100))
    }

    pub(crate) fn as_percent(self) -> u8 {
        self.0
    }

    /// How many of `most` places one named token may take: one at least.
    pub(crate) fn of(self, most: usize) -> usize {
        let percent = usize::from(self.0);
        (most / 100 * percent + most % 100 * percent / 100).max(1)
    }

    /// How many of `most` places a caller may take. Callers with the scope `admin` may take all of
    /// them.
    pub(crate) fn of_caller(self, most: usize, caller: &Caller) -> usize {
        if caller.namespace().is_some() {
            self.of(most).min(most)
        } else {
            most
        }
    }
}

/// Places for something that costs the server: so many in all, and so many for the tokens of one
/// tenant.
#[derive(Debug)]
pub(crate) struct Quota {
    most: usize,
    share: TokenShare,
    taken: Mutex<Taken>,
    /// Wakes those who wait for a place.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only those that have places are here.
    by_tenant: HashMap<Arc<str>, usize>,
}

/// There is no place; so many may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaFull {
    pub(crate) most: usize,
}

/// One place or more, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    quota: Arc<Quota>,
    tenant: Option<Arc<str>>,
    count: usize,
}

impl Quota {
    pub(crate) fn new(most: usize, share: TokenShare) -> Arc<Self> {
        Arc::new(Self {
            most,
            share,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// A place for a caller.
    ///
    /// # Errors
    /// When all places are taken, or all that this caller may have.
    pub(crate) fn take(self: &Arc<Self>, caller: &Caller) -> Result<Permit, QuotaFull> {
        if self.most == 0 {
            return Err(QuotaFull { most: 0 });
        }
        self.take_many(caller, 1)
    }

    /// Waits for a place for a caller. Callers bound how many wait: each request that waits has a
    /// place of its own.
    pub(crate) async fn wait(self: &Arc<Self>, caller: &Caller) -> Permit {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // A place that is given back from here on is noticed.
            freed.as_mut().enable();
            if let Ok(permit) = self.take(caller) {
                return permit;
            }
            freed.await;
        }
    }

    /// Places for something of this size, such as so many bytes. What is larger than all that a
    /// caller may have is taken alone.
    ///
    /// # Errors
    /// When there are not so many places left, in all or for this caller.
    pub(crate) fn take_many(
        self: &Arc<Self>,
        caller: &Caller,
        count: usize,
    ) -> Result<Permit, QuotaFull> {
        let fits = |taken: usize, most: usize| taken == 0 || taken.saturating_add(count) <= most;
        let mut taken = self.taken();
        let tenant: Option<Arc<str>> = caller.namespace().map(Into::into);
        let own = tenant
            .as_ref()
            .and_then(|tenant| taken.by_tenant.get(tenant).copied())
            .unwrap_or(0);
        if !fits(taken.all, self.most) {
            return Err(QuotaFull { most: self.most });
        }
        if tenant.is_some() && !fits(own, self.share.of(self.most)) {
            return Err(QuotaFull {
                most: self.share.of(self.most),
            });
        }
        taken.all += count;
        if let Some(tenant) = &tenant
            && count > 0
        {
            *taken.by_tenant.entry(tenant.clone()).or_default() += count;
        }
        drop(taken);
        Ok(Permit {
            quota: self.clone(),
            tenant,
            count,
        })
    }

    /// Whether only the caller's own share is used up, so that others' places are no help.
    pub(crate) fn is_share_taken(&self, caller: &Caller) -> bool {
        let own = caller
            .namespace()
            .and_then(|tenant| self.taken().by_tenant.get(tenant).copied());
        own.is_some_and(|own| own >= self.share.of(self.most))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.quota.taken();
        taken.all = taken.all.saturating_sub(self.count);
        if let Some(tenant) = &self.tenant
            && let Some(own) = taken.by_tenant.get_mut(tenant)
        {
            *own = own.saturating_sub(self.count);
            if *own == 0 {
                taken.by_tenant.remove(tenant);
            }
        }
        drop(taken);
        self.quota.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Waker};

    use super::*;
    use crate::access::TokenScope;

    fn caller(name: &str, scope: TokenScope) -> Caller {
        Caller::named(name.into(), [scope].into())
    }

    #[test]
    fn token_share_is_one_place_at_least_and_the_whole_at_most() {
        for (percent, most, expected) in [
            (25, 64, 16),
            (25, 1024, 256),
            (25, 4, 1),
            (25, 3, 1),
            (25, 1, 1),
            (25, 0, 1),
            (0, 64, 1),
            (50, 7, 3),
            (100, 7, 7),
            (200, 7, 7),
            (100, usize::MAX, usize::MAX),
        ] {
            assert_eq!(
                TokenShare::percent(percent).of(most),
                expected,
                "{percent} % of {most}"
            );
        }
    }

    #[test]
    fn quota_keeps_places_free_for_callers_other_than_the_busy_one() {
        let quota = Quota::new(8, TokenShare::DEFAULT);
        let (ann, bob) = (
            caller("ann", TokenScope::Run),
            caller("bob", TokenScope::Read),
        );
        let first = quota.take(&ann).unwrap();
        let _second = quota.take(&ann).unwrap();
        assert_eq!(quota.take(&ann).unwrap_err(), QuotaFull { most: 2 });
        assert!(quota.is_share_taken(&ann) && !quota.is_share_taken(&bob));
        // The users of one tenant share its places.
        assert!(
            quota
                .take(&caller("ann.boss", TokenScope::Approve))
                .is_err()
        );
        let _bob = [quota.take(&bob).unwrap(), quota.take(&bob).unwrap()];
        let _owner: Vec<_> = (0..4)
            .map(|_| quota.take(&Caller::owner()).unwrap())
            .collect();
        assert_eq!(
            quota.take(&Caller::owner()).unwrap_err(),
            QuotaFull { most: 8 }
        );
        drop(first);
        assert!(quota.take(&bob).is_err(), "it has its share");
        let again = quota.take(&ann).unwrap();
        drop(again);
        let _admin = quota.take(&caller("top", TokenScope::Admin)).unwrap();
    }

    #[test]
    fn quota_of_sizes_has_room_for_one_that_is_too_large_alone() {
        let quota = Quota::new(100, TokenShare::DEFAULT);
        let (ann, bob) = (
            caller("ann", TokenScope::Run),
            caller("bob", TokenScope::Run),
        );
        let large = quota.take_many(&ann, 40).unwrap();
        assert_eq!(
            quota.take_many(&ann, 1).unwrap_err(),
            QuotaFull { most: 25 }
        );
        let _small = quota.take_many(&bob, 20).unwrap();
        assert!(
            quota.take_many(&bob, 6).is_err() && quota.take_many(&Caller::owner(), 41).is_err()
        );
        let none = quota.take_many(&ann, 0).unwrap_err();
        assert_eq!(none.most, 25);
        drop(large);
        let owner = quota.take_many(&Caller::owner(), 80).unwrap();
        assert!(quota.take_many(&ann, 1).is_err());
        drop(owner);
        assert_eq!(quota.taken().all, 20);
    }

    #[test]
    fn quota_remembers_nobody_who_has_left() {
        let quota = Quota::new(8, TokenShare::DEFAULT);
        for number in 0..100 {
            drop(
                quota
                    .take(&caller(&format!("t{number}"), TokenScope::Read))
                    .unwrap(),
            );
        }
        let taken = quota.taken();
        assert_eq!((taken.all, taken.by_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn quota_wakes_those_who_wait_when_a_place_is_free() {
        let quota = Quota::new(8, TokenShare::DEFAULT);
        let ann = caller("ann", TokenScope::Run);
        let mut held = vec![quota.wait(&ann).await, quota.wait(&ann).await];
        let mut third = std::pin::pin!(quota.wait(&ann));
        assert!(
            third
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        let _bob = quota.wait(&caller("bob", TokenScope::Run)).await;
        held.pop();
        third.await;
    }

    #[test]
    fn quota_of_none_gives_none() {
        assert!(
            Quota::new(0, TokenShare::DEFAULT)
                .take(&Caller::owner())
                .is_err()
        );
        assert!(
            Quota::new(0, TokenShare::DEFAULT)
                .take(&caller("ann", TokenScope::Run))
                .is_err()
        );
    }
}
