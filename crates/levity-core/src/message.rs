use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::response::json_size;
use crate::{CallId, Intervention, ToolError, ToolErrorKind, ToolOutput};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The program around the model: a note in the middle of the conversation.
    System,
    /// The person, or whoever gives the task.
    User,
    /// The model.
    Assistant,
    /// The tools, answering the calls of the message before.
    Tool,
}

/// One message of a conversation.
///
/// ```
/// # use levity_core::{Message, Role};
/// let message = Message::user("Good morning");
/// assert_eq!((message.role, &*message.text()), (Role::User, "Good morning"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A message of these parts.
    pub fn new(role: Role, parts: impl IntoIterator<Item = Part>) -> Self {
        let mut parts: Vec<Part> = parts.into_iter().collect();
        // It stays for as long as the conversation does.
        parts.shrink_to_fit();
        Self { role, parts }
    }

    /// A text from the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, [Part::text(text)])
    }

    /// A text from the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, [Part::text(text)])
    }

    /// A note from the program to the model.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, [Part::text(text)])
    }

    /// The text of all text parts, joined without a gap; borrowed when there is only one.
    pub fn text(&self) -> Cow<'_, str> {
        join(self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&*text.text),
            _ => None,
        }))
    }

    /// The text of all thinking parts, joined without a gap.
    pub fn thinking(&self) -> Cow<'_, str> {
        join(self.parts.iter().filter_map(|part| match part {
            Part::Thinking(thinking) => Some(&*thinking.text),
            _ => None,
        }))
    }

    /// How many bytes of text it has: words, thoughts, arguments, results.
    pub fn size(&self) -> usize {
        self.measure().0
    }

    /// How many bytes of text it has, and how many tokens it can be at most.
    pub(crate) fn measure(&self) -> (usize, u64) {
        let all = self.parts.iter().map(Part::measure);
        let (text, beside) = all.fold((0_usize, 0_u64), |(text, beside), (more, aside)| {
            (
                text.saturating_add(more),
                beside.saturating_add(aside).saturating_add(PART_TOKENS),
            )
        });
        (
            text,
            beside
                .saturating_add(text as u64)
                .saturating_add(MESSAGE_TOKENS),
        )
    }

    /// The message as it is shown: without the [wholes](ToolResult::whole) of its results. Nothing
    /// is copied if it has none.
    pub fn shown(&self) -> Cow<'_, Self> {
        if self.kept() == 0 {
            return Cow::Borrowed(self);
        }
        let mut shown = self.clone();
        shown.keep_wholes(0);
        Cow::Owned(shown)
    }

    /// How many bytes of wholes its results have.
    pub(crate) fn kept(&self) -> usize {
        self.results().map(ToolResult::kept).sum()
    }

    /// Drops wholes, the first ones first, until at most so many bytes of them are left.
    pub(crate) fn keep_wholes(&mut self, most: usize) {
        let mut kept = self.kept();
        for part in &mut self.parts {
            let Part::ToolResult(result) = part else {
                continue;
            };
            if kept <= most {
                break;
            }
            kept -= result.kept();
            result.drop_whole();
        }
    }

    /// The tool calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The tool results, in order.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }
}

/// What stands around a message and around a part of one, in tokens: roles, marks, separators.
const MESSAGE_TOKENS: u64 = 16;
const PART_TOKENS: u64 = 16;

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

fn opaque_tokens(opaque: Option<&ProviderState>) -> u64 {
    opaque.map_or(0, |opaque| json_size(&opaque.data) as u64)
}

