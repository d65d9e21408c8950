//! The benchmarks of levity are in the folder above; see `docs/performance.md`.
