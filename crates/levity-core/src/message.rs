use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::response::json_size;
use crate::{CallId, FileChange, Intervention, ToolError, ToolErrorKind, ToolOutput};

/// The role of a message's author.
///
/// ```
/// # use levity_core::Role;
/// assert_eq!(serde_json::to_string(&Role::Assistant)?, "\"assistant\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The program around the model; a note within the conversation.
    System,
    /// The person or program that gives the task.
    User,
    /// The model that replies.
    Assistant,
    /// The tools that answer the calls of the message before.
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
    /// The role of the author.
    pub role: Role,
    /// The content of the message, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// Creates a message from these parts.
    ///
    /// ```
    /// use levity_core::{Media, Message, Part, Role};
    ///
    /// let photo = Media::url("image/png", "https://example.com/cat.png");
    /// let message = Message::new(Role::User, [Part::text("What is this?"), Part::Media(photo)]);
    /// assert_eq!(message.parts.len(), 2);
    /// ```
    pub fn new(role: Role, parts: impl IntoIterator<Item = Part>) -> Self {
        let mut parts: Vec<Part> = parts.into_iter().collect();
        // Release spare capacity, because the message lives as long as the conversation.
        parts.shrink_to_fit();
        Self { role, parts }
    }

    /// Creates a text from the user.
    ///
    /// ```
    /// # use levity_core::{Message, Role};
    /// assert_eq!(Message::user("Good morning").role, Role::User);
    /// ```
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, [Part::text(text)])
    }

    /// Creates a text from the model.
    ///
    /// ```
    /// # use levity_core::{Message, Role};
    /// assert_eq!(Message::assistant("How can I help?").role, Role::Assistant);
    /// ```
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, [Part::text(text)])
    }

    /// Creates a note from the program to the model.
    ///
    /// ```
    /// # use levity_core::{Message, Role};
    /// assert_eq!(Message::system("The user is offline.").role, Role::System);
    /// ```
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, [Part::text(text)])
    }

    /// Returns the text of all text parts, joined without a separator; borrowed if there is only
    /// one.
    ///
    /// ```
    /// # use levity_core::{Message, Part, Role};
    /// let parts = [Part::thinking("An easy sum."), Part::text("It is "), Part::text("7.")];
    /// assert_eq!(Message::new(Role::Assistant, parts).text(), "It is 7.");
    /// ```
    pub fn text(&self) -> Cow<'_, str> {
        join(self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&*text.text),
            _ => None,
        }))
    }

    /// Returns the text of all thinking parts, joined without a separator.
    ///
    /// ```
    /// # use levity_core::{Message, Part, Role};
    /// let parts = [Part::thinking("An easy sum."), Part::text("It is 7.")];
    /// assert_eq!(Message::new(Role::Assistant, parts).thinking(), "An easy sum.");
    /// ```
    pub fn thinking(&self) -> Cow<'_, str> {
        join(self.parts.iter().filter_map(|part| match part {
            Part::Thinking(thinking) => Some(&*thinking.text),
            _ => None,
        }))
    }

    /// Returns the bytes of text in it: text, thinking, arguments and results.
    ///
    /// ```
    /// # use levity_core::Message;
    /// assert_eq!(Message::user("Good morning").size(), 12);
    /// ```
    pub fn size(&self) -> usize {
        self.measure().0
    }

    /// Returns the bytes of text in it and the maximum number of its tokens.
    pub(crate) fn measure(&self) -> (usize, u64) {
        let all = self.parts.iter().map(Part::measure);
        let (text, other) = all.fold((0_usize, 0_u64), |(text, other), (more, tokens)| {
            (
                text.saturating_add(more),
                other.saturating_add(tokens).saturating_add(PART_TOKENS),
            )
        });
        (
            text,
            other
                .saturating_add(text as u64)
                .saturating_add(MESSAGE_TOKENS),
        )
    }

    /// Returns the message as it is shown: without the [full text](ToolResult::whole) of its
    /// results. It copies nothing if there is none.
    ///
    /// ```
    /// # use levity_core::{Message, Part, Role, ToolCall, ToolOutput, ToolResult};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "read", json!({}));
    /// let mut result = ToolResult::new(&call, Ok(ToolOutput::text("the first page")));
    /// result.whole = Some("the whole book".into());
    /// let message = Message::new(Role::Tool, [Part::ToolResult(result)]);
    /// let shown = message.shown();
    /// let result = shown.results().next().unwrap();
    /// assert_eq!((&*result.text(), result.whole.as_deref()), ("the first page", Some("")));
    /// ```
    pub fn shown(&self) -> Cow<'_, Self> {
        if self.retained_bytes() == 0 {
            return Cow::Borrowed(self);
        }
        let mut shown = self.clone();
        shown.keep_wholes(0);
        Cow::Owned(shown)
    }

    /// Returns the bytes of full results that it retains.
    pub(crate) fn retained_bytes(&self) -> usize {
        self.results().map(ToolResult::retained_bytes).sum()
    }

    /// Drops full results, the first ones first, until at most `limit` bytes of them remain.
    pub(crate) fn keep_wholes(&mut self, limit: usize) {
        let mut retained = self.retained_bytes();
        for part in &mut self.parts {
            let Part::ToolResult(result) = part else {
                continue;
            };
            if retained <= limit {
                break;
            }
            retained -= result.retained_bytes();
            result.drop_whole();
        }
    }

    /// Returns the tool calls, in order.
    ///
    /// ```
    /// # use levity_core::{Message, Part, Role, ToolCall};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let parts = [Part::text("A moment."), Part::ToolCall(call)];
    /// let message = Message::new(Role::Assistant, parts);
    /// assert_eq!(message.calls().map(|call| &*call.name).collect::<Vec<_>>(), ["add"]);
    /// ```
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the tool results, in order.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }
}

