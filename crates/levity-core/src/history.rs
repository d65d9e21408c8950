use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{CallId, Message, Part, Role, ToolCall, ToolError, ToolResult};

/// A conversation in which every tool call has exactly one result.
///
/// A history cannot contain an unanswered call, a result without a call or a duplicate call id. A
/// reply with calls first becomes an [`Exchange`], and enters the history only together with its
/// results. So you can send a history to a provider at any time, whatever was cancelled or failed.
///
/// Cloning is cheap for any length. The first change while a clone is alive copies the list of
/// messages, not the messages.
///
/// ```
/// # use levity_core::{History, Message, Part, Role, ToolCall, ToolError, ToolOutput, ToolResult};
/// # use serde_json::json;
/// let mut history = History::new();
/// history.push(Message::user("What is 2 + 5?"))?;
/// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
/// let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
///
/// let mut exchange = history.open(reply.into())?;
/// exchange.answer(ToolResult::new(&call, Ok(ToolOutput::text("7"))))?;
/// history.close(exchange, &ToolError::failed("never used: all calls are answered"));
/// assert_eq!(history.len(), 3); // user, assistant, tool
/// # Ok::<(), levity_core::HistoryError>(())
/// ```
#[derive(Clone, Default)]
pub struct History {
    inner: Arc<Inner>,
}

#[derive(Clone, Default)]
struct Inner {
    messages: Vec<Arc<Message>>,
    ids: HashMap<CallId, ResultPosition>,
    size: usize,
    tokens: u64,
    most_tokens: u64,
    /// The bytes of full results that its messages retain.
    retained: usize,
    /// No message before this index retains a full result.
    retained_from: usize,
    /// The cached encoding of each message by a provider.
    encoded: Vec<OnceLock<Encoded>>,
}

