use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::ops::AddAssign;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};

use crate::{
    CallId, Intervention, Message, ModelError, ModelErrorKind, Money, Part, ProviderState, Role,
    Text, Thinking, ToolCall,
};

/// The complete reply of a model.
///
/// ```
/// # use levity_core::{Finish, Message, Response, Usage};
/// let reply = Response::new(Message::assistant("High water is at"))
///     .with_finish(Finish::Length)
///     .with_usage(Usage::new(40, 5));
/// assert!(reply.finish == Finish::Length, "the limit on the reply cut it short");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Response {
    /// The message of the model.
    pub message: Arc<Message>,
    /// The reason why the model stopped.
    pub finish: Finish,
    /// The tokens and money used.
    pub usage: Usage,
    /// The model that replied, as the provider names it: often a version of the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The interventions of guards. If the [answer](crate::Stage::Answer) was blocked, the message
    /// is empty. A blocked call remains in it without its arguments and must not be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Intervention>,
}

impl Response {
    /// Creates a reply that ended normally.
    pub fn new(message: impl Into<Arc<Message>>) -> Self {
        Self {
            message: message.into(),
            finish: Finish::Stop,
            usage: Usage::default(),
            model: None,
            guarded: Vec::new(),
        }
    }

    /// Sets the reason why the model stopped.
    #[must_use]
    pub fn with_finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// Sets the tokens and money used.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the model that replied.
    #[must_use]
    pub fn with_model(mut self, model: Option<Arc<str>>) -> Self {
        self.model = model;
        self
    }
}

/// The reason why a model stopped.
///
/// ```
/// # use levity_core::Finish;
/// assert_eq!(serde_json::to_string(&Finish::ToolCalls)?, "\"tool_calls\"");
/// assert_eq!(Finish::default(), Finish::Stop);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model completed its reply.
    #[default]
    Stop,
    /// The model requests tool calls.
    ToolCalls,
    /// The limit on the reply's length was reached.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// The provider interrupted a long turn in which it runs its own tools. It continues when it
    /// receives the reply back as the last message.
    Paused,
    /// Another reason, as the provider names it.
    Other(String),
}

/// The usage of one call, or the sum of many; `None` means that the provider did not report it.
///
/// ```
/// # use levity_core::{Money, Usage};
/// let mut all = Usage::new(1_000, 200);
/// let mut call = Usage::new(500, 100);
/// call.cost = Some(Money::from_dollars(0.01));
/// all += call;
/// assert_eq!(all.to_string(), "1500 tokens in, 300 out, $0.01");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// The tokens sent, including cached ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// The tokens received, including reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// The tokens sent that the provider had in its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// The tokens sent that the provider wrote to its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_written: Option<u64>,
    /// The tokens of `cache_written` that the provider caches for an hour, which costs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_written_hour: Option<u64>,
    /// The tokens received that were reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// The searches that the provider made itself, each with a fee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searches: Option<u64>,
    /// The sessions in which the provider ran code, each with a fee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// `true` if the provider served the request with priority, at its rates for that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub priority: bool,
    /// The cost, as far as prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// `true` if some counts are estimates, because the provider did not report them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Creates a usage of tokens sent and received.
    pub fn new(input: u64, output: u64) -> Self {
        Self {
            input: Some(input),
            output: Some(output),
            ..Self::default()
        }
    }

    /// Returns the sum of tokens sent and received; unknown counts add nothing.
    ///
    /// ```
    /// # use levity_core::Usage;
    /// assert_eq!(Usage::new(1_200, 300).total(), 1_500);
    /// assert_eq!(Usage::default().total(), 0);
    /// ```
    pub fn total(&self) -> u64 {
        self.input
            .unwrap_or(0)
            .saturating_add(self.output.unwrap_or(0))
    }

    /// Replaces each count that `newer` has.
    ///
    /// ```
    /// # use levity_core::Usage;
    /// let mut usage = Usage::new(1_200, 1);
    /// let mut newer = Usage::default();
    /// newer.output = Some(300);
    /// usage.update(newer);
    /// assert_eq!(usage, Usage::new(1_200, 300));
    /// ```
    pub fn update(&mut self, newer: Self) {
        self.input = newer.input.or(self.input);
        self.output = newer.output.or(self.output);
        self.cached = newer.cached.or(self.cached);
        self.cache_written = newer.cache_written.or(self.cache_written);
        self.cache_written_hour = newer.cache_written_hour.or(self.cache_written_hour);
        self.reasoning = newer.reasoning.or(self.reasoning);
        self.searches = newer.searches.or(self.searches);
        self.sessions = newer.sessions.or(self.sessions);
        self.priority |= newer.priority;
        self.cost = newer.cost.or(self.cost);
        self.estimated |= newer.estimated;
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |mine: Option<u64>, theirs: Option<u64>| match (mine, theirs) {
            (None, None) => None,
            (mine, theirs) => Some(mine.unwrap_or(0).saturating_add(theirs.unwrap_or(0))),
        };
        self.input = add(self.input, other.input);
        self.output = add(self.output, other.output);
        self.cached = add(self.cached, other.cached);
        self.cache_written = add(self.cache_written, other.cache_written);
        self.cache_written_hour = add(self.cache_written_hour, other.cache_written_hour);
        self.reasoning = add(self.reasoning, other.reasoning);
        self.searches = add(self.searches, other.searches);
        self.sessions = add(self.sessions, other.sessions);
        self.priority |= other.priority;
        let nanos = |cost: Option<Money>| cost.map(Money::nanos);
        self.cost = add(nanos(self.cost), nanos(other.cost)).map(Money::from_nanos);
        self.estimated = self.estimated || other.estimated;
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count =
            |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        let about = if self.estimated { "about " } else { "" };
        write!(
            f,
            "{about}{} tokens in, {} out",
            count(self.input),
            count(self.output)
        )?;
        self.cost.map_or(Ok(()), |cost| write!(f, ", {cost}"))
    }
}

