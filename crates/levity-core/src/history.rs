use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{CallId, Message, Part, Role, ToolCall, ToolError, ToolResult};

/// A conversation in which every tool call has its one result.
///
/// An unanswered call, a result without a call and a call id that occurs twice cannot be written
/// down: a reply with calls becomes an [`Exchange`] first, and enters the history only together
/// with its results. So a history can be sent to a provider at any time, whatever was cancelled or
/// failed.
///
/// Cloning costs nothing, whatever the length; the first change after a clone that is still alive
/// copies the list of messages, not the messages.
///
/// ```
/// # use levity_core::{History, Message, Part, Role, ToolCall, ToolError, ToolOutput, ToolResult};
/// # use serde_json::json;
/// let mut history = History::new();
/// history.say(Message::user("What is 2 + 5?"))?;
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
    ids: HashMap<CallId, Place>,
    size: usize,
    tokens: u64,
    most_tokens: u64,
    /// How many bytes of wholes its results have.
    kept: usize,
    /// No message before this one keeps any.
    kept_from: usize,
    /// What a provider made of each message, so that it need not make it again.
    encoded: Vec<OnceLock<Encoded>>,
}

type Encoded = (Cow<'static, str>, Arc<[u8]>);

/// Where the result of a call stands.
#[derive(Clone, Copy)]
struct Place {
    message: usize,
    part: usize,
}

impl Inner {
    fn push(&mut self, message: Arc<Message>) {
        let (size, most_tokens) = message.measure();
        self.size = self.size.saturating_add(size);
        self.tokens = self.tokens.saturating_add(message.tokens());
        self.most_tokens = self.most_tokens.saturating_add(most_tokens);
        self.kept = self.kept.saturating_add(message.kept());
        self.messages.push(message);
        self.encoded.push(OnceLock::new());
    }

    /// Adds a reply that calls tools and the message with its results, in the order of the calls.
    fn push_exchange(&mut self, reply: Arc<Message>, answer: Arc<Message>) {
        let message = self.messages.len() + 1;
        let places = reply.calls().enumerate();
        self.ids
            .extend(places.map(|(part, call)| (call.id.clone(), Place { message, part })));
        self.push(reply);
        self.push(answer);
    }
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// The messages, oldest first.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.inner.messages
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.inner.messages.len()
    }

    /// How many bytes of text its messages have together; known without looking at them.
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// About how many tokens its messages have together; known without looking at them.
    pub fn tokens(&self) -> u64 {
        self.inner.tokens
    }

    /// The most tokens that its messages can be, as [`CostBound::of`](crate::CostBound::of) counts
    /// them; known without looking at them.
    pub fn most_tokens(&self) -> u64 {
        self.inner.most_tokens
    }

    /// How many bytes it keeps of results that were too long to be shown; known without looking at
    /// them. They are in none of the other counts. See [`ToolResult::whole`].
    pub fn kept(&self) -> usize {
        self.inner.kept
    }

    /// Keeps at most so many bytes of results that were too long to be shown. The oldest are
    /// dropped first; what was shown of them stays.
    pub fn keep_wholes(&mut self, most: usize) {
        if self.kept() <= most {
            return;
        }
        let inner = Arc::make_mut(&mut self.inner);
        while let Some(message) = inner.messages.get_mut(inner.kept_from) {
            let (own, over) = (message.kept(), inner.kept.saturating_sub(most));
            if over == 0 {
                break;
            }
            if own > 0 {
                // What providers made of the message stays right: they are not sent the wholes.
                Arc::make_mut(message).keep_wholes(own.saturating_sub(over));
                inner.kept = inner.kept.saturating_sub(own - message.kept());
            }
            if message.kept() == 0 {
                inner.kept_from += 1;
            }
        }
    }

    /// What a provider makes of a message, by its place: made once and kept for as long as the
    /// history lives. `wire` says who makes it, and in which way.
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
        // Somebody else's may be there already; then this one is not kept.
        let _ = slot.set((wire, bytes.clone()));
        bytes
    }

    /// Whether there are calls of tools in it.
    pub fn has_calls(&self) -> bool {
        self.messages()
            .iter()
            .any(|message| message.role == Role::Tool)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.messages.is_empty()
    }

    /// Adds a message that neither calls a tool nor answers a call.
    ///
    /// # Errors
    /// When it does; such a message goes through [`open`](Self::open).
    pub fn say(&mut self, message: impl Into<Arc<Message>>) -> Result<(), HistoryError> {
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

    /// Takes a reply that calls tools; it enters the history by [`close`](Self::close).
    ///
    /// Calls whose id is empty or was used before get another one, here and in the returned
    /// exchange: some servers number the calls of each reply anew.
    ///
    /// # Errors
    /// When the message is not the model's, calls no tool or holds a tool result.
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
            kept: 0,
            kept_from: 0,
            places: HashMap::new(),
        };
        exchange.make_unique(&self.inner.ids);
        exchange.index();
        Ok(exchange)
    }

    /// Adds an exchange; calls that have no answer yet are answered with `unanswered`.
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

    /// Whether `answer` has one result for each call of `reply`, in their order, and all ids are
    /// new.
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

    /// Adds the messages of another history from a place on; they are shared, not copied.
    ///
    /// # Errors
    /// When the place is between a call and its result, or a call's id is there already; nothing is
    /// added then.
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

    /// Adds what another run has said; messages are shared, not copied. A call whose id is there
    /// already gets another, and so does its answer.
    ///
    /// ```
    /// # use levity_core::{History, Message};
    /// let mut history = History::new();
    /// history.say(Message::user("Hello"))?;
    /// history.append([Message::user("Are you there?").into()])?;
    /// assert_eq!(history.len(), 2);
    /// # Ok::<(), levity_core::HistoryError>(())
    /// ```
    ///
    /// # Errors
    /// When the messages make no history by themselves; nothing is added then.
    pub fn append(
        &mut self,
        messages: impl IntoIterator<Item = Arc<Message>>,
    ) -> Result<(), HistoryError> {
        let mut longer = self.clone();
        longer.take_in(messages, false)?;
        *self = longer;
        Ok(())
    }

    /// The last thing the model said in words, if it ever did.
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

    /// The result of the call with this id; found without a search.
    pub fn result(&self, call: &CallId) -> Option<&ToolResult> {
        let place = self.inner.ids.get(call)?;
        match self.messages().get(place.message)?.parts.get(place.part)? {
            Part::ToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// Each call with its result, oldest first.
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

/// So few calls are found by a look at each of them.
const FEW: usize = 16;

/// A reply whose calls are being answered.
///
/// Finding a call and answering it cost the same however many calls the reply has.
#[derive(Clone, Serialize)]
pub struct Exchange {
    reply: Arc<Message>,
    results: Vec<Option<ToolResult>>,
    /// How many calls have no answer yet.
    #[serde(skip)]
    open: usize,
    /// How many bytes of wholes the answers have, and the first of them that may have any.
    #[serde(skip)]
    kept: usize,
    #[serde(skip)]
    kept_from: usize,
    /// Where each call stands among the calls and among the parts of the reply; empty when there
    /// are few.
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
    /// The reply.
    pub fn reply(&self) -> &Arc<Message> {
        &self.reply
    }

    /// The calls that have no answer yet, in order.
    pub fn unanswered(&self) -> impl Iterator<Item = &ToolCall> {
        self.reply
            .calls()
            .zip(&self.results)
            .filter(|(_, result)| result.is_none())
            .map(|(call, _)| call)
    }

    /// The call with this id.
    pub fn call(&self, id: &CallId) -> Option<&ToolCall> {
        let (_, part) = self.find(id)?;
        match self.reply.parts.get(part)? {
            Part::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// Notes where the calls stand, when they are many.
    fn index(&mut self) {
        if self.results.len() > FEW {
            let places = places(&self.reply).map(|(at, part, call)| (call.id.clone(), (at, part)));
            self.places = places.collect();
        }
    }

    /// Where a call stands among the calls, and among the parts of the reply.
    fn find(&self, id: &CallId) -> Option<(usize, usize)> {
        if self.results.len() > FEW {
            #[cfg(test)]
            looked::at(1);
            return self.places.get(id).copied();
        }
        let places = places(&self.reply);
        #[cfg(test)]
        let places = places.inspect(|_| looked::at(1));
        let mut places = places;
        places
            .find(|(_, _, call)| call.id == *id)
            .map(|(at, part, _)| (at, part))
    }

    /// The answer to the call with this id, if it has one.
    pub fn result(&self, id: &CallId) -> Option<&ToolResult> {
        self.results.get(self.find(id)?.0)?.as_ref()
    }

    /// The answers so far, in the order of the calls.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.results.iter().flatten()
    }

    /// How many bytes its answers keep of what was too long to be shown.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Keeps at most so many bytes of answers that were too long to be shown; those of the first
    /// calls go first.
    pub fn keep_wholes(&mut self, most: usize) {
        while self.kept > most
            && let Some(result) = self.results.get_mut(self.kept_from)
        {
            #[cfg(test)]
            looked::at(1);
            self.kept_from += 1;
            if let Some(result) = result {
                self.kept = self.kept.saturating_sub(result.kept());
                result.drop_whole();
            }
        }
    }

    /// Whether every call has its answer.
    pub fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Answers a call.
    ///
    /// # Errors
    /// When there is no such call, or it has its answer already.
    pub fn answer(&mut self, result: ToolResult) -> Result<(), HistoryError> {
        let at = self.find(&result.call).map_or(usize::MAX, |(at, _)| at);
        match self.results.get_mut(at) {
            None => Err(HistoryError::UnknownCall { call: result.call }),
            Some(Some(_)) => Err(HistoryError::AnsweredTwice { call: result.call }),
            Some(slot) => {
                self.open -= 1;
                if result.kept() > 0 {
                    self.kept = self.kept.saturating_add(result.kept());
                    self.kept_from = self.kept_from.min(at);
                }
                *slot = Some(result);
                Ok(())
            }
        }
    }

    /// Answers the calls with the results of a message, which name them as they were in the reply
    /// as it was `given`. Of calls with one id, the first that has no answer is meant.
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

    /// Renames calls, and their answers, whose id is empty, taken, or used twice in this reply.
    fn make_unique(&mut self, taken: &HashMap<CallId, Place>) {
        let mut seen = HashSet::new();
        let alone = self.reply.calls().nth(1).is_none();
        let mut is_new = |id| alone || seen.insert(id);
        let clash = self.reply.calls().any(|call| {
            call.id.as_str().is_empty() || taken.contains_key(&call.id) || !is_new(&call.id)
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
            call.id = unused(&call.id, taken.len() + used.len(), |id| {
                taken.contains_key(id) || used.contains(id)
            });
            used.insert(call.id.clone());
            if let Some(result) = result {
                result.call = call.id.clone();
            }
        }
    }
}

/// The calls of a reply, each with its place among the calls and among the parts.
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

/// The id itself, or the first of `id-2`, `id-3`, … that is not taken. Beyond a few it goes on from
/// the number of `known` ids: a server that uses one id for every call must not make each cost
/// more.
fn unused(id: &CallId, known: usize, taken: impl Fn(&CallId) -> bool) -> CallId {
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
        .find(|id| !taken(id))
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

/// Checks a list of messages from outside.
impl TryFrom<Vec<Message>> for History {
    type Error = HistoryError;

    fn try_from(messages: Vec<Message>) -> Result<Self, HistoryError> {
        Self::try_from(messages.into_iter().map(Arc::new).collect::<Vec<_>>())
    }
}

/// Checks a list of messages from outside; they are shared, not copied.
impl TryFrom<Vec<Arc<Message>>> for History {
    type Error = HistoryError;

    fn try_from(messages: Vec<Arc<Message>>) -> Result<Self, HistoryError> {
        Self::of(messages, true)
    }
}

impl History {
    /// As `try_from`, for what several runs have said: a call whose id an earlier one had gets
    /// another, and so does its answer. Each run knows only the ids of what it was shown, and some
    /// servers number the calls of each anew.
    ///
    /// # Errors
    /// When the messages make no history for another reason.
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
                self.say(message)?;
                continue;
            }
            let at = self.len();
            if let Some(answer) = messages.next_if(|next| self.follows(&message, next)) {
                Arc::make_mut(&mut self.inner).push_exchange(message, answer);
                continue;
            }
            let mut exchange = self.open(message.clone())?;
            // A call that `open` had to rename has an id that is empty or used twice.
            let renamed = message
                .calls()
                .zip(exchange.reply.calls())
                .find(|(call, taken)| call.id != taken.id);
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

/// Why messages do not make a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A call has no result.
    #[error("message {at} calls a tool and no result follows")]
    Unanswered {
        /// Index of the message.
        at: usize,
    },
    /// A result answers no call of the message before it.
    #[error("message {at} holds a tool result, or stands in a tool's place, and answers no call")]
    OrphanResult {
        /// Index of the message.
        at: usize,
    },
    /// Only a reply of the model that calls tools opens an exchange.
    #[error("message {at} calls no tool")]
    NoCalls {
        /// Index the message would have.
        at: usize,
    },
    /// Two calls have one id.
    #[error("message {at}: call id `{call}` is empty or used twice")]
    DuplicateId {
        /// Index of the message.
        at: usize,
        /// The id.
        call: CallId,
    },
    /// The exchange has no such call.
    #[error("no call `{call}` is open")]
    UnknownCall {
        /// The id.
        call: CallId,
    },
    /// The call was answered before.
    #[error("call `{call}` is answered already")]
    AnsweredTwice {
        /// The id.
        call: CallId,
    },
}

/// Counts how many calls and answers are looked at, so that a test can say what a reply with many
/// costs.
#[cfg(test)]
mod looked {
    use std::cell::Cell;

    thread_local!(static LOOKED: Cell<usize> = const { Cell::new(0) });

    pub(super) fn at(more: usize) {
        LOOKED.set(LOOKED.get() + more);
    }

    /// How many since the last time.
    pub(super) fn so_far() -> usize {
        LOOKED.replace(0)
    }
}

#[cfg(test)]
mod tests;
