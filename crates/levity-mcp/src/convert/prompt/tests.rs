use serde_json::json;

use super::*;

#[test]
fn message_converts_text_and_images() {
    let convert = |role: &str, content: serde_json::Value| {
        let parsed = serde_json::from_value(json!({"role": role, "content": content})).unwrap();
        message(parsed)
    };
    assert_eq!(
        convert("user", json!({"type": "text", "text": "Sum up."})),
        Message::user("Sum up.")
    );
    assert_eq!(
        convert("assistant", json!({"type": "text", "text": "Yes."})),
        Message::assistant("Yes.")
    );
    let image = convert(
        "user",
        json!({"type": "image", "mimeType": "image/png", "data": "AAAA"}),
    );
    assert!(matches!(&*image.parts, [Part::Media(media)] if media.mime == "image/png"));
}

#[test]
fn resource_converts_all_parts() {
    let parts = json!([
        {"uri": "demo://1", "text": "one"},
        {"uri": "demo://2", "mimeType": "image/gif", "blob": "AAAA"},
    ]);
    let content = resource(serde_json::from_value(parts).unwrap());
    let [Content::Text(text), Content::Media(media)] = &*content else {
        panic!("{content:?}")
    };
    assert_eq!(
        (&**text, &*media.mime),
        ("[resource demo://1]\none", "image/gif")
    );
}
