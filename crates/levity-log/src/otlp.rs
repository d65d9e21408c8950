//! Spans and metrics to an OpenTelemetry collector.
