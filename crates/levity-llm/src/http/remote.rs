//! A model behind HTTP: what all providers have in common.

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
use super::failure::LONGEST as LONGEST_MESSAGE;
use super::foreign::Came;
use super::reader::{LONGEST, Reader, read_whole};
use super::{Endpoint, Failure, Framing, Secret};
use crate::ModelList;
use crate::names;
use crate::origin::Origin;
use crate::rescue::Rescue;
use crate::schema::nulls::{Filter, Nulls};

/// The longest error that is read.
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

    /// The name of a tool as the provider takes it.
    fn tool_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        names::tool(name, "")
    }

    /// Whose state it is that the server hands out, as far as it is known: a key, a project.
    fn account(&self) -> Option<&str> {
        None
    }

    /// The request's body.
    ///
    /// # Errors
    /// `BadRequest` when the request has something in it that the provider cannot be given.
    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError>;

    /// Which nulls in the arguments of calls stand for nothing, given the tools that the body
    /// offers.
    fn nulls(&self, _: &Request) -> Option<Arc<Nulls>> {
        None
    }

    /// Whether it asks the provider to keep requests in its cache for an hour, which costs more.
    fn keeps_an_hour(&self) -> bool {
        false
    }

    /// Begins a stream.
    fn decoder(&self) -> Self::Decoder;

    /// Reads a reply that came in one piece.
    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError>;

    /// Reads a reply in one piece that is as replies mostly are, without taking it apart first.
    /// Where it says no, the reply is left to [`whole`](Self::whole), and what is in the sink to
    /// nobody.
    fn usual(&self, _: &[u8], _: &mut Sink) -> bool {
        false
    }

    /// Says more of an error that came instead of a reply, where the provider knows what to do
    /// about it.
    fn explain(&self, error: ModelError, _: &ModelCard, _: &Endpoint) -> ModelError {
        error
    }
}

/// What a body is made from.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) card: &'a ModelCard,
    pub(crate) request: &'a Request,
    /// Whether the reply is to come piece by piece.
    pub(crate) stream: bool,
    pub(crate) endpoint: &'a Endpoint,
    /// Whose state goes back.
    pub(crate) origin: &'a Origin,
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
    pub(super) deltas: VecDeque<Delta>,
    /// Nothing that comes now belongs to the reply.
    pub(crate) done: bool,
    /// Which nulls in arguments stand for nothing, and the calls that are gone through for them.
    nulls: Option<Arc<Nulls>>,
    filters: HashMap<u32, Filter>,
    /// Which model replies; told with the end of the reply.
    model: Option<Arc<str>>,
    /// What tools are called that are offered under another name.
    offered: Option<Arc<names::Offered>>,
    /// Who replies, for the state that only they take back.
    origin: Option<Arc<str>>,
    /// What more of the same kind would be added to.
    last: Last,
    /// Whether the headers of the reply say that the request is served before others.
    prioritised: bool,
    /// What was sent and must not be kept, though the server may repeat it.
    pub(super) secrets: Option<Arc<Secrets>>,
}

/// The kind of the last piece.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Last {
    #[default]
    Other,
    Text,
    Thinking,
}

/// How many letters of a model's name are kept.
const LONGEST_NAME: usize = 256;

#[allow(dead_code, reason = "not every provider needs all of it")]
impl Sink {
    pub(super) fn new(nulls: Option<Arc<Nulls>>, origin: Option<Arc<str>>) -> Self {
        Self {
            nulls,
            origin,
            ..Self::default()
        }
    }

    /// Begins anew.
    pub(super) fn again(&self) -> Self {
        Self {
            offered: self.offered.clone(),
            prioritised: self.prioritised,
            secrets: self.secrets.clone(),
            ..Self::new(self.nulls.clone(), self.origin.clone())
        }
    }

    /// Takes a piece. A whole part with text in it is told as text, since many listen for nothing
    /// else.
    pub(crate) fn push(&mut self, delta: Delta) {
        let Delta::Part(part) = delta else {
            return self.add(delta);
        };
        let begins = match (&part, self.last) {
            (Part::Text(part), Last::Text) if !part.text.is_empty() => Some(Part::text("")),
            (Part::Thinking(part), Last::Thinking) if !part.text.is_empty() => {
                Some(Part::thinking(""))
            }
            _ => None,
        };
        begins
            .into_iter()
            .for_each(|empty| self.add(Delta::Part(empty)));
        Delta::of_part(part).for_each(|delta| self.add(delta));
    }

