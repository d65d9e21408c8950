//! Slots for connections: few for unauthenticated ones, and the rest reserved for authenticated
//! ones.
//!
//! A new connection always gets a slot: if none is free, the oldest unauthenticated connection of
//! the busiest address is closed. Attackers thereby evict mostly themselves. Once a connection has
//! presented a token, it moves to the authenticated slots and is never evicted. All counters live
//! under one mutex, which is never held across an `await`.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::CancelToken;
use tokio::sync::watch;

use super::ConnectionLimits;

/// All connection slots of a listener.
pub(super) struct Slots {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

/// Connection ids increase, so the first entry of `unauthenticated` is the oldest one.
#[derive(Default)]
struct Table {
    next: u64,
    /// Unauthenticated connections, the oldest first.
    unauthenticated: BTreeMap<u64, UnauthenticatedConnection>,
    per_address: HashMap<IpAddr, usize>,
    /// The number of authenticated connections by tenant.
    authenticated: HashMap<Option<Arc<str>>, usize>,
    authenticated_count: usize,
}

/// The address that a connection counts towards, and the token that closes it.
struct UnauthenticatedConnection {
    address: IpAddr,
    evict: CancelToken,
}

/// The reason for which a connection gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// The maximum number of authenticated connections is open.
    Full,
    /// The maximum number of connections with this token is open.
    FullForToken,
    /// The connection was closed to make room.
    Evicted,
}

/// The slot of one connection, released on drop.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    address: IpAddr,
    evict: CancelToken,
    /// The tenant's name, once the connection has presented a token.
    state: watch::Sender<Option<Option<Arc<str>>>>,
}

impl Slots {
    /// Creates slots without connections. Limits of zero are treated as one where they are used.
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            table: Mutex::default(),
        })
    }

    /// Returns a slot for a new connection, and the number of connections that were closed for it.
    ///
    /// If no slot is free, the connection that has waited longest is closed: one of the same
    /// address if that has too many, else one of the address with the most. Clients at one address
    /// therefore cannot lock out others, and silent clients cannot lock out active ones.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> (Slot, usize) {
        let address = group(address);
        let evict = CancelToken::new();
        let mut table = self.table();
        let mut closed = 0;
        while table
            .per_address
            .get(&address)
            .is_some_and(|count| *count >= self.limits.per_address.max(1))
        {
            closed += usize::from(table.evict(address));
        }
        while table.unauthenticated.len() >= self.limits.unauthenticated.max(1) {
            let Some(busiest) = table.busiest() else {
                break;
            };
            closed += usize::from(table.evict(busiest));
        }
        let id = table.next;
        table.next += 1;
        table.unauthenticated.insert(
            id,
            UnauthenticatedConnection {
                address,
                evict: evict.clone(),
            },
        );
        *table.per_address.entry(address).or_default() += 1;
        drop(table);
        let state = watch::Sender::new(None);
        (
            Slot {
                slots: self.clone(),
                id,
                address,
                evict,
                state,
            },
            closed,
        )
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Closes the oldest connection of an address.
    fn evict(&mut self, address: IpAddr) -> bool {
        let oldest = self
            .unauthenticated
            .iter()
            .find(|(_, connection)| connection.address == address)
            .map(|(id, _)| *id);
        match oldest.and_then(|id| self.remove(id)) {
            Some(connection) => {
                connection.evict.cancel();
                true
            }
            // The count is inconsistent. Removing it prevents an endless loop in the caller.
            None => {
                self.per_address.remove(&address);
                false
            }
        }
    }

    /// Returns the address with the most unauthenticated connections.
    fn busiest(&self) -> Option<IpAddr> {
        self.per_address
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(address, _)| *address)
    }

    fn remove(&mut self, id: u64) -> Option<UnauthenticatedConnection> {
        let connection = self.unauthenticated.remove(&id)?;
        if let Some(count) = self.per_address.get_mut(&connection.address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&connection.address);
            }
        }
        Some(connection)
    }
}

impl Slot {
    /// Marks the connection as authenticated, until it closes.
    ///
    /// The first token of a connection decides; later requests on it return at once. An evicted
    /// connection is not admitted any more, even if its token arrives a moment later.
    pub(crate) fn admit(&self, name: Option<&str>) -> Result<(), NoSlot> {
        let mut table = self.slots.table();
        if self.state.borrow().is_some() {
            return Ok(());
        }
        if !table.unauthenticated.contains_key(&self.id) {
            return Err(NoSlot::Evicted);
        }
        let limits = &self.slots.limits;
        if table.authenticated_count >= limits.authenticated.max(1) {
            return Err(NoSlot::Full);
        }
        let name: Option<Arc<str>> = name.map(Into::into);
        let count = table.authenticated.entry(name.clone()).or_default();
        // The limit per token does not apply to the owner of the server.
        if name.is_some() && *count >= limits.per_token.max(1) {
            return Err(NoSlot::FullForToken);
        }
        *count += 1;
        table.authenticated_count += 1;
        table.remove(self.id);
        drop(table);
        self.state.send_replace(Some(name));
        Ok(())
    }

