//! A model behind HTTP: what all providers have in common.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Delta, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Response};
use serde_json::Value;

use super::endpoint::Reply;
use super::lines::Events;
use super::{Endpoint, Failure, Framing, Lines, Secret, plain};
use crate::ModelList;
use crate::schema::nulls::{Filter, Nulls};

/// The longest reply that comes in one piece, and the longest error.
const LONGEST: usize = 64 << 20;
const LONGEST_ERROR: usize = 1 << 20;

/// How one provider speaks.
#[async_trait]
pub(crate) trait Wire: Clone + Send + Sync + 'static {
    /// How its streams are cut.
    const FRAMING: Framing;
    /// Puts a stream's events together.
    type Decoder: Decode;

    /// Where requests go, behind the server's address.
    fn path(&self, card: &ModelCard, stream: bool) -> String;

    /// Headers of its own: who asks.
    async fn headers(&self) -> Result<Vec<(&'static str, Secret)>, ModelError>;

    /// The server does not know who asks by these headers (401).
    async fn refused(&self, _headers: &[(&'static str, Secret)]) {}

    /// The request's body.
    ///
    /// # Errors
    /// `BadRequest` when the request has something in it that the provider cannot be given.
    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError>;

    /// Which nulls in the arguments of calls stand for nothing, given the tools that the body offers.
    fn nulls(&self, _: &Request) -> Option<Arc<Nulls>> {
        None
    }

    /// Begins a stream.
    fn decoder(&self) -> Self::Decoder;

    /// Reads a reply that came in one piece.
    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError>;
}

/// What a body is made from.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) card: &'a ModelCard,
    pub(crate) request: &'a Request,
    /// Whether the reply is to come piece by piece.
    pub(crate) stream: bool,
    pub(crate) endpoint: &'a Endpoint,
}

/// Puts a stream's events together.
pub(crate) trait Decode: Send + 'static {
    /// Takes an event.
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError>;

    /// The stream has come to its end; what is still to be said?
    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError>;
}

/// Takes the pieces of a reply.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    deltas: VecDeque<Delta>,
    /// Nothing that comes now belongs to the reply.
    pub(crate) done: bool,
    /// Which nulls in arguments stand for nothing, and the calls that are gone through for them.
    nulls: Option<Arc<Nulls>>,
    filters: HashMap<u32, Filter>,
}

impl Sink {
    fn new(nulls: Option<Arc<Nulls>>) -> Self {
        Self { nulls, ..Self::default() }
    }

    pub(crate) fn push(&mut self, mut delta: Delta) {
        match (&mut delta, &self.nulls) {
            (Delta::CallStart { index, name, .. }, Some(nulls)) => {
                self.filters.remove(index);
                let filter = nulls.get(name).map(|shape| Filter::new(shape.clone()));
                self.filters.extend(filter.map(|filter| (*index, filter)));
            }
            (Delta::CallArgs { index, text }, Some(_)) => {
                if let Some(filter) = self.filters.get_mut(index) {
                    *text = filter.feed(text);
                }
            }
            _ => {}
        }
        self.deltas.push_back(delta);
    }

    /// Text, unless there is none.
    pub(crate) fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Delta::Text(text.to_owned()));
        }
    }

    /// Thinking, unless there is none.
    pub(crate) fn thinking(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Delta::Thinking(text.to_owned()));
        }
    }
}

/// A model that is reached by HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Remote<W> {
    pub(crate) wire: W,
    pub(crate) card: ModelCard,
    pub(crate) endpoint: Endpoint,
    /// Whether replies are asked for piece by piece.
    pub(crate) streams: bool,
}

impl<W: Wire> Remote<W> {
    /// A model of this name, with what the list says of it.
    pub(crate) fn new(wire: W, card: ModelCard, endpoint: Endpoint) -> Self {
        let card = ModelList::builtin().fill(card);
        Self { wire, card, endpoint, streams: true }
    }

    async fn send(&self, request: &Request) -> Result<(Reply, Secrets), ModelError> {
        let (card, endpoint) = (&self.card, &self.endpoint);
        let body = self.wire.body(Asked { card, request, stream: self.streams, endpoint })?;
        let headers = self.wire.headers().await?;
        let secrets = Secrets::of(&headers, &self.endpoint);
        let path = self.wire.path(&self.card, self.streams);
        let mut reply = self.endpoint.send(&path, &headers, body).await?;
        if (200..300).contains(&reply.status()) {
            return Ok((reply, secrets));
        }
        if reply.status() == 401 {
            self.wire.refused(&headers).await;
        }
        let body = reply.rest(LONGEST_ERROR).await.unwrap_or_default();
        let error = Failure::read(&body).into_http_error(reply.status(), reply.headers());
        Err(secrets.scrub(error))
    }