/// A piece of a reply, as it arrives.
///
/// ```
/// # use levity_core::{Delta, Fold};
/// # use serde_json::json;
/// let mut fold = Fold::new();
/// fold.push(Delta::CallStart { index: 0, id: "c1".into(), name: "add".into() })?;
/// fold.push(Delta::CallArgs { index: 0, text: r#"{"a": 2,"#.into() })?;
/// fold.push(Delta::CallArgs { index: 0, text: r#" "b": 5}"#.into() })?;
/// let reply = fold.finish();
/// assert_eq!(reply.message.calls().next().map(|call| &call.args), Some(&json!({"a": 2, "b": 5})));
/// # Ok::<(), levity_core::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delta {
    /// More text. All text of a reply arrives in these pieces.
    Text(String),
    /// More thinking. All visible thinking arrives in these pieces.
    Thinking(String),
    /// A tool call begins; later pieces of it have the same index.
    CallStart {
        /// Distinguishes the calls of this reply.
        index: u32,
        /// The id of the call; empty if the provider gave none.
        id: CallId,
        /// The name of the tool.
        name: String,
    },
    /// More of a call's arguments, as JSON text.
    CallArgs {
        /// The index of the call.
        index: u32,
        /// The next piece of the JSON text.
        text: String,
    },
    /// Provider data for the part that the preceding pieces belong to.
    Opaque(ProviderState),
    /// A whole part: media, a provider-specific block or a call. A text or thinking part arrives
    /// this way only if it is empty: with the provider's data, or to begin a separate part.
    Part(Part),
    /// The token counts; each replaces the previous one.
    Usage(Usage),
    /// The model that replies, as the provider names it.
    Model(Arc<str>),
    /// The reason why the model stopped.
    Finish(Finish),
    /// Not part of the reply: a wrapper waits before it sends or repeats the request.
    Waiting {
        /// The duration of the wait, as far as known.
        time: Duration,
        /// The reason for the wait.
        reason: String,
    },
    /// Not part of the reply: information for observers, such as that a call was parsed from text.
    Notice {
        /// A description of what happened.
        text: String,
    },
    /// Not part of the reply: it starts again, and all earlier pieces are void except the token
    /// counts, which include all attempts.
    Restart {
        /// The reason for the restart.
        reason: String,
    },
}

impl Delta {
    /// Returns the pieces of a whole part. Text and thinking become separate pieces, followed by
    /// the provider's data, so that a consumer of [`Delta::Text`] alone misses no text.
    ///
    /// ```
    /// # use levity_core::{Delta, Part};
    /// let pieces: Vec<_> = Delta::of_part(Part::text("Good morning")).collect();
    /// assert_eq!(pieces, [Delta::Text("Good morning".into())]);
    /// ```
    pub fn of_part(part: Part) -> impl Iterator<Item = Self> {
        let (content, data) = match part {
            Part::Text(Text { text, opaque }) if !text.is_empty() => (Self::Text(text), opaque),
            Part::Thinking(Thinking { text, opaque }) if !text.is_empty() => {
                (Self::Thinking(text), opaque)
            }
            part => (Self::Part(part), None),
        };
        std::iter::once(content).chain(data.map(Self::Opaque))
    }

