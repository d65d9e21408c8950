//! What a step wrote, found in what it gave.

use levity_tools::Schema;
use serde_json::{Map, Value};

use crate::notice::{Strategy, WrittenVariable};
use crate::step::Step;

/// Where the result of code stands in an output.
pub(crate) const EXECUTION: &str = "execution_result";

/// What a step wrote, in the order of its `writes`; or, in words, what is missing or does not fit.
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
                Some(problem) => problems.push(format!("`{name}` does not fit: {problem}")),
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

/// The value of a variable; `alone` says that the step writes nothing else.
fn find<'a>(name: &str, alone: bool, output: &'a Value) -> Option<(&'a Value, Strategy)> {
    let Value::Object(object) = output else {
        // What is said in words is the answer; a value that is not an object is all there is.
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

/// The result of code as a whole, when the step writes one variable and nothing else in the output
/// is it.
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
    fn the_first_strategy_that_finds_something_counts() {
        let by = |value: Value, by| Ok(vec![(value, by)]);
        let all = json!({"execution_result": {"result": {"x": 1}}, "x": 2, "output": {"x": 3}, "final_answer": 4});
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
    fn a_result_of_code_that_is_no_object_is_the_only_variable() {
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
    fn what_is_missing_or_does_not_fit_is_named() {
        check(&["x", "y"], &json!({"x": 1}), Err("`y` is missing"));
        check(&["x"], &json!({"y": 1}), Err("`x` is missing"));
        let schema = Schema::new(&json!({"type": "integer"})).unwrap();
        let step = Step::new("s", "a").writes(["x"]);
        let problem = extract(&step, &json!({"x": "1"}), |_| Some(&schema)).unwrap_err();
        assert!(problem.starts_with("`x` does not fit: "), "{problem}");
    }
}
