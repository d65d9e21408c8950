use async_trait::async_trait;

use crate::{Case, Transcript};

mod agent;
mod command;

pub use agent::AgentSubject;
pub use command::CommandSubject;

/// A subject that answers cases.
///
/// # Contract
/// - A failure is a transcript with an error and the partial answer; it does not end the
///   evaluation.
/// - Cases are independent of each other: earlier answers are forgotten.
/// - Dropping the future of `answer` stops the work on the case.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Returns the name for reports.
    fn name(&self) -> &str;
    /// Answers a case and returns the transcript.
    async fn answer(&self, case: &Case) -> Transcript;
}
