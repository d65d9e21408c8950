use levity_core::Usage;
use levity_eval::{
    Case, EvalReport, Expectation, Header, Results, SubjectComparison, Transcript, Trial,
};
use serde_json::{Value, json};

/// Creates a report on cases whose subject answered `right`, another text, or failed.
fn report(subject: &str, answers: &[(&str, &str)]) -> EvalReport {
    let folder = tempfile::tempdir().unwrap();
    let case = |id: &str| {
        let category = id.split('-').next().unwrap_or_default();
        Case::new(id, "?", Expectation::exact("right")).with_category(category)
    };
    let cases: Vec<Case> = answers.iter().map(|(id, _)| case(id)).collect();
    let mut results = Results::create(folder.path(), &Header::new("own", subject), &cases).unwrap();
    for (case, (_, answer)) in cases.iter().zip(answers) {
        let transcript = match *answer {
            "fail" => Transcript::failed("no <connection> & \"more\"\u{1}"),
            "call" => Transcript::new()
                .with_text("right")
                .with_call("f", json!({})),
            text => Transcript::new().with_text(text),
        };
        let mut trial = Trial::new(case, subject, 0, transcript.with_usage(Usage::new(10, 2)));
        trial.millis = 1500;
        results.append(trial).unwrap();
    }
    EvalReport::new(&results, &results.check_all())
}

#[test]
fn names_from_files_cannot_imitate_rows_of_report() {
    let forged = report("x\nall  9", &[("a\nall\u{2028}\r9-1", "right")]);
    assert_eq!(forged.to_text().split(['\n', '\r', '\u{2028}']).count(), 6);
    let comparison = SubjectComparison::new(&forged, &forged).to_text();
    let plain = report("x", &[("a-1", "right")]);
    let expected = SubjectComparison::new(&plain, &plain).to_text();
    assert_eq!(comparison.lines().count(), expected.lines().count());
}

#[test]
fn report_counts_trials_by_category_and_in_total() {
    let report = report(
        "levity",
        &[
            ("a-1", "right"),
            ("a-2", "call"),
            ("b-1", "wrong"),
            ("b-2", "fail"),
        ],
    );
    let expected = "\
subject levity, suite own, judged by levity

category  trials  passed  success  95% interval  with calls  errors  tokens in  out  s/trial
a              2       2   100.0%   34.2-100.0%           1       0         20    4      1.5
b              2       0     0.0%     0.0-65.8%           0       1         20    4      1.5
all            4       2    50.0%    15.0-85.0%           1       1         40    8      1.5
";
    assert_eq!(report.to_text(), expected);
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(
        (&json["total"]["passed"], &json["categories"]["b"]["errors"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(json["judge"], "levity");
    let report = report.only(&["a"]);
    assert_eq!(
        (
            report.total.trials,
            report.total.passed,
            report.categories.len()
        ),
        (2, 2, 1)
    );
}

#[test]
fn tables_shorten_long_category() {
    let long = "é".repeat(70_000);
    let id = format!("{long}-1");
    let report = report("levity", &[("a-1", "right"), (&id, "right")]);
    let comparison = SubjectComparison::new(&report, &report);
    for text in [report.to_text(), comparison.to_text()] {
        let cell = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
        let cells: Vec<String> = text.lines().map(cell).collect();
        assert!(cells.contains(&"a".to_owned()), "{cells:?}");
        assert!(cells.contains(&format!("{}…", "é".repeat(39))), "{cells:?}");
        assert!(text.lines().all(|line| line.chars().count() < 200));
    }
    // The other formats keep the name.
    assert!(report.categories.contains_key(&long));
}

#[test]
fn junit_lists_escaped_failures_and_errors() {
    let report = report(
        "levity",
        &[("a-1", "right"), ("a-2", "wrong"), ("a-3", "fail")],
    );
    let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"own\" tests=\"3\" failures=\"1\" errors=\"1\" time=\"4.500\">
  <testsuite name=\"a\" tests=\"3\" failures=\"1\" errors=\"1\" time=\"4.500\">
    <testcase classname=\"levity\" name=\"a-1\" time=\"1.500\"/>
    <testcase classname=\"levity\" name=\"a-2\" time=\"1.500\">\
        <failure message=\"the answer is not `right`\"/></testcase>
    <testcase classname=\"levity\" name=\"a-3\" time=\"1.500\">\
        <error message=\"no &lt;connection&gt; &amp; &quot;more&quot;�\"/></testcase>
  </testsuite>
</testsuites>
";
    assert_eq!(report.to_junit(), expected);
}

#[test]
fn junit_cuts_long_subject_in_each_test_case() {
    let (subject, wrong) = ("x".repeat(1 << 20), [("a-1", "wrong"), ("a-2", "wrong")]);
    assert!(report(&subject, &wrong).to_junit().len() < 2_000);
}

#[test]
fn comparison_pairs_trials_and_computes_p_value() {
    let one: Vec<(String, &str)> = (0..10)
        .map(|n| (format!("a-{n}"), if n < 9 { "right" } else { "wrong" }))
        .collect();
    let two: Vec<(String, &str)> = (0..11)
        .map(|n| (format!("a-{n}"), if n > 8 { "right" } else { "wrong" }))
        .collect();
    // Each subject has a case that the other does not have.
    let one: Vec<(String, &str)> = one
        .into_iter()
        .chain([("b-1".to_owned(), "right")])
        .collect();
    let of = |name: &str, answers: &[(String, &'static str)]| {
        report(
            name,
            &answers
                .iter()
                .map(|(id, answer)| (&**id, *answer))
                .collect::<Vec<_>>(),
        )
    };
    let comparison = SubjectComparison::new(&of("levity", &one), &of("plain", &two));
    assert_eq!((comparison.pairs, comparison.both), (10, 0));
    assert_eq!(
        (comparison.only_first.len(), &comparison.only_second[..]),
        (9, &["a-9".to_owned()][..])
    );
    assert_eq!(comparison.p_value, 0.021484375);
    assert_eq!(
        (comparison.first.unpaired, comparison.second.unpaired),
        (1, 1)
    );
    assert!(comparison.is_same_judge());
    let text = comparison.to_text();
    for part in [
        "first  levity",
        "second plain",
        "+80.0",
        "p = 0.0215",
        "1 of the first, 1 of the second",
        "59.6-98.2%",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}
