//! Configuration from the standard environment variables.
//!
//! The names and defaults follow the OpenTelemetry specification. Errors name the variable and
//! never its value, because headers contain keys.

use std::time::Duration;

use super::OtlpBuilder;
use super::export::Endpoint;
use crate::error::{Error, Result};

/// The default address of a collector.
const DEFAULT: &str = "http://localhost:4318";

impl OtlpBuilder {
    /// Creates a builder from the standard variables; `None` if they disable the export. `var`
    /// returns the value of a variable.
    ///
    /// The variables are `OTEL_SDK_DISABLED`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
    /// `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_BSP_SCHEDULE_DELAY`,
    /// `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_EXPORTER_OTLP_TIMEOUT`, and `OTEL_EXPORTER_OTLP_*` with
    /// `ENDPOINT`, `HEADERS` and `PROTOCOL`, also as `OTEL_EXPORTER_OTLP_TRACES_*` and
    /// `OTEL_EXPORTER_OTLP_METRICS_*`.
    ///
    /// ```
    /// # use levity_log::OtlpBuilder;
    /// let var = |name: &str| (name == "OTEL_SDK_DISABLED").then(|| "true".to_owned());
    /// assert!(OtlpBuilder::from_vars(var).unwrap().is_none());
    /// ```
    ///
    /// # Errors
    /// If a variable has an invalid value.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let var = |name: &str| {
            var(name)
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        if var("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let mut builder = Self::new(DEFAULT);
        builder.traces = endpoint(&var, "TRACES", "v1/traces")?;
        builder.metrics = endpoint(&var, "METRICS", "v1/metrics")?;
        if builder.traces.is_none() && builder.metrics.is_none() {
            return Ok(None);
        }
        for (name, value) in parse_pairs(
            var("OTEL_RESOURCE_ATTRIBUTES").as_deref(),
            "OTEL_RESOURCE_ATTRIBUTES",
        )? {
            builder = builder.attribute(name, value);
        }
        if let Some(name) = var("OTEL_SERVICE_NAME") {
            builder = builder.service(name);
        }
        builder.timeout =
            parse_millis(&var, "OTEL_EXPORTER_OTLP_TIMEOUT")?.unwrap_or(builder.timeout);
        builder.delay = parse_millis(&var, "OTEL_BSP_SCHEDULE_DELAY")?.unwrap_or(builder.delay);
        builder.interval =
            parse_millis(&var, "OTEL_METRIC_EXPORT_INTERVAL")?.unwrap_or(builder.interval);
        Ok(Some(builder))
    }
}

/// Returns the endpoint of one signal, if it is enabled.
fn endpoint(
    var: &impl Fn(&str) -> Option<String>,
    signal: &str,
    path: &str,
) -> Result<Option<Endpoint>> {
    if var(&format!("OTEL_{signal}_EXPORTER")).is_some_and(|value| value == "none") {
        return Ok(None);
    }
    let signal_var = |suffix: &str| var(&format!("OTEL_EXPORTER_OTLP_{signal}_{suffix}"));
    let common_var = |suffix: &str| var(&format!("OTEL_EXPORTER_OTLP_{suffix}"));
    if signal_var("PROTOCOL")
        .or_else(|| common_var("PROTOCOL"))
        .is_some_and(|protocol| protocol == "grpc")
    {
        let reason = "`grpc` is not supported; use `http/json` and the collector's port \
            for HTTP, usually 4318";
        return Err(invalid("OTEL_EXPORTER_OTLP_PROTOCOL", reason));
    }
    let mut endpoint = match signal_var("ENDPOINT") {
        Some(address) => Endpoint {
            address,
            headers: Vec::new(),
        },
        None => Endpoint::of(
            &common_var("ENDPOINT").unwrap_or_else(|| DEFAULT.to_owned()),
            path,
        ),
    };
    let headers = signal_var("HEADERS").or_else(|| common_var("HEADERS"));
    endpoint.headers = parse_pairs(headers.as_deref(), "OTEL_EXPORTER_OTLP_HEADERS")?;
    Ok(Some(endpoint))
}

/// Parses `a=1,b=2`, where special characters are percent-encoded, such as `%2C`.
fn parse_pairs(text: Option<&str>, setting: &'static str) -> Result<Vec<(String, String)>> {
    let parts = text
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pair = |part: &str| match part.split_once('=') {
        // The value may be a key, so it is not shown.
        None => Err(invalid(
            setting,
            "expected a list like `name=value,other=value`",
        )),
        Some((name, value)) => Ok((name.trim().to_owned(), percent_decode(value.trim()))),
    };
    parts.map(pair).collect()
}

/// Replaces `%2C` and the like; a `%` without two hexadecimal digits stays as it is.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            .filter(|_| *first == b'%')
        {
            Some(byte) => {
                bytes.push(byte);
                rest = more.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse_millis(
    var: &impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<Option<Duration>> {
    let read = |value: String| {
        let number = value.parse::<u64>().map(Duration::from_millis);
        number.map_err(|_| invalid(name, "expected a number of milliseconds"))
    };
    var(name).map(read).transpose()
}

fn invalid(setting: &'static str, reason: &str) -> Error {
    Error::Setting {
        setting,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(vars: &'static [(&str, &str)]) -> Result<Option<OtlpBuilder>> {
        let find = |name: &str| {
            vars.iter()
                .find(|(other, _)| *other == name)
                .map(|(_, value)| (*value).to_owned())
        };
        OtlpBuilder::from_vars(find)
    }

    #[test]
    fn from_vars_without_variables_uses_local_collector() {
        let builder = from(&[]).unwrap().unwrap();
        assert_eq!(
            builder.traces.unwrap().address,
            "http://localhost:4318/v1/traces"
        );
        assert_eq!(
            builder.metrics.unwrap().address,
            "http://localhost:4318/v1/metrics"
        );
    }

    #[test]
    fn from_vars_reads_each_variable() {
        let builder = from(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base/"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:2/exactly"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%2Cb, other = 2"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "m=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=lost,team=red"),
            ("OTEL_SERVICE_NAME", "agent"),
        ]);
        let builder = builder.unwrap().unwrap();
        let (traces, metrics) = (
            builder.traces.clone().unwrap(),
            builder.metrics.clone().unwrap(),
        );
        assert_eq!(traces.address, "http://c:1/base/v1/traces");
        assert_eq!(metrics.address, "http://m:2/exactly");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(traces.headers, [pair("x-key", "a,b"), pair("other", "2")]);
        assert_eq!(metrics.headers, [pair("m", "1")]);
        assert_eq!(builder.timeout, Duration::from_millis(1500));
        assert_eq!(
            builder.resource,
            [pair("team", "red"), pair("service.name", "agent")]
        );
        assert!(!format!("{builder:?}").contains("a,b"));
    }

    #[test]
    fn from_vars_names_invalid_variable_without_its_value() {
        for (vars, setting) in [
            (
                &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")][..],
                "OTEL_EXPORTER_OTLP_PROTOCOL",
            ),
            (
                &[("OTEL_EXPORTER_OTLP_HEADERS", "sk-secret")][..],
                "OTEL_EXPORTER_OTLP_HEADERS",
            ),
            (
                &[("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")][..],
                "OTEL_EXPORTER_OTLP_TIMEOUT",
            ),
        ] {
            let error = from(vars).unwrap_err();
            assert!(
                error.to_string().contains(setting) && !error.to_string().contains("sk-secret"),
                "{error}"
            );
        }
        assert!(
            from(&[
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none")
            ])
            .unwrap()
            .is_none()
        );
    }
}
