//! The option `--recall`: a file in which answers are stored, and found again for later goals.
//!
//! `run`, `chat`, `plan` and `team` store an answer in the same form and the same scope, so each
//! finds what the others have stored. A store that fails is reported and does not stop the work.

use std::path::Path;

use levity::core::text::head;
use levity::memory::{Recall, Scope};
use serde_json::{Value, json};

use crate::store;
use crate::terminal::{chain, note};

/// The number of answers that a plan is given.
const MAX_RECALLED: usize = 5;
/// The maximum length of a stored fact, in bytes; the store refuses longer ones.
const MAX_FACT: usize = 8000;

/// The answers of earlier goals.
#[derive(Clone)]
pub(crate) struct AnswerStore(Recall);

impl AnswerStore {
    /// Opens the file of `--recall`, if there is one.
    ///
    /// # Errors
    /// The file cannot be opened, or does not belong to a recall store.
    pub(crate) fn open(path: Option<&Path>) -> Result<Option<Self>, String> {
        let Some(path) = path else { return Ok(None) };
        store::create_parent(path);
        let recall = Recall::open(path).map_err(|error| chain(&error))?;
        recall.warnings().iter().for_each(|warning| note(warning));
        Ok(Some(Self(recall)))
    }

    /// Returns the store and the scope, for the tools and the context of an agent.
    pub(crate) fn parts(&self) -> (&Recall, Scope) {
        (&self.0, scope())
    }

    /// Returns the answers that match a goal, as the variable `recalled` of a plan.
    pub(crate) async fn variable(&self, goal: &str) -> Option<(&'static str, Value)> {
        match self.0.recall(&[scope()], goal, MAX_RECALLED).await {
            Ok(found) if found.facts.is_empty() => None,
            Ok(found) => {
                let facts = found.facts.iter().map(|fact| json!(fact.text));
                Some(("recalled", facts.collect()))
            }
            Err(error) => {
                note(&format!("nothing can be recalled: {}", chain(&error)));
                None
            }
        }
    }

    /// Stores the answer to a goal; `source` names the run.
    pub(crate) async fn add(&self, goal: &str, answer: &str, source: &str) {
        let fact = format!("Goal: {goal}\nAnswer: {answer}");
        let fact = head(&fact, MAX_FACT);
        if let Err(error) = self.0.remember(&scope(), fact, source).await {
            note(&format!(
                "the answer cannot be recalled later: {}",
                chain(&error)
            ));
        }
    }
}

/// Everything that one user of the command stores in a file belongs together.
fn scope() -> Scope {
    Scope::user("levity")
}