/// The overhead in tokens of a message and of a part: roles, markers, separators.
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

/// A part of a message.
///
/// ```
/// use levity_core::{Media, Message, Part, Role};
///
/// let chart = Media::url("image/png", "https://example.com/chart.png");
/// let message = Message::new(Role::User, ["What does the chart show?".into(), chart.into()]);
/// assert!(matches!(message.parts[1], Part::Media(_)));
/// assert_eq!(message.text(), "What does the chart show?");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text for the reader.
    Text(Text),
    /// The thinking of the model before its answer.
    Thinking(Thinking),
    /// An image, a sound or a document.
    Media(Media),
    /// A tool call by the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A block that only its provider understands; it is returned unchanged.
    Opaque(ProviderState),
}

impl Part {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text::new(text))
    }

    /// Creates a thinking part.
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking(Thinking::new(text))
    }

    /// Returns the bytes of text in it and the maximum tokens of everything else in it.
    fn measure(&self) -> (usize, u64) {
        let (text, other) = match self {
            Self::Text(part) => (part.text.len(), 0),
            Self::Thinking(part) => (part.text.len(), 0),
            Self::ToolCall(call) => {
                let raw = call.raw.as_ref().map_or(0, String::len) + call.id.as_str().len();
                (call.name.len() + json_size(&call.args), raw as u64)
            }
            Self::ToolResult(result) => (result.size(), result.other_tokens()),
            Self::Media(media) => (0, media.most_tokens()),
            Self::Opaque(_) => (0, 0),
        };
        (text, other.saturating_add(opaque_tokens(self.opaque())))
    }

    /// Attaches provider data to this part and replaces existing data.
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

    /// Returns the provider data attached to this part.
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

/// State that a provider issued and expects back unchanged: signatures, reasoning items, ids.
///
/// It is attached to the part it belongs to. Only the provider that created it reads it; others
/// omit it. Many servers share a protocol but reject each other's sealed state, so state with an
/// [`origin`](Self::origin) is sent back only to that origin.
///
/// ```
/// # use levity_core::{Part, ProviderState};
/// # use serde_json::json;
/// let mut part = Part::thinking("First the tides.");
/// let state = ProviderState::new("anthropic", json!({"signature": "c2ln"})).with_origin("api");
/// part.set_opaque(state);
/// assert_eq!(part.opaque().and_then(ProviderState::origin), Some("api"));
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderState {
    /// The protocol that it is part of.
    pub provider: Arc<str>,
    /// The state as the provider sent it.
    pub data: Arc<Value>,
    /// Behind two pointers, because this type is part of many values that move often and must stay
    /// small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Arc<Box<str>>>,
}

impl ProviderState {
    /// The provider name of the original text that is attached to a call parsed from text.
    pub const TEXT_CALL: &str = "text_call";

    /// Creates state of `provider`.
    pub fn new(provider: impl Into<Arc<str>>, data: Value) -> Self {
        Self {
            provider: provider.into(),
            data: Arc::new(data),
            origin: None,
        }
    }

    /// Returns the server, account and kind of model that created it, as the provider's
    /// implementation names them. State without an origin, such as a block that a program creates,
    /// is sent to every server of the protocol.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref().map(|origin| &**origin)
    }

    /// Sets the origin of the state.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<Box<str>>) -> Self {
        self.origin = Some(Arc::new(origin.into()));
        self
    }

    /// Removes the origin of the state.
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