    /// Returns `true` if it is content of the reply, and not a count, a name, the end or a message
    /// of a wrapper.
    ///
    /// ```
    /// # use levity_core::{Delta, Usage};
    /// assert!(Delta::Text("Good morning".into()).is_content());
    /// assert!(!Delta::Usage(Usage::new(12, 2)).is_content());
    /// ```
    pub fn is_content(&self) -> bool {
        !matches!(
            self,
            Self::Usage(_)
                | Self::Model(_)
                | Self::Finish(_)
                | Self::Waiting { .. }
                | Self::Notice { .. }
                | Self::Restart { .. }
        )
    }
}

/// The number of pieces to return without a pause before other tasks run.
const PIECES_PER_BURST: u32 = 256;

/// A stream of the pieces of a reply. Dropping it cancels the call.
///
/// However fast the pieces arrive, the stream yields to the scheduler after every 256 of them, so
/// that timeouts and cancellation take effect.
///
/// ```
/// # use levity_core::{Delta, Deltas};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let mut deltas = Deltas::ready(["Good ", "morning"].map(|text| Delta::Text(text.into())));
/// let mut text = String::new();
/// while let Some(delta) = deltas.next().await {
///     if let Delta::Text(more) = delta? {
///         text.push_str(&more);
///     }
/// }
/// assert_eq!(text, "Good morning");
/// # Ok(())
/// # }
/// ```
pub struct Deltas {
    stream: Pin<Box<dyn Stream<Item = Result<Delta, ModelError>> + Send>>,
    /// The number of pieces returned without a pause.
    burst: u32,
}

impl Deltas {
    /// Wraps a stream of pieces.
    pub fn new(stream: impl Stream<Item = Result<Delta, ModelError>> + Send + 'static) -> Self {
        Self {
            stream: Box::pin(stream),
            burst: 0,
        }
    }

    /// Creates a reply that is already complete.
    pub fn ready(deltas: impl IntoIterator<Item = Delta>) -> Self {
        Self::new(Ready(
            deltas.into_iter().map(Ok).collect::<Vec<_>>().into_iter(),
        ))
    }

    /// Creates the pieces of a whole response, about one per part.
    ///
    /// ```
    /// # use levity_core::{Deltas, Message, Response};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let response = Response::new(Message::assistant("Good morning"));
    /// assert_eq!(Deltas::from_response(&response).fold().await?, response);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_response(response: &Response) -> Self {
        let mut before = None;
        let parts = response.message.parts.iter().flat_map(|part| {
            separator(before.replace(part), part)
                .into_iter()
                .chain(Delta::of_part(part.clone()))
        });
        let model = response.model.clone().map(Delta::Model);
        let end = [
            Delta::Usage(response.usage),
            Delta::Finish(response.finish.clone()),
        ];
        Self::ready(parts.chain(model).chain(end))
    }

    /// Returns the next piece, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the end and combines the pieces.
    ///
    /// # Errors
    /// Returns the first error of the stream, or [`Malformed`](ModelErrorKind::Malformed) if the
    /// reply is larger than [`Fold::DEFAULT_LIMIT`]. After the first piece, the error may
    /// [cost](ModelError::may_cost).
    ///
    /// ```
    /// # use levity_core::{Delta, Deltas};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let deltas = Deltas::ready(["Good ", "morning"].map(|text| Delta::Text(text.into())));
    /// assert_eq!(deltas.fold().await?.message.text(), "Good morning");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fold(mut self) -> Result<Response, ModelError> {
        let mut fold = Fold::new();
        while let Some(delta) = self.next().await {
            fold.push(delta.map_err(|error| fold.broken(error))?)?;
        }
        Ok(fold.finish())
    }
}

/// Returns the piece that separates the text of `part` from the part `before` it, which it would
/// otherwise extend: an empty part of the same kind, which the text then fills.
fn separator(before: Option<&Part>, part: &Part) -> Option<Delta> {
    match (before?, part) {
        (Part::Text(Text { opaque: None, .. }), Part::Text(part)) if !part.text.is_empty() => {
            Some(Delta::Part(Part::text("")))
        }
        (Part::Thinking(Thinking { opaque: None, .. }), Part::Thinking(part))
            if !part.text.is_empty() =>
        {
            Some(Delta::Part(Part::thinking("")))
        }
        _ => None,
    }
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deltas")
    }
}

impl Stream for Deltas {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.burst >= PIECES_PER_BURST {
            self.burst = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.stream.as_mut().poll_next(cx);
        self.burst = if next.is_ready() { self.burst + 1 } else { 0 };
        next
    }
}

