//! Outputs that are too long to be shown.

use super::*;
use crate::dispatch::output::MAX_WHOLE;

fn says(output: ToolOutput) -> Dispatcher {
    dispatcher(FnTool::ready(ToolSpec::new("t", ""), move |_| {
        Ok(output.clone())
    }))
}

/// Returns the id and the offset that a cut result names.
fn cut_reference(text: &str) -> (String, u64) {
    let json = &text[text.find("{\"id\"").unwrap()..];
    let json = &json[..=json.find('}').unwrap()];
    let way: Value = serde_json::from_str(json).unwrap();
    (
        way["id"].as_str().unwrap().to_owned(),
        way["offset"].as_u64().unwrap(),
    )
}

/// Returns the retained output of a cut result.
fn whole(result: &ToolResult) -> &str {
    result.whole.as_deref().expect("the whole is kept")
}

#[test]
fn text_that_just_fits_is_unchanged() {
    let dispatcher = says(ToolOutput::text("x".repeat(32 << 10)));
    let result = call(&dispatcher, "t", json!({}));
    assert_eq!((result.text().len(), result.whole), (32 << 10, None));
    assert!(Arc::ptr_eq(
        &dispatcher.specs(),
        &dispatcher.registry().specs()
    ));
}

#[test]
fn long_text_is_cut_and_stored_whole() {
    for text in ["0123456789\n", "aé😀€"] {
        for extra in 0..8 {
            let all = "z".repeat(extra) + &text.repeat(9_000);
            let dispatcher = says(ToolOutput::text(all.clone()));
            let result = call(&dispatcher, "t", json!({}));
            let shown = result.text();
            assert!(
                shown.len() <= 32 << 10 && shown.len() > 32_000,
                "{}",
                shown.len()
            );
            let (head, rest) = shown.split_once("\n[").unwrap();
            let (note, tail) = rest.split_once("]\n").unwrap();
            assert!(all.starts_with(head) && all.ends_with(tail) && !tail.is_empty());
            let missing = all.len() - head.len() - tail.len();
            assert!(note.starts_with(&format!(
                "{missing} of {} bytes are left out here; read",
                all.len()
            )));
            assert_eq!(
                cut_reference(&shown),
                (result.call.to_string(), head.len() as u64)
            );
            assert_eq!(whole(&result), all);
        }
    }
}

#[test]
fn reader_gets_other_name_if_a_tool_has_its_name() {
    let long = || {
        FnTool::ready(ToolSpec::new("t", ""), |_| {
            Ok(ToolOutput::text("x".repeat(1 << 16)))
        })
    };
    let registry = Registry::builder()
        .tool(long())
        .tool(FnTool::named("read_result"))
        .build()
        .unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::still())
        .build()
        .unwrap();
    assert_eq!(dispatcher.reader(), "levity_read_result");
    assert!(
        call(&dispatcher, "t", json!({}))
            .text()
            .contains("read them with `levity_read_result` {\"id\": ")
    );
    assert_eq!(call(&dispatcher, "read_result", json!({})).text(), "done");

    let dispatcher = self::dispatcher(long());
    assert_eq!(dispatcher.reader(), "read_result");
    assert!(
        call(&dispatcher, "t", json!({}))
            .text()
            .contains("read them with `read_result` {\"id\": ")
    );
    assert_eq!(
        call(&dispatcher, "read_result", json!({})).error,
        Some(ToolErrorKind::NotFound)
    );
}

#[test]
fn call_id_of_any_length_and_letters_can_be_named() {
    for id in ["c\"1\\\n", &"i".repeat(200), &"\u{1}".repeat(20_000)] {
        let dispatcher = says(ToolOutput::text("x".repeat(1 << 16)));
        let called = ToolCall::new(id, "t", json!({}));
        let result = done(&dispatcher, &called);
        let text = result.text();
        assert_eq!(cut_reference(&text).0, id);
        assert!(
            text.len() <= (32 << 10) || text.len() < id.len() * 6 + 1_024,
            "{}",
            text.len()
        );
    }
}

