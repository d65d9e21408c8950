//! The layer [`AdaptTools`]: finds out how a server handles tools, from its own replies.
//!
//! The modes form a short chain: native or guided, then structured, then text. Each change goes one
//! way, so a request is sent at most three times. The detected mode lives in [`Shared`], behind a
//! lock that is never held across an await. Two concurrent first requests may both detect the same
//! mode, which is harmless.
//!
//! The end of a reply, its finish and its usage, is held back until the layer knows that it keeps
//! the reply. Content is forwarded at once; a change after content emits a restart.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    CostBound, Delta, Deltas, Model, ModelCard, ModelError, ProviderState, Request, Response,
    ToolCall, ToolChoice, Usage,
};
use serde::{Deserialize, Serialize};

use super::flow::{self, DeltaSender};
use super::tally::Tally;
use super::text_tools::TextTools;

mod evidence;

pub(crate) use evidence::{refuses_schema, refuses_tools};

use evidence::cannot_parse_call;

/// The way a request presents its tools to a model.
///
/// The name of a mode in JSON and in `Display` is the same:
///
/// ```
/// use levity_llm::layers::ToolMode;
///
/// assert_eq!(ToolMode::default(), ToolMode::Native);
/// assert_eq!(ToolMode::Structured.to_string(), "structured");
/// assert_eq!(serde_json::to_string(&ToolMode::Structured)?, "\"structured\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolMode {
    /// Tools go into the provider's own field for tools. Calls that the model writes as text are
    /// parsed as well, if the provider's model supports that.
    #[default]
    Native,
    /// Like [`Native`](Self::Native), plus a sentence in the system prompt that explains when to
    /// call a tool. It suits models that write calls as text, because small models call a tool for
    /// every question.
    Guided,
    /// The system prompt describes the tools, and a JSON Schema restricts each reply to a call or
    /// an answer.
    Structured,
    /// The system prompt describes the tools, and calls are parsed from the text.
    Text,
}

impl fmt::Display for ToolMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Guided => "guided",
            Self::Structured => "structured",
            Self::Text => "text",
        })
    }
}

/// Detects from the first replies how to send tools to a model, and keeps that mode.
///
/// Servers differ: some reject tools, some accept tools but never show them to the model, and some
/// reject a JSON Schema. The layer sends the first request with tools unchanged. It changes the
/// [`ToolMode`] and sends the request again if:
///
/// - the server rejects the tools,
/// - the reply has no call and the server counted fewer tokens than the tools need, because its
///   chat template drops them,
/// - the server cannot parse a call that the model wrote,
/// - the server rejects the JSON Schema of the [structured](ToolMode::Structured) mode.
///
/// A reply that violates the JSON Schema also ends the structured mode. A call that the model wrote
/// as text starts the [guided](ToolMode::Guided) mode. The layer reports each change as a
/// [`Delta::Notice`]. It sends no probe requests, so a server that needs no adaptation sees no
/// difference.
///
/// ```
/// use levity_core::{Model, ModelError, ModelErrorKind, Request, ToolSpec};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::ToolMode;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let refusal = ModelError::new(ModelErrorKind::BadRequest, "gemma:2b does not support tools");
/// let server = ScriptedModel::new()
///     .fail_with(refusal)
///     .reply(r#"{"name": "now", "arguments": {}}"#);
/// let model = server.adapt_tools();
/// let reply = model
///     .complete(Request::new().with_tools([ToolSpec::new("now", "Tells the time.").into()]))
///     .await?;
/// assert_eq!(reply.message.calls().count(), 1);
/// assert_eq!(model.mode(), Some(ToolMode::Structured));
/// # Ok(())
/// # }
/// ```
pub struct AdaptTools<M> {
    shared: Arc<Shared<M>>,
    card: ModelCard,
}

/// The model in its three forms and the detected mode, shared with the streams of the layer.
struct Shared<M> {
    native: Arc<M>,
    structured: TextTools<Arc<M>>,
    text: TextTools<Arc<M>>,
    /// Set by a reply that violates its schema.
    schema_violated: Arc<AtomicBool>,
    /// The mode that a reply has confirmed; `None` before that.
    learned: Mutex<Option<ToolMode>>,
    /// True if the layer trusts the server's token counts.
    trust_counts: bool,
    /// A function that stores a newly detected mode.
    callback: Option<Box<ModeCallback>>,
}

type ModeCallback = dyn Fn(ToolMode) + Send + Sync;

