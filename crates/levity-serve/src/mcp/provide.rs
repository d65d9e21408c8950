use std::collections::BTreeMap;

use async_trait::async_trait;
use levity_mcp::{Prompt, Resource, ResourceContent, ResourceTemplate};

use super::{Client, PromptReply, RequestError};
use crate::access::Caller;

/// A part of a list, and where it goes on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page<T> {
    /// This part.
    pub items: Vec<T>,
    /// What to ask for the next part with; nothing at the end.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// All there is.
    pub fn all(items: impl IntoIterator<Item = T>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: None,
        }
    }

    /// A part that is not the last.
    pub fn part(items: impl IntoIterator<Item = T>, next: impl Into<String>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: Some(next.into()),
        }
    }
}

/// Things that clients may read.
///
/// # Contract
/// - `cursor` is what the page before said as `next`, as it may come back from a client that
///   changed it.
/// - `read` of what is not there fails with [`RequestError::not_found`]; then others are asked, if
///   the server has others.
#[async_trait]
pub trait Resources: Send + Sync {
    /// What there is.
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Resource>, RequestError>;

    /// What there is for this caller; the same for all by default. `read` is to give a caller
    /// nothing that is not listed for it.
    async fn list_for(
        &self,
        caller: &Caller,
        cursor: Option<&str>,
    ) -> Result<Page<Resource>, RequestError> {
        let _ = caller;
        self.list(cursor).await
    }

    /// What there is beside it, under addresses with gaps.
    async fn templates(
        &self,
        cursor: Option<&str>,
    ) -> Result<Page<ResourceTemplate>, RequestError> {
        let _ = cursor;
        Ok(Page::all([]))
    }

    /// Reads.
    async fn read(&self, ask: ResourceAsk) -> Result<Vec<ResourceContent>, RequestError>;

    /// Whether [`Changes::resource`](super::Changes::resource) tells when one of them changes. It
    /// does not, by default.
    fn tells_updates(&self) -> bool {
        false
    }
}

/// A wish to read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceAsk {
    /// What.
    pub uri: String,
    /// Who asks.
    pub client: Client,
}

/// Prompts that people choose from.
#[async_trait]
pub trait Prompts: Send + Sync {
    /// What there is.
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Prompt>, RequestError>;

    /// Fills one in.
    ///
    /// # Errors
    /// [`RequestError::not_found`] when there is none of that name; then others are asked, if the
    /// server has others.
    async fn get(&self, ask: PromptAsk) -> Result<PromptReply, RequestError>;
}

/// A wish for a prompt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PromptAsk {
    /// Which.
    pub name: String,
    /// What goes into its gaps.
    pub args: BTreeMap<String, String>,
    /// Who asks.
    pub client: Client,
}

/// Proposes values while a person types them.
#[async_trait]
pub trait Completer: Send + Sync {
    /// What may go there, the likeliest first.
    async fn complete(&self, completing: Completing) -> Result<Completion, RequestError>;
}

/// What is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completing {
    /// The prompt's name, or the address with gaps.
    pub of: String,
    /// Whether it is an address.
    pub is_resource: bool,
    /// Which argument or gap.
    pub argument: String,
    /// What stands there already.
    pub value: String,
    /// What the others are.
    pub others: BTreeMap<String, String>,
}

/// What may go there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The values; clients are told 100 of them at most.
    pub values: Vec<String>,
    /// How many there are in all, where that is known.
    pub total: Option<u32>,
}

impl Completion {
    /// These.
    pub fn new(values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            values: values.into_iter().map(Into::into).collect(),
            total: None,
        }
    }

    /// Says how many there are in all.
    #[must_use]
    pub fn with_total(mut self, total: u32) -> Self {
        self.total = Some(total);
        self
    }
}
