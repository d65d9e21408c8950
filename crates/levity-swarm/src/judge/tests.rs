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
fn verdicts_of_models_are_read() {
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
    check("I would say yes.", Err("not JSON"));
    check("[1, 2]", Err("not a JSON object"));
    check("", Err("not JSON"));
}

#[test]
fn reason_is_cut_to_limit() {
    let text = format!(
        "{{\"done\": true, \"reason\": \"{}\"}}",
        "x".repeat(100_000)
    );
    assert_eq!(read(&text).unwrap().reason.len(), MAX_REASON_BYTES);
}

#[test]
fn json_without_answer_is_not_plain_text_answer() {
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