/// A part with text.
///
/// ```
/// # use levity_core::Text;
/// assert_eq!(serde_json::to_string(&Text::new("Good morning"))?, r#"{"text":"Good morning"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Text {
    /// The text of the part.
    pub text: String,
    /// Optional data of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl Text {
    /// Creates text without provider data.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            opaque: None,
        }
    }
}

/// The thinking of the model, as far as the provider shows it.
///
/// ```
/// # use levity_core::{Message, Part, Role};
/// let parts = [Part::thinking("2 + 5 is 7."), Part::text("Seven.")];
/// let reply = Message::new(Role::Assistant, parts);
/// assert_eq!((&*reply.thinking(), &*reply.text()), ("2 + 5 is 7.", "Seven."));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Thinking {
    /// The text of the thinking; empty if the provider hides it.
    pub text: String,
    /// Optional data of the provider, such as a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl Thinking {
    /// Creates thinking without provider data.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            opaque: None,
        }
    }
}

/// An image, a sound or a document.
///
/// ```
/// # use levity_core::{Media, MediaSource};
/// let mut scan = Media::bytes("application/pdf", b"%PDF-1.7".as_slice());
/// scan.name = Some("invoice.pdf".to_owned());
/// assert!(matches!(&scan.source, MediaSource::Bytes(bytes) if bytes.as_slice().len() == 8));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// The media type, such as `image/png`.
    pub mime: String,
    /// The location of the bytes.
    pub source: MediaSource,
    /// The file name, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Optional data of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl Media {
    /// Creates media from bytes of this type.
    pub fn bytes(mime: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self {
            mime: mime.into(),
            source: MediaSource::Bytes(bytes.into()),
            name: None,
            opaque: None,
        }
    }

    /// Creates media that the provider fetches itself.
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
    /// More tokens than any known provider counts for one image.
    const IMAGE_TOKENS: u64 = 40_000;
    /// Content at a URL may have any length; this is the size of the largest context windows.
    const UNSEEN_TOKENS: u64 = 1 << 21;

    /// Returns `true` if the number of bytes does not bound the tokens: in a document such as a PDF
    /// the text is compressed, and providers also count each page as an image.
    fn is_packed(&self) -> bool {
        let plain = ["json", "xml", "yaml", "javascript", "x-sh"];
        self.mime
            .strip_prefix("application/")
            .is_some_and(|kind| !plain.iter().any(|end| kind.ends_with(end)))
    }

    /// Returns the maximum number of its tokens: 40,000 for an image; for anything else one per
    /// byte, and no less than an image; 2,097,152 if the bytes are remote or compressed.
    ///
    /// The name counts in addition.
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

/// The location of the bytes of a [`Media`].
///
/// ```
/// # use levity_core::{Media, MediaSource};
/// let photo = Media::url("image/jpeg", "https://example.com/photo.jpg");
/// assert!(matches!(photo.source, MediaSource::Url(url) if url.ends_with("photo.jpg")));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// The bytes of the media.
    Bytes(Bytes),
    /// A URL that the provider can reach.
    Url(String),
}

/// Shared bytes; serialized as base64, cheap to clone, and `Debug` shows only their number.
///
/// ```
/// # use levity_core::Bytes;
/// let bytes = Bytes::from(vec![1, 2, 3]);
/// assert_eq!(format!("{bytes:?}"), "Bytes(3)");
/// assert_eq!(serde_json::to_string(&bytes)?, "\"AQID\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(Arc<[u8]>);

impl Bytes {
    /// Returns the bytes as a slice.
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

/// A request of the model to call a tool.
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
    /// The id that ties the result to the call.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments; `null` if they are not JSON.
    pub args: Value,
    /// The original text of the arguments if it is not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Optional data of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
}

impl ToolCall {
    /// Creates a call with these arguments.
    pub fn new(id: impl Into<CallId>, name: impl Into<String>, args: Value) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            args,
            raw: None,
            opaque: None,
        }
    }

    /// Returns `true` if the model wrote this call as text because its server did not recognize it.
    /// Models that need this help often need more of it.
    ///
    /// ```
    /// # use levity_core::{ProviderState, ToolCall};
    /// # use serde_json::json;
    /// let mut call = ToolCall::new("c1", "add", json!({"a": 1}));
    /// assert!(!call.is_from_text());
    /// let text = json!({"text": "add(a=1)"});
    /// call.opaque = Some(ProviderState::new(ProviderState::TEXT_CALL, text));
    /// assert!(call.is_from_text());
    /// ```
    pub fn is_from_text(&self) -> bool {
        self.opaque
            .as_ref()
            .is_some_and(|opaque| &*opaque.provider == ProviderState::TEXT_CALL)
    }

    /// Creates a call from arguments in text form. Empty text means no arguments. Text that is not
    /// JSON is stored in [`raw`](Self::raw), so that it can be reported to the model.
    ///
    /// ```
    /// # use levity_core::ToolCall;
    /// # use serde_json::json;
    /// let call = ToolCall::from_text("c1", "add", r#"{"a": 2}"#);
    /// assert_eq!((call.args, call.raw), (json!({"a": 2}), None));
    /// let call = ToolCall::from_text("c2", "add", "two and five");
    /// assert_eq!(call.raw.as_deref(), Some("two and five"));
    /// ```
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

