//! Remembered facts as documents. The id of a fact is `fact:NUMBER`.
//!
//! `fetch` looks only into the scopes of the library, so a client that guesses a number cannot read
//! the facts of other scopes.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::text::one_line;
use levity_memory::{FactId, Recall, RecalledFact, Scope};
use serde_json::json;

use super::{Document, Hit, Library, LibraryError};

/// A library of the facts that are remembered for some users, projects and sessions.
///
/// ```
/// use levity_memory::{Recall, Scope};
/// use levity_serve::{Library, RecallLibrary};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recall = Recall::in_memory()?;
/// recall.remember(&Scope::project("boat"), "The mast is of spruce.", "survey").await?;
/// let library = RecallLibrary::new(recall, [Scope::project("boat")]);
/// let found = library.search("What is the mast made of?", 5).await?;
/// assert_eq!(library.fetch(&found[0].id).await?.unwrap().text, "The mast is of spruce.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecallLibrary {
    recall: Recall,
    scopes: Arc<[Scope]>,
}

const ID: &str = "fact:";
/// The maximum length of a title in characters.
const TITLE: usize = 60;

impl RecallLibrary {
    /// Creates a library of the facts in these scopes.
    ///
    /// Facts of all other scopes stay invisible to `search` and `fetch`.
    pub fn new(recall: Recall, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self {
            recall,
            scopes: scopes.into_iter().collect(),
        }
    }
}

#[async_trait]
impl Library for RecallLibrary {
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError> {
        let found = self
            .recall
            .recall(&self.scopes, query, limit)
            .await
            .map_err(failed)?;
        Ok(found.facts.into_iter().map(hit).collect())
    }

    async fn fetch(&self, id: &str) -> Result<Option<Document>, LibraryError> {
        let Some(number) = id.strip_prefix(ID).and_then(|number| number.parse().ok()) else {
            return Ok(None);
        };
        let before = u32::checked_sub(number, 1).map(FactId::new);
        for scope in &*self.scopes {
            let found = self.recall.list(scope, before, 1).await.map_err(failed)?;
            if let Some(fact) = found.into_iter().find(|fact| fact.id.get() == number) {
                return Ok(Some(document(fact)));
            }
        }
        Ok(None)
    }
}

fn failed(error: levity_core::MemoryError) -> LibraryError {
    LibraryError::new("cannot read the remembered facts").with_source(error)
}

fn url(fact: &RecalledFact) -> String {
    format!("levity://facts/{}", fact.id.get())
}

fn title(fact: &RecalledFact) -> String {
    one_line(&fact.text, TITLE)
}

fn hit(fact: RecalledFact) -> Hit {
    Hit::new(format!("{ID}{}", fact.id.get()), title(&fact), url(&fact)).with_text(fact.text)
}

fn document(fact: RecalledFact) -> Document {
    let about = json!({
        "source": fact.source,
        "date": fact.date.to_string(),
        "scope": {"kind": fact.scope.kind(), "id": fact.scope.id()},
    });
    Document::new(
        format!("{ID}{}", fact.id.get()),
        title(&fact),
        url(&fact),
        fact.text,
    )
    .with_metadata(about)
}
