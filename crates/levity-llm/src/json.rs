//! Robust JSON from what a model wrote.