type Encoded = (Cow<'static, str>, Arc<[u8]>);

/// The position of the result of a call.
#[derive(Clone, Copy)]
struct ResultPosition {
    message: usize,
    part: usize,
}

impl Inner {
    fn push(&mut self, message: Arc<Message>) {
        let (size, most_tokens) = message.measure();
        self.size = self.size.saturating_add(size);
        self.tokens = self.tokens.saturating_add(message.tokens());
        self.most_tokens = self.most_tokens.saturating_add(most_tokens);
        self.retained = self.retained.saturating_add(message.retained_bytes());
        self.messages.push(message);
        self.encoded.push(OnceLock::new());
    }

    /// Adds a reply that calls tools and the message with its results, in the order of the calls.
    fn push_exchange(&mut self, reply: Arc<Message>, answer: Arc<Message>) {
        let message = self.messages.len() + 1;
        let places = reply.calls().enumerate();
        self.ids
            .extend(places.map(|(part, call)| (call.id.clone(), ResultPosition { message, part })));
        self.push(reply);
        self.push(answer);
    }
}

impl History {
    /// Creates an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the messages, oldest first.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.inner.messages
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.inner.messages.len()
    }

    /// Returns the bytes of text of all messages, in constant time.
    ///
    /// ```
    /// # use levity_core::{History, Message};
    /// let mut history = History::new();
    /// history.push(Message::user("Good morning"))?;
    /// assert_eq!(history.size(), 12);
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Returns the estimated tokens of all messages, in constant time.
    pub fn tokens(&self) -> u64 {
        self.inner.tokens
    }

    /// Returns the maximum tokens of all messages as [`CostBound::of`](crate::CostBound::of) counts
    /// them, in constant time.
    pub fn max_tokens(&self) -> u64 {
        self.inner.most_tokens
    }

    /// Returns the retained bytes of results that were too long to show, in constant time. No other
    /// count includes them. See [`ToolResult::whole`].
    pub fn retained_bytes(&self) -> usize {
        self.inner.retained
    }

    /// Limits the retained bytes of results that were too long to show. The oldest are dropped
    /// first; their shown text remains.
    ///
    /// ```
    /// use levity_core::{
    ///     History, Message, Part, Role, ToolCall, ToolError, ToolOutput, ToolResult,
    /// };
    /// use serde_json::json;
    ///
    /// let call = ToolCall::new("c1", "read", json!({}));
    /// let mut result = ToolResult::new(&call, Ok(ToolOutput::text("the first page")));
    /// result.whole = Some("the whole book".into());
    /// let mut history = History::new();
    /// let reply = Message::new(Role::Assistant, [Part::ToolCall(call)]);
    /// let mut exchange = history.open(reply.into())?;
    /// exchange.answer(result)?;
    /// history.close(exchange, &ToolError::failed("unused"));
    /// assert_eq!(history.retained_bytes(), 14);
    /// history.limit_retained_bytes(10);
    /// assert_eq!(history.retained_bytes(), 0);
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    pub fn limit_retained_bytes(&mut self, limit: usize) {
        if self.retained_bytes() <= limit {
            return;
        }
        let inner = Arc::make_mut(&mut self.inner);
        while let Some(message) = inner.messages.get_mut(inner.retained_from) {
            let (own, over) = (
                message.retained_bytes(),
                inner.retained.saturating_sub(limit),
            );
            if over == 0 {
                break;
            }
            if own > 0 {
                // The cached encodings stay valid, because providers never receive full results.
                Arc::make_mut(message).keep_wholes(own.saturating_sub(over));
                inner.retained = inner
                    .retained
                    .saturating_sub(own - message.retained_bytes());
            }
            if message.retained_bytes() == 0 {
                inner.retained_from += 1;
            }
        }
    }

    /// Returns the encoding of the message at this index, computed once and cached while the
    /// history lives. `wire` identifies the provider and its format.
    ///
    /// ```
    /// # use levity_core::{History, Message};
    /// let mut history = History::new();
    /// history.push(Message::user("Good morning"))?;
    /// let first = history.encoded(0, "example/1", || b"hello".to_vec());
    /// let again = history.encoded(0, "example/1", || unreachable!("it is cached"));
    /// assert_eq!(first, again);
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    pub fn encoded(
        &self,
        at: usize,
        wire: impl Into<Cow<'static, str>>,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Arc<[u8]> {
        let wire = wire.into();
        let Some(slot) = self.inner.encoded.get(at) else {
            return make().into();
        };
        if let Some((_, bytes)) = slot.get().filter(|(known, _)| *known == wire) {
            return bytes.clone();
        }
        let bytes: Arc<[u8]> = make().into();
        // Another encoding may be cached already; then this one is not.
        let _ = slot.set((wire, bytes.clone()));
        bytes
    }

    /// Returns `true` if it contains tool calls.
    pub fn has_calls(&self) -> bool {
        self.messages()
            .iter()
            .any(|message| message.role == Role::Tool)
    }

    /// Returns `true` if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.inner.messages.is_empty()
    }

    /// Adds a message that neither calls a tool nor answers a call.
    ///
    /// # Errors
    /// Returns an error if it does; use [`open`](Self::open) for such a message.
    ///
    /// ```
    /// # use levity_core::{History, HistoryError, Message, Part, Role, ToolCall};
    /// # use serde_json::json;
    /// let mut history = History::new();
    /// history.push(Message::user("How much is 2 + 5?"))?;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let reply = Message::new(Role::Assistant, [Part::ToolCall(call)]);
    /// assert_eq!(history.push(reply), Err(HistoryError::Unanswered { at: 1 }));
    /// # Ok::<(), HistoryError>(())
    /// ```
    pub fn push(&mut self, message: impl Into<Arc<Message>>) -> Result<(), HistoryError> {
        let message = message.into();
        if message.role == Role::Tool || message.results().next().is_some() {
            return Err(HistoryError::OrphanResult { at: self.len() });
        }
        if message.calls().next().is_some() {
            return Err(HistoryError::Unanswered { at: self.len() });
        }
        Arc::make_mut(&mut self.inner).push(message);
        Ok(())
    }

    /// Begins an exchange with a reply that calls tools; [`close`](Self::close) adds it to the
    /// history.
    ///
    /// Calls with an empty or duplicate id get a new one, in the returned exchange as well: some
    /// servers number the calls of each reply from the start.
    ///
    /// # Errors
    /// Returns an error if the message is not the model's, calls no tool or contains a tool result.
    ///
    /// ```
    /// # use levity_core::{History, HistoryError, Message, Part, Role, ToolCall};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let reply = Message::new(Role::Assistant, [Part::ToolCall(call)]);
    /// let exchange = History::new().open(reply.into())?;
    /// assert_eq!(exchange.unanswered().count(), 1);
    /// assert!(History::new().open(Message::assistant("7").into()).is_err()); // it calls no tool
    /// # Ok::<(), HistoryError>(())
    /// ```
    pub fn open(&self, reply: Arc<Message>) -> Result<Exchange, HistoryError> {
        if reply.role != Role::Assistant || reply.calls().next().is_none() {
            return Err(HistoryError::NoCalls { at: self.len() });
        }
        if reply.results().next().is_some() {
            return Err(HistoryError::OrphanResult { at: self.len() });
        }
        let open = reply.calls().count();
        let mut exchange = Exchange {
            results: vec![None; open],
            reply,
            open,
            retained: 0,
            retained_from: 0,
            places: HashMap::new(),
        };
        exchange.make_unique(&self.inner.ids);
        exchange.index();
        Ok(exchange)
    }

    /// Adds an exchange; calls without an answer are answered with `unanswered`.
    ///
    /// ```
    /// # use levity_core::{History, HistoryError, Message, Part, Role, ToolCall, ToolError};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
    /// let mut history = History::new();
    /// let exchange = history.open(reply.into())?;
    /// history.close(exchange, &ToolError::failed("the run was stopped"));
    /// assert_eq!(history.len(), 2); // the reply and the message with its results
    /// assert_eq!(history.result(&call.id).unwrap().text(), "the run was stopped");
    /// # Ok::<(), HistoryError>(())
    /// ```
    pub fn close(&mut self, mut exchange: Exchange, unanswered: &ToolError) {
        exchange.make_unique(&self.inner.ids);
        let results = exchange
            .reply
            .calls()
            .zip(exchange.results)
            .map(|(call, result)| {
                Part::ToolResult(
                    result.unwrap_or_else(|| ToolResult::new(call, Err(unanswered.clone()))),
                )
            });
        let mut parts = Vec::with_capacity(exchange.reply.calls().count());
        parts.extend(results);
        let answer = Message {
            role: Role::Tool,
            parts,
        };
        Arc::make_mut(&mut self.inner).push_exchange(exchange.reply, Arc::new(answer));
    }

    /// Returns `true` if `answer` has one result for each call of `reply`, in order, and all ids
    /// are new.
    fn follows(&self, reply: &Message, answer: &Message) -> bool {
        let mut seen = HashSet::new();
        let new = reply.calls().all(|call| {
            !call.id.as_str().is_empty()
                && !self.inner.ids.contains_key(&call.id)
                && seen.insert(&call.id)
        });
        let plain = reply.role == Role::Assistant && reply.results().next().is_none();
        let results = answer.parts.iter().map(|part| match part {
            Part::ToolResult(result) => Some(&result.call),
            _ => None,
        });
        new && plain
            && answer.role == Role::Tool
            && results.eq(reply.calls().map(|call| Some(&call.id)))
    }

    /// Adds the messages of another history from an index on; they are shared, not copied.
    ///
    /// # Errors
    /// Returns an error and adds nothing if the index is between a call and its result, or a call
    /// id exists already.
    ///
    /// ```
    /// # use levity_core::{History, Message};
    /// let mut first = History::new();
    /// first.push(Message::user("Hello"))?;
    /// first.push(Message::assistant("Good morning"))?;
    /// let mut second = History::new();
    /// second.extend(&first, 1)?;
    /// assert_eq!(second.messages()[0].text(), "Good morning");
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    pub fn extend(&mut self, other: &Self, from: usize) -> Result<(), HistoryError> {
        let more = other.messages().get(from..).unwrap_or_default();
        if more
            .first()
            .is_some_and(|message| message.role == Role::Tool)
        {
            return Err(HistoryError::OrphanResult { at: self.len() });
        }
        let calls = || more.iter().flat_map(|message| message.calls());
        if let Some(call) = calls().find(|call| self.inner.ids.contains_key(&call.id)) {
            return Err(HistoryError::DuplicateId {
                at: self.len(),
                call: call.id.clone(),
            });
        }
        if more.is_empty() {
            return Ok(());
        }
        let inner = Arc::make_mut(&mut self.inner);
        let mut more = more.iter();
        while let Some(message) = more.next() {
            match more
                .as_slice()
                .first()
                .filter(|answer| answer.role == Role::Tool)
            {
                Some(answer) => {
                    more.next();
                    inner.push_exchange(message.clone(), answer.clone());
                }
                None => inner.push(message.clone()),
            }
        }
        Ok(())
    }

    /// Adds the messages of another run; they are shared, not copied. A call whose id exists
    /// already gets a new one, and so does its answer.
    ///
    /// ```
    /// # use levity_core::{History, Message};
    /// let mut history = History::new();
    /// history.push(Message::user("Hello"))?;
    /// history.append([Message::user("Are you there?").into()])?;
    /// assert_eq!(history.len(), 2);
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error and adds nothing if the messages are not a valid history alone.
    pub fn append(
        &mut self,
        messages: impl IntoIterator<Item = Arc<Message>>,
    ) -> Result<(), HistoryError> {
        let mut longer = self.clone();
        longer.take_in(messages, false)?;
        *self = longer;
        Ok(())
    }

    /// Returns the last text of the model, if any.
    ///
    /// ```
    /// # use levity_core::{History, Message};
    /// let mut history = History::new();
    /// assert_eq!(history.last_text(), None);
    /// history.push(Message::assistant("The answer is 7."))?;
    /// history.push(Message::user("Thank you"))?;
    /// assert_eq!(history.last_text().as_deref(), Some("The answer is 7."));
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    pub fn last_text(&self) -> Option<String> {
        let replies = self
            .messages()
            .iter()
            .rev()
            .filter(|message| message.role == Role::Assistant);
        replies
            .map(|reply| reply.text())
            .find(|text| !text.trim().is_empty())
            .map(Into::into)
    }

    /// Returns the result of the call with this id, in constant time.
    pub fn result(&self, call: &CallId) -> Option<&ToolResult> {
        let place = self.inner.ids.get(call)?;
        match self.messages().get(place.message)?.parts.get(place.part)? {
            Part::ToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// Returns each call with its result, oldest first.
    ///
    /// ```
    /// # use levity_core::{
    /// #     History, HistoryError, Message, Part, Role, ToolCall, ToolError, ToolOutput,
    /// #     ToolResult,
    /// # };
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
    /// let mut history = History::new();
    /// let mut exchange = history.open(reply.into())?;
    /// exchange.answer(ToolResult::new(&call, Ok(ToolOutput::text("7"))))?;
    /// history.close(exchange, &ToolError::failed("no answer"));
    /// let (asked, answer) = history.calls().next().unwrap();
    /// assert_eq!((&*asked.name, &*answer.text()), ("add", "7"));
    /// # Ok::<(), HistoryError>(())
    /// ```
    pub fn calls(&self) -> impl Iterator<Item = (&ToolCall, &ToolResult)> {
        self.messages()
            .windows(2)
            .flat_map(|pair| pair[0].calls().zip(pair[1].results()))
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.messages()).finish()
    }
}

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.messages() == other.messages()
    }
}

