//! Shared code of all models that use HTTP.
//!
//! The path of a request: names of tools are made valid, the provider writes the body, the endpoint
//! sends it, and the reader turns the reply into deltas. [`Sink`] is the single place through which
//! all content of a reply passes. It restores names, removes nulls and secrets, and marks state
//! with its origin.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::text::{chain, head};
use levity_core::{
    CallId, Delta, Deltas, Finish, Fold, Model, ModelCard, ModelError, Part, ProviderState,
    Request, Response,
};
use serde_json::Value;

use super::endpoint::{Reply, header_secrets, proxy_secrets};
use super::failure::MAX_MESSAGE_BYTES;
use super::reader::{MAX_REPLY_BYTES, Reader, read_whole};
use super::unexpected_reply::ReplyHeaders;
use super::{Endpoint, Failure, Framing, Secret};
use crate::ModelList;
use crate::names;
use crate::origin::Origin;
use crate::schema::nulls::{Filter, Nulls};
use crate::text_calls::TextCallParser;

/// The maximum size of an error body in bytes.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// The wire protocol of one provider.
///
/// # Contract
/// - `body` is deterministic: the same request yields the same bytes, so that prompt caches and
///   recordings match.
/// - `headers` returns every secret that the provider adds. It may wait, to fetch a token.
/// - `decoder` starts a fresh state for each reply; `whole` and a decoder yield the same message
///   for the same content.
/// - State in messages has the provider name of the protocol, and is sent back only if the origin
///   allows it.
/// - Implementations send nothing themselves and never retry.
#[async_trait]
pub(crate) trait Wire: Clone + Send + Sync + 'static {
    /// The framing of its streams.
    const FRAMING: Framing;
    /// The decoder for the events of a stream.
    type Decoder: Decode;

    /// Returns the request path, relative to the server's address.
    fn path(&self, card: &ModelCard, stream: bool) -> String;

    /// Returns the provider's own headers, which authenticate the request.
    async fn headers(&self) -> Result<Vec<(&'static str, Secret)>, ModelError>;

    /// Reports that the server rejected these headers as unauthenticated (401).
    async fn on_unauthorized(&self, _headers: &[(&'static str, Secret)]) {}

    /// Returns a form of a tool's name that the provider accepts.
    fn tool_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        names::tool(name, "")
    }

    /// Returns the owner of the state that the server hands out, if known: a key or a project.
    fn account(&self) -> Option<&str> {
        None
    }

    /// Returns the body of the request.
    ///
    /// # Errors
    /// Returns `BadRequest` if the request contains content that the provider cannot accept.
    fn body(&self, wire_request: WireRequest<'_>) -> Result<Vec<u8>, ModelError>;

    /// Returns the nulls in call arguments that mean an absent value, for the tools that the body
    /// offers.
    fn nulls(&self, _: &Request) -> Option<Arc<Nulls>> {
        None
    }

    /// Returns `true` if requests are cached at the provider for an hour, which costs more.
    fn caches_for_hour(&self) -> bool {
        false
    }

    /// Creates a decoder for a stream.
    fn decoder(&self) -> Self::Decoder;

    /// Decodes a reply that arrived as a single value.
    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError>;

    /// Decodes a reply of the most common form directly from its bytes. If it returns `false`, the
    /// sink is discarded and [`whole`](Self::whole) decodes the reply.
    fn read_common(&self, _: &[u8], _: &mut Sink) -> bool {
        false
    }

    /// Adds details to an error that replaced a reply, if the provider has advice for it.
    fn explain(&self, error: ModelError, _: &ModelCard, _: &Endpoint) -> ModelError {
        error
    }
}

/// The input for the body of a request.
///
/// The tool names in the request are already valid for the provider.
#[derive(Clone, Copy)]
pub(crate) struct WireRequest<'a> {
    pub(crate) card: &'a ModelCard,
    pub(crate) request: &'a Request,
    /// True if the reply is requested as a stream.
    pub(crate) stream: bool,
    pub(crate) endpoint: &'a Endpoint,
    /// The origin whose state is sent back.
    pub(crate) origin: &'a Origin,
}

/// A decoder for the events of a stream.
///
/// # Contract
/// - Events arrive in order, each complete; `event` must accept any bytes without a panic.
/// - A decoder may set `sink.done` once the reply is complete; later events are ignored then. It
///   emits one finish reason.
/// - `end` returns `Transport` if the stream stopped before the reply was complete. The reader does
///   not call it after `done`.
pub(crate) trait Decode: Send + 'static {
    /// Decodes one event of the stream.
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError>;

    /// Handles the end of the stream and emits the remaining deltas.
    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError>;
}

/// A collector for the deltas of a reply.
///
/// Deltas wait here until the consumer takes them, usually those of one network read.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(super) deltas: VecDeque<Delta>,
    /// True once the reply is complete and later events are ignored.
    pub(crate) done: bool,
    /// The nulls in arguments that mean an absent value, and the filters of the open calls.
    nulls: Option<Arc<Nulls>>,
    filters: HashMap<u32, Filter>,
    /// The model that replies, reported at the end of the reply.
    model: Option<Arc<str>>,
    /// The original names of tools that are offered under another name.
    original_names: Option<Arc<names::OriginalNames>>,
    /// The origin of the reply, for state that only it accepts back.
    origin: Option<Arc<str>>,
    /// The kind of the last delta, which later deltas may extend.
    last: LastKind,
    /// True if the headers of the reply show that the request has priority.
    prioritised: bool,
    /// Secrets of the request that a server may repeat and that must not be stored.
    pub(super) secrets: Option<Arc<Secrets>>,
}

