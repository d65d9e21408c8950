//! The executor of an agent: it performs the effects that the machine requests.
//!
//! The machine names a slot and an offer; the executor knows the models and the tools behind them.
//! So a tool source may change while a run is in progress, and the machine stays the same. Lists of
//! tools are cached by identity, because they are needed for every request and rarely change.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, FutureExt, select};
use levity_core::{
    Approver, ArgumentProblem, Ask, Child, ChildRun, CostBound, Decision, Digest, Effect,
    EffectClass, EffectCx, EventKind, Eventual, Executor, Fold, Inspection, LiveEvents, LostCall,
    Model, ModelCall, ModelError, ModelErrorKind, Offer, Outcome, Permit, PrepareCx, Prepared,
    Price, Program, Progress, Request, Resolution, Resolver, Response, ToolCall, ToolChoice,
    ToolError, ToolErrorKind, ToolRun, ToolSpec, World, estimate_tokens,
};
use levity_memory::Conversations;
use levity_tools::{CallCx, Dispatched, Dispatcher};
use serde_json::Value;

use crate::agent::Agent;
use crate::child_task::ChildTask;
use crate::guards::{Guarded, Screen};
use crate::notes;
use crate::result_reader;
use crate::wait;

/// The purposes of models; all of them fall back to the first.
pub(crate) const SLOTS: [&str; 5] = ["main", "planner", "reflector", SUMMARISER, CHEAP];

/// The slot of the model that sums up what has left the window.
pub(crate) const SUMMARISER: &str = "summariser";

/// The slot of the model that is called once little money or few tokens remain.
pub(crate) const CHEAP: &str = "cheap";

/// The prefix of models in an agent's setup.
pub(crate) const MODEL: &str = "model ";

/// Performs an agent's effects with its models, tools, approver and delegates.
pub(crate) struct AgentExecutor {
    pub(crate) model: Arc<dyn Model>,
    /// Models for other purposes, by slot.
    pub(crate) slots: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) tools: Dispatcher,
    pub(crate) delegates: BTreeMap<String, Agent>,
    pub(crate) programs: BTreeMap<String, Arc<dyn Program>>,
    /// A reference to itself, for the runs of programs, whose calls it makes.
    pub(crate) me: Weak<Self>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) resolver: Option<Arc<dyn Resolver>>,
    /// The guards around it, which also check the calls of its programs.
    pub(crate) screen: Option<Arc<Screen>>,
    /// Fingerprints of the settings, by name.
    pub(crate) settings: Vec<(String, Digest)>,
    pub(crate) world: Arc<dyn World>,
    /// The store of the conversations.
    pub(crate) conversations: Option<Conversations>,
    pub(crate) model_timeout: Duration,
    pub(crate) offered: OfferedTools,
    pub(crate) digest: ToolsDigest,
    pub(crate) tools_bound: ToolsBound,
}

type Specs = Arc<[Arc<ToolSpec>]>;

/// A small cache of computed values, the newest last.
///
/// It holds several values: runs that read earlier results are offered one more tool, each run may
/// have found other tools, and each model counts differently.
///
/// The size is fixed and small; a miss only costs the computation.
struct RecentCache<K, V>(Mutex<Vec<(K, V)>>);

const CACHE_SIZE: usize = 16;

impl<K, V> Default for RecentCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, V: Clone> RecentCache<K, V> {
    fn find(&self, is_it: impl Fn(&K) -> bool, make: impl FnOnce() -> (K, V)) -> V {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = lock().iter().find(|(key, _)| is_it(key)) {
            return value.clone();
        }
        // Models and sources of tools are foreign code, so no lock is held while they are called.
        let (key, value) = make();
        let mut known = lock();
        if known.len() >= CACHE_SIZE {
            known.remove(0);
        }
        known.push((key, value.clone()));
        value
    }
}

/// The tools that a request lists, computed only when their inputs change.
///
/// The inputs are all tools, the tools that the conversation has found, and the existence of a
/// result to read.
#[derive(Default)]
pub(crate) struct OfferedTools(RecentCache<(Specs, Found, bool), Specs>);

