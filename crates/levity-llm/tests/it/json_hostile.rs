//! Texts that try to exhaust time or the stack. Nothing is timed: superlinear growth would take
//! minutes here.

use levity_llm::json::{self, JsonErrorKind};

const MEGABYTE: usize = 1 << 20;

/// Fragments whose repetition restarts a look-ahead or a search.
const PIECES: &[&str] = &[
    "{",
    "[",
    "(",
    "}",
    "]",
    "\"",
    "'",
    "`",
    "“",
    "«",
    "\\",
    "\\\"",
    "\"\\",
    "\\u",
    "/*",
    "//",
    "#",
    "<!--",
    "```",
    "```json\n",
    "```/*",
    "\n```\n{\"a\":\"b",
    "{\"a\":",
    "{\"a\":[",
    "{'a':\"b\" ",
    "{a:",
    "[1]",
    "{}",
    "{\"",
    "[\"",
    "[/*",
    "{/*",
    "[a",
    "{a",
    "a:",
    "\"a\":",
    "\"a\" ",
    "\"a\"b",
    "\"k\"x :1,",
    "{\"k\"x :",
    "{“a:1,",
    "“a:1,",
    "\"a\",",
    "\",",
    "\":",
    "\"}",
    "\"]",
    "[\"a\" b, ",
    "{\"a\": \"b\", c ",
    "{\"a\": b, ",
    "1,",
    "1,234,",
    "{\"a\": 1,234,",
    "1",
    "-",
    "0x",
    "...",
    "…",
    "\"a\"+",
    "f(",
    "{a=",
    "\n",
    " ",
    "\t\"",
    "</think>",
    "<think>{",
    "\\n",
    "[ ",
    "{ ",
    "{\"a\": \"x,\n\"b",
    "{'a: \"b: “c: ",
    "[{\"a\": 1, ",
    "\"a\": [1, \"b\": ",
    "{\"a\"}",
    "[1, 2 or more ",
    "é\"",
];

#[test]
fn megabyte_of_repeated_fragment_is_parsed_quickly() {
    for piece in [
        "{", "[", "\"\\", "{\"a\":", "```", "\"", "/*", "'", "{\"", "\n",
    ] {
        let _ = json::parse(&piece.repeat(MEGABYTE / piece.len()));
    }
    // Keys without an end: each would cause a search to the end of the text.
    for piece in ["\"k\"x\n", "\"k\"x :1,", "“a:1,", "\\\"a:1,", "«a:1,"] {
        let _ = json::parse(&format!("{{{}", piece.repeat(MEGABYTE / piece.len())));
    }
}

#[test]
fn repeated_fragments_do_not_restart_search() {
    for piece in PIECES {
        for before in [
            "",
            "{",
            "{\"a\": ",
            "[\"",
            "```json\n",
            "{\"a\": \"",
            "text {'a: ",
        ] {
            let text = format!("{before}{}", piece.repeat(MEGABYTE / 16 / piece.len()));
            let _ = json::parse(&text);
        }
    }
}

#[test]
fn mutually_searching_halves_are_parsed_quickly() {
    let many = MEGABYTE / 16;
    for (first, then) in [
        ("1a", "("),
        ("a", "("),
        ("\"", ":"),
        (" ", "\""),
        ("1", ",234"),
        ("x ", "\","),
    ] {
        for before in ["{\"a\": ", "[", "{", "{\"a\": \""] {
            let _ = json::parse(&format!(
                "{before}{}{}",
                first.repeat(many),
                then.repeat(many)
            ));
        }
    }
}

#[test]
fn too_deep_nesting_is_rejected() {
    for open in ["[", "{\"a\":", "{\"a\":[", "(", "{a:(", "[{", "f("] {
        let text = format!("[{}", open.repeat(200));
        let error = json::parse(&text).unwrap_err();
        assert_eq!(*error.kind(), JsonErrorKind::TooDeep, "{open}");
        assert!(error.position().is_some_and(|at| at < text.len()));
    }
    let whole = format!("{}{}", "[".repeat(127), "]".repeat(127));
    assert_eq!(
        json::parse(&whole).unwrap(),
        json::parse(&format!("text {whole}")).unwrap()
    );
}
