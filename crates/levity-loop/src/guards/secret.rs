use async_trait::async_trait;
use levity_core::{Guard, GuardCx, GuardSubject, Secrets, SharedError, Stage, Verdict};

/// Keeps secrets out of everything that goes through an agent.
///
/// By default it puts markers such as `[secret: api key]` in their place, in what people say, in
/// calls, in results, in replies and in what providers say of errors: so they are in no journal,
/// conversation, event, answer or request. What secrets look like is a guess; what must not be seen
/// is to be told, by [`Secrets::known`].
///
/// ```
/// use levity_core::Secrets;
/// use levity_loop::{Agent, SecretGuard};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// let guard = SecretGuard::new().secrets(Secrets::new().known("correct horse"));
/// let agent = Agent::builder(ScriptedModel::new().reply("The word is correct horse.")).guard(guard).build()?;
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
    /// Knows what secrets usually look like, and puts markers in their place.
    pub fn new() -> Self {
        Self {
            secrets: Secrets::new(),
            blocks: false,
            left: Vec::new(),
        }
    }

    /// What is looked for.
    #[must_use]
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Blocks what has a secret in it. What a provider says of an error is cleaned all the same.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocks = true;
        self
    }

    /// Leaves this alone: a call, for one, when tools are to be given keys.
    #[must_use]
    pub fn except(mut self, stage: Stage) -> Self {
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
                Verdict::block("there is a secret in it")
            }
            Some(clean) => Verdict::rewrite(clean),
        })
    }
}