    /// Waits until the connection is authenticated.
    pub(super) async fn admitted(&self) {
        let mut state = self.state.subscribe();
        // The wait cannot fail: the sender lives as long as `self`.
        let _ = state.wait_for(Option::is_some).await;
    }

    /// Waits until the connection must make room for another one.
    pub(super) async fn evicted(&self) {
        self.evict.cancelled().await;
    }

    /// Returns the address, or the IPv6 network that counts as one address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.slots.table();
        match self.state.borrow().as_ref() {
            None => {
                table.remove(self.id);
            }
            Some(name) => {
                table.authenticated_count -= 1;
                if let Some(count) = table.authenticated.get_mut(name) {
                    *count -= 1;
                    if *count == 0 {
                        table.authenticated.remove(name);
                    }
                }
            }
        }
    }
}

/// Returns the address by which connections are counted. A whole IPv6 /64 network counts as
/// one, because one client owns it.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(
        unauthenticated: usize,
        per_address: usize,
        authenticated: usize,
        per_token: usize,
    ) -> Arc<Slots> {
        Slots::new(ConnectionLimits {
            unauthenticated,
            per_address,
            authenticated,
            per_token,
            ..Default::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn enter_beyond_address_limit_evicts_its_oldest_connection() {
        let slots = slots(10, 2, 10, 10);
        let (first, _) = slots.enter(ip("10.0.0.1"));
        let (other, _) = slots.enter(ip("10.0.0.2"));
        let (second, _) = slots.enter(ip("10.0.0.1"));
        let (third, closed) = slots.enter(ip("10.0.0.1"));
        assert_eq!(closed, 1);
        assert!(
            first.evict.is_cancelled()
                && !second.evict.is_cancelled()
                && !other.evict.is_cancelled()
        );
        assert_eq!(first.admit(None), Err(NoSlot::Evicted));
        assert_eq!(third.admit(None), Ok(()));
        drop((first, second, other, third));
        let table = slots.table();
        assert!(
            table.unauthenticated.is_empty()
                && table.per_address.is_empty()
                && table.authenticated.is_empty()
        );
        assert_eq!(table.authenticated_count, 0);
    }

    #[test]
    fn enter_beyond_total_limit_evicts_from_the_busiest_address() {
        let slots = slots(4, 4, 10, 10);
        let crowd: Vec<_> = (0..3).map(|_| slots.enter(ip("10.0.0.1")).0).collect();
        let (other, _) = slots.enter(ip("10.0.0.2"));
        let (_third, _) = slots.enter(ip("10.0.0.3"));
        assert!(
            crowd[0].evict.is_cancelled()
                && !crowd[1].evict.is_cancelled()
                && !other.evict.is_cancelled()
        );
    }

    #[test]
    fn authenticated_connections_are_never_evicted() {
        let slots = slots(2, 2, 3, 2);
        let authenticated: Vec<_> = (0..2)
            .map(|_| {
                let (slot, _) = slots.enter(ip("127.0.0.1"));
                slot.admit(Some("ci")).unwrap();
                slot
            })
            .collect();
        let unauthenticated: Vec<_> = (0..50).map(|_| slots.enter(ip("127.0.0.1")).0).collect();
        assert!(authenticated.iter().all(|slot| !slot.evict.is_cancelled()));
        assert_eq!(
            unauthenticated
                .iter()
                .filter(|slot| slot.evict.is_cancelled())
                .count(),
            48
        );
        let last = &unauthenticated[49];
        assert_eq!(last.admit(Some("ci")), Err(NoSlot::FullForToken));
        assert_eq!(last.admit(Some("bob")), Ok(()));
        assert_eq!(unauthenticated[48].admit(Some("eve")), Err(NoSlot::Full));
        assert_eq!(
            authenticated[0].admit(Some("ci")),
            Ok(()),
            "a second admission changes nothing"
        );
    }

    #[test]
    fn group_maps_an_ipv6_network_to_one_address() {
        assert_eq!(group(ip("2001:db8::1")), group(ip("2001:db8::ffff:2")));
        assert_ne!(group(ip("2001:db8::1")), group(ip("2001:db8:0:1::1")));
        assert_eq!(group(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
        assert_eq!(group(ip("::1")), ip("::1"));
    }
}
