//! Test kit for levity: scripted models, a manual clock, faults, conformance suites.
