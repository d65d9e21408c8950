//! What runs do, in log files and to OpenTelemetry.
