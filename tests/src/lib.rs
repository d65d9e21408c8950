//! Whole scenarios through the facade live in `scenarios/`.
