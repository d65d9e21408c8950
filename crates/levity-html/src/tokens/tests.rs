//! Comparison with the tokenizer of a browser engine.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::{RawKind, ScriptEscapeKind};
use html5ever::tokenizer::{
    BufferQueue, TagKind, TagToken, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use super::*;
use crate::entities::{decode, decode_attr};

#[derive(Clone, Debug, PartialEq, Eq)]
enum TestToken {
    Start(String, Vec<(String, String)>),
    End(String),
    Text(String),
}

fn add_text(seen: &mut Vec<TestToken>, text: &str) {
    match seen.last_mut() {
        _ if text.is_empty() => {}
        Some(TestToken::Text(before)) => before.push_str(text),
        _ => seen.push(TestToken::Text(text.to_owned())),
    }
}

fn raw_kind(name: &str) -> Option<Raw> {
    match name {
        "script" => Some(Raw::Script),
        "style" => Some(Raw::Text),
        _ => None,
    }
}

fn ours(page: &str) -> Vec<TestToken> {
    let mut tokens = Tokens::new(page);
    let mut seen = Vec::new();
    while let Some(token) = tokens.next() {
        match token {
            Token::Text(from, to) => add_text(&mut seen, &decode(&page[from..to])),
            Token::End(name) => seen.push(TestToken::End(name.to_ascii_lowercase())),
            Token::Start(name) => {
                let lower = name.to_ascii_lowercase();
                let mut attrs: Vec<(String, String)> = Vec::new();
                for (name, value) in tokens.attrs() {
                    let name = name.to_ascii_lowercase();
                    if attrs.iter().all(|(known, _)| *known != name) {
                        attrs.push((name, decode_attr(value).into_owned()));
                    }
                }
                seen.push(TestToken::Start(lower.clone(), attrs));
                if let Some(kind) = raw_kind(&lower) {
                    let (from, to) = tokens.raw(name, kind);
                    add_text(&mut seen, &page[from..to]);
                }
            }
        }
    }
    seen
}

#[derive(Default)]
struct Theirs(RefCell<Vec<TestToken>>);

impl TokenSink for Theirs {
    type Handle = ();

    fn process_token(&self, token: html5ever::tokenizer::Token, _: u64) -> TokenSinkResult<()> {
        use html5ever::tokenizer::Token::CharacterTokens;
        let mut seen = self.0.borrow_mut();
        match token {
            CharacterTokens(text) => add_text(&mut seen, &text),
            TagToken(tag) if tag.kind == TagKind::EndTag => {
                seen.push(TestToken::End(tag.name.to_string()));
            }
            TagToken(tag) => {
                let attrs = tag
                    .attrs
                    .iter()
                    .map(|attr| (attr.name.local.to_string(), attr.value.to_string()));
                seen.push(TestToken::Start(tag.name.to_string(), attrs.collect()));
                match raw_kind(&tag.name) {
                    Some(Raw::Script) => return TokenSinkResult::RawData(RawKind::ScriptData),
                    Some(_) => return TokenSinkResult::RawData(RawKind::Rawtext),
                    None => {}
                }
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn theirs(page: &str) -> Vec<TestToken> {
    // The names are listed so that a change of the states fails to compile here.
    let _ = RawKind::ScriptDataEscaped(ScriptEscapeKind::Escaped);
    let tokenizer = Tokenizer::new(
        Theirs::default(),
        TokenizerOpts {
            discard_bom: false,
            ..Default::default()
        },
    );
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from(page));
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

#[test]
fn tokens_match_browser_tokenizer() {
    let pieces = [
        "<",
        ">",
        "/",
        "!",
        "-",
        "--",
        "=",
        "\"",
        "'",
        " ",
        "\n",
        "a",
        "B",
        "p",
        "<p",
        "</p>",
        "<a href=",
        "<!--",
        "-->",
        "--!>",
        "<script>",
        "</script>",
        "<script",
        "</script",
        "<style>",
        "</style >",
        "&amp;",
        "&lt",
        "&copy",
        "&notit;",
        "&",
        ";",
        "&#65;",
        "&#x41",
        "&#",
        "é",
        "日",
        "<?",
        "<!doctype ",
        "[CDATA[",
        "x=1",
        " id='a'",
        "&reg=",
        "\u{c}",
        "]]>",
        "</",
        "<br/>",
        "<B A=\"1\">",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize
    };
    for _ in 0..60_000 {
        let length = 1 + random() % 24;
        let page: String = (0..length)
            .map(|_| pieces[random() % pieces.len()])
            .collect();
        assert_eq!(ours(&page), theirs(&page), "{page:?}");
    }
}

#[test]
fn tokens_store_only_first_attributes() {
    let page = format!(
        "<a {}>x",
        (0..1000).map(|at| format!("a{at}=1 ")).collect::<String>()
    );
    let mut tokens = Tokens::new(&page);
    assert_eq!(tokens.next(), Some(Token::Start("a")));
    assert_eq!(tokens.attrs().len(), MAX_ATTRS);
    assert_eq!(tokens.next(), Some(Token::Text(page.len() - 1, page.len())));
}
