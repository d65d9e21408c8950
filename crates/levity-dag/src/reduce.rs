//! Combines several values of a variable into one.
//!
//! Every reducer accepts every value and never fails, because its input comes from models. The
//! order of the values is the order of the plan or the list, never the order of completion.

use serde_json::{Map, Number, Value};

use crate::step::Reducer;

impl Reducer {
    /// Combines values in the given order. It accepts any values; `null` counts only in a list.
    ///
    /// ```
    /// use levity_dag::Reducer;
    /// use serde_json::json;
    ///
    /// assert_eq!(Reducer::Sum.reduce(&[json!(1), json!(2)]), json!(3));
    /// assert_eq!(Reducer::Concat.reduce(&[json!([1, 2]), json!(3)]), json!([1, 2, 3]));
    /// assert_eq!(Reducer::Last.reduce(&[json!("a"), json!("b")]), json!("b"));
    /// ```
    pub fn reduce<'a>(self, values: impl IntoIterator<Item = &'a Value>) -> Value {
        let values = values.into_iter();
        if self == Self::List {
            return values.cloned().collect();
        }
        let mut present = values.filter(|value| !value.is_null());
        match self {
            Self::List | Self::Concat => concat(present),
            Self::Merge => merge(present),
            Self::Sum => sum(present),
            Self::Join => join(present),
            Self::First => present.next().cloned().unwrap_or_default(),
            Self::Last => present.last().cloned().unwrap_or_default(),
        }
    }
}

fn concat<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    let mut all = Vec::new();
    for value in values {
        match value {
            Value::Array(list) => all.extend_from_slice(list),
            other => all.push(other.clone()),
        }
    }
    Value::Array(all)
}

fn merge<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    let objects = values.filter_map(Value::as_object);
    Value::Object(objects.fold(Map::new(), |mut all, object| {
        all.extend(
            object
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        all
    }))
}

/// Returns the exact sum if all numbers are integers and the sum fits; otherwise a float, clamped
/// to the finite range.
fn sum<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    let (mut whole, mut parts, mut exact) = (0_i128, 0.0_f64, true);
    for number in values.filter_map(Value::as_number) {
        let int = number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from));
        match int {
            // 2^64 numbers of 2^64 each would fit, so this never overflows.
            Some(int) => whole = whole.saturating_add(int),
            None => {
                exact = false;
                parts += number.as_f64().unwrap_or(0.0);
            }
        }
    }
    let int = i64::try_from(whole)
        .map(Number::from)
        .or_else(|_| u64::try_from(whole).map(Number::from));
    match int {
        Ok(int) if exact => Value::Number(int),
        _ => float(whole as f64 + parts),
    }
}

fn float(sum: f64) -> Value {
    let sum = if sum.is_nan() {
        0.0
    } else {
        sum.clamp(f64::MIN, f64::MAX)
    };
    Number::from_f64(sum).map_or(Value::Null, Value::Number)
}

fn join<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    let mut text = String::new();
    for value in values {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        match value {
            Value::String(part) => text.push_str(part),
            other => text.push_str(&other.to_string()),
        }
    }
    Value::String(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(reducer: Reducer, values: &Value, expected: &Value) {
        assert_eq!(
            &reducer.reduce(values.as_array().unwrap()),
            expected,
            "{reducer:?} of {values}"
        );
    }

    #[test]
    fn reducers_accept_values_of_any_type() {
        let mixed = json!([1, null, "a", [2, null], {"k": 1}, {"k": 2, "l": 3}, true]);
        check(Reducer::List, &mixed, &mixed);
        check(
            Reducer::Concat,
            &mixed,
            &json!([1, "a", 2, null, {"k": 1}, {"k": 2, "l": 3}, true]),
        );
        check(Reducer::Merge, &mixed, &json!({"k": 2, "l": 3}));
        check(Reducer::Sum, &mixed, &json!(1));
        check(
            Reducer::Join,
            &json!(["a", null, 1, {"k": []}]),
            &json!("a\n\n1\n\n{\"k\":[]}"),
        );
        check(Reducer::First, &json!([null, 1, 2]), &json!(1));
        check(Reducer::Last, &json!([1, 2, null]), &json!(2));
    }

    #[test]
    fn reducers_of_empty_input_return_neutral_value() {
        check(Reducer::List, &json!([]), &json!([]));
        check(Reducer::Concat, &json!([]), &json!([]));
        check(Reducer::Merge, &json!([]), &json!({}));
        check(Reducer::Sum, &json!([]), &json!(0));
        check(Reducer::Join, &json!([]), &json!(""));
        check(Reducer::First, &json!([null]), &json!(null));
        check(Reducer::Last, &json!([]), &json!(null));
    }

    #[test]
    fn sum_of_integers_is_exact_while_it_fits() {
        check(
            Reducer::Sum,
            &json!([9_007_199_254_740_993_i64, 1]),
            &json!(9_007_199_254_740_994_i64),
        );
        check(Reducer::Sum, &json!([u64::MAX, -1]), &json!(u64::MAX - 1));
        check(Reducer::Sum, &json!([i64::MIN, 1]), &json!(i64::MIN + 1));
        check(
            Reducer::Sum,
            &json!([u64::MAX, u64::MAX]),
            &json!(u64::MAX as f64 * 2.0),
        );
        check(Reducer::Sum, &json!([1, 0.5]), &json!(1.5));
        check(Reducer::Sum, &json!([f64::MAX, f64::MAX]), &json!(f64::MAX));
    }
}
