use std::fs;
use std::path::Path;

use levity_eval::{Expectation, ExpectedCall, Selection, bfcl};
use serde_json::{Value, json};

/// A folder as the package has it, with `count` made-up cases in each of two categories.
fn data(folder: &Path, count: usize) {
    fs::create_dir_all(folder.join("possible_answer")).unwrap();
    let question = json!([[{"role": "user", "content": "How far is it?"}]]);
    let function = json!({
        "name": "geo.distance",
        "description": "Measures a way.",
        "parameters": {"type": "dict", "required": ["to"], "properties": {
            "to": {"type": "tuple", "items": {"type": "float"}, "description": "Place."},
            "unit": {"type": "any", "description": "Unit."},
            "speed": {"type": "float", "description": "Speed."},
            "type": {"type": "dict", "properties": {"type": {"type": "bool"}}},
            "stops": {"type": "array", "items": {"type": "dict", "properties": {"wait": {"type": "float"}}}},
        }},
    });
    let (mut rows, mut answers, mut irrelevant) = (String::new(), String::new(), String::new());
    for n in 0..count {
        let id = format!("simple_python_{n}");
        rows += &format!("{}\n", json!({"id": id, "question": question, "function": [function]}));
        let truth = json!([{"geo.distance": {"to": [[1.5, 2.0]], "unit": ["km", ""]}}]);
        answers += &format!("{}\n", json!({"id": id, "ground_truth": truth}));
        irrelevant += &format!(
            "{}\n",
            json!({"id": format!("irrelevance_{n}"), "question": question, "function": [function]})
        );
    }
    fs::write(folder.join("BFCL_v4_simple_python.json"), rows).unwrap();
    fs::write(folder.join("possible_answer/BFCL_v4_simple_python.json"), answers).unwrap();
    fs::write(folder.join("BFCL_v4_irrelevance.json"), irrelevant).unwrap();
}

#[test]
fn bfcl_cases_have_json_schemas_and_alternatives() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path(), 1);
    let cases = bfcl::cases(folder.path(), &["simple_python", "irrelevance"], Selection::new()).unwrap();
    let case = &cases[0];
    assert_eq!(
        (&*case.id, &*case.category, &*case.messages[0].content),
        ("simple_python_0", "simple_python", "How far is it?")
    );
    assert_eq!(case.tools[0].name, "geo_distance");
    let properties = &case.tools[0].parameters["properties"];
    assert_eq!(case.tools[0].parameters["type"], "object");
    assert_eq!(
        properties["to"],
        json!({"type": "array", "items": {"type": "number"}, "description": "Place."})
    );
    assert_eq!(properties["unit"]["type"], "string");
    assert_eq!(
        properties["speed"],
        json!({"type": "number", "format": "float", "description": "Speed. This is a float type value."})
    );
    assert_eq!(properties["type"]["type"], "object", "an argument may be called `type`");
    assert_eq!(properties["type"]["properties"]["type"]["type"], "boolean");
    assert_eq!(properties["stops"]["items"]["properties"]["wait"]["type"], "number");
    let expected = ExpectedCall::new("geo_distance")
        .with_argument("to", [json!([1.5, 2.0])])
        .with_argument("unit", ["km", ""]);
    assert_eq!(case.expect, Expectation::calls([expected]));
    assert_eq!(case.source["function"][0]["name"], "geo.distance", "the judge has the case as it was");
    assert_eq!((&cases[1].expect, &cases[1].source["answer"]), (&Expectation::NoCalls, &Value::Null));
}

#[test]
fn bfcl_cases_are_selected_by_index() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path(), 7);
    for (odd, offset, limit, expected) in [
        (None, 0, Some(2), "0 1"),
        (Some(true), 0, None, "1 3 5"),
        (Some(false), 1, Some(2), "2 4"),
        (None, 6, Some(5), "6"),
        (None, 9, None, ""),
    ] {
        let mut selection = Selection::new();
        (selection.odd, selection.offset, selection.limit) = (odd, offset, limit);
        let cases = bfcl::cases(folder.path(), &["irrelevance"], selection).unwrap();
        let ids: Vec<_> = cases.iter().map(|case| case.id.trim_start_matches("irrelevance_")).collect();
        assert_eq!(ids.join(" "), expected);
    }
}

#[test]
fn bfcl_problems_name_the_file_or_the_case() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path(), 2);
    let problem =
        |category: &str| bfcl::cases(folder.path(), &[category], Selection::new()).unwrap_err().to_string();
    assert!(problem("multi_turn_base").contains("simple_python, multiple"));
    assert!(problem("parallel").contains("BFCL_v4_parallel.json"));
    fs::write(folder.path().join("possible_answer/BFCL_v4_simple_python.json"), "").unwrap();
    assert!(problem("simple_python").contains("`simple_python_0` has no possible answer"));
    fs::write(folder.path().join("BFCL_v4_simple_python.json"), "{}\n").unwrap();
    assert!(problem("simple_python").contains("line 1"));
}

#[cfg(unix)]
mod judge {
    use levity_eval::{Header, Judge, Results, Transcript, Trial};

    use crate::add_case;

    async fn judged(script: &str) -> Result<Vec<bool>, String> {
        let folder = tempfile::tempdir().unwrap();
        let cases = ["1", "2", "3"].map(add_case);
        let mut results = Results::create(folder.path(), &Header::new("own", "x"), &cases).unwrap();
        for (case, transcript) in
            cases.iter().zip([Transcript::new(), Transcript::failed("oops"), Transcript::new()])
        {
            results.append(Trial::new(case, "x", 0, transcript)).unwrap();
        }
        let scores =
            Judge::new("sh").args(["-c", script]).score(&results).await.map_err(|error| error.to_string())?;
        assert_eq!(scores.judge, "fair 1.0");
        Ok(scores.scores.iter().map(|score| score.score.passed).collect())
    }

    #[tokio::test]
    async fn judge_scores_each_trial_without_an_error() {
        let script = r#"echo '{"judge": "fair 1.0"}'; while read -r line; do echo '{"passed": true}'; done"#;
        assert_eq!(judged(script).await, Ok(vec![true, false, true]));
    }

    #[tokio::test]
    async fn judge_that_fails_or_miscounts_gives_no_scores() {
        for (script, reason) in [
            ("echo 'No module named bfcl_eval' >&2; exit 1", "No module named bfcl_eval"),
            (r#"echo '{"judge": "fair 1.0"}'; echo '{"passed": true}'"#, "1 scores for 2 trials"),
            ("echo hello", "no score"),
            ("true", "no score"),
        ] {
            let error = judged(script).await.unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
