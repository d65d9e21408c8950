use super::{Key, Node, Value, json, yaml};

fn to_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::List(list) => list.iter().map(to_json).collect(),
        Value::Map(map) => map
            .iter()
            .map(|(key, node)| (key.text.clone(), to_json(node)))
            .collect(),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let read = yaml(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
    assert_eq!(
        to_json(&read),
        serde_json::from_str::<serde_json::Value>(expected).unwrap(),
        "{text}"
    );
}

#[track_caller]
fn check_error(text: &str, line: usize, problem: &str) {
    let wrong = yaml(text).map(|node| to_json(&node)).unwrap_err();
    assert!(wrong.problem.contains(problem), "{wrong:?}");
    assert_eq!(wrong.line, Some(line), "{wrong:?}");
}

#[test]
fn scalars_follow_yaml_core_schema() {
    check("", "null");
    check(
        "a: [x, 'true', true, 12, 1.5, ~, null, yes, 1e3, -1, 0x1]",
        r#"{"a":["x","true",true,12.0,1.5,null,null,"yes",1000.0,-1.0,"0x1"]}"#,
    );
    check(
        "a: |\n  one\n  two\nb: >\n  one\n  two\n",
        r#"{"a":"one\ntwo\n","b":"one two\n"}"#,
    );
    check("a: !!str 5", r#"{"a":"5"}"#);
    check(
        "x: &x {k: [1]}\ny: *x\nz: [*x, *x]",
        r#"{"x":{"k":[1.0]},"y":{"k":[1.0]},"z":[{"k":[1.0]},{"k":[1.0]}]}"#,
    );
}

#[test]
fn values_have_line_numbers() {
    let Value::Map(map) = yaml("# a comment\na: 1\n\nb:\n  - 2\n  - c: 3\n")
        .unwrap()
        .value
    else {
        panic!()
    };
    assert_eq!(
        map[0].0,
        Key {
            line: Some(2),
            text: "a".into()
        }
    );
    let Value::List(list) = &map[1].1.value else {
        panic!()
    };
    assert_eq!(
        (map[1].0.line, list[0].line, list[1].line),
        (Some(4), Some(5), Some(6))
    );
}

#[test]
fn parse_error_names_line() {
    check_error("a: 1\nb: [", 3, "invalid YAML");
    check_error("a: 1\na: 2", 2, "`a` occurs twice");
    check_error("a: 1\n--- \nb: 1", 2, "second document");
    check_error("x: 1\n1: 2", 2, "a key is a number");
    check_error("x: !ruby/object 1", 1, "tag");
    check_error("x: *y", 1, "anchor");
    check_error("x: &a\n  y: *a", 2, "references itself");
    assert_eq!(json("{\n\"a\": }").unwrap_err().line, Some(2));
    let twice = json("{\"b\": [],\n\"a\": {\"x\": 1,\n\"x\": 2}}").unwrap_err();
    assert_eq!(
        (twice.line, &*twice.problem),
        (
            Some(3),
            "column 3: invalid JSON: the key `x` occurs twice; keep one"
        )
    );
    assert!(json(&"[".repeat(100_000)).is_err());
}

#[test]
fn json_keys_keep_their_order() {
    let text = r#"{"b": [1, -2, 0.5, "x", null, true], "a": {}}"#;
    assert_eq!(
        to_json(&json(text).unwrap()).to_string(),
        r#"{"b":[1.0,-2.0,0.5,"x",null,true],"a":{}}"#
    );
}

#[test]
fn yaml_edge_cases_are_parsed() {
    check("NO: no\non: off\n", r#"{"NO": "no", "on": "off"}"#);
    check(
        "a: 1\r\nb: |\r\n  x\r\n  y\r\n",
        r#"{"a": 1.0, "b": "x\ny\n"}"#,
    );
    check(
        "---\na: 012\nb: 1_000\nc: 12:30\n...\n",
        r#"{"a": 12.0, "b": "1_000", "c": "12:30"}"#,
    );
    check_error("a:\n\tb: 1", 2, "invalid YAML");
    check_error(
        "x: &x {a: 1}\ny: {a: 1, <<: *x, <<: *x}",
        2,
        "`<<` occurs twice",
    );
}

#[test]
fn deep_or_large_documents_return_error() {
    check_error(&"[".repeat(100), 1, "deeper than 16");
    check_error(&"- ".repeat(100_000), 1, "deeper than 16");
    let mut laughs = String::from("a0: &a0 [lol, lol, lol]\n");
    for level in 1..15 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(
        yaml(&laughs).unwrap_err().problem.contains("too large"),
        "width"
    );
    let mut tower = String::from("a0: &a0 [x]\n");
    for level in 1..100 {
        tower.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(
        yaml(&tower).unwrap_err().problem.contains("deeper"),
        "depth"
    );
    let long = format!(
        "a: &a {}\nb: [{}]",
        "x".repeat(100_000),
        "*a, ".repeat(1_000)
    );
    assert!(
        yaml(&long).unwrap_err().problem.contains("too large"),
        "text"
    );
}

proptest::proptest! {
    #[test]
    fn parse_of_arbitrary_text_does_not_panic(
        text in "[\\[\\]{}:,&*!|>'\"%#@` \n\tab1~<.?-]{0,60}",
    ) {
        let _ = (yaml(&text), json(&text));
    }
}