/// The maximum nesting of arguments. `serde_json` reads 128 levels, and a journal record adds some
/// levels around the arguments: accepted arguments must be readable there.
const MAX_DEPTH: usize = 64;

fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(list) => depth > 0 && list.iter().all(|value| is_shallow(value, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|value| is_shallow(value, depth - 1)),
        _ => true,
    }
}

/// The result of a tool call.
///
/// ```
/// use levity_core::{ToolCall, ToolError, ToolErrorKind, ToolResult};
/// use serde_json::json;
///
/// let call = ToolCall::new("c1", "weather", json!({"city": "Atlantis"}));
/// let result = ToolResult::new(&call, Err(ToolError::failed("there is no such city")));
/// assert_eq!(result.text(), "there is no such city");
/// assert_eq!(result.error, Some(ToolErrorKind::Failed));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the call that it answers.
    pub call: CallId,
    /// The name of the tool.
    pub name: String,
    /// The text and media for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Content>,
    /// The output as a value, if the tool returned one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub value: Option<Value>,
    /// The kind of error, if the call failed; the content then describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolErrorKind>,
    /// The full text of a result that was too long to show: the model sees the content and can read
    /// this in pieces. A value is stored as JSON, before the text if both were too long. It is
    /// empty once it is no longer retained.
    ///
    /// It is not sent to providers and no size includes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Arc<str>>,
    /// Optional data of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<ProviderState>,
    /// The interventions of guards in the call or the result; empty in a history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Intervention>,
    /// The files that the call changed; empty in a history. It is not sent to providers.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub changes: Box<[FileChange]>,
}

impl ToolResult {
    /// Creates the answer to `call`: the output, or the error as text.
    pub fn new(call: &ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self::of(call.id.clone(), call.name.clone(), outcome)
    }

    /// Creates the answer to `call` without copying anything.
    ///
    /// ```
    /// # use levity_core::{ToolCall, ToolOutput, ToolResult};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let result = ToolResult::answering(call, Ok(ToolOutput::text("7")));
    /// assert_eq!((result.call.as_str(), &*result.name), ("c1", "add"));
    /// ```
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
            changes: Box::default(),
        }
    }

    /// Returns the answer as text: the text content or, if there is none, the value as JSON.
    ///
    /// ```
    /// # use levity_core::{ToolCall, ToolOutput, ToolResult};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let result = ToolResult::new(&call, Ok(ToolOutput::value(json!({"sum": 7}))));
    /// assert_eq!(result.text(), r#"{"sum":7}"#);
    /// ```
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

    /// Returns the maximum tokens of everything in it that is not text.
    fn other_tokens(&self) -> u64 {
        let media = self.content.iter().map(|content| match content {
            Content::Text(_) => PART_TOKENS,
            Content::Media(media) => media
                .most_tokens()
                .saturating_add(opaque_tokens(media.opaque.as_ref())),
        });
        let named = (self.call.as_str().len() + self.name.len()) as u64;
        media.fold(named, u64::saturating_add)
    }

    /// Returns `true` if the call failed.
    ///
    /// ```
    /// # use levity_core::{ToolCall, ToolError, ToolResult};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "weather", json!({"city": "Atlantis"}));
    /// assert!(ToolResult::new(&call, Err(ToolError::failed("no such city"))).is_error());
    /// ```
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// Returns the retained bytes of a result that was too long to show.
    pub(crate) fn retained_bytes(&self) -> usize {
        self.whole.as_ref().map_or(0, |whole| whole.len())
    }

    /// Drops the full text; an empty text remains as a sign that there was one.
    pub(crate) fn drop_whole(&mut self) {
        if self.retained_bytes() > 0 {
            self.whole = Some("".into());
        }
    }
}

/// Deserializes a value that is present even if it is `null`: a tool that returned `null` did
/// return something.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Returns the text content of an output or, if there is none, its value as JSON.
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

/// The content that a tool can show to the model.
///
/// ```
/// # use levity_core::{Content, Media, ToolOutput};
/// let output = ToolOutput::text("the chart").with_media(Media::bytes("image/png", vec![0x89]));
/// assert!(matches!(output.content[..], [Content::Text(_), Content::Media(_)]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text for the model.
    Text(String),
    /// An image, a sound or a document.
    Media(Media),
}