/// The number of calls up to which a linear search is used.
const LINEAR_SEARCH_LIMIT: usize = 16;

/// A reply whose calls are being answered.
///
/// Finding a call and answering it take constant time for any number of calls.
///
/// ```
/// use levity_core::{History, Message, Part, Role, ToolCall, ToolOutput, ToolResult};
/// use serde_json::json;
///
/// let calls = ["c1", "c2"].map(|id| ToolCall::new(id, "add", json!({"a": 2, "b": 5})));
/// let reply = Message::new(Role::Assistant, calls.clone().map(Part::ToolCall));
/// let mut exchange = History::new().open(reply.into())?;
/// exchange.answer(ToolResult::new(&calls[1], Ok(ToolOutput::text("7"))))?;
/// assert_eq!(exchange.unanswered().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["c1"]);
/// assert!(!exchange.is_complete());
/// # Ok::<(), levity_core::HistoryError>(())
/// ```
#[derive(Clone, Serialize)]
pub struct Exchange {
    reply: Arc<Message>,
    results: Vec<Option<ToolResult>>,
    /// The number of calls without an answer.
    #[serde(skip)]
    open: usize,
    /// The bytes of full results that the answers retain, and the first answer that may retain any.
    #[serde(skip)]
    retained: usize,
    #[serde(skip)]
    retained_from: usize,
    /// The index of each call among the calls and among the parts of the reply; empty for few
    /// calls.
    #[serde(skip)]
    places: HashMap<CallId, (usize, usize)>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("reply", &self.reply)
            .field("results", &self.results)
            .finish()
    }
}