impl<M: Model + 'static> AdaptTools<M> {
    /// Wraps the given model.
    ///
    /// The card of the layer states support for tools, because every mode provides it.
    pub fn new(model: M) -> Self {
        let mut card = model.card().clone();
        card.capabilities.tools = true;
        let native = Arc::new(model);
        let schema_violated = Arc::new(AtomicBool::new(false));
        let structured = TextTools::new(native.clone())
            .structured()
            .with_violation_flag(schema_violated.clone());
        let text = TextTools::new(native.clone());
        let shared = Shared {
            native,
            structured,
            text,
            schema_violated,
            learned: Mutex::new(None),
            trust_counts: true,
            callback: None,
        };
        Self {
            shared: Arc::new(shared),
            card,
        }
    }

    /// Starts with a mode that was detected earlier; see [`mode`](Self::mode).
    ///
    /// The layer still leaves a mode that fails: a server may have been updated since.
    ///
    /// ```
    /// use levity_core::{Model, Request, ToolSpec};
    /// use levity_llm::ModelExt;
    /// use levity_llm::layers::ToolMode;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let inner = ScriptedModel::new().reply(r#"<tool_call>{"name": "now"}</tool_call>"#);
    /// let model = inner.clone().adapt_tools().with_mode(ToolMode::Text);
    /// let tools = [ToolSpec::new("now", "Tells the time.").into()];
    /// let reply = model.complete(Request::new().with_tools(tools)).await?;
    /// assert_eq!(reply.message.calls().count(), 1);
    /// assert!(inner.requests()[0].tools.is_empty()); // the prompt describes them instead
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_mode(self, mode: ToolMode) -> Self {
        *self
            .shared
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(mode);
        self
    }

    /// Calls `callback` with each newly detected mode, so that you can store it for the next
    /// program run. The setting has no effect once the model is in use.
    ///
    /// The callback runs during a call, so it must not block for long. It is not called again while
    /// the mode stays the same.
    ///
    /// ```
    /// use levity_core::{Model, Request, ToolSpec};
    /// use levity_llm::ModelExt;
    /// use levity_llm::layers::ToolMode;
    /// use levity_test::ScriptedModel;
    /// use std::sync::{Arc, Mutex};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let detected = Arc::new(Mutex::new(Vec::new()));
    /// let sink = detected.clone();
    /// let model = ScriptedModel::new().call("now", serde_json::json!({})).adapt_tools();
    /// let model = model.on_mode_detected(move |mode| sink.lock().unwrap().push(mode));
    /// let tools = [ToolSpec::new("now", "Tells the time.").into()];
    /// model.complete(Request::new().with_tools(tools)).await?;
    /// assert_eq!(*detected.lock().unwrap(), [ToolMode::Native]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_mode_detected(mut self, callback: impl Fn(ToolMode) + Send + Sync + 'static) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.callback = Some(Box::new(callback));
        }
        self
    }

    /// Ignores the server's token counts, for servers that do not count cached tokens. The setting
    /// has no effect once the model is in use.
    ///
    /// Dropped tools then remain undetected; a rejection of tools is still detected.
    #[must_use]
    pub fn ignore_token_counts(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.trust_counts = false;
        }
        self
    }

    /// Returns the detected mode, or `None` before the first reply to a request with tools.
    ///
    /// A request without tools reveals nothing and leaves it unchanged.
    pub fn mode(&self) -> Option<ToolMode> {
        self.shared.learned()
    }
}

/// A switch to another mode, with its reason.
struct Change {
    to: ToolMode,
    reason: String,
    /// True if only this request is sent in the other mode. One call that the server cannot parse
    /// says little about the next one.
    once: bool,
}