type Found = Arc<[Arc<str>]>;

impl OfferedTools {
    fn of(&self, tools: &Dispatcher, found: &Found, reads: bool) -> Specs {
        let all = tools.specs();
        if tools.finder().is_none() && !reads {
            return all;
        }
        let is_it = |(specs, names, read): &(Specs, Found, bool)| {
            Arc::ptr_eq(specs, &all)
                && *read == reads
                && (Arc::ptr_eq(names, found) || names == found)
        };
        self.0.find(is_it, || {
            let offer = tools.offer(found);
            let offer = if reads {
                with_reader(&offer, tools, found)
            } else {
                offer
            };
            ((all.clone(), found.clone(), reads), offer)
        })
    }
}

/// Returns the tools with the one that reads earlier results, placed behind those that were found
/// before there was a result to read.
fn with_reader(offer: &Specs, tools: &Dispatcher, found: &Found) -> Specs {
    let reader = tools.reader();
    // A source of tools may have taken the name since; the loop still answers to it.
    let others = |specs: &Specs| -> Vec<_> {
        specs
            .iter()
            .filter(|spec| spec.name != reader)
            .cloned()
            .collect()
    };
    let mut all = others(offer);
    let place = found.iter().position(|name| **name == *reader);
    let before = place
        .and_then(|place| found.get(..place))
        .map(|found| others(&tools.offer(found)).len());
    let at = before.unwrap_or(all.len()).min(all.len());
    all.insert(at, Arc::new(result_reader::spec(reader)));
    all.into()
}

/// The fingerprint of the offered tools, computed only when they change.
#[derive(Default)]
pub(crate) struct ToolsDigest(RecentCache<Specs, Digest>);

impl ToolsDigest {
    fn of(&self, specs: &Specs) -> Digest {
        self.0.find(
            |known| Arc::ptr_eq(known, specs),
            || (specs.clone(), Digest::of(specs)),
        )
    }
}

/// The upper bound of the tokens that a model counts for the offered tools, computed only when they
/// change.
#[derive(Default)]
pub(crate) struct ToolsBound(RecentCache<(Specs, Arc<str>), u64>);

impl ToolsBound {
    fn of(&self, specs: &Specs, slot: &Arc<str>, model: &dyn Model) -> u64 {
        let count = || {
            let tokens = model
                .cost_bound(&Request::new().with_tools(specs.clone()))
                .input;
            ((specs.clone(), slot.clone()), tokens)
        };
        self.0
            .find(|(known, to)| Arc::ptr_eq(known, specs) && to == slot, count)
    }
}

impl AgentExecutor {
    fn model_for(&self, slot: &str) -> Option<&Arc<dyn Model>> {
        self.slots
            .get(slot)
            .or_else(|| SLOTS.contains(&slot).then_some(&self.model))
    }

    /// The request is completed here: with the tools that fit the reserved budget, with a schema in
    /// the prompt for models that accept none, and with the limit on the reply.
    async fn model(&self, call: ModelCall, cx: EffectCx) -> Outcome {
        let Some(model) = self.model_for(&call.slot) else {
            let message = format!("the agent has no model for the slot `{}`", call.slot);
            return Outcome::Model(Err(ModelError::new(ModelErrorKind::BadRequest, message)));
        };
        let mut request = call.request;
        if let Some(tokens) = cx.max_output {
            Arc::make_mut(&mut request.options).max_tokens = Some(tokens);
        }
        if names_tools(call.offer, &request) {
            if call.offer == Offer::None {
                request.tool_choice = ToolChoice::None;
            }
            let tools = self.specs(call.reads, &call.found);
            request.tools = self.fitting(&**model, &call.slot, &request, cx.max_input, tools);
        }
        if !model.card().capabilities.output_schema {
            request = schema_in_prompt(request);
        }
        let sent = request.clone();
        let reply = AssertUnwindSafe(reply(&**model, request, &cx)).catch_unwind();
        // The timer is created only once the model makes the run wait.
        let limit = pin!(async { self.world.sleep(self.model_timeout).await });
        Outcome::Model(match select(pin!(reply), limit).await {
            // If an unknown usage counts as the maximum, an estimate would hide that it is unknown.
            Either::Left((Ok(reply), _)) if cx.max_output.is_some() => reply,
            Either::Left((Ok(reply), _)) => {
                reply.map(|response| priced(estimated(response, &sent), &**model))
            }
            Either::Left((Err(_), _)) => Err(ModelError::new(
                ModelErrorKind::Malformed,
                "the model panicked; this is a bug in the model's code",
            )),
            Either::Right(((), _)) => {
                let message = format!("no reply within {:?}", self.model_timeout);
                Err(ModelError::new(ModelErrorKind::Timeout, message))
            }
        })
    }

