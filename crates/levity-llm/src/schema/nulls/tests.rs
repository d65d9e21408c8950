use serde_json::Value;

use super::*;

/// `a` is optional; `b` may be null; `list` contains such objects, and `other` may be one or
/// another value.
fn shape() -> Arc<Shape> {
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<HashSet<_>>()
    };
    let members = [("list".to_owned(), 1), ("other".to_owned(), 2)]
        .into_iter()
        .collect();
    let node = Node {
        drop: set(&["a", "list", "ä\n"]),
        keep: set(&["b"]),
        members,
        ..Node::default()
    };
    let list = Node {
        items: Some(0),
        ..Node::default()
    };
    let plain = Node {
        keep: set(&["c"]),
        ..Node::default()
    };
    Arc::new(Shape {
        nodes: vec![
            node,
            list,
            Node {
                alternatives: vec![0, 3],
                ..Node::default()
            },
            plain,
        ],
    })
}

#[track_caller]
fn check(text: &str, expected: &str) {
    for size in [1, 2, 3, 1000] {
        let mut filter = Filter::new(shape());
        let chars: Vec<char> = text.chars().collect();
        let out: String = chars
            .chunks(size)
            .map(|piece| filter.feed(&piece.iter().collect::<String>()))
            .collect();
        assert_eq!(out, expected, "in chunks of {size}");
        let parses = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        assert_eq!(parses(&out), parses(text), "{out}");
    }
}

#[test]
fn null_of_optional_member_is_removed() {
    check(r#"{"a":null}"#, "{}");
    check(r#"{"a":null,"b":null}"#, r#"{"b":null}"#);
    check(r#"{"b":1,"a":null}"#, r#"{"b":1}"#);
    check(r#"{"a":null,"list":null,"b":1,"a":null}"#, r#"{"b":1}"#);
    check("{ \"a\" : null ,\n \"b\" : null }", "{ \n \"b\" : null }");
    check(
        r#"{"b":[1,{"a":null}],"a":"x"}"#,
        r#"{"b":[1,{"a":null}],"a":"x"}"#,
    );
    check(r#"{"\u00e4\n":null,"b":1}"#, r#"{"b":1}"#);
}

#[test]
fn null_value_is_retained() {
    check(r#"{"b":null,"c":null}"#, r#"{"b":null,"c":null}"#);
    check(r#"{"list":[null,1]}"#, r#"{"list":[null,1]}"#);
    check(
        r#"{"a":"null","b":"\"a\":null,"}"#,
        r#"{"a":"null","b":"\"a\":null,"}"#,
    );
    check(r#"{"a":nul}"#, r#"{"a":nul}"#);
    check("null", "null");
}

#[test]
fn nested_nulls_are_filtered() {
    check(
        r#"{"list":[{"a":null,"b":2},{"list":[{"a":null}]}],"a":null}"#,
        r#"{"list":[{"b":2},{"list":[{}]}]}"#,
    );
    check(
        r#"{"other":{"a":null,"c":null}}"#,
        r#"{"other":{"c":null}}"#,
    );
    check(r#"{"list":[],"b":{}}"#, r#"{"list":[],"b":{}}"#);
}

#[test]
fn invalid_json_stays_invalid() {
    for text in [
        r#"{"a":null,"b""#,
        r#"{"a":nu"#,
        "{,}",
        "]}",
        r#"{"b":1,}"#,
        r#"{a:null}"#,
        "{\"b\":1,,}",
    ] {
        let out = Filter::new(shape()).feed(text);
        assert!(
            serde_json::from_str::<Value>(&out).is_err(),
            "{text} became {out}"
        );
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(Filter::new(shape()).feed(&deep), deep);
    let long = format!("{{\"b\":1,\"{}\":null}}", "a".repeat(1_000_000));
    let mut filter = Filter::new(shape());
    let out: Vec<String> = long
        .as_bytes()
        .chunks(1_000)
        .map(|piece| filter.feed(&String::from_utf8_lossy(piece)))
        .collect();
    assert_eq!(out.concat(), long);
    assert!(out[500].len() == 1_000, "no text is held forever");
}