struct Ready(std::vec::IntoIter<Result<Delta, ModelError>>);

impl Stream for Ready {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// Combines the pieces of a reply.
///
/// ```
/// # use levity_core::{Delta, Fold};
/// let mut fold = Fold::new();
/// fold.push(Delta::Text("Good ".into()))?;
/// fold.push(Delta::Text("morning".into()))?;
/// assert_eq!(fold.finish().message.text(), "Good morning");
/// # Ok::<(), levity_core::ModelError>(())
/// ```
#[derive(Debug)]
pub struct Fold {
    parts: Vec<PartInProgress>,
    calls: HashMap<u32, usize>,
    current: Option<usize>,
    usage: Usage,
    model: Option<Arc<str>>,
    finish: Option<Finish>,
    bytes: usize,
    limit: usize,
    /// The number of calls that have begun, including those before a restart.
    calls_begun: usize,
}

#[derive(Debug)]
enum PartInProgress {
    Whole(Part),
    Call {
        id: CallId,
        name: String,
        args: String,
        opaque: Option<ProviderState>,
    },
}

impl Default for Fold {
    fn default() -> Self {
        Self::new()
    }
}

impl Fold {
    /// The default limit on the text of a reply: 32 MiB.
    pub const DEFAULT_LIMIT: usize = 32 << 20;

    /// The maximum number of tool calls in a reply: 16,384. The caller may set a lower limit.
    pub const MAX_CALLS: usize = 16_384;

    /// Creates an empty fold.
    pub fn new() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }

    /// Creates an empty fold that accepts at most `limit` bytes of text.
    ///
    /// ```
    /// # use levity_core::{Delta, Fold, ModelErrorKind};
    /// let mut fold = Fold::with_limit(1_000);
    /// let error = fold.push(Delta::Text("x".repeat(2_000))).unwrap_err();
    /// assert_eq!(error.kind(), ModelErrorKind::Malformed);
    /// ```
    pub fn with_limit(limit: usize) -> Self {
        Self {
            parts: Vec::new(),
            calls: HashMap::new(),
            current: None,
            usage: Usage::default(),
            model: None,
            finish: None,
            bytes: 0,
            limit,
            calls_begun: 0,
        }
    }

