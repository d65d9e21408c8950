//! Makes a reply of bytes, however they are cut.

use std::borrow::Cow;
use std::sync::Arc;

#[cfg(any(feature = "openai", feature = "compatible"))]
use levity_core::{Fold, Response};
use levity_core::{ModelError, ModelErrorKind};
use serde_json::Value;

use super::foreign::{Came, HEAD, MARK, other_json, without_mark};
use super::lines::Events;
use super::{Decode, Framing, Lines, Sink, Wire, plain};
use crate::schema::nulls::Nulls;

/// The longest reply that comes in one piece.
pub(super) const LONGEST: usize = 64 << 20;

/// What has been read of a reply.
pub(super) struct Reader<W: Wire> {
    lines: Lines,
    decoder: W::Decoder,
    pub(super) sink: Sink,
    /// Whether the first bytes have been looked at.
    begun: bool,
    /// What there is of a reply that comes in one piece although a stream was asked for.
    whole: Option<Vec<u8>>,
    /// How the reply begins, as long as nothing of it could be read; and what its headers say.
    head: Vec<u8>,
    pub(super) came: Came,
    /// How many events there were.
    events: u64,
    /// Whether bytes were replaced that are no UTF-8.
    replaced: bool,
    wire: W,
}

impl<W: Wire> Reader<W> {
    pub(super) fn new(wire: W, nulls: Option<Arc<Nulls>>, origin: Option<Arc<str>>) -> Self {
        let (lines, decoder) = (Lines::new(W::FRAMING), wire.decoder());
        Self {
            lines,
            decoder,
            sink: Sink::new(nulls, origin),
            begun: false,
            whole: None,
            head: Vec::new(),
            came: Came::default(),
            events: 0,
            replaced: false,
            wire,
        }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) -> Result<(), ModelError> {
        let (mut chunk, mut joined) = (chunk, std::mem::take(&mut self.head));
        if self.begun {
            self.head = std::mem::take(&mut joined);
        } else {
            // The mark of UTF-8 and blanks may come in pieces of their own.
            if !joined.is_empty() {
                joined.extend_from_slice(chunk);
                chunk = &joined;
            }
            let start = chunk.trim_ascii_start();
            let Some(first) = without_mark(start).trim_ascii_start().first() else {
                self.head = start.get(..MARK.len()).unwrap_or(start).to_vec();
                return Ok(());
            };
            if start.len() < MARK.len() && MARK.starts_with(start) {
                self.head = start.to_vec();
                return Ok(());
            }
            let start = without_mark(start).trim_ascii_start();
            // Some servers answer with one JSON value, be it an error or all of the reply. A web
            // page has no events either, and is taken in to say what it is.
            let whole = matches!(first, b'{' | b'[') && W::FRAMING == Framing::Sse;
            let foreign = matches!(first, b'<' | 0x1f);
            self.whole = (whole || foreign).then(Vec::new);
            if self.whole.is_some() || W::FRAMING == Framing::Sse {
                chunk = start;
            }
        }
        self.begun = true;
        if let Some(whole) = &mut self.whole {
            within(whole.len() + chunk.len())?;
            whole.extend_from_slice(chunk);
            // A page is known by its beginning, and may have no end.
            return match whole.as_slice() {
                [b'<' | 0x1f, ..] if whole.len() >= HEAD => Err(self.came.error(whole)),
                _ => Ok(()),
            };
        }
        if self.events == 0 {
            let room = HEAD.saturating_sub(self.head.len());
            self.head
                .extend_from_slice(chunk.get(..room).unwrap_or(chunk));
        }
        let (lines, mut events) = self.feed();
        let taken = lines.push(chunk, &mut events);
        taken.map_err(|error| self.first(error))
    }

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

    /// An error of the first event. One that is no JSON at all is no reply of a model's.
    fn first(&self, error: ModelError) -> ModelError {
        let json =
            matches!(self.head.trim_ascii_start(), [b'{' | b'[', ..]) || W::FRAMING == Framing::Sse;
        if self.events > 1 || json || error.kind() != ModelErrorKind::Malformed {
            return error;
        }
        self.came.error(&self.head)
    }

