//! Assembles a reply from chunks of bytes.
//!
//! The first bytes decide how the rest is read: as events, as one JSON value from a server that
//! ignores `stream`, or as a page that is no reply at all. The reader collects the start of the
//! reply until the first event, so that an error can describe what arrived instead.

use std::borrow::Cow;
use std::sync::Arc;

#[cfg(any(feature = "openai", feature = "compatible"))]
use levity_core::{Fold, Response};
use levity_core::{ModelError, ModelErrorKind};
use serde_json::Value;

use super::lines::Events;
use super::unexpected_reply::{
    BYTE_ORDER_MARK, HEAD, ReplyHeaders, unexpected_json_error, without_byte_order_mark,
};
use super::{Decode, Framing, Lines, Sink, Wire, find_failure};
use crate::schema::nulls::Nulls;

/// The maximum size of a reply without streaming.
pub(super) const MAX_REPLY_BYTES: usize = 64 << 20;

/// The maximum size of a streamed reply. Most of it is the format around each piece of text.
const MAX_STREAM_BYTES: usize = 512 << 20;

/// The state of a partially read reply.
///
/// It works on bytes in memory and does no I/O, so tests feed it chunks of any size.
pub(super) struct Reader<W: Wire> {
    lines: Lines,
    decoder: W::Decoder,
    pub(super) sink: Sink,
    /// True once the first bytes have been inspected.
    started: bool,
    /// The body of a reply that is a single value although a stream was requested.
    whole: Option<Vec<u8>>,
    /// The start of the reply, as long as no event was parsed, and its headers.
    head: Vec<u8>,
    pub(super) reply_headers: ReplyHeaders,
    /// The number of events in the reply, and of its bytes.
    events: u64,
    bytes: usize,
    /// True if bytes that are not UTF-8 were replaced.
    replaced: bool,
    wire: W,
}

impl<W: Wire> Reader<W> {
    /// Creates a reader. `nulls` are the nulls to remove from arguments, and `origin` names the
    /// server in the state of parts.
    pub(super) fn new(wire: W, nulls: Option<Arc<Nulls>>, origin: Option<Arc<str>>) -> Self {
        let (lines, decoder) = (Lines::new(W::FRAMING), wire.decoder());
        Self {
            lines,
            decoder,
            sink: Sink::new(nulls, origin),
            started: false,
            whole: None,
            head: Vec::new(),
            reply_headers: ReplyHeaders::default(),
            events: 0,
            bytes: 0,
            replaced: false,
            wire,
        }
    }

