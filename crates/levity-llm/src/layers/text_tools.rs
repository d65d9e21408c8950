use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use levity_core::{
    CallId, CostBound, Delta, Deltas, Finish, Fold, Model, ModelCard, ModelError, ModelErrorKind, Part,
    Request, Response,
};

use super::flow;
use crate::rescue::Rescue;

mod calls;
mod parse;
mod prompt;
mod structured;

use calls::{Known, Piece};
use parse::Parser;
use prompt::Form;

/// How a model is taught to write a call. All of these are understood, whatever it was taught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, as many open models were trained to.
    #[default]
    Tagged,
    /// Two lines: `TOOL_CALL: name` and `ARGUMENTS: {..}`.
    Marked,
    /// `{"action": .., "args": {..}}`.
    Action,
    /// `{"call_tool": {"name": .., "arguments": {..}}}`, for agents whose answers are JSON objects too: an object is then
    /// a call only under such a key, or with the name of a tool that there is.
    CallTool,
}

impl Dialect {
    fn written(self, name: &str, args: &str) -> String {
        let args = if args.trim().is_empty() { "{}" } else { args };
        match self {
            Self::Tagged => format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {args}}}</tool_call>"),
            Self::Marked => format!("TOOL_CALL: {name}\nARGUMENTS: {args}"),
            Self::Action => format!("{{\"action\": \"{name}\", \"args\": {args}}}"),
            Self::CallTool => {
                format!("{{\"call_tool\": {{\"name\": \"{name}\", \"arguments\": {args}}}}}")
            }
        }
    }
}

/// Gives tool calls to a model that has none of its own.
///
/// The tools are described in the system prompt, calls and results of the conversation are put into words,
/// and what the model writes is read as calls while it arrives. Understood are:
///
/// - `<tool_call>{"name": .., "arguments": {..}}</tool_call>`;
/// - `TOOL_CALL: name` and `ARGUMENTS: {..}`;
/// - `Action: name`, with or without `Action Input: {..}`;
/// - objects `{"action" or "tool": name, "args" or "input": {..}}`, also fenced, in lists, or under `call_tool`
///   beside other keys.
///
/// A reply without such a call may have one in the form that the model was trained on, such as `[TOOL_CALLS] [..]` or
/// `<function=name>..</function>`. The layer reads this form under stricter conditions: the reply is a short lead-in at most and
/// calls of offered tools, and the user asked for neither JSON nor code. The call goes back to the model as the model wrote it.
///
/// A model that has tool calls keeps them with [`beside_native`](Self::beside_native).
///
/// `[Thinking: ..]` and, where a line begins, `<think>..</think>` become thinking; what stands between backticks in a
/// line stays text. Arguments that are not JSON stay a call, so that
/// the model is told; an object that is no call stays text. What a model makes up as the tool's answer is left
/// out.
///
/// With [`structured`](Self::structured), the reply is held to a JSON Schema instead: one of the tools with
/// its arguments, or an answer.
///
/// ```
/// use levity_core::{Model, Request, ToolSpec};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = ScriptedModel::new().reply("Let me see.\nTOOL_CALL: add\nARGUMENTS: {\"a\": 2, \"b\": 5}").text_tools();
/// let reply = model.complete(Request::new().with_tools([ToolSpec::new("add", "Adds.").into()])).await?;
/// let call = reply.message.calls().next().map(|call| (call.name.as_str(), call.args["b"].as_i64()));
/// assert_eq!((&*reply.message.text(), call), ("Let me see.", Some(("add", Some(5)))));
/// # Ok(())
/// # }
/// ```
pub struct TextTools<M> {
    inner: Arc<M>,
    card: ModelCard,
    dialect: Dialect,
    structured: bool,
    native: bool,
    /// Set by a reply that does not keep to its schema.
    broken: Option<Arc<AtomicBool>>,
}

