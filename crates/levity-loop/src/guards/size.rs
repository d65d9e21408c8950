//! The guard that bounds the size of texts.

use async_trait::async_trait;
use levity_core::{Guard, GuardCx, GuardSubject, SharedError, Stage, Verdict};

/// Blocks text that is longer than a limit in bytes. No limit applies until you set one.
///
/// ```
/// use levity_loop::{Agent, Error, SizeGuard};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// let agent = Agent::builder(ScriptedModel::new()).guard(SizeGuard::new().input(10)).build()?;
/// let error = agent.run("Tell me all there is to know.").await.unwrap_err();
/// assert_eq!(error.to_string(), "`size` blocked the input: it has 29 bytes, but the limit is 10");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SizeGuard {
    input: Option<usize>,
    call: Option<usize>,
    result: Option<usize>,
    answer: Option<usize>,
}

impl SizeGuard {
    /// Creates a guard without any limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum length of one message from a person.
    #[must_use]
    pub fn input(mut self, bytes: usize) -> Self {
        self.input = Some(bytes);
        self
    }

    /// Sets the maximum length of the arguments of a call, as JSON.
    #[must_use]
    pub fn call(mut self, bytes: usize) -> Self {
        self.call = Some(bytes);
        self
    }

    /// Sets the maximum length of the result of a call. Long results are cut anyway; see
    /// [`max_tool_output`](crate::AgentBuilder::max_tool_output).
    #[must_use]
    pub fn result(mut self, bytes: usize) -> Self {
        self.result = Some(bytes);
        self
    }

    /// Sets the maximum length of a reply.
    ///
    /// ```
    /// use levity_loop::{Agent, SizeGuard};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let model = ScriptedModel::new().reply("A very long story.");
    /// let agent = Agent::builder(model).guard(SizeGuard::new().answer(10)).build()?;
    /// assert!(agent.run("Tell me a story.").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn answer(mut self, bytes: usize) -> Self {
        self.answer = Some(bytes);
        self
    }

    fn limit_of(&self, stage: Stage) -> Option<usize> {
        match stage {
            Stage::Input => self.input,
            Stage::Call => self.call,
            Stage::Result => self.result,
            Stage::Answer => self.answer,
            _ => None,
        }
    }
}

#[async_trait]
impl Guard for SizeGuard {
    fn name(&self) -> &str {
        "size"
    }

    fn watches(&self, stage: Stage) -> bool {
        self.limit_of(stage).is_some()
    }

    async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
        let (size, limit) = (subject.text().len(), self.limit_of(subject.stage()));
        Ok(
            match limit
                .filter(|limit| size > *limit && !matches!(subject, GuardSubject::Failure(_)))
            {
                Some(limit) => {
                    Verdict::block(format!("it has {size} bytes, but the limit is {limit}"))
                }
                None => Verdict::Pass,
            },
        )
    }
}
