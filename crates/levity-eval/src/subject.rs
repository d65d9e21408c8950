use async_trait::async_trait;

use crate::{Case, Transcript};

mod agent;
mod command;

pub use agent::AgentSubject;
pub use command::CommandSubject;

/// Something that answers cases.
///
/// # Contract
/// - A failure is a transcript with an error and what was reached before it; it does not end the
///   evaluation.
/// - Cases do not influence each other: what was answered before is forgotten.
/// - Dropping the future of `answer` stops the work on the case.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The name, for reports.
    fn name(&self) -> &str;
    /// Answers a case.
    async fn answer(&self, case: &Case) -> Transcript;
}