#[test]
fn fifty_megabytes_are_cut_and_stored_in_part() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| {
        Ok(ToolOutput::text("y".repeat(50_000_000)))
    });
    let dispatcher = dispatcher(tool);
    let result = call(&dispatcher, "t", json!({}));
    let text = result.text();
    assert!(text.len() <= 32 << 10);
    assert!(
        text.contains("of 50000000 bytes are left out"),
        "{text:.100}"
    );
    assert!(text.contains(&format!("(only the first {MAX_WHOLE} are stored)")));
    assert_eq!(whole(&result).len(), MAX_WHOLE);
}

#[test]
fn long_value_is_shown_as_cut_json() {
    let value = json!({"list": (0..20_000).collect::<Vec<_>>()});
    let dispatcher = says(ToolOutput::value(value.clone()));
    let result = call(&dispatcher, "t", json!({}));
    assert_eq!((result.value.is_none(), result.content.len()), (true, 1));
    assert_eq!(
        serde_json::from_str::<Value>(whole(&result)).unwrap(),
        value
    );
}

#[test]
fn long_value_beside_text_is_left_out() {
    let value = json!("v".repeat(40_000));
    let mut output = ToolOutput::text("short");
    output.value = Some(value.clone());
    let dispatcher = says(output);
    let result = call(&dispatcher, "t", json!({}));
    let text = result.text();
    assert!(
        text.starts_with(
            "short\n[the value of this result, 40002 bytes of JSON, is left out; read"
        ),
        "{text}"
    );
    assert_eq!(result.value, None);
    assert_eq!(whole(&result), value.to_string());
}

#[test]
fn long_value_beside_long_text_is_stored_before_it() {
    let value = json!("v".repeat(40_000));
    let mut output = ToolOutput::text("t".repeat(50_000));
    output.value = Some(value.clone());
    let dispatcher = says(output);
    let result = call(&dispatcher, "t", json!({}));
    let text = result.text();
    assert!(text.len() <= 32 << 10, "{}", text.len());
    let (shown, left) = text
        .split_once("\n[the value of this result, 40002 bytes of JSON, ")
        .unwrap();
    let head = shown.find('\n').unwrap();
    assert_eq!(cut_reference(shown).1 as usize, 40_003 + head);
    assert_eq!(cut_reference(left).1, 0);
    assert_eq!(
        whole(&result),
        value.to_string() + "\n" + &"t".repeat(50_000)
    );
}

#[test]
fn several_texts_are_cut_as_one_and_media_stays() {
    let mut output = ToolOutput::text("a".repeat(20_000)).with_media(Media::url("image/png", "u"));
    output
        .content
        .extend(ToolOutput::text("b".repeat(20_000)).content);
    let dispatcher = says(output);
    let result = call(&dispatcher, "t", json!({}));
    assert!(matches!(
        &result.content[..],
        [Content::Text(_), Content::Media(_)]
    ));
    assert_eq!(whole(&result), "a".repeat(20_000) + &"b".repeat(20_000));
}

#[test]
fn long_error_is_cut() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| {
        Err(ToolError::failed("e".repeat(1 << 20)))
    });
    let dispatcher = dispatcher(tool);
    let result = call(&dispatcher, "t", json!({}));
    assert_eq!(result.error, Some(ToolErrorKind::Failed));
    assert!(result.text().len() <= 32 << 10);
    assert_eq!(whole(&result), "e".repeat(1 << 20));
}

#[test]
fn smallest_limit_still_shows_text() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| {
        Ok(ToolOutput::text("😀".repeat(9_000_000)))
    });
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::still())
        .max_output(0)
        .build()
        .unwrap();
    let result = call(&dispatcher, "t", json!({}));
    let text = result.text();
    assert!(
        text.starts_with('😀') && text.ends_with('😀') && text.len() <= 512,
        "{}",
        text.len()
    );
    assert_eq!(whole(&result).len(), MAX_WHOLE);
}