    /// Reads the next chunk; deltas are in the sink afterwards.
    ///
    /// # Errors
    /// Returns `Malformed` for a reply of more than 512 MiB, or 64 MiB as one value, and for a
    /// page. Errors of the decoder are returned as they are.
    pub(super) fn take(&mut self, chunk: &[u8]) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(chunk.len());
        check_size(self.bytes, MAX_STREAM_BYTES)?;
        let (mut chunk, mut joined) = (chunk, std::mem::take(&mut self.head));
        if self.started {
            self.head = std::mem::take(&mut joined);
        } else {
            // The byte order mark and white space may arrive in separate chunks.
            if !joined.is_empty() {
                joined.extend_from_slice(chunk);
                chunk = &joined;
            }
            let start = chunk.trim_ascii_start();
            let Some(first) = without_byte_order_mark(start).trim_ascii_start().first() else {
                self.head = start.get(..BYTE_ORDER_MARK.len()).unwrap_or(start).to_vec();
                return Ok(());
            };
            if start.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(start) {
                self.head = start.to_vec();
                return Ok(());
            }
            let start = without_byte_order_mark(start).trim_ascii_start();
            // Some servers answer with a single JSON value: an error or the complete reply. A web
            // page has no events either, and is collected in order to describe it.
            let whole = matches!(first, b'{' | b'[') && W::FRAMING == Framing::Sse;
            let is_page = matches!(first, b'<' | 0x1f);
            self.whole = (whole || is_page).then(Vec::new);
            if self.whole.is_some() || W::FRAMING == Framing::Sse {
                chunk = start;
            }
        }
        self.started = true;
        if let Some(whole) = &mut self.whole {
            check_size(whole.len() + chunk.len(), MAX_REPLY_BYTES)?;
            whole.extend_from_slice(chunk);
            // The start is enough to recognise a page, which may never end.
            return match whole.as_slice() {
                [b'<' | 0x1f, ..] if whole.len() >= HEAD => Err(self.reply_headers.error(whole)),
                _ => Ok(()),
            };
        }
        if self.events == 0 {
            let room = HEAD.saturating_sub(self.head.len());
            self.head
                .extend_from_slice(chunk.get(..room).unwrap_or(chunk));
        }
        let (lines, mut events) = self.feed();
        let result = lines.push(chunk, &mut events);
        result.map_err(|error| self.first_event_error(error))
    }

    /// Borrows the parser and the consumer of its events separately.
    fn feed(&mut self) -> (&mut Lines, Feed<'_, W::Decoder>) {
        let Self {
            lines,
            decoder,
            sink,
            events,
            replaced,
            ..
        } = self;
        (
            lines,
            Feed {
                decoder,
                sink,
                events,
                replaced,
            },
        )
    }

    /// Returns the error of the first event. Text that is not JSON is not a model's reply.
    fn first_event_error(&self, error: ModelError) -> ModelError {
        let json =
            matches!(self.head.trim_ascii_start(), [b'{' | b'[', ..]) || W::FRAMING == Framing::Sse;
        if self.events > 1 || json || error.kind() != ModelErrorKind::Malformed {
            return error;
        }
        self.reply_headers.error(&self.head)
    }

    /// Reads the end of the reply.
    ///
    /// # Errors
    /// Returns `Transport` for a reply that is incomplete, which a retry may fix, and `Malformed`
    /// for one that never was a model's reply.
    pub(super) fn end(&mut self) -> Result<(), ModelError> {
        if let Some(whole) = self.whole.take() {
            self.sink = read_whole(&self.wire, &whole, &self.sink, &self.reply_headers)?;
            return Ok(());
        }
        let (lines, mut events) = self.feed();
        let finished = lines.finish(&mut events);
        finished
            .map_err(|error| self.first_event_error(error))
            .map_err(|error| match error.kind() {
                // The last line was incomplete.
                ModelErrorKind::Malformed if error.status().is_none() => self
                    .unexpected_stream_error()
                    .unwrap_or_else(|| incomplete_reply().with_source(error)),
                _ => error,
            })?;
        if self.sink.done {
            return Ok(());
        }
        self.decoder
            .end(&mut self.sink)
            .map_err(|error| match error.kind() {
                ModelErrorKind::Transport => self.unexpected_stream_error().unwrap_or(error),
                _ => error,
            })
    }

    /// Returns the error for a stream that ended without a reply, if it never was one.
    fn unexpected_stream_error(&self) -> Option<ModelError> {
        let head = self.head.trim_ascii();
        match W::FRAMING {
            // Comments and similar fields indicate a stream that ended early.
            Framing::Sse if self.events == 0 => {
                let fields = ["data", "event", "id", "retry", ":"];
                let begins = |field: &&str| head.starts_with(field.as_bytes());
                (!fields.iter().any(begins)).then(|| self.reply_headers.error(head))
            }
            Framing::Sse => None,
            Framing::JsonLines if head.is_empty() => Some(self.reply_headers.error(head)),
            Framing::JsonLines => {
                let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let value: Value = serde_json::from_slice(line).ok()?;
                let error = self.wire.whole(&value, &mut self.sink.empty_copy()).err()?;
                (error.kind() == ModelErrorKind::Malformed)
                    .then(|| unexpected_json_error(&value, &self.reply_headers, &error))
            }
        }
    }
}

/// Limits the size of a reply.
fn check_size(length: usize, max: usize) -> Result<(), ModelError> {
    if length <= max {
        return Ok(());
    }
    let message = format!("the reply is larger than {max} bytes");
    Err(ModelError::new(ModelErrorKind::Malformed, message))
}