fn join<'a>(mut texts: impl Iterator<Item = &'a str>) -> Cow<'a, str> {
    let Some(first) = texts.next() else {
        return Cow::Borrowed("");
    };
    let mut all = Cow::Borrowed(first);
    for text in texts {
        all.to_mut().push_str(text);
    }
    all
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Text(Text),
    /// What the model thought before it spoke.
    Thinking(Thinking),
    /// An image, a sound, a document.
    Media(Media),
    /// The model asks for a tool.
    ToolCall(ToolCall),
    /// What the tool answered.
    ToolResult(ToolResult),
    /// A block that only its provider understands; it goes back as it came.
    Opaque(ProviderState),
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text::new(text))
    }

    /// A thinking part.
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking(Thinking::new(text))
    }

    /// How many bytes of text it has, and how many tokens all else in it can be.
    fn measure(&self) -> (usize, u64) {
        let (text, beside) = match self {
            Self::Text(part) => (part.text.len(), 0),
            Self::Thinking(part) => (part.text.len(), 0),
            Self::ToolCall(call) => {
                let raw = call.raw.as_ref().map_or(0, String::len) + call.id.as_str().len();
                (call.name.len() + json_size(&call.args), raw as u64)
            }
            Self::ToolResult(result) => (result.size(), result.beside()),
            Self::Media(media) => (0, media.most_tokens()),
            Self::Opaque(_) => (0, 0),
        };
        (text, beside.saturating_add(opaque_tokens(self.opaque())))
    }

    /// Fastens provider data to this part, replacing what was there.
    pub fn set_opaque(&mut self, opaque: ProviderState) {
        match self {
            Self::Text(part) => part.opaque = Some(opaque),
            Self::Thinking(part) => part.opaque = Some(opaque),
            Self::Media(part) => part.opaque = Some(opaque),
            Self::ToolCall(part) => part.opaque = Some(opaque),
            Self::ToolResult(part) => part.opaque = Some(opaque),
            Self::Opaque(part) => *part = opaque,
        }
    }

    /// The provider data fastened to this part.
    pub fn opaque(&self) -> Option<&ProviderState> {
        match self {
            Self::Text(part) => part.opaque.as_ref(),
            Self::Thinking(part) => part.opaque.as_ref(),
            Self::Media(part) => part.opaque.as_ref(),
            Self::ToolCall(part) => part.opaque.as_ref(),
            Self::ToolResult(part) => part.opaque.as_ref(),
            Self::Opaque(part) => Some(part),
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Media> for Part {
    fn from(media: Media) -> Self {
        Self::Media(media)
    }
}

/// State that a provider handed out and wants back unchanged: signatures, reasoning items, ids.
///
/// It rides on the part it belongs to. Only the provider that made it reads it; the others leave it
/// out. Many servers speak the same protocol, and refuse the sealed state of each other: state that
/// has an [`origin`](Self::origin) goes back to that one only.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderState {
    /// The protocol that it is part of.
    pub provider: Arc<str>,
    /// The state.
    pub data: Arc<Value>,
    /// Behind two pointers, since state is part of much that is moved often, and should stay small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Arc<Box<str>>>,
}

impl ProviderState {
    /// The provider of what rides on a call that the model wrote as text, and that was read from
    /// there: the text.
    pub const TEXT_CALL: &str = "text_call";

    /// State of `provider`.
    pub fn new(provider: impl Into<Arc<str>>, data: Value) -> Self {
        Self {
            provider: provider.into(),
            data: Arc::new(data),
            origin: None,
        }
    }

    /// The server, account and kind of model that made it, in the words of the provider's
    /// implementation. State without one, such as a block that a program makes, is sent to every
    /// server of the protocol.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref().map(|origin| &**origin)
    }

    /// Sets who made it.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<Box<str>>) -> Self {
        self.origin = Some(Arc::new(origin.into()));
        self
    }

    /// Forgets who made it.
    #[must_use]
    pub fn without_origin(mut self) -> Self {
        self.origin = None;
        self
    }
}

impl fmt::Debug for ProviderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opaque({})", self.provider)
    }
}

/// Text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Text {
    /// The text.
    pub text: String,
    /// Provider data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl Text {
    /// Plain text.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            opaque: None,
        }
    }
}

/// What the model thought before it spoke, as far as the provider shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Thinking {
    /// The thought; empty when the provider keeps it to itself.
    pub text: String,
    /// Provider data, such as a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl Thinking {
    /// A thought.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            opaque: None,
        }
    }
}

