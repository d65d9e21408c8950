//! Layers: each wraps a model and is one, so they compose in any order.
