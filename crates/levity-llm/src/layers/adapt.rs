use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    CostBound, Delta, Deltas, Model, ModelCard, ModelError, ProviderState, Request, Response,
    ToolCall, ToolChoice, Usage,
};
use serde::{Deserialize, Serialize};

use super::flow::{self, Out};
use super::tally::Tally;
use super::text_tools::TextTools;

mod evidence;

pub(crate) use evidence::{refuses_schema, refuses_tools};

/// A way in which tools reach a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolMode {
    /// Tools go into the field that the provider has for them. Calls that the model writes as text
    /// are read as well, where the provider's model does that.
    #[default]
    Native,
    /// As [`Native`](Self::Native), and a sentence of the system prompt says when to call a tool:
    /// for models that write calls as text, since small models call a tool for every question.
    Guided,
    /// The system prompt describes the tools, and a JSON Schema holds each reply to a call or an
    /// answer.
    Structured,
    /// The system prompt describes the tools, and calls are read from the text.
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

/// Finds out from the first replies how tools reach a model, and stays with that.
///
/// Servers differ: some refuse tools, some take them and never show them to the model, some take no
/// JSON Schema. The first request with tools goes out as it is. The layer changes the [`ToolMode`]
/// and sends the request again
///
/// - when the server refuses the tools,
/// - when no call came and the server counted fewer tokens than the tools have: its chat template
///   drops them,
/// - when the server refuses the JSON Schema of the [structured](ToolMode::Structured) mode.
///
/// A reply that does not keep to the JSON Schema ends the structured mode, too, and a call that the
/// model wrote as text begins the [guided](ToolMode::Guided) mode. Each change is told by a
/// [`Delta::Notice`]. The layer sends nothing that was not asked for, so a server that needs no
/// help sees no difference.
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
/// let reply = model.complete(Request::new().with_tools([ToolSpec::new("now", "Tells the time.").into()])).await?;
/// assert_eq!(reply.message.calls().count(), 1);
/// assert_eq!(model.mode(), Some(ToolMode::Structured));
/// # Ok(())
/// # }
/// ```
pub struct AdaptTools<M> {
    shared: Arc<Shared<M>>,
    card: ModelCard,
}

struct Shared<M> {
    native: Arc<M>,
    structured: TextTools<Arc<M>>,
    text: TextTools<Arc<M>>,
    /// Set by a reply that did not keep to its schema.
    broken: Arc<AtomicBool>,
    learned: Mutex<Option<ToolMode>>,
    /// True if the server's counts of tokens are believed.
    counts: bool,
    tell: Option<Box<Tell>>,
}

type Tell = dyn Fn(ToolMode) + Send + Sync;

impl<M: Model + 'static> AdaptTools<M> {
    /// Wraps a model.
    pub fn new(model: M) -> Self {
        let mut card = model.card().clone();
        card.abilities.tools = true;
        let native = Arc::new(model);
        let broken = Arc::new(AtomicBool::new(false));
        let structured = TextTools::new(native.clone())
            .structured()
            .with_broken(broken.clone());
        let text = TextTools::new(native.clone());
        let shared = Shared {
            native,
            structured,
            text,
            broken,
            learned: Mutex::new(None),
            counts: true,
            tell: None,
        };
        Self {
            shared: Arc::new(shared),
            card,
        }
    }

    /// Begins with a mode that was learned before; see [`mode`](Self::mode).
    #[must_use]
    pub fn with_mode(self, mode: ToolMode) -> Self {
        *self
            .shared
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(mode);
        self
    }

    /// Calls `tell` with each mode that is learned, so that it can be kept for the next program. It
    /// has no effect once the model is in use.
    #[must_use]
    pub fn on_learned(mut self, tell: impl Fn(ToolMode) + Send + Sync + 'static) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.tell = Some(Box::new(tell));
        }
        self
    }

    /// Does not judge by the server's counts of tokens, for servers that leave out what they have
    /// in their cache. It has no effect once the model is in use.
    #[must_use]
    pub fn ignore_counts(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.counts = false;
        }
        self
    }

    /// The mode that was learned; `None` before the first reply to a request with tools.
    pub fn mode(&self) -> Option<ToolMode> {
        self.shared.learned()
    }
}

/// The reason for another mode.
struct Change {
    to: ToolMode,
    why: String,
}