    /// Adds a piece of the reply.
    ///
    /// # Errors
    /// Returns [`Malformed`](ModelErrorKind::Malformed) if the reply exceeds the limit or has more
    /// than [`MAX_CALLS`](Self::MAX_CALLS) calls, or arguments arrive for a call that never began.
    pub fn push(&mut self, delta: Delta) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(delta_size(&delta));
        if self.bytes > self.limit {
            let message = format!("the reply is larger than {} bytes", self.limit);
            return Err(ModelError::new(ModelErrorKind::Malformed, message));
        }
        if matches!(
            delta,
            Delta::CallStart { .. } | Delta::Part(Part::ToolCall(_))
        ) {
            self.calls_begun += 1;
            if self.calls_begun > Self::MAX_CALLS {
                let message = format!("the reply calls more than {} tools", Self::MAX_CALLS);
                return Err(ModelError::new(ModelErrorKind::Malformed, message));
            }
        }
        match delta {
            Delta::Text(text) => match self.last() {
                Some(PartInProgress::Whole(Part::Text(part))) if part.opaque.is_none() => {
                    part.text.push_str(&text);
                }
                _ => self.add(PartInProgress::Whole(Part::Text(Text::new(text)))),
            },
            Delta::Thinking(text) => match self.last() {
                Some(PartInProgress::Whole(Part::Thinking(part))) if part.opaque.is_none() => {
                    part.text.push_str(&text);
                }
                _ => self.add(PartInProgress::Whole(Part::Thinking(Thinking::new(text)))),
            },
            Delta::CallStart { index, id, name } => {
                self.calls.insert(index, self.parts.len());
                self.add(PartInProgress::Call {
                    id,
                    name,
                    args: String::new(),
                    opaque: None,
                });
            }
            Delta::CallArgs { index, text } => self.push_args(index, &text)?,
            Delta::Opaque(opaque) => self.attach(opaque),
            Delta::Part(part) => self.add(PartInProgress::Whole(part)),
            Delta::Usage(usage) => self.usage.update(usage),
            Delta::Model(model) => self.model = Some(model),
            Delta::Finish(finish) => self.finish = Some(finish),
            Delta::Waiting { .. } | Delta::Notice { .. } => {}
            Delta::Restart { .. } => self.restart(),
        }
        Ok(())
    }

    /// Completes an error of the stream of pieces. A provider that had begun to reply may charge
    /// for it.
    ///
    /// ```
    /// # use levity_core::{Delta, Fold, ModelError, ModelErrorKind};
    /// let lost = ModelError::new(ModelErrorKind::RateLimited { retry_after: None }, "too many");
    /// let mut fold = Fold::new();
    /// assert!(!fold.broken(lost.clone()).may_cost());
    /// fold.push(Delta::Text("Good ".into()))?;
    /// assert!(fold.broken(lost).may_cost()); // a part of the reply had arrived
    /// # Ok::<(), ModelError>(())
    /// ```
    pub fn broken(&self, error: ModelError) -> ModelError {
        if self.bytes > 0 {
            error.with_charge()
        } else {
            error
        }
    }

    /// Discards the reply. Its size still counts, so that endless pieces reach the limit.
    fn restart(&mut self) {
        self.parts.clear();
        self.calls.clear();
        (self.current, self.model, self.finish) = (None, None, None);
    }

    fn last(&mut self) -> Option<&mut PartInProgress> {
        self.current = self.parts.len().checked_sub(1);
        self.parts.last_mut()
    }

    fn add(&mut self, part: PartInProgress) {
        self.current = Some(self.parts.len());
        self.parts.push(part);
    }

    fn push_args(&mut self, index: u32, text: &str) -> Result<(), ModelError> {
        let position = self.calls.get(&index).copied();
        match position.and_then(|position| self.parts.get_mut(position)) {
            Some(PartInProgress::Call { args, .. }) => {
                args.push_str(text);
                self.current = position;
                Ok(())
            }
            _ => {
                let message = format!("arguments arrived for call {index}, which never began");
                Err(ModelError::new(ModelErrorKind::Malformed, message))
            }
        }
    }

    fn attach(&mut self, data: ProviderState) {
        match self.current.and_then(|current| self.parts.get_mut(current)) {
            // Two blocks in a row are separate blocks.
            Some(PartInProgress::Whole(Part::Opaque(_))) | None => {
                self.add(PartInProgress::Whole(Part::Opaque(data)));
            }
            Some(PartInProgress::Whole(part)) => part.set_opaque(data),
            Some(PartInProgress::Call { opaque, .. }) => *opaque = Some(data),
        }
    }

    /// Returns the reply without empty text parts, because providers reject them in a history.
    pub fn finish(self) -> Response {
        let mut parts: Vec<Part> = self
            .parts
            .into_iter()
            .filter(|part| match part {
                PartInProgress::Whole(Part::Text(Text { text, opaque: None })) => !text.is_empty(),
                _ => true,
            })
            .map(|part| match part {
                PartInProgress::Whole(part) => part,
                PartInProgress::Call {
                    id,
                    name,
                    args,
                    opaque,
                } => Part::ToolCall(ToolCall {
                    opaque,
                    ..ToolCall::from_text(id, name, &args)
                }),
            })
            .collect();
        // Release spare capacity, because the message lives as long as the conversation.
        parts.shrink_to_fit();
        let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
        let finish = self.finish.unwrap_or(if calls {
            Finish::ToolCalls
        } else {
            Finish::Stop
        });
        Response::new(Message {
            role: Role::Assistant,
            parts,
        })
        .with_finish(finish)
        .with_usage(self.usage)
        .with_model(self.model)
    }
}

/// Returns how much a piece adds to the size of a reply. A piece that opens a part counts the
/// part's overhead, and an empty piece counts too, so that endless pieces reach the limit.
fn delta_size(delta: &Delta) -> usize {
    const PART: usize = 128;
    let size = match delta {
        Delta::Text(text) | Delta::Thinking(text) | Delta::CallArgs { text, .. } => text.len(),
        Delta::CallStart { id, name, .. } => PART + id.as_str().len() + name.len(),
        Delta::Part(Part::Text(Text { text, opaque: None }))
        | Delta::Part(Part::Thinking(Thinking { text, opaque: None })) => PART + text.len(),
        Delta::Part(part) => PART + json_size(part),
        Delta::Opaque(opaque) => PART + json_size(opaque),
        Delta::Model(name) => name.len(),
        Delta::Notice { text } => text.len(),
        Delta::Usage(_) | Delta::Finish(_) | Delta::Waiting { .. } | Delta::Restart { .. } => 1,
    };
    size.max(1)
}

/// Returns the length of a value as JSON without storing it.
pub(crate) fn json_size(value: &impl Serialize) -> usize {
    struct Counter(usize);

    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // The counter accepts all bytes.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests;