    fn read_whole(&self, body: &[u8], nulls: Option<Arc<Nulls>>) -> Result<Sink, ModelError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            let (kind, message) = match error.is_eof() {
                true => (ModelErrorKind::Transport, "the reply broke off before its end"),
                false => (ModelErrorKind::Malformed, "the reply is not JSON"),
            };
            ModelError::new(kind, message).with_source(error)
        })?;
        if let Some(failure) = plain(&value) {
            return Err(failure.into_error(None));
        }
        let mut sink = Sink::new(nulls);
        self.wire.whole(&value, &mut sink)?;
        Ok(sink)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<W: Wire> Model for Remote<W> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn worst(&self, request: &Request) -> levity_core::Worst {
        levity_core::Worst::of(&self.card, request)
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (mut reply, secrets) = self.send(&request).await?;
        let nulls = self.wire.nulls(&request);
        if !self.streams {
            let body = reply.rest(LONGEST + 1).await?;
            if body.len() > LONGEST {
                return Err(too_large());
            }
            let sink = self.read_whole(&body, nulls).map_err(|error| secrets.scrub(error))?;
            return Ok(Deltas::ready(sink.deltas));
        }
        let flow = Flow {
            reply,
            secrets,
            lines: Lines::new(W::FRAMING),
            decoder: self.wire.decoder(),
            sink: Sink::new(nulls),
            begun: false,
            whole: None,
            remote: self.clone(),
            over: false,
            failed: None,
        };
        Ok(Deltas::new(futures_util::stream::unfold(flow, |mut flow| async move {
            flow.next().await.map(|delta| (delta, flow))
        })))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.stream(request).await?.fold().await
    }
}

fn too_large() -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, format!("the reply is larger than {LONGEST} bytes"))
}

/// What was sent and must not be shown, though a server may repeat it.
struct Secrets(Vec<Secret>);

impl Secrets {
    fn of(own: &[(&'static str, Secret)], endpoint: &Endpoint) -> Self {
        // Others, such as a project, help to understand an error.
        let tells = |name: &str| name == "authorization" || name.contains("key");
        let own = own.iter().filter(|(name, _)| tells(name)).map(|(_, secret)| secret);
        Self(own.chain(endpoint.secrets()).cloned().collect())
    }

    fn scrub(&self, error: ModelError) -> ModelError {
        let mut message = error.to_string();
        for secret in &self.0 {
            let bare = secret.expose().trim_start_matches("Bearer ");
            // What is shorter is no key, and may be a word.
            if bare.len() >= 8 && message.contains(bare) {
                message = message.replace(bare, "***");
            }
        }
        error.with_message(message)
    }
}

/// A reply on its way. Dropping it closes the connection.
struct Flow<W: Wire> {
    reply: Reply,
    secrets: Secrets,
    lines: Lines,
    decoder: W::Decoder,
    sink: Sink,
    /// Whether the first bytes have been looked at.
    begun: bool,
    /// What there is of a reply that comes in one piece although a stream was asked for.
    whole: Option<Vec<u8>>,
    remote: Remote<W>,
    over: bool,
    /// What went wrong, to be told behind all that came before it.
    failed: Option<ModelError>,
}

impl<W: Wire> Flow<W> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(delta) = self.sink.deltas.pop_front() {
                return Some(Ok(delta));
            }
            if self.over {
                return self.failed.take().map(Err);
            }
            // What came before an error, in one piece with it, is given out first.
            if let Err(error) = self.more().await {
                (self.over, self.failed) = (true, Some(self.secrets.scrub(error)));
            }
        }
    }

    /// Takes the next bytes in, or the end.
    async fn more(&mut self) -> Result<(), ModelError> {
        if self.sink.done {
            self.over = true;
            // A connection whose reply was read to its end can be used again.
            self.reply.drain().await;
            return Ok(());
        }
        match self.reply.chunk().await? {
            Some(chunk) => self.take(&chunk),
            None => self.end(),
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), ModelError> {
        // Some servers answer with one JSON value, be it an error or all of the reply.
        if !self.begun && W::FRAMING == Framing::Sse {
            let Some(first) = chunk.trim_ascii_start().first() else { return Ok(()) };
            self.whole = matches!(first, b'{' | b'[').then(Vec::new);
        }
        self.begun = true;
        if let Some(whole) = &mut self.whole {
            if whole.len() + chunk.len() > LONGEST {
                return Err(too_large());
            }
            whole.extend_from_slice(chunk);
            return Ok(());
        }
        let mut events = Feed { decoder: &mut self.decoder, sink: &mut self.sink };
        self.lines.push(chunk, &mut events)
    }

    fn end(&mut self) -> Result<(), ModelError> {
        self.over = true;
        if let Some(whole) = self.whole.take() {
            self.sink = self.remote.read_whole(&whole, self.sink.nulls.take())?;
            return Ok(());
        }
        let mut events = Feed { decoder: &mut self.decoder, sink: &mut self.sink };
        self.lines.finish(&mut events).map_err(|error| match error.kind() {
            // What cannot be read since half of it is missing is no fault in what was said.
            ModelErrorKind::Malformed => {
                let message = "the reply broke off before its end";
                ModelError::new(ModelErrorKind::Transport, message).with_source(error)
            }
            _ => error,
        })?;
        self.decoder.end(&mut self.sink)
    }
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
