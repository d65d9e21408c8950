//! Benchmarks live beside this package; see `docs/performance.md`.
