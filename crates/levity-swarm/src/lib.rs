//! Agents that work together: a router and its workers, handoff, debate, a blackboard, and the bus they talk by.

mod bus;
mod lineage;

pub use bus::{Bus, BusMessage, Draft, Lagged, MessageKind, Messages, ReadError, Recipient};
pub use lineage::{Lineage, Origin};