/// The kind of the last delta.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum LastKind {
    #[default]
    Other,
    Text,
    Thinking,
}

/// The maximum number of characters of a model's name.
const MAX_NAME_CHARS: usize = 256;

#[allow(dead_code, reason = "not every provider needs all of it")]
impl Sink {
    /// Creates a sink without names and secrets, which [`Remote`] sets per request.
    pub(super) fn new(nulls: Option<Arc<Nulls>>, origin: Option<Arc<str>>) -> Self {
        Self {
            nulls,
            origin,
            ..Self::default()
        }
    }

    /// Returns an empty sink with the same settings.
    pub(super) fn empty_copy(&self) -> Self {
        Self {
            original_names: self.original_names.clone(),
            prioritised: self.prioritised,
            secrets: self.secrets.clone(),
            ..Self::new(self.nulls.clone(), self.origin.clone())
        }
    }

    /// Adds a delta. A complete part with text is split into text deltas, because many consumers
    /// handle only those.
    pub(crate) fn push(&mut self, delta: Delta) {
        let Delta::Part(part) = delta else {
            return self.add(delta);
        };
        let separator = match (&part, self.last) {
            (Part::Text(part), LastKind::Text) if !part.text.is_empty() => Some(Part::text("")),
            (Part::Thinking(part), LastKind::Thinking) if !part.text.is_empty() => {
                Some(Part::thinking(""))
            }
            _ => None,
        };
        separator
            .into_iter()
            .for_each(|empty| self.add(Delta::Part(empty)));
        Delta::of_part(part).for_each(|delta| self.add(delta));
    }

    /// Adds one delta after all changes: secrets, priority, origin, nulls and names. The model's
    /// name is emitted directly before the finish reason.
    fn add(&mut self, mut delta: Delta) {
        self.clean(&mut delta);
        if let Delta::Usage(usage) = &mut delta {
            usage.priority |= self.prioritised;
        }
        self.last = match &delta {
            Delta::Text(_) => LastKind::Text,
            Delta::Thinking(_) => LastKind::Thinking,
            delta if delta.is_content() => LastKind::Other,
            _ => self.last,
        };
        if let Some(origin) = &self.origin {
            match &mut delta {
                Delta::Opaque(opaque) => *opaque = opaque.clone().with_origin(&**origin),
                Delta::Part(part) => {
                    if let Some(opaque) = part.opaque().cloned() {
                        part.set_opaque(opaque.with_origin(&**origin));
                    }
                }
                _ => {}
            }
        }
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
        if let (Delta::CallStart { name, .. }, Some(original_names)) =
            (&mut delta, &self.original_names)
            && let Some(own) = original_names.get(name)
        {
            name.clone_from(own);
        }
        if matches!(delta, Delta::Finish(_)) {
            self.deltas.extend(self.model.take().map(Delta::Model));
        }
        self.deltas.push_back(delta);
    }

