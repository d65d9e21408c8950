//! Metrics derived from ended spans.
//!
//! Spans follow the semantic conventions for generative AI, so their attributes select the metric:
//! `chat`, `execute_tool`, `invoke_agent` and `invoke_workflow`. Measuring the spans needs no
//! second instrumentation of levity.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::encode::Envelope;
use super::span::{Attributes, Span, Value};

/// The maximum number of series of all metrics. Models choose the names of tools, so their number
/// is unlimited; the rest is counted together.
const MAX_SERIES: usize = 2_000;

const TOKENS: [f64; 14] = [
    1.,
    4.,
    16.,
    64.,
    256.,
    1_024.,
    4_096.,
    16_384.,
    65_536.,
    262_144.,
    1_048_576.,
    4_194_304.,
    16_777_216.,
    67_108_864.,
];
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// A metric: its name, its unit, its description, and the bounds of its buckets.
type Kind = (&'static str, &'static str, &'static str, &'static [f64]);

const USAGE: Kind = (
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens of model calls.",
    &TOKENS,
);
const CALLS: Kind = (
    "gen_ai.client.operation.duration",
    "s",
    "Duration of model calls.",
    &SECONDS,
);
const TOOLS: Kind = (
    "gen_ai.execute_tool.duration",
    "s",
    "Duration of tool calls.",
    &SECONDS,
);
const AGENTS: Kind = (
    "gen_ai.invoke_agent.duration",
    "s",
    "Duration of agent runs.",
    &SECONDS,
);
const WORKFLOWS: Kind = (
    "gen_ai.workflow.duration",
    "s",
    "Duration of swarm and graph runs.",
    &SECONDS,
);
const RUNS: Kind = ("levity.runs", "{run}", "Runs that ended.", &[]);
const DROPPED: Kind = (
    "levity.otlp.dropped",
    "{span}",
    "Spans that were not sent.",
    &[],
);

