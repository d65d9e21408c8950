//! Evaluates a parsed condition.
//!
//! Evaluation is total: a missing path is `null`, and a comparison of different types is false. A
//! plan of a model can therefore not fail a run by a condition.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::{Compare, Operand, Part, Test};

impl Test {
    pub(super) fn holds<'a>(&self, variable: &dyn Fn(&str) -> Option<&'a Value>) -> bool {
        match self {
            Self::Any(tests) => tests.iter().any(|test| test.holds(variable)),
            Self::All(tests) => tests.iter().all(|test| test.holds(variable)),
            Self::Not(test) => !test.holds(variable),
            Self::Truthy(operand) => truthy(operand.value(variable)),
            Self::Compare(left, operator, right) => {
                operator.holds(left.value(variable), right.value(variable))
            }
        }
    }
}

impl Operand {
    fn value<'s, 'a: 's>(&'s self, variable: &dyn Fn(&str) -> Option<&'a Value>) -> &'s Value {
        match self {
            Self::Literal(value) => value,
            Self::Path(name, parts) => {
                let root = variable(name);
                parts
                    .iter()
                    .fold(root, |value, part| part.of(value?))
                    .unwrap_or(&Value::Null)
            }
        }
    }
}

impl Part {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match (self, value) {
            (Self::Key(key), Value::Object(map)) => map.get(key),
            (Self::At(at), Value::Array(list)) => {
                let from_end = usize::try_from(at.unsigned_abs()).ok()?;
                let at = if *at < 0 {
                    list.len().checked_sub(from_end)?
                } else {
                    from_end
                };
                list.get(at)
            }
            _ => None,
        }
    }
}

impl Compare {
    fn holds(self, left: &Value, right: &Value) -> bool {
        match self {
            Self::Equal => equal(left, right),
            Self::Unequal => !equal(left, right),
            Self::Less => order(left, right) == Some(Ordering::Less),
            Self::LessOrEqual => {
                matches!(order(left, right), Some(Ordering::Less | Ordering::Equal))
            }
            Self::Greater => order(left, right) == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(
                order(left, right),
                Some(Ordering::Greater | Ordering::Equal)
            ),
            Self::In => within(left, right),
            Self::NotIn => !within(left, right),
            Self::Contains => within(right, left),
        }
    }
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            numbers(left, right) == Some(Ordering::Equal)
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right))
        }
        _ => left == right,
    }
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => numbers(left, right),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// Compares integers as such, because large integers that differ may be equal as floats.
fn numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

fn within(part: &Value, all: &Value) -> bool {
    match (part, all) {
        (part, Value::Array(list)) => list.iter().any(|element| equal(element, part)),
        (Value::String(key), Value::Object(map)) => map.contains_key(key),
        (Value::String(part), Value::String(text)) => text.contains(part.as_str()),
        _ => false,
    }
}
