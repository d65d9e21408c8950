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
use crate::rescue::Rescue;
use crate::thoughts::{Piece, Thoughts};

mod prompt;
mod structured;

use prompt::Form;
use structured::Reply;

/// Gives tool calls to a model that has none of its own.
///
/// The system prompt describes the tools and teaches the model to write a call as
/// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`. Calls and results of the conversation
/// are put into words.
///
/// A reply becomes a call in any form that models are known to write, such as
/// `{"name": .., "arguments": {..}}`, `[TOOL_CALLS] [..]`, `<function=name>..</function>`,
/// `Action: name` or `TOOL_CALL: name`. The same conditions hold as for other models: the reply is
/// a short lead-in at most and calls of offered tools, and the user asked for neither JSON nor
/// code. Any other reply stays text. The call goes back to the model as the model wrote it.
///
/// A model that has tool calls keeps them with [`beside_native`](Self::beside_native).
///
/// `<think>..</think>` or `[Thinking: ..]` at the start of a reply becomes thinking. A result that
/// the model makes up behind its calls is left out.
///
/// With [`structured`](Self::structured), the reply is held to a JSON Schema instead: one of the
/// tools with its arguments, or an answer.
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
/// let reply = model.complete(Request::new().with_tools([ToolSpec::new("add", "Adds.").into()])).await?;
/// let call = reply.message.calls().next().map(|call| (call.name.as_str(), call.args["b"].as_i64()));
/// assert_eq!((reply.message.text().trim(), call), ("Let me see.", Some(("add", Some(5)))));
/// # Ok(())
/// # }
/// ```
pub struct TextTools<M> {
    inner: Arc<M>,
    card: ModelCard,
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
            structured: false,
            native: false,
            broken: None,
        }
    }

    /// Makes every reply, while tools are offered, one of a schema's `anyOf`: a call of a tool or
    /// an answer. For endpoints that take a JSON Schema and models that otherwise call badly. A
    /// model whose card says that it keeps to no schema is taught in words all the same.
    ///
    /// Such a reply has one call at most, and arrives as a whole.
    #[must_use]
    pub fn structured(mut self) -> Self {
        self.structured = true;
        self
    }

    /// Leaves the model its own tool calls: requests are sent as they are, and a reply without such
    /// a call is read as in [`TextTools`].
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
        if structured {
            Form::Structured
        } else {
            Form::Text
        }
    }

    /// The request that is sent in place of another.
    fn sent(&self, request: Request) -> Request {
        if self.native {
            request
        } else {
            prompt::plain(request, self.form())
        }
    }

    /// A reader of the reply to a request.
    fn reader(&self, request: &Request) -> Reader {
        let rescue = Rescue::new(request, None);
        let structured = rescue.is_some() && self.form() == Form::Structured && !self.native;
        Reader {
            thoughts: Thoughts::with_notes(),
            rescue,
            thought: false,
            whole: structured.then(String::new),
            finish: None,
            broken: self.broken.clone(),
        }
    }
}

/// Reads a reply as it arrives.
struct Reader {
    thoughts: Thoughts,
    /// Reads calls from the text, where tools are offered.
    rescue: Option<Rescue>,
    /// True right after a thought, which may stand before a call.
    thought: bool,
    /// The text so far, where it is read only as a whole.
    whole: Option<String>,
    finish: Option<Finish>,
    broken: Option<Arc<AtomicBool>>,
}

impl Reader {
    fn take(&mut self, delta: Delta) -> Result<VecDeque<Delta>, ModelError> {
        let mut out = VecDeque::new();
        match delta {
            Delta::Text(text) => self.text(&text, &mut out)?,
            Delta::Part(Part::Text(part)) if !part.text.is_empty() => {
                self.text(&part.text, &mut out)?;
                if let Some(opaque) = part.opaque {
                    self.flush(&mut out)?;
                    self.other(Delta::Opaque(opaque), &mut out);
                }
            }
            Delta::Finish(finish) => self.finish = Some(finish),
            Delta::Restart { .. } => {
                self.thoughts = Thoughts::with_notes();
                self.whole.iter_mut().for_each(String::clear);
                (self.thought, self.finish) = (false, None);
                self.other(delta, &mut out);
            }
            delta => {
                if delta.is_content() {
                    self.flush(&mut out)?;
                }
                self.other(delta, &mut out);
            }
        }
        Ok(out)
    }

    fn text(&mut self, text: &str, out: &mut VecDeque<Delta>) -> Result<(), ModelError> {
        let mut pieces = Vec::new();
        self.thoughts.take(text, |piece| pieces.push(piece));
        pieces
            .into_iter()
            .try_for_each(|piece| self.piece(piece, out))
    }

    /// Hands on text that might have been the beginning of a thought.
    fn flush(&mut self, out: &mut VecDeque<Delta>) -> Result<(), ModelError> {
        let mut pieces = Vec::new();
        self.thoughts.end(|piece| pieces.push(piece));
        pieces
            .into_iter()
            .try_for_each(|piece| self.piece(piece, out))
    }

    fn piece(&mut self, piece: Piece, out: &mut VecDeque<Delta>) -> Result<(), ModelError> {
        match (piece, &mut self.whole) {
            (Piece::Thinking(text), _) => self.other(Delta::Thinking(text), out),
            (Piece::Text(text), None) => self.other(Delta::Text(text), out),
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

    /// Hands a piece on, by way of the reader of calls.
    fn other(&mut self, delta: Delta, out: &mut VecDeque<Delta>) {
        let is_thought = match &delta {
            Delta::Thinking(_) | Delta::Part(Part::Thinking(_)) => true,
            // It belongs to the part before it.
            Delta::Opaque(_) => self.thought,
            _ => false,
        };
        // An empty text only begins a part of its own.
        let passes = is_thought || matches!(&delta, Delta::Part(Part::Text(_)));
        self.thought = is_thought || (self.thought && !delta.is_content());
        match &mut self.rescue {
            Some(rescue) if !passes => rescue.take(delta, out),
            Some(rescue) => {
                rescue.interrupt(out);
                out.push_back(delta);
            }
            None => out.push_back(delta),
        }
    }

    fn end(&mut self) -> Result<VecDeque<Delta>, ModelError> {
        let mut out = VecDeque::new();
        self.flush(&mut out)?;
        if let Some(text) = self.whole.take() {
            self.structured(text, &mut out);
        }
        if let Some(finish) = self.finish.take() {
            self.other(Delta::Finish(finish), &mut out);
        }
        if let Some(rescue) = &mut self.rescue {
            rescue.end(&mut out);
        }
        Ok(out)
    }

    /// Reads a reply that was held to a JSON Schema.
    fn structured(&mut self, text: String, out: &mut VecDeque<Delta>) {
        let Some(reply) = structured::read(&text) else {
            // A reply that was cut keeps to no schema.
            let cut = matches!(self.finish, Some(Finish::Length | Finish::ContentFilter));
            if let Some(broken) = self.broken.as_ref().filter(|_| !cut) {
                broken.store(true, Ordering::Relaxed);
            }
            return self.other(Delta::Text(text), out);
        };
        // The schema tells calls from answers.
        self.rescue = None;
        match reply {
            Reply::Answer(text) => out.push_back(Delta::Text(text)),
            Reply::Call { name, args } => {
                // Calls of the model's own have small numbers.
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
        let mut deltas = self.inner.stream(self.sent(request)).await?;
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
        let response = self.inner.complete(self.sent(request)).await?;
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
        self.inner.cost_bound(&self.sent(request.clone()))
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
