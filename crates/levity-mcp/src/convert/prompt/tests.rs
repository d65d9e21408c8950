use serde_json::json;

use super::*;

#[test]
fn a_prompt_becomes_messages() {
    let said = |role: &str, content: serde_json::Value| {
        let read = serde_json::from_value(json!({"role": role, "content": content})).unwrap();
        message(read)
    };
    assert_eq!(
        said("user", json!({"type": "text", "text": "Sum up."})),
        Message::user("Sum up.")
    );
    assert_eq!(
        said("assistant", json!({"type": "text", "text": "Yes."})),
        Message::assistant("Yes.")
    );
    let shown = said(
        "user",
        json!({"type": "image", "mimeType": "image/png", "data": "AAAA"}),
    );
    assert!(matches!(&*shown.parts, [Part::Media(media)] if media.mime == "image/png"));
}

#[test]
fn a_resource_is_told_in_all_its_parts() {
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
