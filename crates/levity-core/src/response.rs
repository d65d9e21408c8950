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

/// A model's whole reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Response {
    /// What it said.
    pub message: Arc<Message>,
    /// Why it stopped.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
    /// The model that gave it, as the provider says: often a version of the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The guards that stepped in. A message whose [answer](crate::Stage::Answer) was blocked is
    /// empty; a blocked call stands in it without its arguments, and must not be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Intervention>,
}

impl Response {
    /// A reply that ended by itself.
    pub fn new(message: impl Into<Arc<Message>>) -> Self {
        Self {
            message: message.into(),
            finish: Finish::Stop,
            usage: Usage::default(),
            model: None,
            guarded: Vec::new(),
        }
    }

    /// Sets why the model stopped.
    #[must_use]
    pub fn with_finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// Sets what it cost.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets which model gave it.
    #[must_use]
    pub fn with_model(mut self, model: Option<Arc<str>>) -> Self {
        self.model = model;
        self
    }
}

/// Why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// It had said everything.
    #[default]
    Stop,
    /// It wants tools to be called.
    ToolCalls,
    /// The limit on the reply's length cut it.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// The provider interrupted a long turn, in which it works with tools of its own. It continues
    /// when the reply is sent back to it as the last message.
    Paused,
    /// Another reason, in the provider's word.
    Other(String),
}

/// Tokens of one call, or of many added up; `None` means that the provider did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens sent, cached ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Tokens received, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Tokens sent that the provider had in its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// Tokens sent that the provider put into its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_written: Option<u64>,
    /// Tokens of `cache_written` that the provider keeps for an hour, which costs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_written_hour: Option<u64>,
    /// Tokens received that were reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Searches that the provider made itself, which have a fee each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searches: Option<u64>,
    /// Sessions in which the provider ran code, which have a fee each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Whether the provider served the request before others, at its rates for that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub priority: bool,
    /// What it cost, as far as prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Whether some of it is an estimate, since the provider did not say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Tokens sent and received.
    pub fn new(input: u64, output: u64) -> Self {
        Self {
            input: Some(input),
            output: Some(output),
            ..Self::default()
        }
    }

    /// All tokens; unknown counts add nothing.
    pub fn total(&self) -> u64 {
        self.input
            .unwrap_or(0)
            .saturating_add(self.output.unwrap_or(0))
    }

    /// Replaces each count that `newer` knows.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delta {
    /// More text. All text of a reply comes in these pieces.
    Text(String),
    /// More thinking. All thoughts that are shown come in these pieces.
    Thinking(String),
    /// A tool call begins; later pieces of it bear the same index.
    CallStart {
        /// Tells the calls of this reply apart.
        index: u32,
        /// The call's id; empty when the provider gave none.
        id: CallId,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments, as JSON text.
    CallArgs {
        /// Which call.
        index: u32,
        /// The text.
        text: String,
    },
    /// Provider data for the part that the pieces before belong to.
    Opaque(ProviderState),
    /// A whole part: media, a block of the provider's own, a call. A text or a thought comes so
    /// only where it is empty: with the provider's data, or to begin a part of its own.
    Part(Part),
    /// Token counts; each replaces what was known before.
    Usage(Usage),
    /// Which model replies, as the provider says.
    Model(Arc<str>),
    /// Why the model stopped.
    Finish(Finish),
    /// Not of the reply: a wrapper lets time pass before the request is sent, or sent again.
    Waiting {
        /// How long, as far as is known.
        time: Duration,
        /// What for, in words.
        reason: String,
    },
    /// Not of the reply: something that whoever watches should know, such as that a call was read
    /// from text.
    Notice {
        /// What happened, in words.
        text: String,
    },
    /// Not of the reply: it begins anew, and what came before it is void but for the token counts,
    /// which include all that was sent.
    Restart {
        /// Why, in words.
        reason: String,
    },
}