impl<M: Model + 'static> TextTools<M> {
    /// Wraps a model.
    pub fn new(model: M) -> Self {
        let mut card = model.card().clone();
        card.abilities.tools = true;
        Self {
            inner: Arc::new(model),
            card,
            dialect: Dialect::default(),
            structured: false,
            native: false,
            broken: None,
        }
    }

    /// Sets how the model is taught to write a call.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Makes every reply, while tools are offered, one of a schema's `anyOf`: a call of a tool or an answer.
    /// For endpoints that take a JSON Schema and models that otherwise call badly. A model whose card says
    /// that it keeps to no schema is taught in words all the same.
    ///
    /// Such a reply has one call at most, and arrives as a whole.
    #[must_use]
    pub fn structured(mut self) -> Self {
        self.structured = true;
        self
    }

    /// Leaves the model its own tool calls: requests are sent as they are, and calls that it writes as text are understood
    /// beside them. Its answers are taken to be objects of their own, as with [`Dialect::CallTool`].
    ///
    /// ```
    /// # use levity_core::{Model, Request, ToolSpec};
    /// # use levity_llm::ModelExt;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let inner = ScriptedModel::new().reply(r#"{"call_tool": {"name": "now", "arguments": {}}}"#);
    /// let model = inner.clone().text_tools().beside_native();
    /// let reply = model.complete(Request::new().with_tools([ToolSpec::new("now", "Tells the time.").into()])).await?;
    /// assert_eq!(reply.message.calls().count(), 1);
    /// assert_eq!(inner.requests()[0].tools.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn beside_native(mut self) -> Self {
        self.native = true;
        self
    }

    /// Sets a flag whenever a reply does not keep to its schema.
    pub(super) fn with_broken(mut self, broken: Arc<AtomicBool>) -> Self {
        self.broken = Some(broken);
        self
    }

    fn form(&self) -> Form {
        let structured = self.structured && self.inner.card().abilities.output_schema;
        if structured { Form::Structured } else { Form::Text(self.dialect) }
    }

    /// The request that is sent in place of another.
    fn sent(&self, request: Request) -> Request {
        if self.native { request } else { prompt::plain(request, self.form()) }
    }

    /// A reader of the reply to a request.
    fn reader(&self, request: &Request) -> Reader {
        let offers = prompt::offers(request);
        let names = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let shaped = request.output.is_some() || self.native || self.dialect == Dialect::CallTool;
        let known = Known { names, shaped };
        let structured = offers && self.form() == Form::Structured && !self.native;
        Reader {
            parser: Parser::new(known, offers),
            // The provider of a model with tool calls decides itself whether to read others.
            rescue: if self.native { None } else { Rescue::new(request, None) },
            thought: false,
            whole: structured.then(String::new),
            calls: 0,
            finish: None,
            broken: self.broken.clone(),
        }
    }
}

/// Reads a reply as it arrives.
struct Reader {
    parser: Parser,
    /// Reads text that the parser found no call in.
    rescue: Option<Rescue>,
    /// True right after a thought, which may stand before a call.
    thought: bool,
    /// The text so far, where it is read only as a whole.
    whole: Option<String>,
    calls: u32,
    finish: Option<Finish>,
    broken: Option<Arc<AtomicBool>>,
}

impl Reader {
    fn take(&mut self, delta: Delta) -> Result<VecDeque<Delta>, ModelError> {
        let deltas = self.parsed(delta)?;
        Ok(self.rescued(deltas))
    }

    /// Reads what the parser made of the reply.
    fn rescued(&mut self, deltas: Vec<Delta>) -> VecDeque<Delta> {
        let Some(rescue) = &mut self.rescue else { return deltas.into() };
        let mut out = VecDeque::new();
        if self.parser.has_answer() {
            rescue.interrupt(&mut out);
            out.extend(deltas);
            return out;
        }
        for delta in deltas {
            let is_thought = match delta {
                Delta::Thinking(_) | Delta::Part(Part::Thinking(_)) => true,
                // It belongs to the part before it.
                Delta::Opaque(_) => self.thought,
                _ => false,
            };
            if is_thought {
                rescue.interrupt(&mut out);
                out.push_back(delta);
            } else {
                rescue.take(delta, &mut out);
            }
            self.thought = is_thought;
        }
        out
    }

    fn parsed(&mut self, delta: Delta) -> Result<Vec<Delta>, ModelError> {
        Ok(match delta {
            Delta::Text(text) => self.text(&text)?,
            // It only begins a part of its own.
            Delta::Part(Part::Text(part)) if part.text.is_empty() => {
                let mut deltas = self.flush();
                deltas.push(Delta::Part(Part::Text(part)));
                deltas
            }
            Delta::Part(Part::Text(part)) => {
                let mut deltas = self.text(&part.text)?;
                deltas.extend(self.flush());
                deltas.extend(part.opaque.map(Delta::Opaque));
                deltas
            }
            Delta::Finish(finish) => {
                self.finish = Some(finish);
                Vec::new()
            }
            Delta::Restart { .. } => {
                self.parser.restart();
                self.whole.iter_mut().for_each(String::clear);
                (self.calls, self.finish) = (0, None);
                vec![delta]
            }
            delta if delta.is_content() => {
                let mut deltas = self.flush();
                deltas.push(delta);
                deltas
            }
            delta => vec![delta],
        })
    }

