//! Clients that others wrote.
