//! The layer [`TextTools`]: tool calls for models whose provider has none.
//!
//! Three parts cooperate. [`prompt`] rewrites the request, so that tools, calls and results become
//! text. [`structured`] builds the JSON Schema of the structured form and reads its replies. The
//! [`Reader`] splits the streamed reply into thoughts, text and calls; the actual recognition of
//! calls is in [`crate::text_calls`], which the providers use as well.
//!
//! `complete` feeds the parts of a whole reply through the same reader, so both ways give the same
//! result.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use levity_core::{
    CallId, CostBound, Delta, Deltas, Finish, Fold, Model, ModelCard, ModelError, ModelErrorKind,
    Part, Request, Response,
};

use super::flow;
use crate::text_calls::TextCallParser;
use crate::thoughts::{Piece, Thoughts};

mod prompt;
mod structured;

use prompt::Form;
use structured::Reply;

/// Adds tool calls to a model that does not support them.
///
/// The system prompt describes the tools and instructs the model to write a call as
/// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`. Calls and results in the conversation
/// become text.
///
/// The layer recognises a call in any form that models are known to write, such as
/// `{"name": .., "arguments": {..}}`, `[TOOL_CALLS] [..]`, `<function=name>..</function>`,
/// `Action: name` or `TOOL_CALL: name`. The same conditions apply as for other models. The reply
/// may contain at most a short introduction besides calls of offered tools, and the user must have
/// asked for neither JSON nor code. Any other reply remains text. In later requests, the call
/// appears as the model wrote it.
///
/// A model with its own tool calls retains them with
/// [`with_native_calls`](Self::with_native_calls).
///
/// `<think>..</think>` or `[Thinking: ..]` at the start of a reply becomes thinking. The layer
/// removes results that the model invents after its calls.
///
/// With [`structured`](Self::structured), a JSON Schema restricts the reply instead: to one of the
/// tools with its arguments, or to an answer.
///
/// ```
/// use levity_core::{Model, Request, ToolSpec};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let written = r#"<tool_call>{"name": "add", "arguments": {"a": 2, "b": 5}}</tool_call>"#;
/// let model = ScriptedModel::new().reply(format!("Let me see.\n{written}")).text_tools();
/// let reply = model
///     .complete(Request::new().with_tools([ToolSpec::new("add", "Adds.").into()]))
///     .await?;
/// let call = reply
///     .message
///     .calls()
///     .next()
///     .map(|call| (call.name.as_str(), call.args["b"].as_i64()));
/// assert_eq!((reply.message.text().trim(), call), ("Let me see.", Some(("add", Some(5)))));
/// # Ok(())
/// # }
/// ```
///
/// A written call is untrusted like any other: the dispatcher validates its arguments against the
/// schema of the tool and asks the policy before it runs.
pub struct TextTools<M> {
    inner: Arc<M>,
    card: ModelCard,
    structured: bool,
    /// True if requests keep their native tools and only the replies are parsed.
    native: bool,
    /// Set by a reply that violates its schema.
    schema_violated: Option<Arc<AtomicBool>>,
}