    fn text(&mut self, text: &str) -> Result<Vec<Delta>, ModelError> {
        let Some(whole) = &mut self.whole else {
            let pieces = self.parser.push(text);
            return Ok(self.deltas(pieces));
        };
        if whole.len() + text.len() > Fold::DEFAULT_LIMIT {
            let message = format!("the reply is larger than {} bytes", Fold::DEFAULT_LIMIT);
            return Err(ModelError::new(ModelErrorKind::Malformed, message));
        }
        whole.push_str(text);
        Ok(Vec::new())
    }

    /// What was held back, now that something else follows.
    fn flush(&mut self) -> Vec<Delta> {
        if self.whole.is_some() {
            return Vec::new();
        }
        let pieces = self.parser.finish();
        self.deltas(pieces)
    }

    fn end(&mut self) -> VecDeque<Delta> {
        let mut deltas = match self.whole.take() {
            None => self.flush(),
            Some(text) => {
                let pieces = if let Some(piece) = structured::read(&text) {
                    // The schema tells calls from answers.
                    self.rescue = None;
                    vec![piece]
                } else {
                    // A reply that was cut keeps to no schema.
                    let cut = matches!(self.finish, Some(Finish::Length | Finish::ContentFilter));
                    if let Some(broken) = self.broken.as_ref().filter(|_| !cut) {
                        broken.store(true, Ordering::Relaxed);
                    }
                    let mut pieces = self.parser.push(&text);
                    pieces.extend(self.parser.finish());
                    pieces
                };
                self.deltas(pieces)
            }
        };
        let called = self.calls > 0;
        let finish = self.finish.take().filter(|finish| !(called && *finish == Finish::Stop));
        deltas.extend(finish.or(called.then_some(Finish::ToolCalls)).map(Delta::Finish));
        let mut out = self.rescued(deltas);
        if let Some(rescue) = &mut self.rescue {
            rescue.end(&mut out);
        }
        out
    }

    fn deltas(&mut self, pieces: Vec<Piece>) -> Vec<Delta> {
        pieces.into_iter().flat_map(|piece| self.delta(piece)).collect()
    }

    fn delta(&mut self, piece: Piece) -> Vec<Delta> {
        match piece {
            Piece::Text(text) | Piece::Answer(text) => vec![Delta::Text(text)],
            Piece::Thinking(text) => vec![Delta::Thinking(text)],
            Piece::Call { name, args } => {
                // Calls of the model's own have small numbers.
                let index = (1 << 16) + self.calls;
                self.calls += 1;
                let start = Delta::CallStart { index, id: CallId::from(""), name };
                vec![start, Delta::CallArgs { index, text: args }]
            }
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for TextTools<M> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let mut reader = self.reader(&request);
        let mut deltas = self.inner.stream(self.sent(request)).await?;
        Ok(flow::deltas(move |out| async move {
            while let Some(delta) = deltas.next().await {
                for delta in reader.take(delta?)? {
                    out.send(delta).await;
                }
            }
            for delta in reader.end() {
                out.send(delta).await;
            }
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let mut reader = self.reader(&request);
        let response = self.inner.complete(self.sent(request)).await?;
        let mut fold = Fold::new();
        let parts = response.message.parts.iter().cloned().map(Delta::Part);
        let end = [Delta::Usage(response.usage), Delta::Finish(response.finish)];
        for delta in parts.chain(response.model.map(Delta::Model)).chain(end) {
            reader.take(delta)?.into_iter().try_for_each(|delta| fold.push(delta))?;
        }
        reader.end().into_iter().try_for_each(|delta| fold.push(delta))?;
        Ok(fold.finish())
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(&self.sent(request.clone()))
    }
}

impl<M: Model> fmt::Debug for TextTools<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.inner.card().id;
        f.debug_struct("TextTools")
            .field("model", model)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