    fn add(&mut self, mut delta: Delta) {
        self.clean(&mut delta);
        if let Delta::Usage(usage) = &mut delta {
            usage.priority |= self.prioritised;
        }
        self.last = match &delta {
            Delta::Text(_) => Last::Text,
            Delta::Thinking(_) => Last::Thinking,
            delta if delta.is_content() => Last::Other,
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
        if let (Delta::CallStart { name, .. }, Some(offered)) = (&mut delta, &self.offered)
            && let Some(own) = offered.get(name)
        {
            name.clone_from(own);
        }
        if matches!(delta, Delta::Finish(_)) {
            self.deltas.extend(self.model.take().map(Delta::Model));
        }
        self.deltas.push_back(delta);
    }

    /// Which model replies, as the provider says; it may say so in every piece.
    pub(crate) fn model(&mut self, name: &str) {
        if self.model.is_none() && !name.is_empty() {
            self.model = Some(self.clean_name(name).into());
        }
    }

    /// A word of the server's for names and ends, without the keys that were sent and no longer
    /// than such words are.
    fn clean_name(&self, name: &str) -> String {
        let clean = self
            .secrets
            .as_ref()
            .and_then(|secrets| secrets.clean(name));
        clean
            .as_deref()
            .unwrap_or(name)
            .chars()
            .take(LONGEST_NAME)
            .collect()
    }

    /// Takes the keys that were sent out of all that is kept as the server says it, but for what
    /// the model says: programs do not look for keys there.
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

    /// Whether it is known why the model stopped.
    pub(crate) fn has_finish(&self) -> bool {
        self.deltas
            .iter()
            .any(|delta| matches!(delta, Delta::Finish(_)))
    }

    /// Text, unless there is none.
    pub(crate) fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Delta::Text(text.to_owned()));
        }
    }

    /// More text. What comes in one read of the network is one piece for those who listen.
    pub(crate) fn add_text(&mut self, text: Cow<'_, str>) {
        match self.deltas.back_mut() {
            Some(Delta::Text(last)) => last.push_str(&text),
            _ => self.push(Delta::Text(text.into_owned())),
        }
    }

    /// More thinking, in the same way.
    pub(crate) fn add_thinking(&mut self, text: Cow<'_, str>) {
        match self.deltas.back_mut() {
            Some(Delta::Thinking(last)) => last.push_str(&text),
            _ => self.push(Delta::Thinking(text.into_owned())),
        }
    }

    /// More of a call's arguments, in the same way.
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

    /// Thinking, unless there is none.
    pub(crate) fn thinking(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Delta::Thinking(text.to_owned()));
        }
    }
}