/// An image, a sound or a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// Its media type, such as `image/png`.
    pub mime: String,
    /// Where its bytes are.
    pub source: MediaSource,
    /// A file name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Provider data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl Media {
    /// Bytes of this media type.
    pub fn bytes(mime: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self {
            mime: mime.into(),
            source: MediaSource::Bytes(bytes.into()),
            name: None,
            opaque: None,
        }
    }

    /// Something the provider fetches itself.
    pub fn url(mime: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            mime: mime.into(),
            source: MediaSource::Url(url.into()),
            name: None,
            opaque: None,
        }
    }
}

impl Media {
    /// More than any provider we know of counts for one image.
    const IMAGE_TOKENS: u64 = 40_000;
    /// What stands at a URL may be of any length; this is as much as the largest windows have.
    const UNSEEN_TOKENS: u64 = 1 << 21;

    /// Whether its bytes say nothing of its length: in a document such as a PDF the text is packed,
    /// and providers count each page as an image as well.
    fn is_packed(&self) -> bool {
        let plain = ["json", "xml", "yaml", "javascript", "x-sh"];
        self.mime
            .strip_prefix("application/")
            .is_some_and(|kind| !plain.iter().any(|end| kind.ends_with(end)))
    }

    /// The most tokens it can be: 40,000 for an image; for anything else a token per byte, and no
    /// less than an image; 2,097,152 where the bytes are elsewhere or packed.
    ///
    /// Its name counts beside that.
    fn most_tokens(&self) -> u64 {
        let content = match &self.source {
            _ if self.mime.starts_with("image/") => Self::IMAGE_TOKENS,
            MediaSource::Bytes(bytes) if !self.is_packed() => {
                Self::IMAGE_TOKENS.max(bytes.as_slice().len() as u64)
            }
            MediaSource::Bytes(_) | MediaSource::Url(_) => Self::UNSEEN_TOKENS,
        };
        content.saturating_add(self.name.as_ref().map_or(0, |name| name.len() as u64))
    }
}

/// Where the bytes of a [`Media`] are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// Here.
    Bytes(Bytes),
    /// At a URL that the provider can reach.
    Url(String),
}

/// Shared bytes; serialised as base64, cheap to clone, and `Debug` shows only their number.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(Arc<[u8]>);

impl Bytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        STANDARD
            .decode(&*text)
            .map(Self::from)
            .map_err(de::Error::custom)
    }
}

/// The model asks for a tool.
///
/// ```
/// # use levity_core::ToolCall;
/// let call = ToolCall::new("c1", "add", serde_json::json!({"a": 2, "b": 5}));
/// assert!(call.raw.is_none());
/// assert!(ToolCall::from_text("c2", "add", "{\"a\": 2,").raw.is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// Ties the result to the call.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments; `null` when they were not JSON.
    pub args: Value,
    /// What stood in place of the arguments when it was not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Provider data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl ToolCall {
    /// A call with these arguments.
    pub fn new(id: impl Into<CallId>, name: impl Into<String>, args: Value) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            args,
            raw: None,
            opaque: None,
        }
    }

    /// Whether the model wrote this call as text, because its server did not recognise it. Models
    /// that need this help need more of it.
    ///
    /// ```
    /// # use levity_core::{ProviderState, ToolCall};
    /// # use serde_json::json;
    /// let mut call = ToolCall::new("c1", "add", json!({"a": 1}));
    /// assert!(!call.is_from_text());
    /// call.opaque = Some(ProviderState::new(ProviderState::TEXT_CALL, json!({"text": "add(a=1)"})));
    /// assert!(call.is_from_text());
    /// ```
    pub fn is_from_text(&self) -> bool {
        self.opaque
            .as_ref()
            .is_some_and(|opaque| &*opaque.provider == ProviderState::TEXT_CALL)
    }

    /// A call whose arguments are still text. No text at all means no arguments; what is not JSON
    /// is kept in [`raw`](Self::raw), so that the model can be told.
    pub fn from_text(id: impl Into<CallId>, name: impl Into<String>, args: &str) -> Self {
        let empty = || Value::Object(serde_json::Map::new());
        let (args, raw) = match args.trim() {
            "" => (empty(), None),
            text => match serde_json::from_str(text) {
                Ok(args) if is_shallow(&args, MAX_DEPTH) => (args, None),
                _ => (Value::Null, Some(args.to_owned())),
            },
        };
        Self {
            raw,
            ..Self::new(id, name, args)
        }
    }
}