impl<M: Model + 'static> Shared<M> {
    fn learned(&self) -> Option<ToolMode> {
        *self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the mode and reports it if it is new. The lock is released before the callback runs.
    fn learn(&self, mode: ToolMode) {
        let before = self
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(mode);
        if let Some(callback) = self.callback.as_ref().filter(|_| before != Some(mode)) {
            callback(mode);
        }
    }

    /// Returns the form of the model for a mode. The guided mode differs from the native one only
    /// in the system prompt, which [`in_mode`] adds.
    fn model(&self, mode: ToolMode) -> &dyn Model {
        match mode {
            ToolMode::Native | ToolMode::Guided => &self.native,
            ToolMode::Structured => &self.structured,
            ToolMode::Text => &self.text,
        }
    }

    /// Returns the mode for models that do not see tools.
    fn without_tools(&self) -> ToolMode {
        if self.native.card().capabilities.output_schema {
            ToolMode::Structured
        } else {
            ToolMode::Text
        }
    }

    /// Returns the mode to switch to after an error, if the mode caused the error.
    fn after_error(&self, mode: ToolMode, error: &ModelError) -> Option<Change> {
        let reason = evidence::first_line(error);
        match mode {
            ToolMode::Native | ToolMode::Guided if refuses_tools(error) => Some(Change {
                to: self.without_tools(),
                reason: format!("the server does not accept tools ({reason})"),
                once: false,
            }),
            ToolMode::Native | ToolMode::Guided if cannot_parse_call(error) => Some(Change {
                to: self.without_tools(),
                reason: format!("the server cannot parse the model's call ({reason})"),
                once: true,
            }),
            ToolMode::Structured if refuses_schema(error) => Some(Change {
                to: ToolMode::Text,
                reason: format!("the server does not accept a JSON Schema ({reason})"),
                once: false,
            }),
            _ => None,
        }
    }

    /// Returns the mode to switch to after a complete reply, if the model did not see the tools.
    ///
    /// Only the first reply to a request with tools decides, and only if it contains no call. A
    /// call proves that the model saw the tools.
    fn after_reply(
        &self,
        mode: ToolMode,
        request: &Request,
        called: bool,
        usage: &Usage,
    ) -> Option<Change> {
        let unknown =
            self.trust_counts && mode == ToolMode::Native && self.learned().is_none() && !called;
        let counted = usage.input.filter(|_| unknown && !usage.estimated)?;
        evidence::drops_tools(request, counted).then(|| Change {
            to: self.without_tools(),
            reason: format!(
                "the server does not show the tools to the model (it counted {counted} tokens)"
            ),
            once: false,
        })
    }

    /// Stores the mode for the next requests and returns a notice if it differs from `mode`.
    ///
    /// Stores nothing if the mode was changed for this request only.
    fn confirm_mode(&self, mode: ToolMode, wrote_call: bool, once: bool) -> Option<String> {
        let schema_violated =
            mode == ToolMode::Structured && self.schema_violated.swap(false, Ordering::Relaxed);
        if once {
            return None;
        }
        let (next, reason) = match mode {
            ToolMode::Structured if schema_violated => (
                ToolMode::Text,
                Some("the reply does not match its JSON Schema"),
            ),
            ToolMode::Native if wrote_call => {
                (ToolMode::Guided, Some("the model writes calls as text"))
            }
            mode => (mode, None),
        };
        self.learn(next);
        reason.map(|reason| notice_text(reason, next, false))
    }

    /// Sends a request and forwards the reply except for its end. The result contains the mode
    /// change that the reply calls for, if any.
    ///
    /// An error after content or usage ends the call, because the provider may have charged for it.
    /// Other errors may call for a change of the mode. A server without a price gets the request
    /// again even after content, if it cannot parse the model's call.
    async fn attempt(
        &self,
        mode: ToolMode,
        request: &Request,
        out: &DeltaSender,
        tally: &mut Tally,
    ) -> Result<Attempt, ModelError> {
        let mut attempt = Attempt::default();
        let mut deltas = match self.model(mode).stream(in_mode(mode, request)).await {
            Ok(deltas) => deltas,
            Err(error) => return attempt.failed(self.after_error(mode, &error), error),
        };
        while let Some(delta) = deltas.next().await {
            let delta = match delta {
                Ok(delta) => delta,
                Err(error) if attempt.shown || tally.now().input.is_some() => {
                    let error = tally.fail(error.with_charge());
                    let again = cannot_parse_call(&error) && self.native.card().price.is_none();
                    let change = self.after_error(mode, &error).filter(|_| again);
                    return attempt.failed(change, error);
                }
                Err(error) => return attempt.failed(self.after_error(mode, &error), error),
            };
            attempt.shown |= delta.is_content();
            attempt.called |= matches!(
                delta,
                Delta::CallStart { .. } | Delta::Part(levity_core::Part::ToolCall(_))
            );
            attempt.wrote_call |= matches!(
                &delta,
                Delta::Opaque(opaque) if &*opaque.provider == ProviderState::TEXT_CALL
            );
            match tally.observe(delta) {
                Some(Delta::Finish(finish)) => attempt.finish = Some(Delta::Finish(finish)),
                Some(delta) => out.send(delta).await,
                None => {}
            }
        }
        attempt.change = self.after_reply(mode, request, attempt.called, tally.now());
        Ok(attempt)
    }
}

/// The observations of one attempt that decide on the next step.
#[derive(Default)]
struct Attempt {
    /// True once a consumer has received part of the reply.
    shown: bool,
    called: bool,
    /// True if a call was parsed from text.
    wrote_call: bool,
    finish: Option<Delta>,
    change: Option<Change>,
}