    /// Sets the model that replies, as the provider reports it, possibly in every chunk.
    ///
    /// The first name counts. It is limited to 256 characters.
    pub(crate) fn model(&mut self, name: &str) {
        if self.model.is_none() && !name.is_empty() {
            self.model = Some(self.clean_name(name).into());
        }
    }

    /// Returns a name from the server without the request's secrets, and of limited length.
    fn clean_name(&self, name: &str) -> String {
        let clean = self
            .secrets
            .as_ref()
            .and_then(|secrets| secrets.clean(name));
        clean
            .as_deref()
            .unwrap_or(name)
            .chars()
            .take(MAX_NAME_CHARS)
            .collect()
    }

    /// Removes the request's secrets from all stored server data except the model's text, in which
    /// programs do not expect keys.
    fn clean(&self, delta: &mut Delta) {
        if let Delta::Finish(Finish::Other(word)) = delta {
            *word = self.clean_name(word);
        }
        let Some(secrets) = &self.secrets else { return };
        match delta {
            Delta::CallStart { id, name, .. } => secrets.clean_call(id, name),
            Delta::Opaque(opaque) => secrets.clean_opaque(opaque),
            Delta::Part(part) => {
                if let Part::ToolCall(call) = part {
                    secrets.clean_call(&mut call.id, &mut call.name);
                }
                if let Some(mut opaque) = part.opaque().cloned() {
                    secrets.clean_opaque(&mut opaque);
                    part.set_opaque(opaque);
                }
            }
            _ => {}
        }
    }

    /// Returns `true` if the reason for the model's stop is known.
    pub(crate) fn has_finish(&self) -> bool {
        self.deltas
            .iter()
            .any(|delta| matches!(delta, Delta::Finish(_)))
    }

    /// Adds text, unless it is empty.
    pub(crate) fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Delta::Text(text.to_owned()));
        }
    }

    /// Adds more text. Consumers receive the text of one network read as one delta.
    pub(crate) fn add_text(&mut self, text: Cow<'_, str>) {
        match self.deltas.back_mut() {
            Some(Delta::Text(last)) => last.push_str(&text),
            _ => self.push(Delta::Text(text.into_owned())),
        }
    }

    /// Adds more thinking, in the same way.
    pub(crate) fn add_thinking(&mut self, text: Cow<'_, str>) {
        match self.deltas.back_mut() {
            Some(Delta::Thinking(last)) => last.push_str(&text),
            _ => self.push(Delta::Thinking(text.into_owned())),
        }
    }

    /// Adds more of a call's arguments, in the same way.
    pub(crate) fn add_args(&mut self, call: u32, text: Cow<'_, str>) {
        match (self.deltas.back_mut(), self.filters.get_mut(&call)) {
            (Some(Delta::CallArgs { index, text: last }), filter) if *index == call => match filter
            {
                Some(filter) => last.push_str(&filter.feed(&text)),
                None => last.push_str(&text),
            },
            _ => self.push(Delta::CallArgs {
                index: call,
                text: text.into_owned(),
            }),
        }
    }

    /// Adds thinking, unless it is empty.
    pub(crate) fn thinking(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Delta::Thinking(text.to_owned()));
        }
    }
}

