//! Tools for levity: registry, dispatcher, policy.
