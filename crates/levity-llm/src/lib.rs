//! Models for levity: providers behind [`Model`](levity_core::Model), and layers that wrap a model and are
//! one.

pub mod json;
pub mod layers;