/// Creates the error for a reply that was cut off.
fn incomplete_reply() -> ModelError {
    ModelError::new(
        ModelErrorKind::Transport,
        "the reply ended before it was complete",
    )
}

/// Parses a reply that arrived as a single value.
///
/// The most common form is decoded directly; any other is parsed to a value first.
///
/// # Errors
/// Returns the error that the reply contains, `Transport` for incomplete JSON, and `Malformed` with
/// the field names for JSON of another API.
pub(super) fn read_whole(
    wire: &impl Wire,
    body: &[u8],
    sink: &Sink,
    reply_headers: &ReplyHeaders,
) -> Result<Sink, ModelError> {
    check_size(body.len(), MAX_REPLY_BYTES)?;
    let raw = body;
    let body = &*replace_invalid_utf8(without_byte_order_mark(body), &mut false);
    let mut common = sink.empty_copy();
    if wire.read_common(body, &mut common) {
        return Ok(common);
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| match error.is_eof() {
        true if !body.trim_ascii().is_empty() => incomplete_reply().with_source(error),
        _ => reply_headers.error(raw),
    })?;
    if let Some(failure) = find_failure(&value) {
        return Err(failure.into_error(None));
    }
    let mut sink = sink.empty_copy();
    wire.whole(&value, &mut sink)
        .map_err(|error| match error.kind() {
            ModelErrorKind::Malformed => unexpected_json_error(&value, reply_headers, &error),
            // An object without any sign of an error comes from another API, and a retry would
            // return the same.
            ModelErrorKind::Server if !indicates_failure(&value) => {
                unexpected_json_error(&value, reply_headers, &error)
            }
            _ => error,
        })?;
    Ok(sink)
}

/// Returns `true` if the fields of an object indicate a failure.
fn indicates_failure(value: &Value) -> bool {
    let names = [
        "error",
        "errors",
        "code",
        "status",
        "status_code",
        "type",
        "detail",
        "msg",
        "error_message",
    ];
    names.iter().any(|name| value.get(name).is_some())
}

/// Replaces bytes that are not UTF-8 with U+FFFD. Within a JSON string that changes one character;
/// anywhere else the text was not valid JSON to begin with.
fn replace_invalid_utf8<'a>(data: &'a [u8], replaced: &mut bool) -> Cow<'a, [u8]> {
    if std::str::from_utf8(data).is_ok() {
        return Cow::Borrowed(data);
    }
    if !std::mem::replace(replaced, true) {
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "levity::model", "a reply contains bytes that are not UTF-8; they \
            are \
            replaced with U+FFFD");
    }
    Cow::Owned(String::from_utf8_lossy(data).into_owned().into_bytes())
}

/// Assembles a reply from bytes in memory.
///
/// The benchmarks and the fuzzing of this project use it.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) fn fold<'a, W: Wire>(
    wire: W,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Response, ModelError> {
    let mut reader = Reader::new(wire, None, None);
    let mut fold = Fold::new();
    for chunk in chunks {
        let result = reader.take(chunk);
        reader
            .sink
            .deltas
            .drain(..)
            .try_for_each(|delta| fold.push(delta))?;
        result.map_err(|error| fold.broken(error))?;
        if reader.sink.done {
            return Ok(fold.finish());
        }
    }
    let ended = reader.end();
    reader
        .sink
        .deltas
        .drain(..)
        .try_for_each(|delta| fold.push(delta))?;
    ended.map_err(|error| fold.broken(error))?;
    Ok(fold.finish())
}

/// The consumer of events: it counts them and passes them on until the reply is complete.
struct Feed<'a, D> {
    decoder: &'a mut D,
    sink: &'a mut Sink,
    events: &'a mut u64,
    replaced: &'a mut bool,
}

impl<D: Decode> Events for Feed<'_, D> {
    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), ModelError> {
        *self.events = self.events.saturating_add(1);
        if self.sink.done {
            return Ok(());
        }
        self.decoder
            .event(name, &replace_invalid_utf8(data, self.replaced), self.sink)
    }
}