    /// Returns the tools that a request lists.
    fn specs(&self, reads: bool, found: &Found) -> Specs {
        self.offered.of(&self.tools, found, reads)
    }

    /// Returns the upper bound of the tokens of a request with these tools, given the bound without
    /// them.
    fn request_bound(
        &self,
        model: &dyn Model,
        slot: &Arc<str>,
        request: &Request,
        alone: u64,
        tools: &Specs,
    ) -> u64 {
        let sum = alone.saturating_add(self.tools_bound.of(tools, slot, model));
        // Beyond the window, the sum of the parts is less precise than the whole: only the model
        // can report that its window binds it.
        match model.card().window {
            Some(window) if sum > window => sum.min(
                model
                    .cost_bound(&request.clone().with_tools(tools.clone()))
                    .input,
            ),
            _ => sum,
        }
    }

    /// Returns the offered tools that fit.
    ///
    /// There may be more of them than when room was reserved; the last ones are then left out of
    /// this call.
    fn fitting(
        &self,
        model: &dyn Model,
        slot: &Arc<str>,
        request: &Request,
        limit: Option<u64>,
        mut tools: Specs,
    ) -> Specs {
        let now = |tools: &Specs| {
            self.request_bound(model, slot, request, model.cost_bound(request).input, tools)
        };
        let Some(limit) = limit.filter(|limit| now(&tools) > *limit) else {
            return tools;
        };
        while !tools.is_empty()
            && model
                .cost_bound(&request.clone().with_tools(tools.clone()))
                .input
                > limit
        {
            tools = tools[..tools.len() - 1].into();
        }
        tools
    }

    async fn tool(&self, run: ToolRun, cx: EffectCx) -> Outcome {
        let key = cx.key();
        let progress = progress(&cx, &run);
        let call_cx = CallCx::new(cx.run, key)
            .with_progress(progress)
            .with_again(cx.again)
            .with_values(cx.values);
        match self.tools.dispatch(&run.call, run.approved, call_cx).await {
            Dispatched::Done(result) => Outcome::Tool(result),
            Dispatched::NeedsApproval { reason } => Outcome::NeedsApproval { reason },
            Dispatched::Unknown { .. } => Outcome::Unknown,
        }
    }

    /// Prepares a call of this class, to which the policy applies.
    fn prepare_call(&self, call: &ToolCall, class: EffectClass, alone: bool) -> Eventual<Prepared> {
        self.tools.permit(call).map(move |permit: Permit| {
            let prepared = Prepared::new(class).permit(permit);
            if alone { prepared.alone() } else { prepared }
        })
    }

    fn prepare_model(&self, call: &ModelCall, cx: &PrepareCx) -> Prepared {
        let mut prepared = Prepared::new(EffectClass::ReadOnly);
        if call.offer == Offer::All {
            prepared = prepared.with_input(
                "tools",
                self.digest.of(&self.specs(call.reads, &call.found)),
            );
        }
        if cx.cost {
            prepared.cost(self.cost_of(call))
        } else {
            prepared
        }
    }

