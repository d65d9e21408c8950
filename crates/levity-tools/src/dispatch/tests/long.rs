//! Outputs that are too long.

use super::*;
use crate::aside::MAX_ITEM;

fn says(output: ToolOutput) -> Dispatcher {
    dispatcher(FnTool::ready(ToolSpec::new("t", ""), move |_| Ok(output.clone())))
}

/// The id and the offset that a cut result names.
fn way(text: &str) -> (String, u64) {
    let json = &text[text.find("{\"id\"").unwrap()..];
    let json = &json[..=json.find('}').unwrap()];
    let way: Value = serde_json::from_str(json).unwrap();
    (way["id"].as_str().unwrap().to_owned(), way["offset"].as_u64().unwrap())
}

fn piece(dispatcher: &Dispatcher, args: Value) -> String {
    let result = call(dispatcher, "read_result", args);
    assert_eq!(result.error, None, "{}", result.text());
    assert!(result.text().len() <= dispatcher.0.max_output);
    let Some(Content::Text(text)) = result.content.first() else { panic!() };
    text.clone()
}

/// Reads on until the reader says that it is the end.
fn read_all(dispatcher: &Dispatcher, id: &str) -> String {
    let (mut whole, mut offset) = (String::new(), 0);
    loop {
        let result = call(dispatcher, "read_result", json!({"id": id, "offset": offset}));
        let Content::Text(text) = &result.content[0] else { panic!() };
        whole.push_str(text);
        let text = result.text();
        let Some((_, next)) = text.rsplit_once("read on at ") else {
            return whole;
        };
        offset = next.trim_end_matches(']').parse().unwrap();
    }
}

#[test]
fn a_text_that_just_fits_is_left_alone() {
    let dispatcher = says(ToolOutput::text("x".repeat(32 << 10)));
    assert_eq!(call(&dispatcher, "t", json!({})).text().len(), 32 << 10);
    assert_eq!(dispatcher.specs().len(), 1);
    assert!(Arc::ptr_eq(&dispatcher.specs(), &dispatcher.registry().specs()));
}

#[test]
fn a_long_text_is_cut_and_can_be_read_whole() {
    for text in ["0123456789\n", "aé😀€"] {
        for extra in 0..8 {
            let whole = "z".repeat(extra) + &text.repeat(9_000);
            let dispatcher = says(ToolOutput::text(whole.clone()));
            let result = call(&dispatcher, "t", json!({}));
            let shown = result.text();
            assert!(shown.len() <= 32 << 10 && shown.len() > 32_000, "{}", shown.len());
            let (head, rest) = shown.split_once("\n[").unwrap();
            let (note, tail) = rest.split_once("]\n").unwrap();
            assert!(whole.starts_with(head) && whole.ends_with(tail) && !tail.is_empty());
            let missing = whole.len() - head.len() - tail.len();
            assert!(note.starts_with(&format!("{missing} of {} bytes are left out here; read", whole.len())));
            let (id, offset) = way(&shown);
            assert_eq!(offset, head.len() as u64);
            assert_eq!(read_all(&dispatcher, &id), whole);
            let small = (0..200).map(|n| piece(&dispatcher, json!({"id": id, "offset": n * 7, "length": 7})));
            assert!(whole.starts_with(&small.collect::<String>()));
        }
    }
}

#[test]
fn the_reader_is_offered_from_the_first_cut_on() {
    let dispatcher = says(ToolOutput::text("x".repeat(1 << 20)));
    assert_eq!(dispatcher.specs().len(), 1);
    let text = "nothing is kept under `1-0` any more; make the call that returned it again";
    check(&call(&dispatcher, "read_result", json!({"id": "1-0"})), ToolErrorKind::Failed, text);
    assert_eq!(dispatcher.specs().len(), 1);

    call(&dispatcher, "t", json!({}));
    let specs = dispatcher.specs();
    assert_eq!(specs.iter().map(|spec| &*spec.name).collect::<Vec<_>>(), ["t", "read_result"]);
    assert!(Arc::ptr_eq(&specs, &dispatcher.specs()));
    assert_eq!(dispatcher.class("read_result"), EffectClass::ReadOnly);
    assert!(!dispatcher.runs_alone("read_result"));
    for args in [json!({}), json!({"id": "a", "length": 0}), json!({"id": "a", "offset": -1})] {
        assert_eq!(call(&dispatcher, "read_result", args).error, Some(ToolErrorKind::InvalidArgs));
    }
}