    pub(super) fn end(&mut self) -> Result<(), ModelError> {
        if let Some(whole) = self.whole.take() {
            self.sink = read_whole(&self.wire, &whole, &self.sink, &self.came)?;
            return Ok(());
        }
        let (lines, mut events) = self.feed();
        let finished = lines.finish(&mut events);
        finished
            .map_err(|error| self.first(error))
            .map_err(|error| match error.kind() {
                // The last line had no end.
                ModelErrorKind::Malformed if error.status().is_none() => self
                    .foreign()
                    .unwrap_or_else(|| broken_off().with_source(error)),
                _ => error,
            })?;
        if self.sink.done {
            return Ok(());
        }
        self.decoder
            .end(&mut self.sink)
            .map_err(|error| match error.kind() {
                ModelErrorKind::Transport => self.foreign().unwrap_or(error),
                _ => error,
            })
    }

    /// The error of a stream that ended without anything of a reply, if that was never one.
    fn foreign(&self) -> Option<ModelError> {
        let head = self.head.trim_ascii();
        match W::FRAMING {
            // Comments and the like are of a stream that broke off.
            Framing::Sse if self.events == 0 => {
                let fields = ["data", "event", "id", "retry", ":"];
                let begins = |field: &&str| head.starts_with(field.as_bytes());
                (!fields.iter().any(begins)).then(|| self.came.error(head))
            }
            Framing::Sse => None,
            Framing::JsonLines if head.is_empty() => Some(self.came.error(head)),
            Framing::JsonLines => {
                let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let value: Value = serde_json::from_slice(line).ok()?;
                let error = self.wire.whole(&value, &mut self.sink.again()).err()?;
                (error.kind() == ModelErrorKind::Malformed)
                    .then(|| other_json(&value, &self.came, &error))
            }
        }
    }
}

fn within(length: usize) -> Result<(), ModelError> {
    if length <= LONGEST {
        return Ok(());
    }
    let message = format!("the reply is larger than {LONGEST} bytes");
    Err(ModelError::new(ModelErrorKind::Malformed, message))
}

fn broken_off() -> ModelError {
    ModelError::new(
        ModelErrorKind::Transport,
        "the reply broke off before its end",
    )
}

/// Reads a reply that came in one piece.
pub(super) fn read_whole(
    wire: &impl Wire,
    body: &[u8],
    sink: &Sink,
    came: &Came,
) -> Result<Sink, ModelError> {
    within(body.len())?;
    let raw = body;
    let body = &*readable(without_mark(body), &mut false);
    let mut usual = sink.again();
    if wire.usual(body, &mut usual) {
        return Ok(usual);
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| match error.is_eof() {
        true if !body.trim_ascii().is_empty() => broken_off().with_source(error),
        _ => came.error(raw),
    })?;
    if let Some(failure) = plain(&value) {
        return Err(failure.into_error(None));
    }
    let mut sink = sink.again();
    wire.whole(&value, &mut sink)
        .map_err(|error| match error.kind() {
            ModelErrorKind::Malformed => other_json(&value, came, &error),
            // Words without any sign of an error are of another API, and will be the same next
            // time.
            ModelErrorKind::Server if !tells_failure(&value) => other_json(&value, came, &error),
            _ => error,
        })?;
    Ok(sink)
}

/// Whether an object says by its fields that something failed.
fn tells_failure(value: &Value) -> bool {
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

/// A text with U+FFFD in place of bytes that are no UTF-8. Inside of a JSON string that harms one
/// letter; anywhere else the text is no JSON then, as it was none before.
fn readable<'a>(data: &'a [u8], replaced: &mut bool) -> Cow<'a, [u8]> {
    if std::str::from_utf8(data).is_ok() {
        return Cow::Borrowed(data);
    }
    if !std::mem::replace(replaced, true) {
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "levity::model", "a reply has bytes that are no UTF-8; they are \
            shown as U+FFFD");
    }
    Cow::Owned(String::from_utf8_lossy(data).into_owned().into_bytes())
}

/// Puts a reply together whose bytes are there already.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) fn fold<'a, W: Wire>(
    wire: W,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Response, ModelError> {
    let mut reader = Reader::new(wire, None, None);
    let mut fold = Fold::new();
    for chunk in chunks {
        let taken = reader.take(chunk);
        reader
            .sink
            .deltas
            .drain(..)
            .try_for_each(|delta| fold.push(delta))?;
        taken.map_err(|error| fold.broken(error))?;
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
            .event(name, &readable(data, self.replaced), self.sink)
    }
}