    /// Returns the upper bound of the cost of a call.
    fn cost_of(&self, call: &ModelCall) -> CostBound {
        // A call without a model fails before anything is sent.
        let Some(model) = self.model_for(&call.slot) else {
            return CostBound::new(0)
                .with_output(0)
                .with_price(Price::new(0.0, 0.0));
        };
        let mut cost = model.cost_bound(&call.request);
        if names_tools(call.offer, &call.request) {
            let tools = self.specs(call.reads, &call.found);
            cost.input =
                self.request_bound(&**model, &call.slot, &call.request, cost.input, &tools);
        }
        cost
    }

    async fn ask(&self, ask: &Ask) -> Outcome {
        Outcome::Decision(match &self.approver {
            None => Decision::deny("no one can be asked for approval"),
            Some(approver) => match AssertUnwindSafe(approver.decide(ask)).catch_unwind().await {
                Ok(decision) => decision,
                Err(_) => Decision::deny("the approver panicked"),
            },
        })
    }
}

#[async_trait]
impl Executor for AgentExecutor {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        match effect {
            Effect::Model(call) => self.prepare_model(call, cx).into(),
            Effect::Tool(run) => {
                let name = &run.call.name;
                self.prepare_call(
                    &run.call,
                    self.tools.class(name),
                    self.tools.runs_alone(name),
                )
            }
            Effect::Child(child) => {
                let id = child.call.clone().unwrap_or_else(|| "".into());
                let call = ToolCall::new(id, &*child.agent, child.input.clone());
                self.prepare_call(
                    &call,
                    EffectClass::ReadOnly,
                    self.tools.runs_alone(&call.name),
                )
            }
            Effect::Wait(wait) => {
                let id = wait.call.clone().unwrap_or_else(|| "".into());
                let call = ToolCall::new(id, wait::NAME, wait::args(wait.time));
                self.prepare_call(&call, EffectClass::ReadOnly, false)
            }
            Effect::Save(_) => Prepared::new(EffectClass::Idempotent).into(),
            Effect::Ask(_) => Prepared::new(EffectClass::ReadOnly)
                .answered(self.approver.is_some())
                .into(),
            _ => Prepared::new(EffectClass::ReadOnly).into(),
        }
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        match effect {
            Effect::Model(call) => self.model(call, cx).await,
            // This future is by far the largest. It is boxed so that the others need not be as
            // large.
            Effect::Tool(run) => Box::pin(self.tool(run, cx)).await,
            Effect::Ask(ask) => self.ask(&ask).await,
            Effect::Save(save) => Box::pin(self.save(save)).await,
            _ => Outcome::Unknown,
        }
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        if let Some(program) = self.programs.get(&*child.agent) {
            let call = ToolCall::new("", &*child.agent, child.input.clone());
            let args = self.tools.arguments(&call)?;
            let caller = self
                .me
                .upgrade()
                .ok_or_else(|| ToolError::failed("the agent was dropped"))?;
            let caller: Arc<dyn Executor> = match &self.screen {
                None => caller,
                Some(screen) => Arc::new(Guarded::program(caller, screen.clone())),
            };
            return program.child(&args, saved, caller).await;
        }
        let Some(agent) = self.delegates.get(&*child.agent) else {
            let message = format!("there is no delegate agent `{}`", child.agent);
            return Err(ToolError::new(ToolErrorKind::NotFound, message));
        };
        let Some(task) = child.input.get("task").and_then(|task| task.as_str()) else {
            let message = "an agent is called with a `task`, in words";
            return Err(ToolError::new(ToolErrorKind::InvalidArgs, message));
        };
        let task = ChildTask::new(task).label(child.agent.clone());
        agent.child(task, saved).await
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        let (Some(resolver), Effect::Tool(run)) = (&self.resolver, effect) else {
            return Resolution::Unknown;
        };
        let mut lost = LostCall::new(cx.run.clone(), cx.effect, run.call.clone());
        lost.key = cx.key();
        AssertUnwindSafe(resolver.resolve(&lost))
            .catch_unwind()
            .await
            .unwrap_or(Resolution::Unknown)
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        self.tools.check_arguments(call)
    }

    fn inspect(&self) -> Inspection {
        let model = |slot: &str, model: &Arc<dyn Model>| {
            let card = model.card();
            (
                format!("{MODEL}`{slot}` ({}/{})", card.provider, card.id),
                Digest::EMPTY,
            )
        };
        let mut setup = vec![model("main", &self.model)];
        setup.extend(self.slots.iter().map(|(slot, other)| model(slot, other)));
        setup.extend(self.settings.iter().cloned());
        let tools = self.tools.registry().specs();
        setup.extend(
            tools
                .iter()
                .map(|spec| (format!("tool `{}`", spec.name), Digest::of(spec))),
        );
        // The cards are not stored, because an idle agent would hold a copy for each slot.
        let card = |slot: &str| self.slots.get(slot).unwrap_or(&self.model).card().clone();
        let cards = SLOTS.map(|slot| (slot.to_owned(), card(slot)));
        Inspection::new().with_setup(setup).with_models(cards)
    }
}

