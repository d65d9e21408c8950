//! Quotas that callers share, so that no named token uses all of them.
//!
//! A [`Quota`] has two limits: one for all callers, and a lower one for each tenant. Callers
//! without a namespace, such as the owner, are bound only by the first. A [`Permit`] returns its
//! units on drop, so a cancelled request releases them as well. The tables hold only tenants that
//! use something; their size is bounded by the number of permits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::access::Caller;

/// The share of a limit that one named token may use, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenShare(u8);

impl TokenShare {
    pub(crate) const DEFAULT: Self = Self(25);

    /// Creates a share of at most 100 percent. Zero is valid: each tenant then gets the minimum of
    /// one unit.
    pub(crate) fn percent(percent: u8) -> Self {
        Self(percent.min(100))
    }

    pub(crate) fn as_percent(self) -> u8 {
        self.0
    }

    /// Returns the number out of `limit` that one named token may use: at least one.
    ///
    /// The computation divides first, so that a limit near `usize::MAX` does not overflow. 25
    /// percent of 8 is 2, and 25 percent of 3 is 1.
    pub(crate) fn of(self, limit: usize) -> usize {
        let percent = usize::from(self.0);
        (limit / 100 * percent + limit % 100 * percent / 100).max(1)
    }

    /// Returns the number out of `limit` that a caller may use. Callers with the scope `admin` may
    /// use all of it.
    pub(crate) fn of_caller(self, limit: usize, caller: &Caller) -> usize {
        if caller.namespace().is_some() {
            self.of(limit).min(limit)
        } else {
            limit
        }
    }
}

/// A quota for a costly resource: a total limit, and a lower one for the tokens of one tenant.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: usize,
    share: TokenShare,
    usage: Mutex<QuotaUsage>,
    /// Wakes the tasks that wait for a permit.
    released: Notify,
}

/// The units in use. `all` includes the units of callers without a namespace, which are in no
/// entry.
#[derive(Debug, Default)]
struct QuotaUsage {
    all: usize,
    /// Contains only tenants that hold permits.
    by_tenant: HashMap<Arc<str>, usize>,
}

/// The quota is exhausted; `limit` is its size for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaFull {
    pub(crate) limit: usize,
}

/// One or more units of a quota, released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    quota: Arc<Quota>,
    tenant: Option<Arc<str>>,
    count: usize,
}

impl Quota {
    pub(crate) fn new(limit: usize, share: TokenShare) -> Arc<Self> {
        Arc::new(Self {
            limit,
            share,
            usage: Mutex::default(),
            released: Notify::new(),
        })
    }

    /// Takes one unit for a caller.
    ///
    /// # Errors
    /// Fails if the total quota or this caller's share is exhausted.
    pub(crate) fn take(self: &Arc<Self>, caller: &Caller) -> Result<Permit, QuotaFull> {
        if self.limit == 0 {
            return Err(QuotaFull { limit: 0 });
        }
        self.take_many(caller, 1)
    }

