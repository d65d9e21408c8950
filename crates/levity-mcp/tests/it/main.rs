//! Servers of every kind, and what becomes of them.

mod fixture;
mod servers;