impl fmt::Debug for AgentExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentExecutor")
            .field("model", &self.model.card().id)
            .finish_non_exhaustive()
    }
}

/// Returns `true` if a request is sent with tools.
///
/// Providers reject a conversation with calls but without their tools, and lose their caches, even
/// when no more calls are expected.
fn names_tools(offer: Offer, request: &Request) -> bool {
    offer == Offer::All || request.history.has_calls()
}

/// Streams the reply if the run is watched; otherwise the model may use a cheaper call.
async fn reply(model: &dyn Model, request: Request, cx: &EffectCx) -> Result<Response, ModelError> {
    match cx.live.is_watched() {
        // The stream is boxed: a run that is not watched needs no room for it.
        true => Box::pin(streamed(model, request, cx)).await,
        false => model.complete(request).await,
    }
}

async fn streamed(
    model: &dyn Model,
    request: Request,
    cx: &EffectCx,
) -> Result<Response, ModelError> {
    let mut deltas = model.stream(request).await?;
    let mut fold = Fold::new();
    while let Some(delta) = deltas.next().await {
        let delta = delta.map_err(|error| fold.broken(error))?;
        cx.live.send(EventKind::Delta {
            effect: cx.effect,
            delta: delta.clone(),
        });
        fold.push(delta)?;
    }
    Ok(fold.finish())
}

fn progress(cx: &EffectCx, run: &ToolRun) -> Progress {
    if !cx.live.is_watched() {
        return Progress::default();
    }
    let (live, effect, call): (LiveEvents, _, _) =
        (cx.live.clone(), cx.effect, run.call.id.clone());
    Progress::new(move |text| {
        live.send(EventKind::Progress {
            effect,
            call: call.clone(),
            text: text.to_owned(),
        });
    })
}

/// Describes the schema in the prompt, for a model that accepts no schema.
fn schema_in_prompt(mut request: Request) -> Request {
    let Some(output) = request.output.take() else {
        return request;
    };
    let shape = notes::shape(&output.schema.to_string());
    let system = match &request.system {
        Some(system) => format!("{system}\n\n{shape}"),
        None => shape,
    };
    request.with_system(system)
}

/// Adds the cost of the reply if the model's price is known.
fn priced(mut response: Response, model: &dyn Model) -> Response {
    let usage = &mut response.usage;
    usage.cost = usage.cost.or_else(|| Some(model.card().price?.cost(usage)));
    response
}

/// Fills in token counts that the provider did not return, marked as estimates.
fn estimated(mut response: Response, request: &Request) -> Response {
    if response.usage.input.is_some() && response.usage.output.is_some() {
        return response;
    }
    let usage = &mut response.usage;
    usage.estimated = true;
    let system = request
        .system
        .as_ref()
        .map_or(0, |system| estimate_tokens(system));
    usage.output = usage.output.or(Some(response.message.tokens()));
    usage.input = usage
        .input
        .or(Some(request.history.tokens().saturating_add(system)));
    response
}
