//! Images and documents.

use levity_core::{
    Content, History, Media, Message, ModelErrorKind, Part, ProviderState, Request, Role, ToolCall,
    ToolError, ToolOutput, ToolResult,
};
use levity_llm::AnthropicModel;
use serde_json::{Value, json};

use super::{content, conversation_with_call, rejection, sent, sent_by};

async fn sent_media(media: Media) -> Value {
    let request = Request::new().with_message(Message::new(Role::User, [Part::Media(media)]));
    content(&sent(request).await, 0)[0].clone()
}

#[tokio::test]
async fn images_and_documents_are_sent() {
    let bytes = |kind: &str| json!({"type": "base64", "media_type": kind, "data": "AQI="});
    let image = sent_media(Media::bytes("image/jpg", vec![1, 2])).await;
    assert_eq!(
        image,
        json!({"type": "image", "source": bytes("image/jpeg")})
    );
    let there = sent_media(Media::url("image/png", "https://example.com/a.png")).await;
    assert_eq!(
        there["source"],
        json!({"type": "url", "url": "https://example.com/a.png"})
    );
    let packed = sent_media(Media::url("image/png", "data:image/png;base64,AQI=")).await;
    assert_eq!(packed["source"], bytes("image/png"));
    let mut pdf = Media::bytes("application/pdf", vec![1, 2]);
    pdf.name = Some("a.pdf".into());
    pdf.opaque = Some(ProviderState::new(
        "anthropic",
        json!({"citations": {"enabled": true}}),
    ));
    let citations = json!({"enabled": true});
    let source = bytes("application/pdf");
    let expected =
        json!({"type": "document", "source": source, "title": "a.pdf", "citations": citations});
    assert_eq!(sent_media(pdf).await, expected);
    let text = sent_media(Media::bytes("text/markdown", "# Ä".as_bytes())).await;
    let source = json!({"type": "text", "media_type": "text/plain", "data": "# Ä"});
    assert_eq!(text, json!({"type": "document", "source": source}));
}

#[tokio::test]
async fn uploaded_file_is_sent_by_id() {
    let source = json!({"type": "file", "file_id": "file_1"});
    let mut media = Media::url("application/pdf", "");
    media.opaque = Some(ProviderState::new("anthropic", json!({"source": source})));
    assert_eq!(
        sent_media(media).await,
        json!({"type": "document", "source": source})
    );
    let block = json!({"type": "container_upload", "file_id": "file_1"});
    let parts = [
        Part::text("Look"),
        Part::Opaque(ProviderState::new("anthropic", block.clone())),
    ];
    let body = sent(Request::new().with_message(Message::new(Role::User, parts))).await;
    assert_eq!(content(&body, 0)[1], block);
}

#[tokio::test]
async fn tool_results_include_images() {
    let answer = || {
        let mut output = ToolOutput::text("Here:").with_media(Media::bytes("image/png", vec![1]));
        output.content.push(Content::Text(String::new()));
        Ok(output)
    };
    let history = conversation_with_call(
        [Part::ToolCall(ToolCall::new("c1", "draw", json!({})))],
        answer,
    );
    let body = sent(Request::new().with_history(history)).await;
    let sent_media = &content(&body, 2)[0]["content"];
    assert_eq!(sent_media[0], json!({"type": "text", "text": "Here:"}));
    assert_eq!(
        (&sent_media[1]["type"], sent_media.as_array().unwrap().len()),
        (&json!("image"), 2)
    );

    let answer = || {
        let mut output = ToolOutput::value(json!({"n": 1}));
        output
            .content
            .push(Content::Media(Media::bytes("image/png", vec![1])));
        Ok(output)
    };
    let history = conversation_with_call(
        [Part::ToolCall(ToolCall::new("c1", "draw", json!({})))],
        answer,
    );
    let body = sent(Request::new().with_history(history)).await;
    assert_eq!(content(&body, 2)[0]["content"][0]["text"], r#"{"n":1}"#);
}

#[tokio::test]
async fn unsupported_media_in_tool_result_becomes_text() {
    let cases = [
        (
            Media::bytes("audio/wav", vec![0; 1_234]),
            "a sound of type audio/wav, 1234 bytes",
        ),
        (
            Media::bytes("image/bmp", vec![1]),
            "an image of type image/bmp, 1 bytes",
        ),
        (
            Media::url("video/mp4", "https://a.example/b"),
            "a video of type video/mp4, at https://a.example/b",
        ),
        (
            Media::bytes("text/plain", vec![0xff]),
            "a file of type text/plain, 1 bytes",
        ),
    ];
    for (media, words) in cases {
        let answer = || Ok(ToolOutput::text("Here:").with_media(media.clone()));
        let history = conversation_with_call(
            [Part::ToolCall(ToolCall::new("c1", "record", json!({})))],
            answer,
        );
        let body = sent(Request::new().with_history(history)).await;
        let words = format!("({words}, which this model cannot accept)");
        let expected = json!([{"type": "text", "text": "Here:"}, {"type": "text", "text": words}]);
        assert_eq!(content(&body, 2)[0]["content"], expected);
    }
}

#[tokio::test]
async fn tool_results_reference_other_tools() {
    let call = ToolCall::new("c1", "find_tools", json!({}));
    let mut history = History::new();
    history.push(Message::user("x")).unwrap();
    let mut exchange = history
        .open(Message::new(Role::Assistant, [Part::ToolCall(call.clone())]).into())
        .unwrap();
    let found = json!([{"type": "tool_reference", "tool_name": "add"}]);
    let mut result = ToolResult::new(&call, Ok(ToolOutput::text("add")));
    result.opaque = Some(ProviderState::new("anthropic", json!({"content": found})));
    exchange.answer(result).unwrap();
    history.close(exchange, &ToolError::failed("no"));
    let request = Request::new().with_history(history.clone());
    let body = sent_by(AnthropicModel::without_cache_marks, request).await;
    let kept = history.encoded(2, "anthropic", || panic!("it was not kept"));
    assert_eq!(
        String::from_utf8_lossy(&kept).matches("content").count(),
        1,
        "no field is there twice"
    );
    let expected = json!({"type": "tool_result", "tool_use_id": "c1", "content": found});
    assert_eq!(content(&body, 2)[0], expected);
}

#[tokio::test]
async fn unsupported_media_is_rejected_each_time() {
    let cases = [
        (Media::bytes("audio/wav", vec![1]), "`audio/wav`"),
        (Media::bytes("image/bmp", vec![1]), "PNG"),
        (
            Media::url("text/plain", "https://example.com/a.txt"),
            "bytes",
        ),
        (Media::bytes("text/plain", vec![0xff]), "UTF-8"),
        (
            Media::bytes("application/zip", vec![1]),
            "`application/zip`",
        ),
    ];
    for (media, word) in cases {
        let request =
            Request::new().with_message(Message::new(Role::User, [Part::text("x"), media.into()]));
        for _ in 0..2 {
            let error = rejection(&request).await;
            assert_eq!(error.kind(), ModelErrorKind::BadRequest);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
