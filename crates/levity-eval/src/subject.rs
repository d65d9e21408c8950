//! The trait for everything that can be evaluated, with two implementations: agents and programs.

use async_trait::async_trait;

use crate::{Case, Transcript};

mod agent;
mod command;

pub use agent::AgentSubject;
pub use command::CommandSubject;

/// A subject that answers cases.
///
/// ```
/// use async_trait::async_trait;
/// use levity_eval::{Case, Expectation, Subject, Transcript};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// /// Answers every case with its own question.
/// struct Echo;
///
/// #[async_trait]
/// impl Subject for Echo {
///     fn name(&self) -> &str {
///         "echo"
///     }
///     async fn answer(&self, case: &Case) -> Transcript {
///         match case.messages.last() {
///             Some(message) => Transcript::new().with_text(&*message.content),
///             None => Transcript::failed("the case has no message"),
///         }
///     }
/// }
///
/// let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
/// assert_eq!(Echo.answer(&case).await.text, "Say hi.");
/// # }
/// ```
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
