//! Reads a single step, with the synonyms that models use for its fields.

use levity_core::Money;
use serde_json::{Map, Value};

use super::each_once;
use super::fields::{Fields, id_of, kind_of, plain};
use crate::check::ROOT;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::names::short;
use crate::step::{After, Budget, FanOut, Join, OnFailure, Retry, Step, StepId, StepOptions};

/// The fields of a node that only sessions contain.
const SESSION_FIELDS: [&str; 6] = ["status", "output", "error", "cost", "label", "result"];

/// The fields of a step, with their synonyms.
const FIELDS: [(&str, &str); 20] = [
    ("id", "id"),
    ("agent", "agent"),
    ("description", "description"),
    ("prompt", "prompt"),
    ("agent_prompt", "prompt"),
    ("reads", "reads"),
    ("writes", "writes"),
    ("after", "after"),
    ("depends_on", "after"),
    ("dependencies", "after"),
    ("join", "join"),
    ("when", "when"),
    ("on_failure", "on_failure"),
    ("map", "map"),
    ("code", "code"),
    ("inputs", "inputs"),
    ("retry", "retry"),
    ("timeout", "timeout"),
    ("budget", "budget"),
    ("instead_of", "instead_of"),
];

/// Returns the field that a key means, in its serialized form.
pub(crate) fn field_name(key: &str) -> Option<&'static str> {
    FIELDS
        .iter()
        .find(|(name, _)| plain(name).eq(plain(key)))
        .map(|(_, field)| *field)
}

/// Reads one step; `at` is its position, and `id` its id if that is not in the object.
pub(crate) fn step(
    value: &Value,
    at: usize,
    id: Option<&str>,
    found: &mut FaultCollector,
) -> Option<Step> {
    let Value::Object(map) = value else {
        let message = format!("step {} must be an object, not {}", at + 1, kind_of(value));
        found.push(Fault::new(FaultKind::Malformed, message));
        return None;
    };
    let id = map
        .get("id")
        .and_then(id_of)
        .or_else(|| id.map(StepId::from));
    let place = match &id {
        Some(id) => format!("step `{}`", short(id.as_str())),
        None => format!("step {}", at + 1),
    };
    let mut fields = Fields::new(place, map, found);
    fields.step = id.clone();
    if id.is_none() {
        fields.malformed(|| "`id` is missing; give the step a unique text".into());
    }
    fields.take("id");
    let mut step = Step::new(id?, fields.text("agent").unwrap_or_default());
    read_common_fields(&mut step, &mut fields);
    let more = options(&mut fields);
    step.more = (more != StepOptions::default()).then(|| Box::new(more));
    fields.near_misses(&SESSION_FIELDS);
    each_once(&mut step);
    Some(step)
}

fn read_common_fields(step: &mut Step, fields: &mut Fields) {
    step.description = fields.text("description").unwrap_or_default();
    let prompts = ["prompt", "agent_prompt"].map(|key| fields.text(key));
    step.prompt = prompts.into_iter().flatten().next().unwrap_or_default();
    step.reads = fields.names("reads");
    step.writes = fields.names("writes");
    for key in ["after", "depends_on", "dependencies"] {
        step.after.extend(after(key, fields));
    }
    step.join = join(fields);
    step.when = fields.condition("when");
    step.on_failure = on_failure(fields);
}

