use std::fs;
use std::path::Path;

use levity_eval::{
    Expectation, ExpectedCall, Header, Results, Selection, Transcript, Trial, TrialCall, bfcl,
};
use serde_json::{Value, json};

/// Writes a folder like the package's, with `count` made-up cases in each of two categories.
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
            "stops": {"type": "array",
                "items": {"type": "dict", "properties": {"wait": {"type": "float"}}}},
        }},
    });
    let (mut rows, mut answers, mut irrelevant) = (String::new(), String::new(), String::new());
    for n in 0..count {
        let id = format!("simple_python_{n}");
        rows += &format!(
            "{}\n",
            json!({"id": id, "question": question, "function": [function]})
        );
        let truth = json!([{"geo.distance": {"to": [[1.5, 2.0]], "unit": ["km", ""]}}]);
        answers += &format!("{}\n", json!({"id": id, "ground_truth": truth}));
        irrelevant += &format!(
            "{}\n",
            json!({"id": format!("irrelevance_{n}"), "question": question, "function": [function]})
        );
    }
    fs::write(folder.join("BFCL_v4_simple_python.json"), rows).unwrap();
    fs::write(
        folder.join("possible_answer/BFCL_v4_simple_python.json"),
        answers,
    )
    .unwrap();
    fs::write(folder.join("BFCL_v4_irrelevance.json"), irrelevant).unwrap();
}

#[test]
fn bfcl_cases_have_json_schemas_and_alternatives() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path(), 1);
    let cases = bfcl::cases(
        folder.path(),
        &["simple_python", "irrelevance"],
        Selection::new(),
    )
    .unwrap();
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
        json!({"type": "number", "format": "float", "description": "Speed. This is a float type \
            value."})
    );
    assert_eq!(
        properties["type"]["type"], "object",
        "an argument may be called `type`"
    );
    assert_eq!(properties["type"]["properties"]["type"]["type"], "boolean");
    assert_eq!(
        properties["stops"]["items"]["properties"]["wait"]["type"],
        "number"
    );
    let expected = ExpectedCall::new("geo_distance")
        .with_argument("to", [json!([1.5, 2.0])])
        .with_argument("unit", ["km", ""]);
    assert_eq!(case.expect, Expectation::calls([expected]));
    assert_eq!(
        case.source["function"][0]["name"], "geo.distance",
        "the judge has the case as it was"
    );
    assert_eq!(
        (&cases[1].expect, &cases[1].source["answer"]),
        (&Expectation::NoCalls, &Value::Null)
    );
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
        let ids: Vec<_> = cases
            .iter()
            .map(|case| case.id.trim_start_matches("irrelevance_"))
            .collect();
        assert_eq!(ids.join(" "), expected);
    }
}