impl<M: Model + 'static> TextTools<M> {
    /// Wraps the given model.
    ///
    /// The card of the layer states support for tools, whatever the inner card says.
    pub fn new(model: M) -> Self {
        let mut card = model.card().clone();
        card.capabilities.tools = true;
        Self {
            inner: Arc::new(model),
            card,
            structured: false,
            native: false,
            schema_violated: None,
        }
    }

    /// Restricts every reply, while tools are offered, to a schema's `anyOf`: a tool call or an
    /// answer. Use it for endpoints that accept a JSON Schema with models that otherwise call tools
    /// poorly. A model whose card lacks schema support still receives textual instructions.
    ///
    /// Such a reply has at most one call and arrives all at once.
    ///
    /// ```
    /// use levity_core::{Model, Request, ToolSpec};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let inner = ScriptedModel::new()
    ///     .reply(r#"{"reply": {"name": "add", "arguments": {"a": 2}}}"#)
    ///     .reply(r#"{"reply": {"answer": "It is 7."}}"#);
    /// let model = inner.clone().text_tools().structured();
    /// let request = Request::new().with_tools([ToolSpec::new("add", "Adds.").into()]);
    /// assert_eq!(model.complete(request.clone()).await?.message.calls().count(), 1);
    /// assert_eq!(model.complete(request).await?.message.text(), "It is 7.");
    /// assert!(inner.requests()[0].output.is_some()); // the schema that restricts the reply
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn structured(mut self) -> Self {
        self.structured = true;
        self
    }

    /// Retains the model's own tool calls. Requests are sent unchanged, and a reply without a
    /// native call is parsed as described for [`TextTools`].
    ///
    /// ```
    /// # use levity_core::{Model, Request, ToolSpec};
    /// # use levity_llm::ModelExt;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let inner =
    ///     ScriptedModel::new().reply(r#"{"call_tool": {"name": "now", "arguments": {}}}"#);
    /// let model = inner.clone().text_tools().with_native_calls();
    /// let reply = model
    ///     .complete(Request::new().with_tools([ToolSpec::new("now", "Tells the time.").into()]))
    ///     .await?;
    /// assert_eq!(reply.message.calls().count(), 1);
    /// assert_eq!(inner.requests()[0].tools.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_native_calls(mut self) -> Self {
        self.native = true;
        self
    }

    /// Sets the flag to raise if a reply violates its schema.
    ///
    /// [`AdaptTools`](super::AdaptTools) reads the flag to leave the structured mode.
    pub(super) fn with_violation_flag(mut self, schema_violated: Arc<AtomicBool>) -> Self {
        self.schema_violated = Some(schema_violated);
        self
    }

    /// Returns the structured form only if the model accepts a schema.
    fn form(&self) -> Form {
        let structured = self.structured && self.inner.card().capabilities.output_schema;
        if structured {
            Form::Structured
        } else {
            Form::Text
        }
    }

    /// Returns the request to send in place of the original.
    fn rewrite_request(&self, request: Request) -> Request {
        if self.native {
            request
        } else {
            prompt::without_native_tools(request, self.form())
        }
    }

    /// Returns a reader for the reply to a request.
    fn reader(&self, request: &Request) -> Reader {
        let call_parser = TextCallParser::new(request, None);
        let structured = call_parser.is_some() && self.form() == Form::Structured && !self.native;
        Reader {
            thoughts: Thoughts::with_notes(),
            call_parser,
            thought: false,
            whole: structured.then(String::new),
            finish: None,
            schema_violated: self.schema_violated.clone(),
        }
    }
}

/// Reads a reply as it arrives.
struct Reader {
    thoughts: Thoughts,
    /// Parses calls from the text, if tools are offered.
    call_parser: Option<TextCallParser>,
    /// True directly after a thought, which may precede a call.
    thought: bool,
    /// The text received up to now, if it is parsed only as a whole.
    whole: Option<String>,
    finish: Option<Finish>,
    schema_violated: Option<Arc<AtomicBool>>,
}

impl Reader {
    /// Processes one delta and returns the deltas to forward, often none while text is held back.
    fn take(&mut self, delta: Delta) -> Result<VecDeque<Delta>, ModelError> {
        let mut out = VecDeque::new();
        match delta {
            Delta::Text(text) => self.text(&text, &mut out)?,
            Delta::Part(Part::Text(part)) if !part.text.is_empty() => {
                self.text(&part.text, &mut out)?;
                if let Some(opaque) = part.opaque {
                    self.flush(&mut out)?;
                    self.forward(Delta::Opaque(opaque), &mut out);
                }
            }
            Delta::Finish(finish) => self.finish = Some(finish),
            Delta::Restart { .. } => {
                self.thoughts = Thoughts::with_notes();
                self.whole.iter_mut().for_each(String::clear);
                (self.thought, self.finish) = (false, None);
                self.forward(delta, &mut out);
            }
            delta => {
                if delta.is_content() {
                    self.flush(&mut out)?;
                }
                self.forward(delta, &mut out);
            }
        }
        Ok(out)
    }

    /// Splits text into thoughts and the rest, which may hold back the start of a marker.
    fn text(&mut self, text: &str, out: &mut VecDeque<Delta>) -> Result<(), ModelError> {
        let mut pieces = Vec::new();
        self.thoughts.take(text, |piece| pieces.push(piece));
        pieces
            .into_iter()
            .try_for_each(|piece| self.piece(piece, out))
    }

    /// Forwards text that might have been the start of a thought.
    fn flush(&mut self, out: &mut VecDeque<Delta>) -> Result<(), ModelError> {
        let mut pieces = Vec::new();
        self.thoughts.end(|piece| pieces.push(piece));
        pieces
            .into_iter()
            .try_for_each(|piece| self.piece(piece, out))
    }