impl Attempt {
    /// Turns an error that a change of the mode can fix into an attempt with that change.
    fn failed(mut self, change: Option<Change>, error: ModelError) -> Result<Self, ModelError> {
        self.change = change;
        if self.change.is_some() {
            Ok(self)
        } else {
            Err(error)
        }
    }
}

/// Returns the text of a notice, such as `the server does not accept tools (..): from now on, ..`.
fn notice_text(reason: &str, to: ToolMode, once: bool) -> String {
    let effect = match to {
        ToolMode::Native => "tools go to the server",
        ToolMode::Guided => "the prompt explains when to call a tool",
        ToolMode::Structured => {
            "the prompt describes the tools and a JSON Schema restricts the replies"
        }
        ToolMode::Text => "the prompt describes the tools and calls are parsed from the text",
    };
    let time = if once {
        "for this reply"
    } else {
        "from now on"
    };
    format!("{reason}: {time}, {effect}")
}

/// The sentence that the guided mode adds. Of four candidates measured with a small model, it
/// performed best overall.
const GUIDE: &str = "Choose the function that fits the question best and call it. If no function \
    fits, answer the question yourself.";

/// Returns the request as it is sent in the given mode.
///
/// A forced or forbidden call needs no explanation, so the guide is added for the automatic choice
/// only.
fn in_mode(mode: ToolMode, request: &Request) -> Request {
    let request = request.clone();
    if mode != ToolMode::Guided || request.tool_choice != ToolChoice::Auto {
        return request;
    }
    let system = request
        .system
        .as_deref()
        .map_or_else(|| GUIDE.into(), |system| format!("{system}\n\n{GUIDE}"));
    request.with_system(system)
}

/// Returns `true` if the reply may call tools.
fn offers_tools(request: &Request) -> bool {
    !request.tools.is_empty() && request.tool_choice != ToolChoice::None
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for AdaptTools<M> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        if !offers_tools(&request) {
            return self
                .shared
                .model(self.mode().unwrap_or_default())
                .stream(request)
                .await;
        }
        let shared = self.shared.clone();
        Ok(flow::deltas(move |out| async move {
            let mut mode = shared.learned().unwrap_or_default();
            let mut for_this_request = false;
            let mut tally = Tally::default();
            loop {
                let attempt = shared.attempt(mode, &request, &out, &mut tally).await?;
                let Some(Change { to, reason, once }) = attempt.change else {
                    let wrote_call = attempt.wrote_call;
                    if let Some(text) = shared.confirm_mode(mode, wrote_call, for_this_request) {
                        out.send(Delta::Notice { text }).await;
                    }
                    if let Some(finish) = attempt.finish {
                        out.send(finish).await;
                    }
                    break;
                };
                out.send(Delta::Notice {
                    text: notice_text(&reason, to, once),
                })
                .await;
                if attempt.shown {
                    out.send(Delta::Restart { reason }).await;
                }
                tally.restart(shared.native.card());
                mode = to;
                for_this_request |= once;
            }
            out.send(Delta::Usage(tally.total(shared.native.card())))
                .await;
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let shared = &self.shared;
        let mut mode = shared.learned().unwrap_or_default();
        if !offers_tools(&request) {
            return shared.model(mode).complete(request).await;
        }
        let mut for_this_request = false;
        let mut tally = Tally::default();
        loop {
            let change = match shared.model(mode).complete(in_mode(mode, &request)).await {
                Ok(response) => {
                    let called = response.message.calls().next().is_some();
                    match shared.after_reply(mode, &request, called, &response.usage) {
                        Some(change) => {
                            tally.set_usage(response.usage);
                            change
                        }
                        None => {
                            shared.confirm_mode(
                                mode,
                                response.message.calls().any(ToolCall::is_from_text),
                                for_this_request,
                            );
                            return Ok(tally.close(response, shared.native.card()));
                        }
                    }
                }
                Err(error) => shared.after_error(mode, &error).ok_or(error)?,
            };
            tally.restart(shared.native.card());
            mode = change.to;
            for_this_request |= change.once;
        }
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        if !offers_tools(request) {
            return self.shared.native.cost_bound(request);
        }
        match self.mode() {
            Some(mode) => self.shared.model(mode).cost_bound(&in_mode(mode, request)),
            // The server may drop the tools, so the request may be sent again with its tools in the
            // prompt.
            None => {
                let worst = self.shared.text.cost_bound(request);
                worst.with_sends(worst.sends.saturating_mul(2))
            }
        }
    }
}

impl<M: Model> fmt::Debug for AdaptTools<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let learned = *self
            .shared
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("AdaptTools")
            .field("model", &self.card.id)
            .field("mode", &learned)
            .finish()
    }
}
