//! Makes a reply of bytes, however they are cut.

use std::sync::Arc;

#[cfg(any(feature = "openai", feature = "compatible"))]
use levity_core::{Fold, Response};
use levity_core::{ModelError, ModelErrorKind};
use serde_json::Value;

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
    wire: W,
}

impl<W: Wire> Reader<W> {
    pub(super) fn new(wire: W, nulls: Option<Arc<Nulls>>, origin: Option<Arc<str>>) -> Self {
        let (lines, decoder) = (Lines::new(W::FRAMING), wire.decoder());
        Self { lines, decoder, sink: Sink::new(nulls, origin), begun: false, whole: None, wire }
    }

    pub(super) fn take(&mut self, mut chunk: &[u8]) -> Result<(), ModelError> {
        // Some servers answer with one JSON value, be it an error or all of the reply.
        if !self.begun && W::FRAMING == Framing::Sse {
            chunk = chunk.trim_ascii_start();
            let Some(first) = chunk.first() else { return Ok(()) };
            self.whole = matches!(first, b'{' | b'[').then(Vec::new);
        }
        self.begun = true;
        if let Some(whole) = &mut self.whole {
            within(whole.len() + chunk.len())?;
            whole.extend_from_slice(chunk);
            return Ok(());
        }
        let mut events = Feed { decoder: &mut self.decoder, sink: &mut self.sink };
        self.lines.push(chunk, &mut events)
    }

    pub(super) fn end(&mut self) -> Result<(), ModelError> {
        if let Some(whole) = self.whole.take() {
            self.sink = read_whole(&self.wire, &whole, &self.sink)?;
            return Ok(());
        }
        let mut events = Feed { decoder: &mut self.decoder, sink: &mut self.sink };
        self.lines.finish(&mut events).map_err(|error| match error.kind() {
            // The last line had no end.
            ModelErrorKind::Malformed => broken_off().with_source(error),
            _ => error,
        })?;
        if self.sink.done { Ok(()) } else { self.decoder.end(&mut self.sink) }
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
    ModelError::new(ModelErrorKind::Transport, "the reply broke off before its end")
}

/// Reads a reply that came in one piece.
pub(super) fn read_whole(wire: &impl Wire, body: &[u8], sink: &Sink) -> Result<Sink, ModelError> {
    within(body.len())?;
    let mut usual = sink.again();
    if wire.usual(body, &mut usual) {
        return Ok(usual);
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| match error.is_eof() {
        true => broken_off().with_source(error),
        false => ModelError::new(ModelErrorKind::Malformed, "the reply is not JSON").with_source(error),
    })?;
    if let Some(failure) = plain(&value) {
        return Err(failure.into_error(None));
    }
    let mut sink = sink.again();
    wire.whole(&value, &mut sink)?;
    Ok(sink)
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
        reader.sink.deltas.drain(..).try_for_each(|delta| fold.push(delta))?;
        taken.map_err(|error| fold.broken(error))?;
        if reader.sink.done {
            return Ok(fold.finish());
        }
    }
    let ended = reader.end();
    reader.sink.deltas.drain(..).try_for_each(|delta| fold.push(delta))?;
    ended.map_err(|error| fold.broken(error))?;
    Ok(fold.finish())
}

struct Feed<'a, D> {
    decoder: &'a mut D,
    sink: &'a mut Sink,
}

impl<D: Decode> Events for Feed<'_, D> {
    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), ModelError> {
        if self.sink.done { Ok(()) } else { self.decoder.event(name, data, self.sink) }
    }
}