    /// Text of the structured form is collected up to [`Fold::DEFAULT_LIMIT`] bytes.
    ///
    /// # Errors
    /// Returns [`ModelErrorKind::Malformed`] if the reply is larger.
    fn piece(&mut self, piece: Piece, out: &mut VecDeque<Delta>) -> Result<(), ModelError> {
        match (piece, &mut self.whole) {
            (Piece::Thinking(text), _) => self.forward(Delta::Thinking(text), out),
            (Piece::Text(text), None) => self.forward(Delta::Text(text), out),
            (Piece::Text(text), Some(whole)) => {
                if whole.len() + text.len() > Fold::DEFAULT_LIMIT {
                    let message = format!("the reply is larger than {} bytes", Fold::DEFAULT_LIMIT);
                    return Err(ModelError::new(ModelErrorKind::Malformed, message));
                }
                whole.push_str(&text);
            }
        }
        Ok(())
    }

    /// Forwards a delta through the call parser.
    ///
    /// Thoughts bypass the parser but interrupt it: text on both sides of a thought is not one
    /// text.
    fn forward(&mut self, delta: Delta, out: &mut VecDeque<Delta>) {
        let is_thought = match &delta {
            Delta::Thinking(_) | Delta::Part(Part::Thinking(_)) => true,
            // The delta belongs to the previous part.
            Delta::Opaque(_) => self.thought,
            _ => false,
        };
        // An empty text only starts a new part.
        let passes = is_thought || matches!(&delta, Delta::Part(Part::Text(_)));
        self.thought = is_thought || (self.thought && !delta.is_content());
        match &mut self.call_parser {
            Some(call_parser) if !passes => call_parser.take(delta, out),
            Some(call_parser) => {
                call_parser.interrupt(out);
                out.push_back(delta);
            }
            None => out.push_back(delta),
        }
    }

    /// Completes the reply. The finish comes last, because a parsed call changes it.
    fn end(&mut self) -> Result<VecDeque<Delta>, ModelError> {
        let mut out = VecDeque::new();
        self.flush(&mut out)?;
        if let Some(text) = self.whole.take() {
            self.structured(text, &mut out);
        }
        if let Some(finish) = self.finish.take() {
            self.forward(Delta::Finish(finish), &mut out);
        }
        if let Some(call_parser) = &mut self.call_parser {
            call_parser.end(&mut out);
        }
        Ok(out)
    }

    /// Parses a reply that a JSON Schema restricts.
    ///
    /// A reply that does not match is forwarded as text, which may still contain a call, and raises
    /// the violation flag.
    fn structured(&mut self, text: String, out: &mut VecDeque<Delta>) {
        let Some(reply) = structured::read(&text) else {
            // A truncated reply cannot match the schema.
            let cut = matches!(self.finish, Some(Finish::Length | Finish::ContentFilter));
            if let Some(schema_violated) = self.schema_violated.as_ref().filter(|_| !cut) {
                schema_violated.store(true, Ordering::Relaxed);
            }
            return self.forward(Delta::Text(text), out);
        };
        // The schema distinguishes calls from answers.
        self.call_parser = None;
        match reply {
            Reply::Answer(text) => out.push_back(Delta::Text(text)),
            Reply::Call { name, args } => {
                // The model's own calls have small indexes.
                let index = 1 << 16;
                out.push_back(Delta::CallStart {
                    index,
                    id: CallId::from(""),
                    name,
                });
                out.push_back(Delta::CallArgs { index, text: args });
                if self
                    .finish
                    .as_ref()
                    .is_none_or(|finish| *finish == Finish::Stop)
                {
                    self.finish = Some(Finish::ToolCalls);
                }
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
        let mut deltas = self.inner.stream(self.rewrite_request(request)).await?;
        Ok(flow::deltas(move |out| async move {
            while let Some(delta) = deltas.next().await {
                for delta in reader.take(delta?)? {
                    out.send(delta).await;
                }
            }
            for delta in reader.end()? {
                out.send(delta).await;
            }
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let mut reader = self.reader(&request);
        let response = self.inner.complete(self.rewrite_request(request)).await?;
        let mut fold = Fold::new();
        let parts = response.message.parts.iter().cloned().map(Delta::Part);
        let end = [Delta::Usage(response.usage), Delta::Finish(response.finish)];
        for delta in parts.chain(response.model.map(Delta::Model)).chain(end) {
            reader
                .take(delta)?
                .into_iter()
                .try_for_each(|delta| fold.push(delta))?;
        }
        reader
            .end()?
            .into_iter()
            .try_for_each(|delta| fold.push(delta))?;
        Ok(fold.finish())
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner
            .cost_bound(&self.rewrite_request(request.clone()))
    }
}

impl<M: Model> fmt::Debug for TextTools<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.inner.card().id;
        f.debug_struct("TextTools")
            .field("model", model)
            .finish_non_exhaustive()
    }
}