#[test]
fn bfcl_error_names_file_or_case() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path(), 2);
    let problem = |category: &str| {
        bfcl::cases(folder.path(), &[category], Selection::new())
            .unwrap_err()
            .to_string()
    };
    assert!(problem("live_simple").contains("simple_python, multiple"));
    assert!(problem("multi_turn_base").contains("BFCL_v4_multi_turn_base.json"));
    assert!(problem("parallel").contains("BFCL_v4_parallel.json"));
    fs::write(
        folder
            .path()
            .join("possible_answer/BFCL_v4_simple_python.json"),
        "",
    )
    .unwrap();
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
        for (case, transcript) in cases.iter().zip([
            Transcript::new(),
            Transcript::failed("oops"),
            Transcript::new(),
        ]) {
            results
                .append(Trial::new(case, "x", 0, transcript))
                .unwrap();
        }
        let scores = Judge::new("sh")
            .args(["-c", script])
            .score(&results)
            .await
            .map_err(|error| error.to_string())?;
        assert_eq!(scores.judge, "fair 1.0");
        Ok(scores
            .scores
            .iter()
            .map(|score| score.score.passed)
            .collect())
    }

    #[tokio::test]
    async fn judge_scores_each_successful_trial() {
        let script =
            r#"echo '{"judge": "fair 1.0"}'; while read -r line; do echo '{"passed": true}'; done"#;
        assert_eq!(judged(script).await, Ok(vec![true, false, true]));
    }

    #[tokio::test]
    async fn judge_timeout_kills_program() {
        let folder = tempfile::tempdir().unwrap();
        let case = add_case("1");
        let mut results = Results::create(
            folder.path(),
            &Header::new("own", "x"),
            std::slice::from_ref(&case),
        )
        .unwrap();
        results
            .append(Trial::new(&case, "x", 0, Transcript::new()))
            .unwrap();
        let judge = Judge::new("sh")
            .args(["-c", "exec sleep 600"])
            .timeout(std::time::Duration::from_millis(50));
        let error = judge.score(&results).await.unwrap_err().to_string();
        assert!(
            error.contains("did not score 1 trials within 0.05 s"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn failing_judge_returns_no_scores() {
        for (script, reason) in [
            (
                "echo 'No module named bfcl_eval' >&2; exit 1",
                "No module named bfcl_eval",
            ),
            (
                r#"echo '{"judge": "fair 1.0"}'; echo '{"passed": true}'"#,
                "1 scores for 2 trials",
            ),
            ("echo hello", "not a score"),
            ("true", "not a score"),
        ] {
            let error = judged(script).await.unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}

/// A package that reports its environment, next to files that Python must not import instead.
#[cfg(unix)]
#[tokio::test]
async fn python_judge_imports_only_named_package_and_sees_no_keys() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let checker = "import collections.abc, decimal, os, sys\n\
        assert 'CARGO_MANIFEST_DIR' not in os.environ, 'variables of others'\n\
        assert os.getcwd() == '/', os.getcwd()\n\
        assert '' not in sys.path and not any(path.startswith(FOLDER) for path in sys.path), \
        sys.path\n\
        def ast_checker(*_):\n    return {'valid': True}\n";
    for (name, text) in [
        ("bfcl_eval/__init__.py", ""),
        ("bfcl_eval/data/x", ""),
        (
            "bfcl_eval/constants/enums.py",
            "class Language:\n    PYTHON = 1\n",
        ),
        (
            "bfcl_eval/eval_checker/ast_eval/ast_checker.py",
            &checker.replace("FOLDER", &format!("{:?}", root.to_str().unwrap())),
        ),
        (
            "bfcl_eval-7.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: bfcl-eval\nVersion: 7.0\n",
        ),
        ("decimal.py", "raise SystemExit('a stranger')\n"),
        ("json.py", "raise SystemExit('a stranger')\n"),
    ] {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let case = crate::add_case("simple_1")
        .with_category("simple_python")
        .with_source(json!({"function": [], "answer": []}));
    let mut results = Results::create(
        root.join("out"),
        &Header::new("bfcl", "x"),
        std::slice::from_ref(&case),
    )
    .unwrap();
    let mut transcript = Transcript::new();
    transcript.calls.push(TrialCall::new("add", json!({})));
    results
        .append(Trial::new(&case, "x", 0, transcript))
        .unwrap();
    let data = root.join("bfcl_eval/data");
    let scores = bfcl::judge("python3", Some(&data))
        .score(&results)
        .await
        .unwrap();
    assert_eq!(
        (&*scores.judge, scores.scores[0].score.passed),
        ("bfcl-eval 7.0", true),
        "{scores:?}"
    );
}

/// Uses the real package: set `LEVITY_TEST_BFCL` to a folder that contains it, unpacked.
#[tokio::test]
async fn package_checker_agrees_with_own_check() {
    let Some(package) = std::env::var_os("LEVITY_TEST_BFCL") else {
        println!("SKIPPED: LEVITY_TEST_BFCL names no folder with bfcl_eval");
        return;
    };
    let data = Path::new(&package).join("bfcl_eval/data");
    let cases = bfcl::cases(&data, &bfcl::CATEGORIES, Selection::new()).unwrap();
    assert_eq!(cases.len(), 1240);
    let folder = tempfile::tempdir().unwrap();
    let mut results =
        Results::create(folder.path(), &Header::new("bfcl", "answers"), &cases).unwrap();
    for case in &cases {
        let calls = match &case.expect {
            Expectation::Calls { calls, .. } => calls.iter().map(answer).collect(),
            _ => Vec::new(),
        };
        // Each case is answered correctly, without the last call, and with an additional argument.
        let shorter = calls[..calls.len().saturating_sub(1)].to_vec();
        let mut odd = calls.clone();
        match odd.first_mut() {
            Some(call) => call.arguments["zzz"] = json!(1),
            None => odd.push(TrialCall::new("zzz", json!({}))),
        }
        for (repetition, calls) in [(0, calls), (1, shorter), (2, odd)] {
            let mut transcript = Transcript::new();
            transcript.calls = calls;
            results
                .append(Trial::new(case, "answers", repetition, transcript))
                .unwrap();
        }
    }
    let (theirs, ours) = (
        bfcl::judge("python3", Some(&data))
            .score(&results)
            .await
            .unwrap(),
        results.check_all(),
    );
    assert!(theirs.judge.starts_with("bfcl-eval "), "{}", theirs.judge);
    let mut differ = Vec::new();
    for (theirs, ours) in theirs.scores.iter().zip(&ours.scores) {
        let irrelevant = ours.case.starts_with("irrelevance");
        assert_eq!(
            ours.score.passed,
            ours.repetition == 0 || (irrelevant && ours.repetition == 1),
            "{ours:?}"
        );
        if theirs.score.passed != ours.score.passed {
            differ.push((&theirs.case, &theirs.score.reason));
        }
    }
    // Two possible answers contain an argument that the function's description lacks.
    assert!(
        differ.len() <= 2
            && differ
                .iter()
                .all(|(_, reason)| reason.contains("Unexpected parameter")),
        "{differ:?}"
    );
}

/// Returns the first alternative of each argument.
fn answer(expected: &ExpectedCall) -> TrialCall {
    let arguments = expected.arguments.iter();
    let arguments = arguments.filter_map(|(name, values)| Some((name.clone(), first(values)?)));
    TrialCall::new(&*expected.name, Value::Object(arguments.collect()))
}

fn first(values: &[Value]) -> Option<Value> {
    let value = values.iter().find(|value| value.as_str() != Some(""))?;
    Some(first_values(value))
}

/// Replaces the alternatives in objects with single values.
fn first_values(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let chosen = map
                .iter()
                .filter_map(|(key, values)| Some((key.clone(), first(values.as_array()?)?)));
            Value::Object(chosen.collect())
        }
        Value::Array(items) => items.iter().map(first_values).collect(),
        value => value.clone(),
    }
}
