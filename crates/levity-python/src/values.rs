//! Conversion between JSON and Python values.
//!
//! Results convert leniently, since a model or person reads them: sets become lists and huge
//! numbers become text. Arguments of tool calls convert strictly, since a tool acts on them: a
//! value without a JSON form is an error of the program. Both stop at 48 levels, because a deeper
//! value could not be read back from the journal.

use monty_types::{DictPairs, MontyObject};
use serde_json::{Map, Number, Value};

/// The maximum nesting of a value, which the reader of the journal must support too.
pub(crate) const MAX_DEPTH: usize = 48;

/// The maximum size of an integer that is written as digits, as in Python itself.
const MAX_BITS: u64 = 14_284;

/// Converts JSON into a Python value.
pub(crate) fn to_python(value: &Value) -> MontyObject {
    match value {
        Value::Null => MontyObject::None,
        Value::Bool(value) => MontyObject::Bool(*value),
        Value::Number(number) => number_to_python(number),
        Value::String(text) => MontyObject::String(text.clone()),
        Value::Array(list) => MontyObject::List(list.iter().map(to_python).collect()),
        Value::Object(map) => MontyObject::Dict(DictPairs::from(
            map.iter()
                .map(|(key, value)| (MontyObject::String(key.clone()), to_python(value)))
                .collect::<Vec<_>>(),
        )),
    }
}

/// Integers stay integers up to the size of `u64`; only fractions become floats.
fn number_to_python(number: &Number) -> MontyObject {
    if let Some(number) = number.as_i64() {
        return MontyObject::Int(number);
    }
    match number.as_u64() {
        Some(number) => MontyObject::BigInt(number.into()),
        None => MontyObject::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// Converts a Python value into JSON. Values without a JSON form become Python's text.
pub(crate) fn to_json(value: &MontyObject) -> Value {
    json(value, MAX_DEPTH)
}

/// Converts a value; `depth` is the number of levels that may follow, and deeper ones become
/// `[...]` or `{...}`.
fn json(value: &MontyObject, depth: usize) -> Value {
    let list = |list: &[MontyObject]| match depth {
        0 => Value::String("[...]".to_owned()),
        depth => list.iter().map(|value| json(value, depth - 1)).collect(),
    };
    match value {
        MontyObject::None => Value::Null,
        MontyObject::Bool(value) => Value::Bool(*value),
        MontyObject::Int(number) => Value::from(*number),
        // Formatting a huge number takes longer than computing it.
        MontyObject::BigInt(number) if number.bits() > MAX_BITS => {
            Value::String(format!("<int of {} bits>", number.bits()))
        }
        MontyObject::BigInt(number) => {
            u64::try_from(number).map_or_else(|_| Value::String(number.to_string()), Value::from)
        }
        MontyObject::Float(number) => float(*number),
        MontyObject::String(text) => Value::String(text.clone()),
        MontyObject::List(values)
        | MontyObject::Tuple(values)
        | MontyObject::Set(values)
        | MontyObject::FrozenSet(values) => list(values),
        MontyObject::NamedTuple {
            field_names,
            values,
            ..
        } => {
            let fields = field_names.iter().cloned().zip(values);
            object(fields, depth)
        }
        MontyObject::Dict(pairs) => {
            object(pairs.iter().map(|(key, value)| (text(key), value)), depth)
        }
        MontyObject::ClassInstance(instance) => object(
            instance.attrs.iter().map(|(key, value)| (text(key), value)),
            depth,
        ),
        MontyObject::Path(path) => Value::String(path.clone()),
        other => Value::String(text(other)),
    }
}

fn object<'a>(pairs: impl Iterator<Item = (String, &'a MontyObject)>, depth: usize) -> Value {
    match depth {
        0 => Value::String("{...}".to_owned()),
        depth => Value::Object(
            pairs
                .map(|(key, value)| (key, json(value, depth - 1)))
                .collect::<Map<_, _>>(),
        ),
    }
}

/// Converts a float; infinities have no form in JSON.
fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(
        || Value::String(number.to_string().to_lowercase()),
        Value::Number,
    )
}