/// The attributes of a series.
type Key = Vec<(&'static str, String)>;

/// All series, by metric and attributes.
#[derive(Default)]
pub(super) struct Metrics {
    series: BTreeMap<(&'static str, Key), Series>,
}

/// One series: the count, sum and extremes of its values, and the number of values in each bucket.
#[derive(Clone, Default)]
struct Series {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    buckets: Vec<u64>,
}

impl Series {
    fn add(&mut self, value: f64, bounds: &[f64]) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = if self.count == 0 {
            value
        } else {
            self.max.max(value)
        };
        self.count += 1;
        self.sum += value;
        self.buckets.resize(bounds.len() + 1, 0);
        let bucket = bounds.partition_point(|bound| value > *bound);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
    }
}

impl Metrics {
    /// Measures an ended span.
    pub(super) fn record(&mut self, span: &Span) {
        match span.text("gen_ai.operation.name") {
            Some("chat") => self.chat(span),
            Some("execute_tool") => {
                self.add(
                    TOOLS,
                    attributes_of(span, &["gen_ai.tool.name", "error.type"]),
                    span.seconds(),
                );
            }
            Some(operation @ ("invoke_agent" | "invoke_workflow")) => {
                let (kind, name) = match operation {
                    "invoke_agent" => (AGENTS, "gen_ai.agent.name"),
                    _ => (WORKFLOWS, "gen_ai.workflow.name"),
                };
                let operation = "gen_ai.operation.name";
                self.add(
                    kind,
                    attributes_of(span, &[operation, name, "error.type"]),
                    span.seconds(),
                );
                self.add(
                    RUNS,
                    attributes_of(span, &[operation, name, "levity.status"]),
                    1.,
                );
            }
            _ => {}
        }
    }

    /// Counts the tokens and the duration of a model call. A call without usage has only a
    /// duration.
    fn chat(&mut self, span: &Span) {
        let names = [
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "gen_ai.response.model",
        ];
        let mut call = attributes_of(span, &names);
        for (data_kind, field) in [
            ("input", "gen_ai.usage.input_tokens"),
            ("output", "gen_ai.usage.output_tokens"),
        ] {
            if let Some(tokens) = span.int(field) {
                let mut key = call.clone();
                key.push(("gen_ai.token.type", data_kind.to_owned()));
                #[expect(clippy::cast_precision_loss, reason = "no call has 2^53 tokens")]
                self.add(USAGE, key, tokens as f64);
            }
        }
        call.extend(attributes_of(span, &["error.type"]));
        self.add(CALLS, call, span.seconds());
    }

    /// Beyond 2,000 series, values of new ones go to a common series with the attribute
    /// `otel.metric.overflow`.
    fn add(&mut self, kind: Kind, mut key: Key, value: f64) {
        if self.series.len() >= MAX_SERIES && !self.series.contains_key(&(kind.0, key.clone())) {
            key = vec![("otel.metric.overflow", "true".to_owned())];
        }
        self.series
            .entry((kind.0, key))
            .or_default()
            .add(value, kind.3);
    }

    /// Encodes all metrics, cumulative since the start.
    pub(super) fn encode(&self, envelope: &Envelope, started: u64, now: u64, dropped: u64) -> Json {
        let mut metrics = Vec::new();
        for kind in [USAGE, CALLS, TOOLS, AGENTS, WORKFLOWS] {
            let points = self.points(
                kind,
                |series| histogram(series, kind.3),
                envelope,
                started,
                now,
            );
            metrics.extend(metric(kind, "histogram", &points));
        }
        let runs = self.points(
            RUNS,
            |series| json!({"asInt": series.count.to_string()}),
            envelope,
            started,
            now,
        );
        metrics.extend(metric(RUNS, "sum", &runs));
        let mut lost = times(started, now);
        lost["asInt"] = dropped.to_string().into();
        metrics.extend(metric(DROPPED, "sum", &[lost]));
        envelope.metrics(&metrics)
    }

    fn points(
        &self,
        kind: Kind,
        values: impl Fn(&Series) -> Json,
        envelope: &Envelope,
        started: u64,
        now: u64,
    ) -> Vec<Json> {
        let series = self.series.iter().filter(|((name, _), _)| *name == kind.0);
        let point = |((_, key), series): (&(&str, Key), &Series)| {
            let mut point = times(started, now);
            let attributes: Attributes = key
                .iter()
                .map(|(name, value)| (*name, Value::Text(value.clone())))
                .collect();
            point["attributes"] = envelope.attributes(&attributes).into();
            if let (Some(point), Json::Object(values)) = (point.as_object_mut(), values(series)) {
                point.extend(values);
            }
            point
        };
        series.map(point).collect()
    }
}

/// Returns the attributes of a series: those that the span has.
fn attributes_of(span: &Span, names: &[&'static str]) -> Key {
    names
        .iter()
        .filter_map(|name| span.text(name).map(|value| (*name, value.to_owned())))
        .collect()
}

fn times(started: u64, now: u64) -> Json {
    json!({"startTimeUnixNano": started.to_string(), "timeUnixNano": now.to_string()})
}

fn histogram(series: &Series, bounds: &[f64]) -> Json {
    json!({
        "count": series.count.to_string(),
        "sum": series.sum,
        "min": series.min,
        "max": series.max,
        "explicitBounds": bounds,
        "bucketCounts": series.buckets.iter().map(u64::to_string).collect::<Vec<_>>(),
    })
}

fn metric(kind: Kind, data_kind: &str, points: &[Json]) -> Option<Json> {
    if points.is_empty() {
        return None;
    }
    // The temporality is cumulative.
    let mut data = json!({"aggregationTemporality": 2, "dataPoints": points});
    if data_kind == "sum" {
        data["isMonotonic"] = true.into();
    }
    let (name, unit, description, _) = kind;
    Some(json!({"name": name, "unit": unit, "description": description, data_kind: data}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_at_bound_belongs_to_lower_bucket() {
        let mut series = Series::default();
        [0.5, 1., 1.5, 100.]
            .into_iter()
            .for_each(|value| series.add(value, &[1., 10.]));
        assert_eq!(series.buckets, [2, 1, 1]);
        assert_eq!(
            (series.count, series.sum, series.min, series.max),
            (4, 103., 0.5, 100.)
        );
    }

    #[test]
    fn workflow_span_is_measured_by_workflow_name() {
        let mut span = Span::new("run", 1, 1, None, 0);
        for (name, value) in [
            ("gen_ai.operation.name", "invoke_workflow"),
            ("gen_ai.workflow.name", "review"),
        ] {
            span.attributes.push((name, Value::Text(value.to_owned())));
        }
        let mut metrics = Metrics::default();
        metrics.record(&span);
        let named = |key: &Key| key.contains(&("gen_ai.workflow.name", "review".to_owned()));
        let kinds: Vec<_> = metrics.series.keys().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["gen_ai.workflow.duration", "levity.runs"]);
        assert!(
            metrics.series.keys().all(|(_, key)| named(key)),
            "{:?}",
            metrics.series.keys()
        );
    }

    #[test]
    fn series_beyond_limit_are_counted_together() {
        let mut metrics = Metrics::default();
        for number in 0..3 * MAX_SERIES {
            metrics.add(TOOLS, vec![("gen_ai.tool.name", number.to_string())], 1.);
        }
        assert_eq!(metrics.series.len(), MAX_SERIES + 1);
        let all: u64 = metrics.series.values().map(|series| series.count).sum();
        assert_eq!(all, 3 * MAX_SERIES as u64);
    }
}