/// How deep arguments may be nested. `serde_json` reads 128 levels, and a record of the journal has
/// some around the arguments: what was taken in must be readable there.
const MAX_DEPTH: usize = 64;

fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(list) => depth > 0 && list.iter().all(|value| is_shallow(value, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|value| is_shallow(value, depth - 1)),
        _ => true,
    }
}

/// What a tool answered to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The call it answers.
    pub call: CallId,
    /// The tool's name.
    pub name: String,
    /// Text and media for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Content>,
    /// The output as a value, when the tool returned one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub value: Option<Value>,
    /// What went wrong, when something did; the content then says so in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolErrorKind>,
    /// The whole of what was too long to be shown: the model sees the content and can read this in
    /// pieces. A value stands here as JSON, before the text if both were too long. Empty once it is
    /// no longer kept.
    ///
    /// No provider is sent it, and it counts in no size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Arc<str>>,
    /// Provider data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
    /// The guards that stepped in on the call or the result; empty in a history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Intervention>,
}

impl ToolResult {
    /// The answer to `call`: the output, or the error in words.
    pub fn new(call: &ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self::of(call.id.clone(), call.name.clone(), outcome)
    }

    /// The answer to a call that nobody needs any more; nothing of it is copied.
    pub fn answering(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self::of(call.id, call.name, outcome)
    }

    fn of(call: CallId, name: String, outcome: Result<ToolOutput, ToolError>) -> Self {
        let (content, value, error) = match outcome {
            Ok(output) => (output.content, output.value, None),
            Err(error) => (
                vec![Content::Text(error.explain())],
                None,
                Some(error.kind()),
            ),
        };
        Self {
            call,
            name,
            content,
            value,
            error,
            whole: None,
            opaque: None,
            guarded: Vec::new(),
        }
    }

    /// The answer as text: the text content, or the value as JSON when there is none.
    pub fn text(&self) -> Cow<'_, str> {
        output_text(&self.content, self.value.as_ref())
    }

    fn size(&self) -> usize {
        let text = |content: &Content| match content {
            Content::Text(text) => text.len(),
            Content::Media(_) => 0,
        };
        match self.content.iter().map(text).sum() {
            0 => self.value.as_ref().map_or(0, json_size),
            size => size,
        }
    }

    /// How many tokens all in it that is not text can be.
    fn beside(&self) -> u64 {
        let media = self.content.iter().map(|content| match content {
            Content::Text(_) => PART_TOKENS,
            Content::Media(media) => media
                .most_tokens()
                .saturating_add(opaque_tokens(media.opaque.as_ref())),
        });
        let named = (self.call.as_str().len() + self.name.len()) as u64;
        media.fold(named, u64::saturating_add)
    }

    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// How many bytes are kept of what was too long to be shown.
    pub(crate) fn kept(&self) -> usize {
        self.whole.as_ref().map_or(0, |whole| whole.len())
    }

    /// Drops what was too long to be shown; that there was something can still be told.
    pub(crate) fn drop_whole(&mut self) {
        if self.kept() > 0 {
            self.whole = Some("".into());
        }
    }
}

/// A value that is there, also if it is `null`: a tool that returned `null` did return something.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Text of an output: its text content, or its value as JSON when there is none.
pub(crate) fn output_text<'a>(content: &'a [Content], value: Option<&Value>) -> Cow<'a, str> {
    let mut texts = content.iter().filter_map(|content| match content {
        Content::Text(text) => Some(&**text),
        Content::Media(_) => None,
    });
    match (texts.next(), value) {
        (None, Some(value)) => Cow::Owned(value.to_string()),
        (first, _) => join(first.into_iter().chain(texts)),
    }
}

/// What a tool may show the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(String),
    /// An image, a sound, a document.
    Media(Media),
}
