//! Inputs and runs of a swarm.

use levity_core::{
    ConversationId, Error, Executor, History, Limits, MachineKind, Media, MediaSource, Message,
    Part, Result, SharedError, StoppedRun,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use levity_builtin_tools::profile::{self, FileManifest};
use levity_core::text::is_blank;
use levity_runtime::{Conversational, MachineStart, Runnable, Runtime};
use serde_json::Value;

use crate::answer::{SwarmAnswer, SwarmDetails};
use crate::machine::SwarmMachine;
use crate::names::ROUTER;
use crate::pattern::Kind;
use crate::plan::{Delegation, PlanContext, check};
use crate::rules::Start;
use crate::swarm::Swarm;
use crate::worker::WorkerMemory;

/// The input of a swarm's run: the goal and its options.
///
/// ```
/// # use levity_swarm::{Delegation, SwarmInput};
/// let input = SwarmInput::from("Is it going to rain?").plan([Delegation::new(
///     "a",
///     "weather",
///     "Look it up.",
/// )]);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "an input does nothing until a swarm runs it"]
pub struct SwarmInput {
    goal: String,
    media: Vec<Media>,
    files: Vec<PathBuf>,
    plan: Option<Vec<Delegation>>,
    /// The conversation for workers with a conversation memory.
    conversation: Option<ConversationId>,
    history: History,
    /// The messages of an earlier run, and its last worker.
    earlier: Vec<Arc<Message>>,
    first: Option<Arc<str>>,
}

impl SwarmInput {
    /// The maximum size of all media of a goal: 32 MiB.
    pub const MAX_MEDIA_BYTES: usize = 32 << 20;

    /// Adds images and other media to the goal. The router receives them with the goal, and each
    /// worker with its task. An agent whose model accepts no images receives a note instead.
    ///
    /// The journal stores the media with the input, so a resumed run and a fork have them too. A
    /// run rejects more than [`MAX_MEDIA_BYTES`](Self::MAX_MEDIA_BYTES).
    ///
    /// ```
    /// # use levity_core::Media;
    /// # use levity_swarm::SwarmInput;
    /// let chart = Media::url("image/png", "https://example.com/chart.png");
    /// let input = SwarmInput::from("Explain the chart").media([chart]);
    /// ```
    pub fn media(mut self, media: impl IntoIterator<Item = Media>) -> Self {
        self.media.extend(media);
        self
    }

    /// Adds input files. levity profiles them before the first work, and the router and each worker
    /// read the profiles. To read a whole file, a worker needs a tool.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm, SwarmInput};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("tides.csv");
    /// std::fs::write(&path, "time,metres\n06:00,4.1\n")?;
    /// let model = ScriptedModel::new().reply("At six.");
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", Agent::builder(model.clone()).build()?)
    ///     .build()?;
    /// swarm.run(SwarmInput::from("When is high water?").files([path])).await?;
    /// assert!(model.requests()[0].history.messages()[0].text().contains("1 row, 2 columns"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn files<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.files.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Sets a plan to carry out instead of asking the router for one. levity validates it before
    /// any work starts.
    ///
    /// The plan may have more delegations than
    /// [`Router::max_delegations`](crate::Router::max_delegations). The goal may then be empty.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Delegation, Router, Swarm, SwarmInput};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", pilot)
    ///     .build()?;
    /// let plan = [Delegation::new("tide", "pilot", "When is high water?")];
    /// let finished = swarm.run(SwarmInput::from("Can we sail?").plan(plan)).await?;
    /// assert_eq!(&*finished.report("tide").unwrap().text, "At six.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan(mut self, plan: impl IntoIterator<Item = Delegation>) -> Self {
        self.plan = Some(plan.into_iter().collect());
        self
    }

    /// Continues an earlier run of a handoff, with its conversation and its last worker. Other
    /// patterns reject this setting.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Handoff, Swarm, SwarmInput};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = ScriptedModel::new().reply("At six.").reply("As I said: at six.");
    /// let swarm = Swarm::builder(Handoff::starting_with("pilot"))
    ///     .agent("pilot", "Knows the tides.", Agent::builder(pilot).build()?)
    ///     .build()?;
    /// let first = swarm.run("When is high water?").await?;
    /// let second = swarm.run(SwarmInput::from("When was that?").after(&first)).await?;
    /// assert_eq!(second.text(), "As I said: at six.");
    /// assert_eq!(second.conversation().len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(mut self, earlier: &SwarmAnswer) -> Self {
        self.earlier = earlier.conversation().to_vec();
        self.first = earlier.last_speaker().map(Into::into);
        self
    }
}

impl From<&str> for SwarmInput {
    fn from(goal: &str) -> Self {
        goal.to_owned().into()
    }
}