impl Delta {
    /// The pieces of a whole part. Text and thoughts come as such, and the provider's data behind
    /// them, so that nothing said is missed by those who listen for [`Delta::Text`] alone.
    pub fn of_part(part: Part) -> impl Iterator<Item = Self> {
        let (said, data) = match part {
            Part::Text(Text { text, opaque }) if !text.is_empty() => (Self::Text(text), opaque),
            Part::Thinking(Thinking { text, opaque }) if !text.is_empty() => {
                (Self::Thinking(text), opaque)
            }
            part => (Self::Part(part), None),
        };
        std::iter::once(said).chain(data.map(Self::Opaque))
    }

    /// Whether it is of the reply itself, and not a count, a name, the end or a word of a
    /// wrapper's.
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

/// So many pieces are given out one right after the other; then others have their turn.
const IN_A_ROW: u32 = 256;

/// A reply as it arrives. Dropping it cancels the call.
///
/// However fast the pieces come, whoever takes them is paused after every 256 of them, so that time
/// limits and cancelling are seen in between.
pub struct Deltas {
    stream: Pin<Box<dyn Stream<Item = Result<Delta, ModelError>> + Send>>,
    /// How many pieces came without a wait.
    in_a_row: u32,
}

impl Deltas {
    /// Wraps a stream.
    pub fn new(stream: impl Stream<Item = Result<Delta, ModelError>> + Send + 'static) -> Self {
        Self {
            stream: Box::pin(stream),
            in_a_row: 0,
        }
    }

    /// A reply that is all there already.
    pub fn ready(deltas: impl IntoIterator<Item = Delta>) -> Self {
        Self::new(Ready(
            deltas.into_iter().map(Ok).collect::<Vec<_>>().into_iter(),
        ))
    }

    /// A whole response, in about as few pieces as there are parts.
    pub fn from_response(response: &Response) -> Self {
        let mut before = None;
        let parts = response.message.parts.iter().flat_map(|part| {
            begins(before.replace(part), part)
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

    /// The next piece, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the end and puts the pieces together.
    ///
    /// # Errors
    /// The first error of the stream, or [`Malformed`](ModelErrorKind::Malformed) when the reply is
    /// larger than [`Fold::DEFAULT_LIMIT`]. After the first piece it may
    /// [cost](ModelError::may_cost).
    pub async fn fold(mut self) -> Result<Response, ModelError> {
        let mut fold = Fold::new();
        while let Some(delta) = self.next().await {
            fold.push(delta.map_err(|error| fold.broken(error))?)?;
        }
        Ok(fold.finish())
    }
}

/// The piece that keeps the text of `part` apart from that of the part `before` it, which it would
/// be added to: an empty part of the same kind, which the text then fills.
fn begins(before: Option<&Part>, part: &Part) -> Option<Delta> {
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
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.stream.as_mut().poll_next(cx);
        self.in_a_row = if next.is_ready() {
            self.in_a_row + 1
        } else {
            0
        };
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

/// Puts the pieces of a reply together.
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
    parts: Vec<Building>,
    calls: HashMap<u32, usize>,
    touched: Option<usize>,
    usage: Usage,
    model: Option<Arc<str>>,
    finish: Option<Finish>,
    bytes: usize,
    limit: usize,
    /// How many calls have begun, also in a reply that began anew.
    begun: usize,
}

#[derive(Debug)]
enum Building {
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
    /// How many bytes of text a reply may have: 32 MiB.
    pub const DEFAULT_LIMIT: usize = 32 << 20;

    /// The most tools that a reply may call: 16,384. Whoever makes the calls may set a lower limit.
    pub const MAX_CALLS: usize = 16_384;

    /// Nothing yet.
    pub fn new() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }

    /// Nothing yet, and no more than `limit` bytes of text to come.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            parts: Vec::new(),
            calls: HashMap::new(),
            touched: None,
            usage: Usage::default(),
            model: None,
            finish: None,
            bytes: 0,
            limit,
            begun: 0,
        }
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// [`Malformed`](ModelErrorKind::Malformed) when the reply grows over the limit or has more
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
            self.begun += 1;
            if self.begun > Self::MAX_CALLS {
                let message = format!("the reply calls more than {} tools", Self::MAX_CALLS);
                return Err(ModelError::new(ModelErrorKind::Malformed, message));
            }
        }
        match delta {
            Delta::Text(text) => match self.last() {
                Some(Building::Whole(Part::Text(part))) if part.opaque.is_none() => {
                    part.text.push_str(&text);
                }
                _ => self.add(Building::Whole(Part::Text(Text::new(text)))),
            },
            Delta::Thinking(text) => match self.last() {
                Some(Building::Whole(Part::Thinking(part))) if part.opaque.is_none() => {
                    part.text.push_str(&text);
                }
                _ => self.add(Building::Whole(Part::Thinking(Thinking::new(text)))),
            },
            Delta::CallStart { index, id, name } => {
                self.calls.insert(index, self.parts.len());
                self.add(Building::Call {
                    id,
                    name,
                    args: String::new(),
                    opaque: None,
                });
            }
            Delta::CallArgs { index, text } => self.push_args(index, &text)?,
            Delta::Opaque(opaque) => self.attach(opaque),
            Delta::Part(part) => self.add(Building::Whole(part)),
            Delta::Usage(usage) => self.usage.update(usage),
            Delta::Model(model) => self.model = Some(model),
            Delta::Finish(finish) => self.finish = Some(finish),
            Delta::Waiting { .. } | Delta::Notice { .. } => {}
            Delta::Restart { .. } => self.restart(),
        }
        Ok(())
    }