impl PartialEq for Exchange {
    fn eq(&self, other: &Self) -> bool {
        (&self.reply, &self.results) == (&other.reply, &other.results)
    }
}

impl Exchange {
    /// Returns the reply that began the exchange.
    pub fn reply(&self) -> &Arc<Message> {
        &self.reply
    }

    /// Returns the calls without an answer, in order.
    pub fn unanswered(&self) -> impl Iterator<Item = &ToolCall> {
        self.reply
            .calls()
            .zip(&self.results)
            .filter(|(_, result)| result.is_none())
            .map(|(call, _)| call)
    }

    /// Returns the call with this id.
    pub fn call(&self, id: &CallId) -> Option<&ToolCall> {
        let (_, part) = self.find(id)?;
        match self.reply.parts.get(part)? {
            Part::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// Builds the index of the calls if they are many.
    fn index(&mut self) {
        if self.results.len() > LINEAR_SEARCH_LIMIT {
            let places = places(&self.reply).map(|(at, part, call)| (call.id.clone(), (at, part)));
            self.places = places.collect();
        }
    }

    /// Returns the index of a call among the calls and among the parts of the reply.
    fn find(&self, id: &CallId) -> Option<(usize, usize)> {
        if self.results.len() > LINEAR_SEARCH_LIMIT {
            #[cfg(test)]
            inspected::add(1);
            return self.places.get(id).copied();
        }
        let places = places(&self.reply);
        #[cfg(test)]
        let places = places.inspect(|_| inspected::add(1));
        let mut places = places;
        places
            .find(|(_, _, call)| call.id == *id)
            .map(|(at, part, _)| (at, part))
    }

    /// Returns the answer to the call with this id, if it has one.
    pub fn result(&self, id: &CallId) -> Option<&ToolResult> {
        self.results.get(self.find(id)?.0)?.as_ref()
    }

    /// Returns the current answers, in the order of the calls.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.results.iter().flatten()
    }

    /// Returns the retained bytes of answers that were too long to show.
    pub fn kept(&self) -> usize {
        self.retained
    }

    /// Limits the retained bytes of answers that were too long to show; those of the first calls
    /// are dropped first.
    pub fn keep_wholes(&mut self, limit: usize) {
        while self.retained > limit
            && let Some(result) = self.results.get_mut(self.retained_from)
        {
            #[cfg(test)]
            inspected::add(1);
            self.retained_from += 1;
            if let Some(result) = result {
                self.retained = self.retained.saturating_sub(result.retained_bytes());
                result.drop_whole();
            }
        }
    }

    /// Returns `true` if every call has an answer.
    pub fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Adds the answer to a call.
    ///
    /// # Errors
    /// Returns an error if there is no such call or it already has an answer.
    pub fn answer(&mut self, result: ToolResult) -> Result<(), HistoryError> {
        let at = self.find(&result.call).map_or(usize::MAX, |(at, _)| at);
        match self.results.get_mut(at) {
            None => Err(HistoryError::UnknownCall { call: result.call }),
            Some(Some(_)) => Err(HistoryError::AnsweredTwice { call: result.call }),
            Some(slot) => {
                self.open -= 1;
                if result.retained_bytes() > 0 {
                    self.retained = self.retained.saturating_add(result.retained_bytes());
                    self.retained_from = self.retained_from.min(at);
                }
                *slot = Some(result);
                Ok(())
            }
        }
    }

    /// Answers the calls with the results of a message, which use the ids of the reply as it was
    /// `given`. If several calls share an id, a result answers the first one without an answer.
    fn answer_all(
        &mut self,
        given: &Message,
        at: usize,
        answer: &Message,
    ) -> Result<(), HistoryError> {
        let mut named: HashMap<&CallId, VecDeque<&CallId>> = HashMap::new();
        let renamed = self.reply.clone();
        for (call, own) in given.calls().zip(renamed.calls()) {
            named.entry(&call.id).or_default().push_back(&own.id);
        }
        for part in &answer.parts {
            let Part::ToolResult(result) = part else {
                return Err(HistoryError::OrphanResult { at });
            };
            let mut result = result.clone();
            if let Some(own) = named.get_mut(&result.call).and_then(VecDeque::pop_front) {
                result.call = own.clone();
            }
            self.answer(result)?;
        }
        Ok(())
    }

    /// Renames calls, and their answers, whose id is empty, in use or duplicated in this reply.
    fn make_unique(&mut self, existing: &HashMap<CallId, ResultPosition>) {
        let mut seen = HashSet::new();
        let alone = self.reply.calls().nth(1).is_none();
        let mut is_new = |id| alone || seen.insert(id);
        let clash = self.reply.calls().any(|call| {
            call.id.as_str().is_empty() || existing.contains_key(&call.id) || !is_new(&call.id)
        });
        if !clash {
            return;
        }
        let mut used = HashSet::new();
        let calls = Arc::make_mut(&mut self.reply)
            .parts
            .iter_mut()
            .filter_map(|part| match part {
                Part::ToolCall(call) => Some(call),
                _ => None,
            });
        for (call, result) in calls.zip(&mut self.results) {
            call.id = unused(&call.id, existing.len() + used.len(), |id| {
                existing.contains_key(id) || used.contains(id)
            });
            used.insert(call.id.clone());
            if let Some(result) = result {
                result.call = call.id.clone();
            }
        }
    }
}

/// Returns the calls of a reply with their indices among the calls and among the parts.
fn places(reply: &Message) -> impl Iterator<Item = (usize, usize, &ToolCall)> {
    let calls = reply
        .parts
        .iter()
        .enumerate()
        .filter_map(|(part, content)| match content {
            Part::ToolCall(call) => Some((part, call)),
            _ => None,
        });
    calls.enumerate().map(|(at, (part, call))| (at, part, call))
}

/// Returns the id itself, or the first of `id-2`, `id-3`, … that is unused. After a few attempts it
/// continues from the number of `known` ids. So a server that repeats one id does not make each
/// call slower.
fn unused(id: &CallId, known: usize, is_used: impl Fn(&CallId) -> bool) -> CallId {
    let base = if id.as_str().is_empty() {
        CallId::from("call")
    } else {
        id.clone()
    };
    let numbered = (2..5)
        .chain(known as u64 + 2..)
        .map(|n| CallId::from(format!("{base}-{n}")));
    std::iter::once(base.clone())
        .chain(numbered)
        .find(|id| !is_used(id))
        .unwrap_or(base)
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.messages().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Vec::<Message>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Exchange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            reply: Arc<Message>,
            results: Vec<Option<ToolResult>>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let mut exchange = History::new().open(raw.reply).map_err(de::Error::custom)?;
        for result in raw.results.into_iter().flatten() {
            exchange.answer(result).map_err(de::Error::custom)?;
        }
        Ok(exchange)
    }
}

