use std::fmt;
use std::sync::Arc;

use levity_core::Progress;
use levity_mcp::{ElicitForm, ElicitReply, ElicitUrl, SampleAsk, SampleReply};
use serde_json::Value;

use super::answer;
use super::ask::{AskError, Root};
use super::desk::{Desk, Note};
use super::{Changes, ClientModel};
use crate::access::Caller;

/// Who calls, as a [`Handler`](super::Handler) sees them. Cheap to clone.
///
/// Questions go to the client in the way of its version of the protocol: as requests to it before
/// 2026-07-28, and since then as an interim result of the call, which the client makes again with
/// its answers. The handler waits where it is either way, and what it asks at the same time is
/// asked together.
///
/// A question is an error at once when the client cannot answer it; see
/// [`abilities`](Self::abilities).
#[derive(Clone)]
pub struct Client {
    desk: Arc<Desk>,
    changes: Changes,
    name: Option<Arc<str>>,
    caller: Caller,
}

/// What a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is called for people.
    pub title: Option<String>,
}

/// What a client can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientAbilities {
    /// To have a person fill in a form.
    pub elicit: bool,
    /// To send a person to an address.
    pub elicit_url: bool,
    /// To have its model reply.
    pub sample: bool,
    /// To have its model call tools.
    pub sample_tools: bool,
    /// To say where it works.
    pub roots: bool,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ClientLogLevel {
    /// For who looks for a fault.
    Debug,
    /// As it should be.
    Info,
    /// As it should be, and of note.
    Notice,
    /// Not as it should be.
    Warning,
    /// Something failed.
    Error,
    /// Something that others need failed.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

impl Client {
    pub(super) fn new(desk: Arc<Desk>, changes: Changes, caller: Caller) -> Self {
        Self {
            desk,
            changes,
            name: None,
            caller,
        }
    }

    /// The holder of the token that it showed; the owner of the server on stdio.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What it says it is.
    pub fn info(&self) -> Option<&ClientInfo> {
        self.desk.info.as_ref()
    }

    /// What it can be asked for.
    pub fn abilities(&self) -> ClientAbilities {
        self.desk.able
    }

    /// The same client, whose questions bear this name. On 2026-07-28 a client that knows the name
    /// may answer in advance.
    #[must_use]
    pub fn named(&self, name: impl Into<Arc<str>>) -> Self {
        Self {
            name: Some(name.into()),
            ..self.clone()
        }
    }

    /// Has a person fill in a form. What comes back fits it, with its defaults where nothing was
    /// filled in.
    ///
    /// # Errors
    /// When the client cannot, does not want to, does not answer in time, or answers something
    /// else.
    pub async fn elicit(&self, form: ElicitForm) -> Result<ElicitReply, AskError> {
        if !self.desk.able.elicit {
            return Err(AskError::unsupported("elicitation", "cannot ask anybody"));
        }
        let answer = self.ask(answer::form(&form)?).await?;
        answer::elicited(Some(&form), &answer)
    }

    /// Sends a person to an address.
    ///
    /// # Errors
    /// When the client cannot, does not want to, or does not answer in time.
    pub async fn elicit_url(&self, url: ElicitUrl) -> Result<ElicitReply, AskError> {
        if !self.desk.able.elicit_url {
            return Err(AskError::unsupported(
                "elicitation.url",
                "cannot send anybody to an address",
            ));
        }
        let answer = self.ask(answer::url(&url)?).await?;
        answer::elicited(None, &answer)
    }

    /// Has the client's model reply.
    ///
    /// # Errors
    /// When the client cannot, does not want to, does not answer in time, or answers something
    /// else.
    pub async fn sample(&self, ask: SampleAsk) -> Result<SampleReply, AskError> {
        if !self.desk.able.sample {
            return Err(AskError::unsupported("sampling", "lends no model"));
        }
        if !ask.tools.is_empty() && !self.desk.able.sample_tools {
            return Err(AskError::unsupported(
                "sampling.tools",
                "lends no model that calls tools",
            ));
        }
        let answer = self.ask(answer::sample(&ask)?).await?;
        answer::sampled(&answer)
    }

    /// Where the client works.
    ///
    /// # Errors
    /// When the client cannot say it, does not want to, or does not answer in time.
    pub async fn roots(&self) -> Result<Vec<Root>, AskError> {
        if !self.desk.able.roots {
            return Err(AskError::unsupported(
                "roots",
                "does not say where it works",
            ));
        }
        let answer = self.ask(answer::roots()?).await?;
        answer::listed(&answer)
    }

    /// Tells something, where the client wants to know things of this level. Nothing is waited for,
    /// and while the client does not listen, things are left out.
    pub fn log(&self, level: ClientLogLevel, data: impl Into<Value>) {
        if self.desk.tells(level) {
            self.desk.note(Note::Log {
                level,
                logger: None,
                data: data.into(),
            });
        }
    }

    /// Tells how far the work is, where the client wants to know: `done` of `total`. It never goes
    /// back.
    pub fn progress(&self, done: f64, total: Option<f64>, text: impl Into<Option<String>>) {
        self.desk.progress(Some(done), total, text.into());
    }

    /// Tells all who listen that something has changed.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Lets the call go on as a task from here, for a handler whose
    /// [`TaskSupport`](super::TaskSupport) is `Deferred`. Its client gets the id of the task now,
    /// and the result from the task. Returns at once where the call is a task already, or the
    /// client knows no tasks.
    pub async fn become_task(&self) {
        self.desk.become_task().await;
    }

    /// The client's model as one of ours.
    pub fn model(&self) -> ClientModel {
        ClientModel::new(self.clone())
    }

    /// Takes a tool's word of how far it is.
    pub(super) fn listener(&self) -> Progress {
        let desk = self.desk.clone();
        Progress::new(move |text| desk.progress(None, None, Some(text.to_owned())))
    }

    async fn ask(&self, request: levity_rpc::mcp::InputRequest) -> Result<Value, AskError> {
        self.desk.ask(self.name.clone(), request).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("info", &self.desk.info)
            .field("abilities", &self.desk.able)
            .finish()
    }
}