    /// Waits for one unit for a caller. The number of waiting tasks is bounded, because each
    /// waiting request holds a permit of another quota.
    pub(crate) async fn wait(self: &Arc<Self>, caller: &Caller) -> Permit {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // From here on, a release wakes this task.
            released.as_mut().enable();
            if let Ok(permit) = self.take(caller) {
                return permit;
            }
            released.await;
        }
    }

    /// Takes `count` units, such as bytes. An amount above a caller's whole share is granted only
    /// if the caller holds nothing else.
    ///
    /// # Errors
    /// Fails if the total quota or this caller's share has not enough units left.
    pub(crate) fn take_many(
        self: &Arc<Self>,
        caller: &Caller,
        count: usize,
    ) -> Result<Permit, QuotaFull> {
        let fits = |usage: usize, limit: usize| usage == 0 || usage.saturating_add(count) <= limit;
        let mut usage = self.usage();
        let tenant: Option<Arc<str>> = caller.namespace().map(Into::into);
        let own = tenant
            .as_ref()
            .and_then(|tenant| usage.by_tenant.get(tenant).copied())
            .unwrap_or(0);
        if !fits(usage.all, self.limit) {
            return Err(QuotaFull { limit: self.limit });
        }
        if tenant.is_some() && !fits(own, self.share.of(self.limit)) {
            return Err(QuotaFull {
                limit: self.share.of(self.limit),
            });
        }
        usage.all += count;
        if let Some(tenant) = &tenant
            && count > 0
        {
            *usage.by_tenant.entry(tenant.clone()).or_default() += count;
        }
        drop(usage);
        Ok(Permit {
            quota: self.clone(),
            tenant,
            count,
        })
    }

    /// Returns `true` if the caller's own share is exhausted, so that releases by other tenants do
    /// not help.
    pub(crate) fn is_share_exhausted(&self, caller: &Caller) -> bool {
        let own = caller
            .namespace()
            .and_then(|tenant| self.usage().by_tenant.get(tenant).copied());
        own.is_some_and(|own| own >= self.share.of(self.limit))
    }

    fn usage(&self) -> MutexGuard<'_, QuotaUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Returns the tenant whose share has the units; `None` for a caller without a namespace.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut usage = self.quota.usage();
        usage.all = usage.all.saturating_sub(self.count);
        if let Some(tenant) = &self.tenant
            && let Some(own) = usage.by_tenant.get_mut(tenant)
        {
            *own = own.saturating_sub(self.count);
            if *own == 0 {
                usage.by_tenant.remove(tenant);
            }
        }
        drop(usage);
        self.quota.released.notify_waiters();
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
    fn token_share_is_at_least_one_and_at_most_the_limit() {
        for (percent, limit, expected) in [
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
                TokenShare::percent(percent).of(limit),
                expected,
                "{percent} % of {limit}"
            );
        }
    }

    #[test]
    fn quota_reserves_units_for_other_tenants() {
        let quota = Quota::new(8, TokenShare::DEFAULT);
        let (ann, bob) = (
            caller("ann", TokenScope::Run),
            caller("bob", TokenScope::Read),
        );
        let first = quota.take(&ann).unwrap();
        let _second = quota.take(&ann).unwrap();
        assert_eq!(quota.take(&ann).unwrap_err(), QuotaFull { limit: 2 });
        assert!(quota.is_share_exhausted(&ann) && !quota.is_share_exhausted(&bob));
        // The users of one tenant share its quota.
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
            QuotaFull { limit: 8 }
        );
        drop(first);
        assert!(quota.take(&bob).is_err(), "bob's share is exhausted");
        let again = quota.take(&ann).unwrap();
        drop(again);
        let _admin = quota.take(&caller("top", TokenScope::Admin)).unwrap();
    }

    #[test]
    fn take_many_grants_oversized_amount_only_alone() {
        let quota = Quota::new(100, TokenShare::DEFAULT);
        let (ann, bob) = (
            caller("ann", TokenScope::Run),
            caller("bob", TokenScope::Run),
        );
        let large = quota.take_many(&ann, 40).unwrap();
        assert_eq!(
            quota.take_many(&ann, 1).unwrap_err(),
            QuotaFull { limit: 25 }
        );
        let _small = quota.take_many(&bob, 20).unwrap();
        assert!(
            quota.take_many(&bob, 6).is_err() && quota.take_many(&Caller::owner(), 41).is_err()
        );
        let none = quota.take_many(&ann, 0).unwrap_err();
        assert_eq!(none.limit, 25);
        drop(large);
        let owner = quota.take_many(&Caller::owner(), 80).unwrap();
        assert!(quota.take_many(&ann, 1).is_err());
        drop(owner);
        assert_eq!(quota.usage().all, 20);
    }

    #[test]
    fn quota_removes_tenants_without_permits() {
        let quota = Quota::new(8, TokenShare::DEFAULT);
        for number in 0..100 {
            drop(
                quota
                    .take(&caller(&format!("t{number}"), TokenScope::Read))
                    .unwrap(),
            );
        }
        let usage = quota.usage();
        assert_eq!((usage.all, usage.by_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn wait_returns_when_a_permit_is_released() {
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
    fn quota_of_zero_rejects_every_caller() {
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