/// Reads a list of ids or of objects with `step` and `when`, or a single one. `ROOT` precedes every
/// step anyway.
fn after(key: &'static str, fields: &mut Fields) -> Vec<After> {
    let value = fields.take(key);
    let list = match value {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let mut after = Vec::with_capacity(list.len());
    for value in list {
        if let Some(id) = id_of(value) {
            after.push(After::new(id));
        } else if let Value::Object(map) = value {
            let mut fields = fields.within(key, map);
            let id = fields
                .take_any(&["step", "id", "source"])
                .and_then(|(_, value)| id_of(value));
            let when = fields.condition("when");
            match id {
                Some(id) => after.push(After {
                    when,
                    ..After::new(id)
                }),
                None => fields.malformed(|| "`step` must be the id of a step".into()),
            }
        } else {
            fields.expected::<()>(key, "a list of ids of steps", value);
        }
    }
    after.retain(|after| after.step.as_str() != ROOT);
    after
}

fn join(fields: &mut Fields) -> Join {
    let join = fields.text("join");
    match join.as_deref() {
        None | Some("all") => Join::All,
        Some("any") => Join::Any,
        Some(_) => {
            fields.malformed(|| "`join` must be \"all\" or \"any\"".into());
            Join::All
        }
    }
}

fn on_failure(fields: &mut Fields) -> OnFailure {
    let policy = match fields.take("on_failure") {
        None => Some(OnFailure::Fail),
        Some(Value::String(name)) => match name.as_str() {
            "fail" => Some(OnFailure::Fail),
            "skip" => Some(OnFailure::Skip),
            "continue" => Some(OnFailure::Continue),
            _ => None,
        },
        Some(value) => value
            .get("fallback")
            .and_then(id_of)
            .map(OnFailure::Fallback),
    };
    policy.unwrap_or_else(|| {
        let forms =
            "`on_failure` must be \"fail\", \"skip\", \"continue\" or {\"fallback\": \"<id of a \
                step>\"}";
        fields.malformed(|| forms.into());
        OnFailure::Fail
    })
}

fn options(fields: &mut Fields) -> StepOptions {
    StepOptions {
        map: fan_out(fields),
        code: code(fields),
        inputs: inputs(fields),
        retry: retry(fields),
        timeout: fields.seconds("timeout"),
        budget: budget(fields),
        instead_of: fields.id("instead_of"),
    }
}

fn fan_out(fields: &mut Fields) -> Option<FanOut> {
    let map = match fields.take("map")? {
        Value::String(over) => return Some(FanOut::over(over.as_str())),
        Value::Object(map) => map,
        other => return fields.expected("map", "an object with `over`", other),
    };
    let mut fields = fields.within("map", map);
    let Some(over) = fields.text("over") else {
        fields.malformed(|| "`over` must name the variable that contains the list".into());
        return None;
    };
    let mut fan_out = FanOut::over(over);
    fan_out.name = fields.text("as").unwrap_or(fan_out.name);
    fan_out.max_items = fields.size("most").unwrap_or(fan_out.max_items);
    fan_out.quorum = fields.size("quorum");
    fan_out.stop_early = fields.flag("stop_early");
    fan_out.reducer = fields.reducer("reducer").unwrap_or_default();
    fields.near_misses(&[]);
    Some(fan_out)
}

/// Reads a text, or the variants as a list or an object.
fn code(fields: &mut Fields) -> Vec<String> {
    let Some(value) = fields.take("code") else {
        return Vec::new();
    };
    let variants: Vec<&Value> = match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        one => vec![one],
    };
    let texts: Option<Vec<_>> = variants
        .into_iter()
        .map(|code| code.as_str().map(str::to_owned))
        .collect();
    texts.unwrap_or_else(|| {
        fields
            .expected("code", "a text or a list of texts", value)
            .unwrap_or_default()
    })
}

fn inputs(fields: &mut Fields) -> Map<String, Value> {
    match fields.take("inputs") {
        None => Map::new(),
        Some(Value::Object(map)) => map.clone(),
        Some(other) => fields
            .expected("inputs", "an object of names and values", other)
            .unwrap_or_default(),
    }
}

/// Reads a number of attempts, or an object.
fn retry(fields: &mut Fields) -> Retry {
    let attempts = |whole: u64| Retry::attempts(u32::try_from(whole).unwrap_or(u32::MAX));
    match fields.take("retry") {
        None => Retry::default(),
        Some(Value::Number(_)) => fields.whole("retry").map_or_else(Retry::default, attempts),
        Some(Value::Object(map)) => {
            let mut fields = fields.within("retry", map);
            let retry = fields
                .whole("attempts")
                .map_or_else(Retry::default, attempts);
            let pause = fields.seconds("pause").unwrap_or(Retry::DEFAULT_PAUSE);
            fields.near_misses(&[]);
            retry.pause(pause)
        }
        Some(other) => fields
            .expected("retry", "a number of attempts", other)
            .unwrap_or_default(),
    }
}

fn budget(fields: &mut Fields) -> Option<Budget> {
    let map = match fields.take("budget")? {
        Value::Object(map) => map,
        other => return fields.expected("budget", "an object, such as {\"tokens\": 10000}", other),
    };
    let mut fields = fields.within("budget", map);
    let budget = Budget {
        tokens: fields.whole("tokens"),
        money: fields.number("money").map(Money::from_dollars),
        model_calls: fields.whole("model_calls"),
        tool_calls: fields.whole("tool_calls"),
    };
    fields.near_misses(&[]);
    Some(budget)
}
