//! Decides from the conversation whether a text in the form of a call is meant as a call.
//!
//! The same text is a call in one conversation and the requested answer in another. The words of
//! the user decide: "show me an example of a call" forbids it, "call the weather tool" does not.
//! The rules prefer text in doubt, because a call that was not asked for acts on the world, whereas
//! a missed call only costs a turn.
//!
//! The words are English. In other languages only the quotation rule and the schema rule apply.

use levity_core::{Request, Role};
use serde_json::Value;

/// The number of recent messages that are searched for a quoted text.
const MESSAGES: usize = 8;

/// The maximum number of bytes of each message that are searched.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Verbs that ask for text to be written out.
const VERBS: [&str; 35] = [
    "write",
    "give",
    "show",
    "return",
    "print",
    "output",
    "generate",
    "produce",
    "respond",
    "answer",
    "reply",
    "quote",
    "repeat",
    "echo",
    "explain",
    "describe",
    "document",
    "draft",
    "display",
    "provide",
    "list",
    "convert",
    "translate",
    "parse",
    "fix",
    "correct",
    "validate",
    "serialize",
    "complete",
    "tell",
    "how",
    "what",
    "just",
    "need",
    "again",
];

/// Words for data that looks like a call.
const DATA: [&str; 20] = [
    "yaml",
    "xml",
    "payload",
    "syntax",
    "schema",
    "example",
    "examples",
    "literal",
    "template",
    "markdown",
    "documentation",
    "calls",
    "call",
    "verbatim",
    "string",
    "format",
    "fixture",
    "mock",
    "shape",
    "illustration",
];

/// Words for code, in which a call looks like Python.
const CODE: [&str; 14] = [
    "code",
    "snippet",
    "snippets",
    "python",
    "curl",
    "javascript",
    "js",
    "typescript",
    "rust",
    "script",
    "statement",
    "function",
    "library",
    "sql",
];

/// The maximum distance between a verb and a noun, in words.
const DISTANCE: usize = 10;

/// Facts of the conversation that prevent a text from being a call.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// True if the user asks for JSON, an example or similar data.
    asks_for_data: bool,
    /// True if the user asks for code.
    asks_for_code: bool,
    /// The keys of the object that is requested as the answer.
    answer: Vec<String>,
    /// Messages of users and tools, without white space.
    quotable: Vec<String>,
}

impl Context {
    /// Only the last message of the user is searched for requests; quotations are searched for in
    /// the last [`MESSAGES`] messages.
    pub(super) fn of(request: &Request) -> Self {
        let messages = request.history.messages();
        let user_text = messages
            .iter()
            .rev()
            .find(|message| message.role == Role::User);
        let recent = messages.iter().rev().take(MESSAGES);
        let quotable = recent.filter_map(|message| match message.role {
            Role::User => Some(packed(&message.text())),
            Role::Tool => Some(
                message
                    .results()
                    .map(|result| packed(&result.text()))
                    .collect(),
            ),
            _ => None,
        });
        let output = request.output.as_ref().map(|output| &output.schema);
        let required = output
            .and_then(|schema| schema.get("required"))
            .and_then(Value::as_array);
        let user_text = user_text.map(|message| message.text()).unwrap_or_default();
        let shown = shown_keys(&user_text);
        Self {
            // The keys distinguish data of a known shape from a call.
            asks_for_data: shown.is_empty()
                && (asks_for(&user_text, &DATA) || names_json(&user_text)),
            asks_for_code: asks_for(&user_text, &CODE),
            answer: match required {
                Some(required) => required
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
                None => shown,
            },
            quotable: quotable.collect(),
        }
    }

    /// Returns `true` if a text in the form of a call is something else.
    ///
    /// There are four reasons: the user asks for data, the text has the keys of the requested
    /// answer, the introduction announces an example, or the text is quoted from a message or a
    /// tool result. The last one also protects against injected calls in tool results that the
    /// model repeats.
    pub(super) fn forbids(&self, lead_in: &str, text: &str) -> bool {
        let packed = packed(text);
        let has_all = || {
            self.answer
                .iter()
                .all(|key| packed.contains(&format!("\"{key}\":")))
        };
        self.asks_for_data
            || (!self.answer.is_empty() && has_all())
            || describes_calls(lead_in)
            || self
                .quotable
                .iter()
                .any(|quotable| quotable.contains(&*packed))
    }

