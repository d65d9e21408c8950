//! Extracts the variables that a step wrote from its output.
//!
//! Models put results into different places, so four strategies are tried in a fixed order: the
//! result of code, a field of the output, a field of its `output` object, and `final_answer`. The
//! event of a completed step names the strategy for each variable, which makes a wrong guess
//! visible.
//!
//! For example, a step that writes `page` accepts `{"page": ..}`, `{"output": {"page": ..}}` and,
//! since it writes one variable only, a bare text.

use levity_tools::Schema;
use serde_json::{Map, Value};

use crate::notice::{Strategy, WrittenVariable};
use crate::step::Step;

/// The field of an output that contains the result of code.
pub(crate) const EXECUTION: &str = "execution_result";

/// Returns the variables that a step wrote, in the order of `writes`, or a text about missing and
/// invalid ones.
pub(crate) fn extract<'a>(
    step: &Step,
    output: &Value,
    schema: impl Fn(&str) -> Option<&'a Schema>,
) -> Result<Vec<WrittenVariable>, String> {
    let mut problems = Vec::new();
    let mut written = Vec::with_capacity(step.writes.len());
    for name in &step.writes {
        match find(name, step.writes.len() == 1, output) {
            None => problems.push(format!("`{name}` is missing")),
            Some((value, by)) => match schema(name).and_then(|schema| schema.problems(value)) {
                Some(problem) => problems.push(format!(
                    "`{name}` does not match its schema: \
                    {problem}"
                )),
                None => written.push(WrittenVariable {
                    name: name.clone(),
                    by,
                    value: value.clone(),
                }),
            },
        }
    }
    if problems.is_empty() {
        Ok(written)
    } else {
        Err(problems.join("; "))
    }
}

/// Finds the value of a variable; `alone` is `true` if the step writes no other variable.
fn find<'a>(name: &str, alone: bool, output: &'a Value) -> Option<(&'a Value, Strategy)> {
    let Value::Object(object) = output else {
        // A bare text is the final answer; any other value that is not an object is the whole
        // output.
        let by = if output.is_string() {
            Strategy::FinalAnswer
        } else {
            Strategy::Output
        };
        return alone.then_some((output, by));
    };
    let of_code = object
        .get(EXECUTION)
        .and_then(|run| run.get("result"))
        .filter(|result| !result.is_null());
    let of_code = of_code.and_then(|result| match result {
        Value::Object(result) => result.get(name).or_else(|| whole(object, alone)),
        result => alone.then_some(result),
    });
    of_code
        .map(|value| (value, Strategy::CodeResult))
        .or_else(|| Some((object.get(name)?, Strategy::Output)))
        .or_else(|| Some((object.get("output")?.get(name)?, Strategy::Nested)))
        .or_else(|| Some((object.get("final_answer")?, Strategy::FinalAnswer)))
}

/// Returns the whole result of code if the step writes a single variable that has no field of its
/// own.
fn whole(object: &Map<String, Value>, alone: bool) -> Option<&Value> {
    object.get(EXECUTION)?.get("result").filter(|_| alone)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(writes: &[&str], output: &Value, expected: Result<Vec<(Value, Strategy)>, &str>) {
        let step = Step::new("s", "a").writes(writes.iter().copied());
        let found = extract(&step, output, |_| None);
        let found = found.map(|all| {
            all.into_iter()
                .map(|one| (one.value, one.by))
                .collect::<Vec<_>>()
        });
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn extract_uses_first_matching_strategy() {
        let by = |value: Value, by| Ok(vec![(value, by)]);
        let all = json!({
            "execution_result": {"result": {"x": 1}},
            "x": 2,
            "output": {"x": 3},
            "final_answer": 4,
        });
        check(&["x"], &all, by(json!(1), Strategy::CodeResult));
        check(
            &["x"],
            &json!({"x": 2, "output": {"x": 3}, "final_answer": 4}),
            by(json!(2), Strategy::Output),
        );
        check(
            &["x"],
            &json!({"output": {"x": 3}, "final_answer": 4}),
            by(json!(3), Strategy::Nested),
        );
        check(
            &["x"],
            &json!({"final_answer": 4}),
            by(json!(4), Strategy::FinalAnswer),
        );
        check(
            &["x"],
            &json!("words"),
            by(json!("words"), Strategy::FinalAnswer),
        );
        check(&["x"], &json!([1, 2]), by(json!([1, 2]), Strategy::Output));
    }

    #[test]
    fn extract_code_result_that_is_not_object_fills_single_variable() {
        check(
            &["x"],
            &json!({"execution_result": {"result": 7}}),
            Ok(vec![(json!(7), Strategy::CodeResult)]),
        );
        let table = json!({"execution_result": {"result": {"a": 1}}});
        check(
            &["x"],
            &table,
            Ok(vec![(json!({"a": 1}), Strategy::CodeResult)]),
        );
        check(
            &["x", "y"],
            &json!({"execution_result": {"result": 7}}),
            Err("`x` is missing; `y` is missing"),
        );
    }

    #[test]
    fn extract_names_missing_and_invalid_variables() {
        check(&["x", "y"], &json!({"x": 1}), Err("`y` is missing"));
        check(&["x"], &json!({"y": 1}), Err("`x` is missing"));
        let schema = Schema::new(&json!({"type": "integer"})).unwrap();
        let step = Step::new("s", "a").writes(["x"]);
        let problem = extract(&step, &json!({"x": "1"}), |_| Some(&schema)).unwrap_err();
        assert!(
            problem.starts_with("`x` does not match its schema: "),
            "{problem}"
        );
    }
}
