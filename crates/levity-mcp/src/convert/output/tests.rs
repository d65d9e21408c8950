use levity_core::{MediaSource, ToolErrorKind};
use serde_json::json;

use super::*;

#[track_caller]
fn check(json: &Value, text: &str) {
    assert_eq!(output(json.clone()).unwrap().as_text(), text, "{json}");
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn text_blocks_are_joined_by_lines() {
    check(&json!({"content": [text("one")]}), "one");
    check(
        &json!({"content": [text("one"), text("two\n"), text("three")]}),
        "one\ntwo\nthree",
    );
    check(&json!({"content": []}), "");
}

#[test]
fn invalid_result_is_shown_unchanged() {
    check(&json!({"content": "done"}), "done");
    check(&json!({"content": text("done")}), "done");
    check(&json!({"content": ["a", text("b")]}), "a\nb");
    check(&Value::Null, "null");
    check(&json!([1, 2]), "[1,2]");
    let unexpected = output(json!({"answer": 42, "_meta": {}})).unwrap();
    assert_eq!(unexpected.as_text(), r#"{"answer":42}"#);
    check(&json!({"content": null}), "");
    check(
        &json!({"content": 7}),
        "[content of an unknown type, `no type`, as JSON]\n7",
    );
}

#[test]
fn unknown_content_is_shown_as_json() {
    let unexpected = json!({"type": "hologram", "depth": 3});
    check(
        &json!({"content": [text("before"), unexpected, text("after")]}),
        "before\n[content of an unknown type, `hologram`, as \
            JSON]\n{\"type\":\"hologram\",\"depth\":3}\nafter",
    );
    // A known type without its required field.
    let wrong = json!({"type": "image", "url": "x"});
    assert!(
        output(json!({"content": [wrong]}))
            .unwrap()
            .as_text()
            .contains("`image`")
    );
}

#[test]
fn media_is_decoded_from_every_base64_variant() {
    for data in [
        "iVBORw0K+/8=",
        "iVBORw0K+/8",
        "iVBO\nRw0K\r\n+/8=",
        "iVBORw0K-_8",
    ] {
        let found = output(
            json!({"content": [{"type": "image", "mimeType": "Image/PNG; x=1", "data": data}]}),
        )
        .unwrap();
        let [Content::Media(media)] = &*found.content else {
            panic!("{found:?}")
        };
        assert_eq!(media.mime, "image/png");
        let MediaSource::Bytes(bytes) = &media.source else {
            panic!()
        };
        assert_eq!(bytes.as_slice(), b"\x89PNG\r\n\xfb\xff", "{data}");
    }
    let found = output(json!({"content": [{"type": "image", "mimeType": "", "data": "iVBORw0K"}]}))
        .unwrap();
    assert!(matches!(&*found.content, [Content::Media(media)] if media.mime == "image/png"));
    let found =
        output(json!({"content": [{"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}]}))
            .unwrap();
    assert!(matches!(&*found.content, [Content::Media(media)] if media.mime == "audio/wav"));
}

#[test]
fn unsupported_media_is_described() {
    check(
        &json!({"content": [{"type": "image", "mimeType": "image/png", "data": "no base64!"}]}),
        "[an image (image/png) is omitted: its data is not valid base64]",
    );
    let zipped =
        json!({"uri": "demo://a/b.zip?x=1", "mimeType": "application/zip", "blob": "UEsDBA=="});
    check(
        &json!({"content": [{"type": "resource", "resource": zipped}]}),
        "[the resource demo://a/b.zip?x=1 (application/zip) has 4 bytes of a type that models \
            cannot read]",
    );
    let large = "AAAA".repeat(4 << 20);
    let image = json!({"type": "image", "mimeType": "image/png", "data": large});
    let found = output(json!({"content": [image]})).unwrap();
    assert_eq!(
        found.as_text(),
        "[an image (image/png) is omitted: its 12582912 bytes exceed the limit]"
    );
}

#[test]
fn resources_are_shown_with_uri() {
    let note = json!({"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hello"});
    check(
        &json!({"content": [{"type": "resource", "resource": note}]}),
        "[resource file:///a.txt (text/plain)]\nhello",
    );
    // Text that was sent as bytes.
    let packed = json!({"uri": "file:///b.json", "mimeType": "application/json", "blob": "e30="});
    check(
        &json!({"content": [{"type": "resource", "resource": packed}]}),
        "[the resource file:///b.json (application/json)]\n{}",
    );
    let pdf = json!({"uri": "file:///dir/c.pdf", "blob": "JVBERg=="});
    let found = output(json!({"content": [{"type": "resource", "resource": pdf}]})).unwrap();
    let [Content::Media(media)] = &*found.content else {
        panic!("{found:?}")
    };
    assert_eq!(
        (&*media.mime, media.name.as_deref()),
        ("application/pdf", Some("c.pdf"))
    );
    let link = json!({
        "type": "resource_link", "uri": "demo://1", "name": "one", "mimeType": "text/csv",
        "size": 12,
        "description": "The first.",
    });
    check(
        &json!({"content": [link]}),
        "[link to the resource demo://1, `one`, text/csv, 12 bytes] The first.",
    );
}

#[test]
fn value_and_its_text_copy_are_shown_once() {
    let value = json!({"sum": 7, "of": [3, 4]});
    let copy = |content: &Value| json!({"content": content, "structuredContent": value});
    let whole = output(copy(&json!([text(
        "{\n  \"of\": [3, 4],\n  \"sum\": 7\n}"
    )])))
    .unwrap();
    assert_eq!(
        (whole.content.len(), whole.value.as_ref()),
        (0, Some(&value))
    );
    assert_eq!(whole.as_text(), r#"{"sum":7,"of":[3,4]}"#);
    // With other content, the text remains, and the value is not shown again.
    let mixed = output(copy(&json!([
        text(r#"{"sum":7,"of":[3,4]}"#),
        text("Done.")
    ])))
    .unwrap();
    assert_eq!(mixed.as_text(), "{\"sum\":7,\"of\":[3,4]}\nDone.");
    assert_eq!(mixed.value.as_ref(), Some(&value));
    // A different text is shown in addition to the value.
    let other = output(copy(&json!([text("It is seven.")]))).unwrap();
    assert_eq!(other.as_text(), "It is seven.\n{\"sum\":7,\"of\":[3,4]}");
    let only = output(json!({"content": [], "structuredContent": value})).unwrap();
    assert_eq!(only.as_text(), r#"{"sum":7,"of":[3,4]}"#);
}

#[test]
fn value_in_single_field_equals_text() {
    let shown = |content: Value, value: Value| {
        let json = json!({"content": content, "structuredContent": value});
        output(json).unwrap().as_text().into_owned()
    };
    assert_eq!(
        shown(json!([text("a file\n")]), json!({"content": "a file\n"})),
        "a file\n"
    );
    assert_eq!(
        shown(json!([text("[1, 2]")]), json!({"entities": [1, 2]})),
        "[1, 2]"
    );
    assert_eq!(
        shown(json!([text("a"), text("b")]), json!({"result": ["a", "b"]})),
        "a\nb"
    );
    assert_eq!(shown(json!([text("7")]), json!({"result": 7})), "7");
    assert_eq!(
        shown(json!([text("a")]), json!({"result": "b"})),
        "a\n{\"result\":\"b\"}"
    );
    let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
    assert_eq!(shown(json!([image]), json!({"n": 1})), r#"{"n":1}"#);
}

#[test]
fn value_with_bytes_of_shown_media_is_not_shown() {
    let image = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0K"});
    let zipped = json!({"uri": "demo://b.zip", "mimeType": "application/zip", "blob": "UEsDBA=="});
    let zipped = json!({"type": "resource", "resource": zipped});
    let shown = "[the result of the tool is shown in this message]";
    let described = "[the resource demo://b.zip (application/zip) has 4 bytes of a type that \
        models cannot read]";
    for (pieces, text) in [
        (json!([image]), shown),
        (json!([zipped]), described),
        (json!([text("Here:"), image]), "Here:"),
    ] {
        for value in [json!({"content": pieces}), pieces.clone()] {
            let found = output(json!({"content": pieces, "structuredContent": value})).unwrap();
            assert_eq!(
                (&*found.as_text(), found.value.as_ref()),
                (text, Some(&value))
            );
        }
    }
    let found = output(json!({"content": [image], "structuredContent": {"image": image}})).unwrap();
    assert_eq!(found.as_text(), shown);
}

#[test]
fn svg_image_is_shown_as_text() {
    let drawing = json!({"type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zy8+"});
    check(
        &json!({"content": [drawing]}),
        "[an image (image/svg+xml)]\n<svg/>",
    );
    let broken = json!({"type": "image", "mimeType": "image/svg+xml", "data": "/w=="});
    assert!(matches!(
        &*output(json!({"content": [broken]})).unwrap().content,
        [Content::Text(_)]
    ));
}

#[test]
fn failed_result_returns_error_with_tool_text() {
    let failed = |json: Value| output(json).unwrap_err();
    let error =
        failed(json!({"content": [text("no such file"), text("try another")], "isError": true}));
    assert_eq!(
        (error.kind(), &*error.explain()),
        (ToolErrorKind::Failed, "no such file\ntry another")
    );
    assert!(!error.is_retryable());
    let error = failed(json!({"content": [], "isError": true}));
    assert_eq!(
        error.explain(),
        "the tool failed, and its server gave no reason"
    );
    let error = failed(json!({"content": [], "structuredContent": {"code": 4}, "isError": true}));
    assert_eq!(error.explain(), r#"{"code":4}"#);
    let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
    assert_eq!(
        failed(json!({"content": [image], "isError": true})).explain(),
        "[image/png attached]"
    );
    assert!(output(json!({"content": [text("x")], "isError": false})).is_ok());
    let unexpected = output(json!({"isError": true, "why": "odd"})).unwrap_err();
    assert_eq!(unexpected.explain(), r#"{"why":"odd"}"#);
}