/// Validates a list of messages from outside.
impl TryFrom<Vec<Message>> for History {
    type Error = HistoryError;

    fn try_from(messages: Vec<Message>) -> Result<Self, HistoryError> {
        Self::try_from(messages.into_iter().map(Arc::new).collect::<Vec<_>>())
    }
}

/// Validates a list of messages from outside; they are shared, not copied.
impl TryFrom<Vec<Arc<Message>>> for History {
    type Error = HistoryError;

    fn try_from(messages: Vec<Arc<Message>>) -> Result<Self, HistoryError> {
        Self::of(messages, true)
    }
}

impl History {
    /// Validates like `try_from`, for the messages of several runs: a call whose id occurred before
    /// gets a new one, and so does its answer. Each run knows only the ids in its own context, and
    /// some servers number the calls of each reply from the start.
    ///
    /// # Errors
    /// Returns an error if the messages are not a valid history for another reason.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_core::{History, Message, Part, Role, ToolCall, ToolOutput, ToolResult};
    /// use serde_json::json;
    ///
    /// let call = ToolCall::new("call_0", "add", json!({}));
    /// let result = ToolResult::new(&call, Ok(ToolOutput::text("7")));
    /// let one_run = [
    ///     Arc::new(Message::new(Role::Assistant, [Part::ToolCall(call)])),
    ///     Arc::new(Message::new(Role::Tool, [Part::ToolResult(result)])),
    /// ];
    /// let two_runs = [one_run.clone(), one_run].concat();
    /// assert!(History::try_from(two_runs.clone()).is_err());
    /// let history = History::renamed(two_runs)?;
    /// let ids: Vec<_> = history.calls().map(|(call, _)| call.id.as_str()).collect();
    /// assert_eq!(ids, ["call_0", "call_0-2"]);
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    pub fn renamed(messages: Vec<Arc<Message>>) -> Result<Self, HistoryError> {
        Self::of(messages, false)
    }

