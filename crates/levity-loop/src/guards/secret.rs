//! The guard that redacts secrets.

use async_trait::async_trait;
use levity_core::{Guard, GuardCx, GuardSubject, Secrets, SharedError, Stage, Verdict};

/// Keeps secrets out of everything that passes through an agent.
///
/// By default it replaces them with markers such as `[secret: api key]` in input, calls, results,
/// replies and error messages of providers. So they reach no journal, conversation, event, answer
/// or request. Detection by pattern is a guess; register secrets that must never leak with
/// [`Secrets::known`].
///
/// ```
/// use levity_core::Secrets;
/// use levity_loop::{Agent, SecretGuard};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// let guard = SecretGuard::new().secrets(Secrets::new().known("correct horse"));
/// let model = ScriptedModel::new().reply("The word is correct horse.");
/// let agent = Agent::builder(model).guard(guard).build()?;
/// assert_eq!(agent.run("What is the word?").await?.text(), "The word is [secret: known].");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SecretGuard {
    secrets: Secrets,
    blocks: bool,
    left: Vec<Stage>,
}

impl SecretGuard {
    /// Creates a guard that detects common kinds of secrets and replaces them with markers.
    pub fn new() -> Self {
        Self {
            secrets: Secrets::new(),
            blocks: false,
            left: Vec::new(),
        }
    }

    /// Sets the secrets to detect.
    #[must_use]
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Blocks text that contains a secret. Error messages of providers are still redacted instead.
    ///
    /// ```
    /// use levity_core::ErrorKind;
    /// use levity_loop::{Agent, SecretGuard};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let guard = SecretGuard::new().blocking();
    /// let agent = Agent::builder(ScriptedModel::new()).guard(guard).build()?;
    /// let error = agent.run("PASSWORD=hunter2").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Blocked);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocks = true;
        self
    }

    /// Skips a stage, such as calls when tools need to be given keys.
    #[must_use]
    pub fn skip_stage(mut self, stage: Stage) -> Self {
        self.left.push(stage);
        self
    }
}

impl Default for SecretGuard {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Guard for SecretGuard {
    fn name(&self) -> &str {
        "secrets"
    }

    fn watches(&self, stage: Stage) -> bool {
        !self.left.contains(&stage)
    }

    async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
        Ok(match subject.without(&self.secrets) {
            None => Verdict::Pass,
            Some(_) if self.blocks && !matches!(subject, GuardSubject::Failure(_)) => {
                Verdict::block("it contains a secret")
            }
            Some(clean) => Verdict::rewrite(clean),
        })
    }
}
