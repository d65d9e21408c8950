//! The tests of whole scenarios through the facade are in `scenarios/`.