    fn of(messages: Vec<Arc<Message>>, strict: bool) -> Result<Self, HistoryError> {
        let mut history = Self::new();
        history.take_in(messages, strict)?;
        Ok(history)
    }

    fn take_in(
        &mut self,
        messages: impl IntoIterator<Item = Arc<Message>>,
        strict: bool,
    ) -> Result<(), HistoryError> {
        let mut messages = messages.into_iter().peekable();
        while let Some(message) = messages.next() {
            if message.calls().next().is_none() {
                self.push(message)?;
                continue;
            }
            let at = self.len();
            if let Some(answer) = messages.next_if(|next| self.follows(&message, next)) {
                Arc::make_mut(&mut self.inner).push_exchange(message, answer);
                continue;
            }
            let mut exchange = self.open(message.clone())?;
            // `open` renames a call only if its id is empty or used twice.
            let renamed = message
                .calls()
                .zip(exchange.reply.calls())
                .find(|(call, renamed)| call.id != renamed.id);
            if let Some((call, _)) = renamed.filter(|_| strict) {
                return Err(HistoryError::DuplicateId {
                    at,
                    call: call.id.clone(),
                });
            }
            let answer = messages.next_if(|next| next.role == Role::Tool);
            if let Some(answer) = answer {
                exchange.answer_all(&message, at + 1, &answer)?;
            }
            if !exchange.is_complete() {
                return Err(HistoryError::Unanswered { at });
            }
            self.close(
                exchange,
                &ToolError::failed("unreachable: every call is answered"),
            );
        }
        Ok(())
    }
}

