//! Agents that work together: a router and its workers, handoff, debate, a blackboard, and the bus they talk by.