impl<M: Model + 'static> Shared<M> {
    fn learned(&self) -> Option<ToolMode> {
        *self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, mode: ToolMode) {
        let before = self
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(mode);
        if let Some(tell) = self.tell.as_ref().filter(|_| before != Some(mode)) {
            tell(mode);
        }
    }

    fn model(&self, mode: ToolMode) -> &dyn Model {
        match mode {
            ToolMode::Native | ToolMode::Guided => &self.native,
            ToolMode::Structured => &self.structured,
            ToolMode::Text => &self.text,
        }
    }

    /// The mode for models that do not see tools.
    fn without_tools(&self) -> ToolMode {
        if self.native.card().abilities.output_schema {
            ToolMode::Structured
        } else {
            ToolMode::Text
        }
    }

    /// The mode to go on with after a failure, if the failure is that of the mode.
    fn after_error(&self, mode: ToolMode, error: &ModelError) -> Option<Change> {
        let why = evidence::first_line(error);
        match mode {
            ToolMode::Native | ToolMode::Guided if refuses_tools(error) => Some(Change {
                to: self.without_tools(),
                why: format!("the server takes no tools ({why})"),
            }),
            ToolMode::Structured if refuses_schema(error) => Some(Change {
                to: ToolMode::Text,
                why: format!("the server takes no JSON Schema ({why})"),
            }),
            _ => None,
        }
    }

    /// The mode to go on with after a whole reply, if the model did not see the tools.
    fn after_reply(
        &self,
        mode: ToolMode,
        request: &Request,
        called: bool,
        usage: &Usage,
    ) -> Option<Change> {
        let unknown =
            self.counts && mode == ToolMode::Native && self.learned().is_none() && !called;
        let counted = usage.input.filter(|_| unknown && !usage.estimated)?;
        evidence::drops_tools(request, counted).then(|| Change {
            to: self.without_tools(),
            why: format!(
                "the server does not show the tools to the model (it counted {counted} tokens)"
            ),
        })
    }

    /// Keeps the mode of a reply that needed no change, or the one that fits the next requests.
    fn keep(&self, mode: ToolMode, wrote_call: bool) -> Option<String> {
        let broken = mode == ToolMode::Structured && self.broken.swap(false, Ordering::Relaxed);
        let (next, why) = match mode {
            ToolMode::Structured if broken => (
                ToolMode::Text,
                Some("the reply does not keep to its JSON Schema"),
            ),
            ToolMode::Native if wrote_call => {
                (ToolMode::Guided, Some("the model writes calls as text"))
            }
            mode => (mode, None),
        };
        self.learn(next);
        why.map(|why| told(why, next))
    }

    /// Sends a request and hands the reply on, but for its end. The change that the reply asks for,
    /// if it does.
    async fn attempt(
        &self,
        mode: ToolMode,
        request: &Request,
        out: &Out,
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
                    return Err(error.with_charge());
                }
                Err(error) => return attempt.failed(self.after_error(mode, &error), error),
            };
            attempt.shown |= delta.is_content();
            attempt.called |= matches!(
                delta,
                Delta::CallStart { .. } | Delta::Part(levity_core::Part::ToolCall(_))
            );
            attempt.wrote_call |= matches!(&delta, Delta::Opaque(opaque) if &*opaque.provider == ProviderState::TEXT_CALL);
            match tally.see(delta) {
                Some(Delta::Finish(finish)) => attempt.finish = Some(Delta::Finish(finish)),
                Some(delta) => out.send(delta).await,
                None => {}
            }
        }
        attempt.change = self.after_reply(mode, request, attempt.called, tally.now());
        Ok(attempt)
    }
}

#[derive(Default)]
struct Attempt {
    /// Someone has seen a part of the reply.
    shown: bool,
    called: bool,
    /// A call was read from text.
    wrote_call: bool,
    finish: Option<Delta>,
    change: Option<Change>,
}

impl Attempt {
    fn failed(mut self, change: Option<Change>, error: ModelError) -> Result<Self, ModelError> {
        self.change = change;
        if self.change.is_some() {
            Ok(self)
        } else {
            Err(error)
        }
    }
}

fn told(why: &str, to: ToolMode) -> String {
    let how = match to {
        ToolMode::Native => "tools go to the server from now on",
        ToolMode::Guided => "the prompt says when to call one from now on",
        ToolMode::Structured => {
            "the prompt describes the tools and a JSON Schema holds the replies from now on"
        }
        ToolMode::Text => {
            "the prompt describes the tools and calls are read from the text from now on"
        }
    };
    format!("{why}: {how}")
}

/// The sentence of the guided mode. Of four that were measured with a small model, it did best over
/// all.
const GUIDE: &str = "Choose the function that fits the question best and call it. If no function \
    fits, answer the question yourself.";

/// The request as it is sent in a mode.
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

/// Returns whether tools can be called in the reply.
fn offers(request: &Request) -> bool {
    !request.tools.is_empty() && request.tool_choice != ToolChoice::None
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for AdaptTools<M> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        if !offers(&request) {
            return self
                .shared
                .model(self.mode().unwrap_or_default())
                .stream(request)
                .await;
        }
        let shared = self.shared.clone();
        Ok(flow::deltas(move |out| async move {
            let mut mode = shared.learned().unwrap_or_default();
            let mut tally = Tally::default();
            loop {
                let attempt = shared.attempt(mode, &request, &out, &mut tally).await?;
                let Some(Change { to, why }) = attempt.change else {
                    if let Some(text) = shared.keep(mode, attempt.wrote_call) {
                        out.send(Delta::Notice { text }).await;
                    }
                    if let Some(finish) = attempt.finish {
                        out.send(finish).await;
                    }
                    break;
                };
                out.send(Delta::Notice {
                    text: told(&why, to),
                })
                .await;
                if attempt.shown {
                    out.send(Delta::Restart { reason: why }).await;
                }
                tally.again(shared.native.card());
                mode = to;
            }
            out.send(Delta::Usage(tally.total(shared.native.card())))
                .await;
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let shared = &self.shared;
        let mut mode = shared.learned().unwrap_or_default();
        if !offers(&request) {
            return shared.model(mode).complete(request).await;
        }
        let mut tally = Tally::default();
        loop {
            let change = match shared.model(mode).complete(in_mode(mode, &request)).await {
                Ok(response) => {
                    let called = response.message.calls().next().is_some();
                    match shared.after_reply(mode, &request, called, &response.usage) {
                        Some(change) => {
                            tally.used(response.usage);
                            change
                        }
                        None => {
                            shared.keep(mode, response.message.calls().any(ToolCall::is_from_text));
                            return Ok(tally.close(response, shared.native.card()));
                        }
                    }
                }
                Err(error) => shared.after_error(mode, &error).ok_or(error)?,
            };
            tally.again(shared.native.card());
            mode = change.to;
        }
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        if !offers(request) {
            return self.shared.native.cost_bound(request);
        }
        match self.mode() {
            Some(mode) => self.shared.model(mode).cost_bound(&in_mode(mode, request)),
            // The tools may be dropped, and the request sent again with its tools in the prompt.
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
