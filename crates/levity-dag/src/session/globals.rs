//! The variables of a run, from what steps wrote.

use serde_json::{Map, Value};

use crate::step::Reducer;

/// Several values of one variable as one.
pub(super) fn reduce(reducer: Reducer, mut values: Vec<Value>) -> Value {
    match reducer {
        Reducer::List => Value::Array(values),
        Reducer::Concat => Value::Array(values.into_iter().flat_map(elements).collect()),
        Reducer::Merge => {
            let mut all = Map::new();
            for value in values {
                if let Value::Object(object) = value {
                    all.extend(object);
                }
            }
            Value::Object(all)
        }
        Reducer::Sum => sum(&values),
        Reducer::Join => {
            let texts: Vec<String> = values.iter().map(text).collect();
            Value::String(texts.join("\n\n"))
        }
        Reducer::First if values.is_empty() => Value::Null,
        Reducer::First => values.swap_remove(0),
        Reducer::Last => values.pop().unwrap_or_default(),
    }
}

fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        value => vec![value],
    }
}

/// A whole number as long as all are whole numbers.
fn sum(values: &[Value]) -> Value {
    let whole = values.iter().try_fold(0_i64, |sum, value| sum.checked_add(value.as_i64()?));
    match whole {
        Some(sum) => sum.into(),
        None => values.iter().filter_map(Value::as_f64).sum::<f64>().into(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