/// The error that a reply is, without the keys that were sent.
pub(crate) async fn refused(
    reply: &mut Reply,
    endpoint: &Endpoint,
    headers: &[(&'static str, Secret)],
) -> ModelError {
    let body = reply.rest(LONGEST_ERROR).await.unwrap_or_default();
    let error = Failure::read(&body).into_http_error(reply.status(), reply.headers());
    scrubbed(error, endpoint, headers)
}

/// An error without the keys that were sent.
pub(crate) fn scrubbed(
    error: ModelError,
    endpoint: &Endpoint,
    headers: &[(&'static str, Secret)],
) -> ModelError {
    Secrets::of(headers, endpoint).scrub(error)
}

/// What was sent and must not be shown, though a server may repeat it. It is also found as it is
/// written within JSON and within addresses.
#[derive(Debug)]
pub(crate) struct Secrets(levity_core::Secrets);

impl Secrets {
    fn of(own: &[(&'static str, Secret)], endpoint: &Endpoint) -> Self {
        // Others, such as a project, help to understand an error.
        let tells = |name: &str| name == "authorization" || name.contains("key");
        let own = own
            .iter()
            .filter(|(name, _)| tells(name))
            .map(|(_, secret)| secret);
        let headers = own
            .chain(endpoint.secrets())
            .flat_map(|secret| header_secrets(secret.expose()));
        // What is shorter is no key, and may be a word.
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

    /// A text without them; `None` when it has none.
    fn clean(&self, text: &str) -> Option<String> {
        match self.0.replace(text, |_| "***") {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean),
        }
    }

    fn clean_call(&self, id: &mut CallId, name: &mut String) {
        if let Some(clean) = self.clean(id.as_str()) {
            *id = clean.into();
        }
        if let Some(clean) = self.clean(name) {
            *name = clean;
        }
    }

    fn clean_opaque(&self, opaque: &mut ProviderState) {
        if let Cow::Owned(clean) = self.0.replace_value(&opaque.data, |_| "***") {
            opaque.data = Arc::new(clean);
        }
    }

    fn scrub(&self, error: ModelError) -> ModelError {
        let clean = |text: &str| self.clean(text);
        let cause = std::error::Error::source(&error).and_then(|cause| clean(&chain(cause)));
        let message = clean(error.message()).or_else(|| {
            let long = error.message().len() > LONGEST_MESSAGE;
            long.then(|| error.message().to_owned())
        });
        let message = message.map(|message| head(&message, LONGEST_MESSAGE).to_owned());
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

/// Whether fields of the provider's own name a time for its cache. What time it is does not matter:
/// the longest costs the most.
fn asks_for_hour(fields: &serde_json::Map<String, Value>) -> bool {
    fn names(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.contains_key("ttl") || map.values().any(names),
            Value::Array(items) => items.iter().any(names),
            _ => false,
        }
    }
    fields.values().any(names)
}

/// Which model is asked, and where: for errors.
pub(crate) struct Place {
    model: String,
    address: Option<String>,
}

impl Place {
    pub(crate) fn new(provider: &str, id: &str, endpoint: &Endpoint) -> Self {
        let address = endpoint.shown().trim_end_matches('/').to_owned();
        Self {
            model: format!("{provider}:{id}"),
            address: Some(address).filter(|address| !address.is_empty()),
        }
    }

    /// An error of a request that never left.
    fn unsent(&self, error: ModelError) -> ModelError {
        if error.model().is_some() {
            error
        } else {
            error.with_model(&*self.model)
        }
    }

    /// An error of a request that was sent, or was to be.
    pub(crate) fn sent(&self, error: ModelError) -> ModelError {
        // What a value is that has another type may be anything, also a key; where it is says
        // enough.
        let wrong = std::error::Error::source(&error)
            .and_then(|cause| cause.downcast_ref::<serde_json::Error>());
        let place = wrong
            .filter(|error| error.is_data())
            .map(|error| format!("line {}, column {}", error.line(), error.column()));
        let error = match place {
            Some(place) => error.with_source(place),
            None => error,
        };
        match &self.address {
            _ if error.model().is_some() => error,
            Some(address) => error.with_target(&*self.model, &**address),
            None => error.with_model(&*self.model),
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
    /// Whether calls that the model wrote as text are read as calls.
    pub(crate) rescues: bool,
}

impl<W: Wire> Remote<W> {
    /// A model of this name, with what the list says of it.
    pub(crate) fn new(wire: W, card: ModelCard, endpoint: Endpoint) -> Self {
        Self {
            wire,
            card: ModelList::builtin().complete(card),
            endpoint,
            streams: true,
            rescues: false,
        }
    }

    /// Sends a request. A reply that comes in one piece is read here.
    async fn open(&self, request: &Request) -> Result<Flow<W>, ModelError> {
        let (request, offered) = names::offered(request, |name| self.wire.tool_name(name));
        let request = &*request;
        let (card, endpoint) = (&self.card, &self.endpoint);
        let place = Place::new(&card.provider, &card.id, endpoint);
        let origin = &Origin::new(endpoint, self.wire.account(), &card.id);
        let body = self.wire.body(Asked {
            card,
            request,
            stream: self.streams,
            endpoint,
            origin,
        });
        let begun = self
            .begin(body.map_err(|error| place.unsent(error))?, &place)
            .await;
        let (mut reply, secrets) =
            begun.map_err(|error| place.sent(self.wire.explain(error, card, endpoint)))?;
        let mut reader = Reader::new(
            self.wire.clone(),
            self.wire.nulls(request),
            Some(origin.name()),
        );
        let rescue = self
            .rescues
            .then(|| Rescue::new(request, offered.clone()))
            .flatten();
        reader.sink.offered = offered;
        reader.sink.secrets = Some(secrets.clone());
        reader.came = Came::of(reply.status(), reply.headers());
        reader.sink.prioritised = reply
            .headers()
            .get("x-gemini-service-tier")
            .is_some_and(|tier| tier == "priority");
        if !self.streams {
            let read = match reply.rest(LONGEST + 1).await {
                Ok(body) => read_whole(&self.wire, &body, &reader.sink, &reader.came),
                Err(error) => Err(error),
            };
            reader.sink = read.map_err(|error| place.sent(secrets.scrub(error)))?;
        }
        let mut flow = Flow {
            reply,
            secrets,
            place,
            reader,
            rescue,
            failed: None,
            over: !self.streams,
        };
        if flow.over {
            flow.rescue(true);
        }
        Ok(flow)
    }

    async fn begin(
        &self,
        body: Vec<u8>,
        place: &Place,
    ) -> Result<(Reply, Arc<Secrets>), ModelError> {
        let headers = self
            .wire
            .headers()
            .await
            .map_err(|error| place.unsent(error))?;
        let path = self.wire.path(&self.card, self.streams);
        let mut reply = self.endpoint.send(&path, &headers, body).await?;
        if (200..300).contains(&reply.status()) {
            return Ok((reply, Secrets::of(&headers, &self.endpoint).into()));
        }
        if reply.status() == 401 {
            self.wire.refused(&headers).await;
        }
        Err(refused(&mut reply, &self.endpoint, &headers).await)
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
        let hour = self.wire.keeps_an_hour()
            || asks_for_hour(extra)
            || asks_for_hour(&request.options.extra);
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
        let flow = self.open(&request).await?;
        Ok(Deltas::new(futures_util::stream::unfold(
            flow,
            |mut flow| async move { flow.next().await.map(|delta| (delta, flow)) },
        )))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let mut flow = self.open(&request).await?;
        let mut fold = Fold::new();
        while flow.fill().await.map_err(|error| fold.broken(error))? {
            flow.reader
                .sink
                .deltas
                .drain(..)
                .try_for_each(|delta| fold.push(delta))?;
        }
        Ok(fold.finish())
    }
}

/// A reply on its way. Dropping it closes the connection.
struct Flow<W: Wire> {
    reply: Reply,
    secrets: Arc<Secrets>,
    place: Place,
    reader: Reader<W>,
    rescue: Option<Rescue>,
    /// Why there is no more, once all that came before has been said.
    failed: Option<ModelError>,
    over: bool,
}

impl<W: Wire> Flow<W> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        match self.fill().await {
            Ok(true) => self.reader.sink.deltas.pop_front().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits until there is more to say; `false` at the end. What came before an error is said
    /// first.
    async fn fill(&mut self) -> Result<bool, ModelError> {
        while self.reader.sink.deltas.is_empty() {
            if self.over {
                return self.failed.take().map_or(Ok(false), Err);
            }
            if let Err(error) = self.more().await {
                let error = self.place.sent(self.secrets.scrub(error));
                (self.over, self.failed) = (true, Some(error));
            }
            self.rescue(self.over);
        }
        Ok(true)
    }

    /// Looks for calls in the text of the pieces that came.
    fn rescue(&mut self, end: bool) {
        let Some(rescue) = &mut self.rescue else {
            return;
        };
        let deltas = &mut self.reader.sink.deltas;
        let mut out = VecDeque::with_capacity(deltas.len());
        deltas
            .drain(..)
            .for_each(|delta| rescue.take(delta, &mut out));
        if end {
            rescue.end(&mut out);
        }
        *deltas = out;
    }

    /// Takes the next bytes in, or the end.
    async fn more(&mut self) -> Result<(), ModelError> {
        if self.reader.sink.done {
            self.over = true;
            // A connection whose reply was read to its end can be used again.
            self.reply.drain().await;
            return Ok(());
        }
        match self.reply.chunk().await? {
            Some(chunk) => self.reader.take(&chunk),
            None => {
                self.over = true;
                self.reader.end()
            }
        }
    }
}