impl From<String> for SwarmInput {
    fn from(goal: String) -> Self {
        Self {
            goal,
            ..Self::default()
        }
    }
}

/// The text of the message is the goal, and its media come with the goal.
impl From<Message> for SwarmInput {
    fn from(goal: Message) -> Self {
        let input = Self::from(goal.text().into_owned());
        input.media(goal.parts.into_iter().filter_map(|part| match part {
            Part::Media(media) => Some(media),
            _ => None,
        }))
    }
}

impl Runnable for Swarm {
    type Input = SwarmInput;
    type Machine = SwarmMachine;
    type Output = SwarmAnswer;

    fn runtime(&self) -> &Runtime {
        Self::runtime(self)
    }

    fn executor(&self) -> Arc<dyn Executor> {
        Self::executor(self)
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn begin(&self, input: SwarmInput, limits: &Limits) -> Result<MachineStart<SwarmMachine>> {
        let SwarmInput {
            goal,
            media,
            files,
            plan,
            conversation,
            history,
            earlier,
            first,
        } = input;
        check_media(&media)?;
        let history = if earlier.is_empty() {
            history.messages().to_vec()
        } else {
            earlier
        };
        let mut start = Start {
            media: media.into(),
            plan,
            conversation,
            history,
            first,
            limits: *limits,
            ..self.begin_with(goal)
        };
        check_start(self, &start)?;
        let rules = self.inner.rules.clone();
        if files.is_empty() {
            return Ok(MachineStart::now(SwarmMachine::new(rules, start)));
        }
        Ok(MachineStart::later(async move {
            start.files = Some(profile_files(files).await?);
            Ok(SwarmMachine::new(rules, start).into())
        }))
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<SwarmMachine, String> {
        SwarmMachine::check_kind(kind)?;
        Self::restore(self, state)
    }

    fn conclude(&self, reached: StoppedRun<SwarmMachine>) -> Result<SwarmAnswer> {
        reached.finish(SwarmDetails::new)
    }

    fn keeps_conversations(&self) -> bool {
        self.inner
            .rules
            .cards
            .values()
            .any(|card| matches!(card.scope, WorkerMemory::Conversation))
    }

    fn conversation(input: &mut SwarmInput) -> Option<&mut Option<ConversationId>> {
        Some(&mut input.conversation)
    }

    fn history(input: &mut SwarmInput) -> Option<&mut History> {
        Some(&mut input.history)
    }
}

impl Conversational for Swarm {}

/// Rejects media that are too large: each agent and each record of a child run holds them.
fn check_media(media: &[Media]) -> Result<()> {
    let bytes = media.iter().map(|media| match &media.source {
        MediaSource::Bytes(bytes) => bytes.as_slice().len(),
        _ => 0,
    });
    let (bytes, limit) = (bytes.sum::<usize>(), SwarmInput::MAX_MEDIA_BYTES);
    match bytes > limit {
        true => Err(Error::setting(
            "media",
            format!("has {bytes} bytes, and the limit is {limit}; use fewer or smaller images"),
        )),
        false => Ok(()),
    }
}

/// Profiles files on a blocking thread, so that it does not delay other tasks.
async fn profile_files(files: Vec<PathBuf>) -> Result<FileManifest, SharedError> {
    let profiled =
        tokio::runtime::Handle::current().spawn_blocking(move || profile::profile_files(files));
    profiled.await.map_err(SharedError::new)
}

/// Validates the input of the host before any work starts.
fn check_start(swarm: &Swarm, start: &Start) -> Result<()> {
    // A plan needs no goal.
    if start.plan.is_none() && is_blank(&start.goal) {
        return Err(Error::EmptyPrompt);
    }
    let rules = &swarm.inner.rules;
    if let Some(first) = start
        .first
        .as_ref()
        .filter(|first| !rules.cards.contains_key(*first))
    {
        return Err(Error::setting(
            "after",
            format!("ends with `{first}`, which is not a worker of this swarm"),
        ));
    }
    let continues = start.first.is_some() || !start.history.is_empty();
    if continues && !matches!(rules.pattern.0, Kind::Handoff(_)) {
        let setting = if start.first.is_some() {
            "after"
        } else {
            "history"
        };
        return Err(Error::setting(
            setting,
            "applies only to swarms with a `Handoff`; remove it",
        ));
    }
    let Some(plan) = &start.plan else {
        return Ok(());
    };
    let Kind::Router(router) = &rules.pattern.0 else {
        return Err(Error::setting(
            "plan",
            "applies only to swarms with a `Router`; remove it",
        ));
    };
    let done = BTreeMap::new();
    let max_delegations = router.max_delegations.max(plan.len());
    let known = PlanContext {
        workers: &rules.names,
        router: ROUTER,
        done: &done,
        reports: &[],
        max_delegations,
    };
    check(plan, &known).map(drop).map_err(Error::from)
}