    /// Returns `true` if calls in programming syntax are code that the user asked for.
    pub(super) fn forbids_code(&self) -> bool {
        self.asks_for_code
    }
}

/// Removes white space and quotes from a text, so that the same JSON matches in any layout.
///
/// Back quotes and backslashes go as well, because quotations are often fenced or escaped.
fn packed(text: &str) -> String {
    let plain = text
        .char_indices()
        .take_while(|(at, _)| *at < MAX_MESSAGE_BYTES)
        .map(|(_, char)| char);
    let fence = |char: &char| !(char.is_whitespace() || *char == '`' || *char == '\\');
    let text: String = plain.filter(fence).collect();
    match text.strip_prefix("json") {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// Words after which `call` is a request to make a call, as at the start of a clause.
const BEFORE_ORDERS: [&str; 4] = ["please", "and", "then", "now"];

/// Returns the words of a text. It omits a `call` that requests a call, because it does not refer
/// to data.
///
/// Addresses and paths contain words such as `json` that mean nothing here, so tokens with `/` or
/// `@` are left out.
fn words(text: &str) -> impl Iterator<Item = String> {
    let (mut starts_clause, mut asks_how) = (true, false);
    let mut previous = String::new();
    let is_address = |word: &&str| word.contains(['/', '@']);
    let tokens = text
        .split_whitespace()
        .filter(move |word| !is_address(word));
    tokens.flat_map(move |token| {
        let parts =
            token.split(|char: char| !(char.is_alphanumeric() || char == '\'' || char == '_'));
        let mut words: Vec<String> = parts
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let is_order = !asks_how && (starts_clause || BEFORE_ORDERS.contains(&&*previous));
        asks_how |= words.iter().any(|word| word == "how");
        if is_order && words.first().is_some_and(|word| word == "call") {
            words.remove(0);
        }
        starts_clause = token.ends_with(['.', '!', '?', ';', ':', ',']);
        asks_how &= !token.ends_with(['.', '!', '?']);
        previous = words.last().cloned().unwrap_or_default();
        words
    })
}

/// Returns `true` if a requesting verb is near one of these nouns.
///
/// "Write a short and simple example" matches: the verb and the noun are at most [`DISTANCE`] words
/// apart, in any order.
fn asks_for(text: &str, nouns: &[&str]) -> bool {
    let (mut verb, mut noun) = (None, None);
    for (at, word) in words(text).enumerate() {
        if nouns.contains(&&*word) {
            noun = Some(at);
        }
        if VERBS.contains(&&*word) {
            verb = Some(at);
        }
        if let (Some(verb), Some(noun)) = (verb, noun)
            && usize::abs_diff(verb, noun) <= DISTANCE
            && verb != noun
        {
            return true;
        }
    }
    false
}

/// Returns `true` if a text mentions JSON, other than as a file extension.
///
/// `data.json` and `/v1/json` do not count; `JSON` in a sentence does.
fn names_json(text: &str) -> bool {
    let text = text.to_lowercase();
    let is_word = |at: usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + 4..].chars().next();
        let is_free = |char: Option<char>| char.is_none_or(|char| !char.is_alphanumeric());
        is_free(before) && is_free(after) && !matches!(before, Some('.' | '/' | '_' | '-'))
    };
    text.match_indices("json").any(|(at, _)| is_word(at))
}

/// Returns the keys of a JSON object that a message shows with dots as values: `{"report": ..}`.
fn shown_keys(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split("\":").collect();
    let is_open =
        |value: &str| value.trim_start().starts_with("..") || value.trim_start().starts_with('…');
    let keys = parts
        .windows(2)
        .filter(|pair| is_open(pair[1]))
        .filter_map(|pair| pair[0].rsplit('"').next());
    keys.map(str::to_owned).collect()
}

/// Returns `true` if the introduction is an answer, or announces an example.
///
/// An introduction with an empty line is an answer of its own, and a call after it an illustration.
fn describes_calls(lead_in: &str) -> bool {
    const EXAMPLE: [&str; 18] = [
        "example",
        "for instance",
        "e.g.",
        "you can",
        "you could",
        "you would",
        "would",
        "looks like",
        "look like",
        "format",
        "syntax",
        "documentation",
        "not call",
        "don't call",
        "reference",
        "definition",
        "when you",
        "valid",
    ];
    let lead_in = lead_in.trim().to_lowercase();
    lead_in.contains("\n\n") || EXAMPLE.iter().any(|word| lead_in.contains(word))
}
