//! Cases with several turns and running tools.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use levity_core::text::chain;
use levity_core::{History, Message, Role, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::{AgentBuilder, Answer};
use serde_json::Value;

use super::{AgentSubject, END, End, WatchedModel, append_messages, conversation};
use crate::{AnsweredTurn, Case, ToolSession, Transcript};

impl AgentSubject {
    /// Answers turn after turn, until the last one or an error.
    pub(super) async fn converse(&self, case: &Case) -> Transcript {
        let session = match (&case.environment, &self.tool_host) {
            (None, _) if case.tools_at(usize::MAX).next().is_none() => None,
            (None, _) => {
                return Transcript::failed(
                    "the case has several turns and tools, but no `environment` to run them",
                );
            }
            (Some(_), None) => {
                return Transcript::failed(
                    "the tools of the case must run, but the subject has no tool host; set one \
                        with `tool_host`",
                );
            }
            (Some(_), Some(host)) => match host.open(case).await {
                Ok(session) => Some(Arc::new(session)),
                Err(error) => return Transcript::failed(chain(&error)),
            },
        };
        let replies = Arc::new(AtomicU64::new(0));
        let end = End::ToolsFailed(session.clone());
        let model = WatchedModel {
            inner: self.model.clone(),
            replies: replies.clone(),
            end,
        };
        let mut trial_conversation = Conversation {
            subject: self,
            case,
            model,
            session,
            system: None,
            history: History::new(),
        };
        let mut transcript = Transcript::new();
        let first = std::iter::once(&case.messages);
        for (index, messages) in first
            .chain(case.turns.iter().map(|turn| &turn.messages))
            .enumerate()
        {
            let (system, before, goal) = conversation(messages);
            trial_conversation.system = system.or(trial_conversation.system);
            trial_conversation.history =
                append_messages(std::mem::take(&mut trial_conversation.history), before);
            transcript = trial_conversation.turn(index + 1, goal, transcript).await;
            if transcript.error.is_some() {
                break;
            }
        }
        transcript.replies = Some(replies.load(Ordering::Relaxed));
        let messages = trial_conversation.history.messages().iter();
        transcript.messages = messages
            .filter_map(|message| serde_json::to_value(message).ok())
            .collect();
        transcript
    }
}

/// The conversation of a trial in progress.
struct Conversation<'a> {
    subject: &'a AgentSubject,
    case: &'a Case,
    model: WatchedModel,
    session: Option<Arc<ToolSession>>,
    system: Option<String>,
    history: History,
}

impl Conversation<'_> {
    /// Answers one turn, counted from 1, and adds it to the transcript.
    async fn turn(&mut self, turn: usize, goal: Message, transcript: Transcript) -> Transcript {
        let tools = self.session.iter().flat_map(|session| {
            self.case.tools_at(turn).map(|tool| {
                let spec = ToolSpec::new(&*tool.name, &*tool.description)
                    .with_input(tool.parameters.clone());
                RunningTool {
                    spec,
                    session: session.clone(),
                }
            })
        });
        let agent = self.subject.agent(self.model.clone(), self.system.clone());
        let answer = match tools.fold(agent, AgentBuilder::tool).build() {
            Ok(agent) => agent.run(goal).history(self.history.clone()).await,
            Err(error) => Err(error),
        };
        let (calls, failure) = match &self.session {
            Some(session) => (session.take_calls().await, session.failure().await),
            None => (Vec::new(), None),
        };
        let (reached, error) = match answer {
            Ok(answer) => (Some(answer), None),
            Err(error) => (error.partial_as(), Some(chain(&error))),
        };
        let mut answered =
            AnsweredTurn::new(reached.as_ref().map_or_else(String::new, last_text), calls);
        let mut usage = transcript.usage;
        if let Some(reached) = reached {
            answered.run = Some(reached.run().to_string());
            usage += reached.usage();
            self.history = reached.history().clone();
        }
        let run = answered.run.clone();
        let mut transcript = transcript.with_turn(answered).with_usage(usage);
        transcript.run = run.or(transcript.run);
        transcript.error = failure
            .map(|failure| format!("the tools {failure}"))
            .or(error);
        transcript
    }
}

/// Returns the text of the model's last reply.
fn last_text(answer: &Answer) -> String {
    let messages = answer.history().messages().iter().rev();
    let mut texts = messages
        .filter(|message| message.role == Role::Assistant)
        .map(|message| message.text());
    texts
        .find(|text| text != END)
        .map_or_else(String::new, Cow::into_owned)
}

/// A tool of a case that runs in the process of the trial.
struct RunningTool {
    spec: ToolSpec,
    session: Arc<ToolSession>,
}

#[async_trait]
impl Tool for RunningTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        match self.session.call(&self.spec.name, arguments).await {
            Ok(reply) if reply.failed => Err(ToolError::failed(reply.text)),
            Ok(reply) => Ok(ToolOutput::text(reply.text)),
            Err(error) => Err(ToolError::failed(error.to_string())),
        }
    }
}
