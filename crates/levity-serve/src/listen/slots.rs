//! Places for connections: few for those that have shown no token, and the rest for those that
//! have.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::CancelToken;
use tokio::sync::watch;

use super::ConnectionLimits;

/// All places of a listener.
pub(super) struct Slots {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// Connections without a token, the oldest first.
    strangers: BTreeMap<u64, Stranger>,
    per_address: HashMap<IpAddr, usize>,
    /// How many connections have shown a token, by its name.
    known: HashMap<Option<Arc<str>>, usize>,
    known_count: usize,
}

struct Stranger {
    address: IpAddr,
    evict: CancelToken,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// As many connections have shown a token as may.
    Full,
    /// As many have shown this one.
    FullForToken,
    /// The connection was closed to make room.
    Evicted,
}

/// One connection's place, given back when it is dropped.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    address: IpAddr,
    evict: CancelToken,
    /// The token's name, once one was shown.
    state: watch::Sender<Option<Option<Arc<str>>>>,
}

impl Slots {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            table: Mutex::default(),
        })
    }

    /// A place for a connection that has shown nothing yet. When there is none, the connection
    /// closes that has waited longest: one of the same address when that has too many, else one of
    /// the address that has most. So clients at one address cannot lock out others, and those that
    /// send nothing cannot lock out the ones that do. The second value counts connections that were
    /// closed for it.
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
        while table.strangers.len() >= self.limits.unauthenticated.max(1) {
            let Some(busiest) = table.busiest() else {
                break;
            };
            closed += usize::from(table.evict(busiest));
        }
        let id = table.next;
        table.next += 1;
        table.strangers.insert(
            id,
            Stranger {
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
            .strangers
            .iter()
            .find(|(_, stranger)| stranger.address == address)
            .map(|(id, _)| *id);
        match oldest.and_then(|id| self.remove(id)) {
            Some(stranger) => {
                stranger.evict.cancel();
                true
            }
            // The count is wrong; it must not be waited for.
            None => {
                self.per_address.remove(&address);
                false
            }
        }
    }

    fn busiest(&self) -> Option<IpAddr> {
        self.per_address
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(address, _)| *address)
    }

    fn remove(&mut self, id: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&id)?;
        if let Some(count) = self.per_address.get_mut(&stranger.address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&stranger.address);
            }
        }
        Some(stranger)
    }
}

impl Slot {
    /// Moves the connection to those that have shown a token. It stays there until it closes.
    pub(crate) fn admit(&self, name: Option<&str>) -> Result<(), NoSlot> {
        let mut table = self.slots.table();
        if self.state.borrow().is_some() {
            return Ok(());
        }
        if !table.strangers.contains_key(&self.id) {
            return Err(NoSlot::Evicted);
        }
        let limits = &self.slots.limits;
        if table.known_count >= limits.authenticated.max(1) {
            return Err(NoSlot::Full);
        }
        let name: Option<Arc<str>> = name.map(Into::into);
        let count = table.known.entry(name.clone()).or_default();
        // The owner of the server is held up by nobody else's limit.
        if name.is_some() && *count >= limits.per_token.max(1) {
            return Err(NoSlot::FullForToken);
        }
        *count += 1;
        table.known_count += 1;
        table.remove(self.id);
        drop(table);
        self.state.send_replace(Some(name));
        Ok(())
    }

    /// Waits until the connection has shown a token.
    pub(super) async fn admitted(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as this.
        let _ = state.wait_for(Option::is_some).await;
    }

    /// Waits until the connection must make room for another.
    pub(super) async fn evicted(&self) {
        self.evict.cancelled().await;
    }

    /// The address, or the network that counts as one.
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
                table.known_count -= 1;
                if let Some(count) = table.known.get_mut(name) {
                    *count -= 1;
                    if *count == 0 {
                        table.known.remove(name);
                    }
                }
            }
        }
    }
}

/// What counts as one address: one client has all of an IPv6 network of 64 bits.
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
    fn crowded_address_loses_its_own_oldest_connection() {
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
            table.strangers.is_empty() && table.per_address.is_empty() && table.known.is_empty()
        );
        assert_eq!(table.known_count, 0);
    }

    #[test]
    fn full_house_closes_a_connection_of_the_busiest_address() {
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
    fn connections_with_a_token_are_never_closed_for_strangers() {
        let slots = slots(2, 2, 3, 2);
        let known: Vec<_> = (0..2)
            .map(|_| {
                let (slot, _) = slots.enter(ip("127.0.0.1"));
                slot.admit(Some("ci")).unwrap();
                slot
            })
            .collect();
        let strangers: Vec<_> = (0..50).map(|_| slots.enter(ip("127.0.0.1")).0).collect();
        assert!(known.iter().all(|slot| !slot.evict.is_cancelled()));
        assert_eq!(
            strangers
                .iter()
                .filter(|slot| slot.evict.is_cancelled())
                .count(),
            48
        );
        let last = &strangers[49];
        assert_eq!(last.admit(Some("ci")), Err(NoSlot::FullForToken));
        assert_eq!(last.admit(Some("bob")), Ok(()));
        assert_eq!(strangers[48].admit(Some("eve")), Err(NoSlot::Full));
        assert_eq!(known[0].admit(Some("ci")), Ok(()), "once is enough");
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        assert_eq!(group(ip("2001:db8::1")), group(ip("2001:db8::ffff:2")));
        assert_ne!(group(ip("2001:db8::1")), group(ip("2001:db8:0:1::1")));
        assert_eq!(group(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
        assert_eq!(group(ip("::1")), ip("::1"));
    }
}