    /// An error of the stream that the pieces come from. A provider that had begun to reply may
    /// charge for it.
    pub fn broken(&self, error: ModelError) -> ModelError {
        if self.bytes > 0 {
            error.with_charge()
        } else {
            error
        }
    }

    /// Forgets the reply so far. Its size still counts, so that endless pieces meet the limit.
    fn restart(&mut self) {
        self.parts.clear();
        self.calls.clear();
        (self.touched, self.model, self.finish) = (None, None, None);
    }

    fn last(&mut self) -> Option<&mut Building> {
        self.touched = self.parts.len().checked_sub(1);
        self.parts.last_mut()
    }

    fn add(&mut self, part: Building) {
        self.touched = Some(self.parts.len());
        self.parts.push(part);
    }

    fn push_args(&mut self, index: u32, text: &str) -> Result<(), ModelError> {
        let position = self.calls.get(&index).copied();
        match position.and_then(|position| self.parts.get_mut(position)) {
            Some(Building::Call { args, .. }) => {
                args.push_str(text);
                self.touched = position;
                Ok(())
            }
            _ => {
                let message = format!("arguments arrived for call {index}, which never began");
                Err(ModelError::new(ModelErrorKind::Malformed, message))
            }
        }
    }

    fn attach(&mut self, data: ProviderState) {
        match self.touched.and_then(|touched| self.parts.get_mut(touched)) {
            // Two blocks in a row are two blocks.
            Some(Building::Whole(Part::Opaque(_))) | None => {
                self.add(Building::Whole(Part::Opaque(data)));
            }
            Some(Building::Whole(part)) => part.set_opaque(data),
            Some(Building::Call { opaque, .. }) => *opaque = Some(data),
        }
    }

    /// The reply; a text that stayed empty is left out, since providers refuse to take one back.
    pub fn finish(self) -> Response {
        let mut parts: Vec<Part> = self
            .parts
            .into_iter()
            .filter(|part| !matches!(part, Building::Whole(Part::Text(Text { text, opaque: None })) if text.is_empty()))
            .map(|part| match part {
                Building::Whole(part) => part,
                Building::Call {
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
        // It stays for as long as the conversation does.
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

/// How much a piece adds to a reply. One that opens a part counts for what the part takes, and an
/// empty one for something, so that endless pieces meet the limit too.
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

/// How long a value is as JSON, found without writing it down.
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
    // The counter takes everything.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests;