/// Returns the error of an unsuccessful reply, without the request's secrets.
///
/// At most 1 MiB of the body is read. A body that cannot be read yields an error by its status
/// alone.
pub(crate) async fn error_from_reply(
    reply: &mut Reply,
    endpoint: &Endpoint,
    headers: &[(&'static str, Secret)],
) -> ModelError {
    let body = reply.rest(MAX_ERROR_BYTES).await.unwrap_or_default();
    let error = Failure::read(&body).into_http_error(reply.status(), reply.headers());
    scrub_error(error, endpoint, headers)
}

/// Removes the request's secrets from an error.
pub(crate) fn scrub_error(
    error: ModelError,
    endpoint: &Endpoint,
    headers: &[(&'static str, Secret)],
) -> ModelError {
    Secrets::of(headers, endpoint).scrub(error)
}

/// The secrets of a request, which a server may repeat and which must not be shown. They are also
/// recognised in their JSON and URL encodings.
///
/// Short values are not searched for, because they occur in ordinary text.
#[derive(Debug)]
pub(crate) struct Secrets(levity_core::Secrets);

impl Secrets {
    /// Collects the secrets: headers with `key` in their name or `authorization`, all headers of
    /// the user, the address, and proxy credentials.
    fn of(own: &[(&'static str, Secret)], endpoint: &Endpoint) -> Self {
        // Other headers, such as a project, help to understand an error.
        let is_secret = |name: &str| name == "authorization" || name.contains("key");
        let own = own
            .iter()
            .filter(|(name, _)| is_secret(name))
            .map(|(_, secret)| secret);
        let headers = own
            .chain(endpoint.secrets())
            .flat_map(|secret| header_secrets(secret.expose()));
        // A shorter value is not a key, and may be an ordinary word.
        let headers = headers
            .filter(|bare| bare.len() >= 8)
            .chain(proxy_secrets().iter().cloned());
        let known = headers.fold(
            levity_core::Secrets::new().known_only(),
            levity_core::Secrets::known,
        );
        Self(
            endpoint
                .address_secrets()
                .into_iter()
                .fold(known, levity_core::Secrets::known),
        )
    }

    /// Returns the text without secrets, or `None` if it contains none.
    fn clean(&self, text: &str) -> Option<String> {
        match self.0.replace(text, |_| "***") {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean),
        }
    }

    /// Cleans the id and the name of a call, both of which a server chooses.
    fn clean_call(&self, id: &mut CallId, name: &mut String) {
        if let Some(clean) = self.clean(id.as_str()) {
            *id = clean.into();
        }
        if let Some(clean) = self.clean(name) {
            *name = clean;
        }
    }

    /// Cleans state, which is stored in histories and journals.
    fn clean_opaque(&self, opaque: &mut ProviderState) {
        if let Cow::Owned(clean) = self.0.replace_value(&opaque.data, |_| "***") {
            opaque.data = Arc::new(clean);
        }
    }

    /// Cleans message, request id and causes of an error, then truncates the message to 2,000
    /// bytes.
    fn scrub(&self, error: ModelError) -> ModelError {
        let clean = |text: &str| self.clean(text);
        let cause = std::error::Error::source(&error).and_then(|cause| clean(&chain(cause)));
        let message = clean(error.message()).or_else(|| {
            let long = error.message().len() > MAX_MESSAGE_BYTES;
            long.then(|| error.message().to_owned())
        });
        let message = message.map(|message| head(&message, MAX_MESSAGE_BYTES).to_owned());
        let error = match error.request_id().and_then(clean) {
            Some(id) => error.with_request_id(id),
            None => error,
        };
        let error = match cause {
            Some(cause) => error.with_source(cause),
            None => error,
        };
        match message {
            Some(message) => error.with_message(message),
            None => error,
        }
    }
}

/// Returns `true` if provider-specific fields set a cache time. The value does not matter, because
/// the bound assumes the longest, which costs the most.
fn sets_cache_time(fields: &serde_json::Map<String, Value>) -> bool {
    fn names(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.contains_key("ttl") || map.values().any(names),
            Value::Array(items) => items.iter().any(names),
            _ => false,
        }
    }
    fields.values().any(names)
}

/// The model and its address, for use in errors.
///
/// Errors show both, such as `compatible:qwen` and `http://127.0.0.1:1/v1`.
pub(crate) struct ErrorTarget {
    model: String,
    address: Option<String>,
}

impl ErrorTarget {
    /// Creates the target; the address is shown without secrets.
    pub(crate) fn new(provider: &str, id: &str, endpoint: &Endpoint) -> Self {
        let address = endpoint.shown().trim_end_matches('/').to_owned();
        Self {
            model: format!("{provider}:{id}"),
            address: Some(address).filter(|address| !address.is_empty()),
        }
    }

    /// Adds the model to the error of a request that was not sent.
    fn unsent(&self, error: ModelError) -> ModelError {
        if error.model().is_some() {
            error
        } else {
            error.with_model(&*self.model)
        }
    }

    /// Adds the model and the address to the error of a request that was sent.
    pub(crate) fn sent(&self, error: ModelError) -> ModelError {
        // The invalid value may contain a key, so the error states only its position.
        let json_error = std::error::Error::source(&error)
            .and_then(|cause| cause.downcast_ref::<serde_json::Error>());
        let position = json_error
            .filter(|error| error.is_data())
            .map(|error| format!("line {}, column {}", error.line(), error.column()));
        let error = match position {
            Some(position) => error.with_source(position),
            None => error,
        };
        match &self.address {
            _ if error.model().is_some() => error,
            Some(address) => error.with_target(&*self.model, &**address),
            None => error.with_model(&*self.model),
        }
    }
}

/// A model that a server provides over HTTP.
///
/// All public models wrap it. It sends each request once and holds no state between requests.
#[derive(Clone, Debug)]
pub(crate) struct Remote<W> {
    pub(crate) wire: W,
    pub(crate) card: ModelCard,
    pub(crate) endpoint: Endpoint,
    /// True if replies are requested as streams.
    pub(crate) streams: bool,
    /// True if calls that the model wrote as text are parsed.
    pub(crate) parses_text_calls: bool,
}

impl<W: Wire> Remote<W> {
    /// Creates a model, with the facts of the built-in list.
    pub(crate) fn new(wire: W, card: ModelCard, endpoint: Endpoint) -> Self {
        Self {
            wire,
            card: ModelList::builtin().complete(card),
            endpoint,
            streams: true,
            parses_text_calls: false,
        }
    }

    /// Sends a request. A reply without streaming is decoded here.
    ///
    /// # Errors
    /// Returns `BadRequest` for content that the provider does not accept, before anything is sent.
    /// Otherwise returns the errors of the endpoint and of the reply, addressed to the model.
    async fn open(&self, request: &Request) -> Result<ReplyStream<W>, ModelError> {
        let (request, original_names) =
            names::with_valid_names(request, |name| self.wire.tool_name(name));
        let request = &*request;
        let (card, endpoint) = (&self.card, &self.endpoint);
        let target = ErrorTarget::new(&card.provider, &card.id, endpoint);
        let origin = &Origin::new(endpoint, self.wire.account(), &card.id);
        let body = self.wire.body(WireRequest {
            card,
            request,
            stream: self.streams,
            endpoint,
            origin,
        });
        let started = self
            .begin(body.map_err(|error| target.unsent(error))?, &target)
            .await;
        let (mut reply, secrets) =
            started.map_err(|error| target.sent(self.wire.explain(error, card, endpoint)))?;
        let mut reader = Reader::new(
            self.wire.clone(),
            self.wire.nulls(request),
            Some(origin.name()),
        );
        let call_parser = self
            .parses_text_calls
            .then(|| TextCallParser::new(request, original_names.clone()))
            .flatten();
        reader.sink.original_names = original_names;
        reader.sink.secrets = Some(secrets.clone());
        reader.reply_headers = ReplyHeaders::of(reply.status(), reply.headers());
        reader.sink.prioritised = reply
            .headers()
            .get("x-gemini-service-tier")
            .is_some_and(|tier| tier == "priority");
        if !self.streams {
            let read = match reply.rest(MAX_REPLY_BYTES + 1).await {
                Ok(body) => read_whole(&self.wire, &body, &reader.sink, &reader.reply_headers),
                Err(error) => Err(error),
            };
            reader.sink = read.map_err(|error| target.sent(secrets.scrub(error)))?;
        }
        let mut stream = ReplyStream {
            reply,
            secrets,
            target,
            reader,
            call_parser,
            failed: None,
            ended: !self.streams,
        };
        if stream.ended {
            stream.parse_text_calls(true);
        }
        Ok(stream)
    }

    /// Sends the body and returns the reply if its status is successful.
    ///
    /// # Errors
    /// Returns the error of the reply. After a 401 the provider is told, so that it fetches a new
    /// token for the next call; this call is not repeated.
    async fn begin(
        &self,
        body: Vec<u8>,
        target: &ErrorTarget,
    ) -> Result<(Reply, Arc<Secrets>), ModelError> {
        let headers = self
            .wire
            .headers()
            .await
            .map_err(|error| target.unsent(error))?;
        let path = self.wire.path(&self.card, self.streams);
        let mut reply = self.endpoint.send(&path, &headers, body).await?;
        if (200..300).contains(&reply.status()) {
            return Ok((reply, Secrets::of(&headers, &self.endpoint).into()));
        }
        if reply.status() == 401 {
            self.wire.on_unauthorized(&headers).await;
        }
        Err(error_from_reply(&mut reply, &self.endpoint, &headers).await)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<W: Wire> Model for Remote<W> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn cost_bound(&self, request: &Request) -> levity_core::CostBound {
        let extra = self.endpoint.extra();
        let mut worst =
            levity_core::CostBound::of(&self.card, request).with_fields(&self.card, extra);
        let hour = self.wire.caches_for_hour()
            || sets_cache_time(extra)
            || sets_cache_time(&request.options.extra);
        worst.price = worst.price.map(|price| {
            if hour {
                price.with_hour()
            } else {
                price.without_hour()
            }
        });
        worst
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let stream = self.open(&request).await?;
        Ok(Deltas::new(futures_util::stream::unfold(
            stream,
            |mut stream| async move { stream.next().await.map(|delta| (delta, stream)) },
        )))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let mut stream = self.open(&request).await?;
        let mut fold = Fold::new();
        while stream.fill().await.map_err(|error| fold.broken(error))? {
            stream
                .reader
                .sink
                .deltas
                .drain(..)
                .try_for_each(|delta| fold.push(delta))?;
        }
        Ok(fold.finish())
    }
}

/// A reply in progress. Dropping it closes the connection.
///
/// Deltas that arrived before an error are delivered first, so that a consumer can show what there
/// is.
struct ReplyStream<W: Wire> {
    reply: Reply,
    secrets: Arc<Secrets>,
    target: ErrorTarget,
    reader: Reader<W>,
    call_parser: Option<TextCallParser>,
    /// The error that ended the reply, returned after all earlier deltas.
    failed: Option<ModelError>,
    ended: bool,
}

impl<W: Wire> ReplyStream<W> {
    /// Returns the next delta, or `None` at the end.
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        match self.fill().await {
            Ok(true) => self.reader.sink.deltas.pop_front().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits for more deltas; returns `false` at the end. Deltas that arrived before an error are
    /// returned first.
    async fn fill(&mut self) -> Result<bool, ModelError> {
        while self.reader.sink.deltas.is_empty() {
            if self.ended {
                return self.failed.take().map_or(Ok(false), Err);
            }
            if let Err(error) = self.more().await {
                let error = self.target.sent(self.secrets.scrub(error));
                (self.ended, self.failed) = (true, Some(error));
            }
            self.parse_text_calls(self.ended);
        }
        Ok(true)
    }

    /// Parses calls in the text of new deltas.
    ///
    /// The parser holds back text that may be the start of a call; `end` releases it.
    fn parse_text_calls(&mut self, end: bool) {
        let Some(call_parser) = &mut self.call_parser else {
            return;
        };
        let deltas = &mut self.reader.sink.deltas;
        let mut out = VecDeque::with_capacity(deltas.len());
        deltas
            .drain(..)
            .for_each(|delta| call_parser.take(delta, &mut out));
        if end {
            call_parser.end(&mut out);
        }
        *deltas = out;
    }

    /// Reads the next bytes, or the end.
    ///
    /// # Errors
    /// Returns the errors of the connection and of the decoder.
    async fn more(&mut self) -> Result<(), ModelError> {
        if self.reader.sink.done {
            self.ended = true;
            // A connection whose reply was read completely can be reused.
            self.reply.drain().await;
            return Ok(());
        }
        match self.reply.chunk().await? {
            Some(chunk) => self.reader.take(&chunk),
            None => {
                self.ended = true;
                self.reader.end()
            }
        }
    }
}