#[test]
fn the_reader_gives_way_to_a_tool_of_its_name() {
    let long = FnTool::ready(ToolSpec::new("t", ""), |_| Ok(ToolOutput::text("x".repeat(1 << 16))));
    let registry = Registry::builder().tool(long).tool(FnTool::named("read_result")).build().unwrap();
    let dispatcher = Dispatcher::builder(registry, Clock::still()).build().unwrap();
    let text = call(&dispatcher, "t", json!({})).text().into_owned();
    assert!(text.contains("`levity_read_result`"));
    assert_eq!(dispatcher.specs()[2].name, "levity_read_result");
    assert_eq!(call(&dispatcher, "read_result", json!({})).text(), "done");
    assert_eq!(call(&dispatcher, "levity_read_result", json!({"id": way(&text).0})).error, None);
}

#[test]
fn a_policy_does_not_stand_before_the_reader() {
    let long = FnTool::ready(ToolSpec::new("t", ""), |_| Ok(ToolOutput::text("x".repeat(1 << 16))));
    let policy = Policy::new().rule(Rule::tool("t").allow()).otherwise(Verdict::deny("not on the list"));
    let registry = Registry::builder().tool(long).build().unwrap();
    let dispatcher = Dispatcher::builder(registry, Clock::still()).policy(policy).build().unwrap();
    let (id, _) = way(&call(&dispatcher, "t", json!({})).text());
    assert_eq!(call(&dispatcher, "read_result", json!({"id": id})).error, None);
}

#[test]
fn fifty_megabytes_are_cut_and_kept_in_part() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| Ok(ToolOutput::text("y".repeat(50_000_000))));
    let dispatcher = dispatcher(tool);
    let text = call(&dispatcher, "t", json!({})).text().into_owned();
    assert!(text.len() <= 32 << 10);
    assert!(text.contains("of 50000000 bytes are left out"), "{text:.100}");
    assert!(text.contains(&format!("(only the first {MAX_ITEM} are kept)")));
    let result = call(&dispatcher, "read_result", json!({"id": way(&text).0, "offset": MAX_ITEM - 3}));
    assert_eq!(
        result.text(),
        format!("yyy\n[bytes {} to {MAX_ITEM} of {MAX_ITEM}; this is the end]", MAX_ITEM - 3)
    );
}

#[test]
fn a_long_value_is_shown_as_cut_json() {
    let value = json!({"list": (0..20_000).collect::<Vec<_>>()});
    let dispatcher = says(ToolOutput::value(value.clone()));
    let result = call(&dispatcher, "t", json!({}));
    assert_eq!((result.value.is_none(), result.content.len()), (true, 1));
    let whole = read_all(&dispatcher, &way(&result.text()).0);
    assert_eq!(serde_json::from_str::<Value>(&whole).unwrap(), value);
}

#[test]
fn a_long_value_beside_a_text_is_left_out() {
    let value = json!("v".repeat(40_000));
    let mut output = ToolOutput::text("short");
    output.value = Some(value.clone());
    let dispatcher = says(output);
    let result = call(&dispatcher, "t", json!({}));
    let text = result.text();
    assert!(
        text.starts_with("short\n[the value of this result, 40002 bytes of JSON, is left out; read"),
        "{text}"
    );
    assert_eq!(result.value, None);
    assert_eq!(read_all(&dispatcher, &way(&text).0), value.to_string());
}

#[test]
fn several_texts_are_cut_as_one_and_media_stay() {
    let mut output = ToolOutput::text("a".repeat(20_000)).with_media(Media::url("image/png", "u"));
    output.content.extend(ToolOutput::text("b".repeat(20_000)).content);
    let dispatcher = says(output);
    let result = call(&dispatcher, "t", json!({}));
    assert!(matches!(&result.content[..], [Content::Text(_), Content::Media(_)]));
    assert_eq!(read_all(&dispatcher, &way(&result.text()).0), "a".repeat(20_000) + &"b".repeat(20_000));
}

#[test]
fn a_long_error_is_cut_too() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| Err(ToolError::failed("e".repeat(1 << 20))));
    let dispatcher = dispatcher(tool);
    let result = call(&dispatcher, "t", json!({}));
    assert_eq!(result.error, Some(ToolErrorKind::Failed));
    assert!(result.text().len() <= 32 << 10);
}

#[test]
fn the_smallest_cap_still_shows_something() {
    let tool = FnTool::ready(ToolSpec::new("t", ""), |_| Ok(ToolOutput::text("😀".repeat(9_000_000))));
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry, Clock::still()).max_output(0).build().unwrap();
    let text = call(&dispatcher, "t", json!({})).text().into_owned();
    assert!(text.starts_with('😀') && text.ends_with('😀') && text.len() <= 512, "{}", text.len());
    assert_eq!(read_all(&dispatcher, &way(&text).0).len(), MAX_ITEM);
}