/// Formats a value like `str()`, which for dates is ISO 8601.
fn text(value: &MontyObject) -> String {
    match value {
        MontyObject::Repr(text) => text.clone(),
        MontyObject::None => "null".to_owned(),
        MontyObject::Bool(value) => value.to_string(),
        MontyObject::Date(date) => format!("{:04}-{:02}-{:02}", date.year, date.month, date.day),
        MontyObject::DateTime(at) => {
            let (date, time) = (
                format!("{:04}-{:02}-{:02}", at.year, at.month, at.day),
                clock(at.hour, at.minute, at.second, at.microsecond),
            );
            format!(
                "{date}T{time}{}",
                at.offset_seconds.map_or_else(String::new, offset)
            )
        }
        MontyObject::Time(at) => clock(at.hour, at.minute, at.second, at.microsecond),
        other => other.to_string(),
    }
}

/// Formats a time of day; microseconds appear only if there are any.
fn clock(hour: u8, minute: u8, second: u8, micros: u32) -> String {
    match micros {
        0 => format!("{hour:02}:{minute:02}:{second:02}"),
        micros => format!("{hour:02}:{minute:02}:{second:02}.{micros:06}"),
    }
}

/// Formats an offset from UTC, such as `+02:00`.
fn offset(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Converts an argument of a call into JSON; unlike a result, it must convert exactly.
///
/// # Errors
/// Returns the type of a value without a JSON form.
pub(crate) fn argument(value: &MontyObject, depth: usize) -> Result<Value, String> {
    let deeper = || {
        depth
            .checked_sub(1)
            .ok_or_else(|| "nesting deeper than 48 levels".to_owned())
    };
    match value {
        MontyObject::None
        | MontyObject::Bool(_)
        | MontyObject::Int(_)
        | MontyObject::String(_)
        | MontyObject::Path(_) => Ok(json(value, 0)),
        MontyObject::Float(number) if number.is_finite() => Ok(json(value, 0)),
        MontyObject::Date(_) | MontyObject::DateTime(_) | MontyObject::Time(_) => {
            Ok(json(value, 0))
        }
        MontyObject::BigInt(number) if u64::try_from(number).is_ok() => Ok(json(value, 0)),
        MontyObject::BigInt(_) => Err("a number beyond 64 bits".to_owned()),
        MontyObject::List(values)
        | MontyObject::Tuple(values)
        | MontyObject::Set(values)
        | MontyObject::FrozenSet(values) => {
            let depth = deeper()?;
            values
                .iter()
                .map(|value| argument(value, depth))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from)
        }
        MontyObject::Dict(pairs) => {
            let depth = deeper()?;
            let pair = |(key, value): &(MontyObject, MontyObject)| match key {
                MontyObject::String(key) => Ok((key.clone(), argument(value, depth)?)),
                other => Err(format!("a dict with a key of type {}", other.type_name())),
            };
            pairs
                .iter()
                .map(pair)
                .collect::<Result<Map<_, _>, _>>()
                .map(Value::Object)
        }
        MontyObject::Cycle(..) => Err("a value that contains itself".to_owned()),
        MontyObject::Float(_) => Err("a float that is not a number".to_owned()),
        other => Err(format!("a value of type {}", other.type_name())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_survives_conversion_to_python_and_back() {
        let value = json!({"a": [1, -2.5, true, null, "x"], "big": u64::MAX, "o": {"k": {}}});
        assert_eq!(to_json(&to_python(&value)), value);
        assert_eq!(argument(&to_python(&value), MAX_DEPTH), Ok(value));
    }

    #[test]
    fn values_without_json_form_become_text() {
        assert_eq!(to_json(&MontyObject::Float(f64::INFINITY)), json!("inf"));
        assert_eq!(to_json(&MontyObject::Bytes(vec![65])), json!("b'A'"));
        let huge = MontyObject::BigInt(u64::MAX.into());
        assert_eq!(to_json(&huge), json!(u64::MAX));
        assert!(argument(&MontyObject::Bytes(vec![65]), 1).is_err());
    }

    #[test]
    fn large_integers_become_digits_up_to_limit() {
        let MontyObject::BigInt(large) = MontyObject::BigInt(u64::MAX.into()) else {
            panic!()
        };
        assert_eq!(
            to_json(&MontyObject::BigInt(large.clone() * 10)),
            json!("184467440737095516150")
        );
        assert_eq!(
            to_json(&MontyObject::BigInt(large.pow(1000))),
            json!("<int of 64000 bits>")
        );
    }

    #[test]
    fn deeply_nested_values_are_cut() {
        let mut value = MontyObject::Int(1);
        for _ in 0..100 {
            value = MontyObject::List(vec![value]);
        }
        assert_eq!(
            to_json(&value).to_string().matches('[').count(),
            MAX_DEPTH + 1
        );
        assert!(argument(&value, MAX_DEPTH).is_err());
    }
}