/// The reason why messages are not a valid history.
///
/// ```
/// use levity_core::{History, HistoryError, Message, Part, Role, ToolCall};
/// use serde_json::json;
///
/// let call = Part::ToolCall(ToolCall::new("c1", "add", json!({})));
/// let messages = vec![Message::user("Add"), Message::new(Role::Assistant, [call])];
/// assert_eq!(History::try_from(messages), Err(HistoryError::Unanswered { at: 1 }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A call has no result.
    #[error("message {at} calls a tool and no result follows")]
    Unanswered {
        /// The index of the message.
        at: usize,
    },
    /// A result answers no call of the message before it.
    #[error("message {at} contains a tool result or has the role of a tool, but answers no call")]
    OrphanResult {
        /// The index of the message.
        at: usize,
    },
    /// Only a reply of the model that calls tools can begin an exchange.
    #[error("message {at} calls no tool")]
    NoCalls {
        /// The index that the message would have.
        at: usize,
    },
    /// Two calls have the same id.
    #[error("message {at}: call id `{call}` is empty or used twice")]
    DuplicateId {
        /// The index of the message.
        at: usize,
        /// The id of the call.
        call: CallId,
    },
    /// The exchange has no such call.
    #[error("no open call has the id `{call}`")]
    UnknownCall {
        /// The id of the call.
        call: CallId,
    },
    /// The call already has an answer.
    #[error("call `{call}` already has an answer")]
    AnsweredTwice {
        /// The id of the call.
        call: CallId,
    },
}

/// Counts the inspected calls and answers, so that a test can measure the cost of a reply with many
/// calls.
#[cfg(test)]
mod inspected {
    use std::cell::Cell;

    thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

    pub(super) fn add(more: usize) {
        COUNT.set(COUNT.get() + more);
    }

    /// Returns the count since the last call.
    pub(super) fn take() -> usize {
        COUNT.replace(0)
    }
}

#[cfg(test)]
mod tests;
