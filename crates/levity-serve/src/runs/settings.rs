//! The settings of a set of runs, and the checks of texts that clients send.

use std::sync::Arc;

use levity_core::text::is_blank;
use levity_core::{Decision, Event, JournalError, RunId};

use super::{Runs, Settings};
use crate::error::{Error, Result};
use crate::quota::TokenShare;

impl Runs {
    /// Sets the maximum number of runs in progress; [`DEFAULT_MAX_RUNS`](Self::DEFAULT_MAX_RUNS) by
    /// default. Call it before the first run.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{Error, NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().hang()).build()?;
    /// let runs = Runs::new(agent).max_runs(1);
    /// let first = runs.start(NewRun::new("Wait."))?;
    /// assert!(matches!(runs.start(NewRun::new("Me, too")), Err(Error::Full { limit: 1 })));
    /// # drop(first);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_runs(self, runs: usize) -> Self {
        let settings = Settings {
            max_runs: runs,
            ..self.inner.settings.clone()
        };
        Self::from_parts(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// Sets the maximum length of a prompt; [`DEFAULT_PROMPT_LIMIT`](Self::DEFAULT_PROMPT_LIMIT) by
    /// default. It applies to HTTP, MCP and the bridge. Call it before the first run.
    ///
    /// Messages to a run, answers to its questions, and reasons of denials and cancellations are
    /// limited in the same way.
    #[must_use]
    pub fn prompt_limit(self, bytes: usize) -> Self {
        let settings = Settings {
            prompt_limit: bytes,
            ..self.inner.settings.clone()
        };
        Self::from_parts(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// Sets the share of each limit that one named token may use, in percent; 25 by default, and at
    /// least one unit. It applies to runs, to reads and lists of the journal, and to the tool calls
    /// and readers of an [`HttpApi`](crate::http::HttpApi). Tokens of one tenant share it, and
    /// tokens with the scope `admin` are exempt. Call it before the first run.
    ///
    /// Values above 100 count as 100. With 64 runs and the default share, one tenant has at most 16
    /// of them.
    #[must_use]
    pub fn token_share(self, percent: u8) -> Self {
        let settings = Settings {
            share: TokenShare::percent(percent),
            ..self.inner.settings.clone()
        };
        Self::from_parts(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// Calls `check` before any run of the journal is resumed. A journal may contain runs that
    /// other users started, with calls that other users approved. A
    /// [`BridgeHost`](crate::bridge::BridgeHost) also writes no signal file for a task of an
    /// earlier process if its run is rejected. The function must not block. Call this method before
    /// the first run.
    ///
    /// ```
    /// use levity_core::{JournalError, JournalErrorKind};
    /// use levity_loop::Agent;
    /// use levity_serve::Runs;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?).resume_if(|run| {
    ///     match run.as_str().starts_with("mine-") {
    ///         true => Ok(()),
    ///         false => Err(JournalError::new(JournalErrorKind::Refused, "it is not your run")),
    ///     }
    /// });
    /// let error = runs.resume(&"other-1".into()).await.unwrap_err();
    /// assert!(error.to_string().contains("not your run"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn resume_if(
        self,
        check: impl Fn(&RunId) -> std::result::Result<(), JournalError> + Send + Sync + 'static,
    ) -> Self {
        let settings = Settings {
            may_resume: Some(Arc::new(check)),
            ..self.inner.settings.clone()
        };
        Self::from_parts(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// Leaves runs alone in [`resume_all`](Self::resume_all) and [`cancel_all`](Self::cancel_all).
    ///
    /// Use it if other programs store runs in the same journal. Clients can still resume such a run
    /// by its id.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::Runs;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?)
    ///     .skip_at_start(|run| !run.as_str().starts_with("server-"));
    /// assert!(runs.resume_all().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn skip_at_start(
        self,
        is_skipped: impl Fn(&RunId) -> bool + Send + Sync + 'static,
    ) -> Self {
        let settings = Settings {
            is_skipped: Some(Arc::new(is_skipped)),
            ..self.inner.settings.clone()
        };
        Self::from_parts(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    pub(crate) fn share(&self) -> TokenShare {
        self.inner.settings.share
    }

    /// Validates a prompt before it is used.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{Error, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?).prompt_limit(10);
    /// assert!(runs.check_prompt("Go.").is_ok());
    /// assert!(matches!(runs.check_prompt(" \u{200b}"), Err(Error::EmptyPrompt)));
    /// let error = runs.check_prompt("far too long").unwrap_err();
    /// assert!(matches!(error, Error::PromptTooLong { limit: 10 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the prompt has no visible characters, or exceeds the length limit.
    pub fn check_prompt(&self, prompt: &str) -> Result<()> {
        self.check_length(prompt)?;
        match is_blank(prompt) {
            true => Err(Error::EmptyPrompt),
            false => Ok(()),
        }
    }

    /// Fails if a text of a client exceeds the length limit of prompts. All such texts are written
    /// to the journal.
    pub(crate) fn check_length(&self, text: &str) -> Result<()> {
        let limit = self.inner.settings.prompt_limit;
        match text.len() > limit {
            true => Err(Error::PromptTooLong { limit }),
            false => Ok(()),
        }
    }

    /// Fails if the text of a decision exceeds the length limit of prompts. Edited arguments are
    /// limited by the size of their request.
    pub(crate) fn check_decision(&self, decision: &Decision) -> Result<()> {
        match decision {
            Decision::Answer { text, .. } => self.check_length(text),
            Decision::Deny { reason, .. } => self.check_length(reason),
            _ => Ok(()),
        }
    }

    /// Calls `watcher` with each event of every run. The function must not block. Call this method
    /// before the first run.
    ///
    /// Several watchers are called in the order in which they were added. Events of child runs are
    /// included.
    #[must_use]
    pub fn on_event(self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        let mut settings = self.inner.settings.clone();
        settings.watchers.push(Arc::new(watcher));
        Self::from_parts(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }
}
