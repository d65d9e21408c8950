use super::*;

#[track_caller]
fn check(text: &str, expected: Result<(Option<bool>, &str, &str), &str>) {
    let found = read(text);
    match (found, expected) {
        (Ok(verdict), Ok((done, answer, reason))) => {
            assert_eq!(
                (verdict.done, &*verdict.answer, &*verdict.reason),
                (done, answer, reason),
                "{text}"
            );
        }
        (Err(complaint), Err(part)) => assert!(complaint.contains(part), "{complaint}"),
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn verdicts_as_models_write_them() {
    check(
        r#"{"done": true, "answer": "Yes.", "reason": "All agree."}"#,
        Ok((Some(true), "Yes.", "All agree.")),
    );
    check(
        "Well:\n```json\n{\"done\": false, \"reason\": \"more\",}\n```",
        Ok((Some(false), "", "more")),
    );
    check(
        "{\"done\": \"Yes\", \"answer\": 42}",
        Ok((Some(true), "42", "")),
    );
    check("{\"answer\": {\"a\": [1]}}", Ok((None, "{\"a\":[1]}", "")));
    check("{\"done\": null, \"answer\": \" \"}", Err("neither"));
    check("I would say yes.", Err("no JSON"));
    check("[1, 2]", Err("no JSON object"));
    check("", Err("no JSON"));
}

#[test]
fn a_reason_is_not_longer_than_it_may_be() {
    let text = format!(
        "{{\"done\": true, \"reason\": \"{}\"}}",
        "x".repeat(100_000)
    );
    assert_eq!(read(&text).unwrap().reason.len(), MOST_REASON);
}

#[test]
fn json_without_an_answer_is_no_answer() {
    for empty in [
        "",
        " \n",
        "null",
        " {} ",
        "[]",
        r#"{"done": true, "answer": ""}"#,
    ] {
        assert_eq!(in_words(empty), None, "{empty}");
    }
    for answer in ["Yes.", "42", "{sic} is what they said", "[1] says yes"] {
        assert_eq!(in_words(&format!(" {answer}\n")), Some(answer));
    }
}
