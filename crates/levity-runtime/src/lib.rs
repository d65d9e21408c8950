//! Drives levity's machines: performs effects, journals, enforces limits, publishes events.
