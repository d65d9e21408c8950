use std::collections::BTreeMap;

use async_trait::async_trait;
use levity_mcp::{Prompt, Resource, ResourceContent, ResourceTemplate};

use super::{Client, PromptReply, RequestError};
use crate::access::Caller;

/// A page of a list, with the cursor of the next page.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page with all items.
    pub fn all(items: impl IntoIterator<Item = T>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: None,
        }
    }

    /// Creates a page that is not the last.
    pub fn part(items: impl IntoIterator<Item = T>, next: impl Into<String>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: Some(next.into()),
        }
    }
}

/// Resources that clients can read.
///
/// # Contract
/// - `cursor` is the `next` value of the previous page. It comes from a client, which may have
///   changed it.
/// - `read` fails with [`RequestError::not_found`] if there is no such resource; the server then
///   tries its other providers.
#[async_trait]
pub trait Resources: Send + Sync {
    /// Lists the available resources.
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Resource>, RequestError>;

    /// Lists the resources that are available to this caller; the same for all by default. `read`
    /// must not return anything to a caller that is not listed for it.
    async fn list_for(
        &self,
        caller: &Caller,
        cursor: Option<&str>,
    ) -> Result<Page<Resource>, RequestError> {
        let _ = caller;
        self.list(cursor).await
    }

    /// Lists further resources, by URI templates.
    async fn templates(
        &self,
        cursor: Option<&str>,
    ) -> Result<Page<ResourceTemplate>, RequestError> {
        let _ = cursor;
        Ok(Page::all([]))
    }

    /// Reads a resource by its URI.
    async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError>;

    /// Returns `true` if [`Changes::resource`](super::Changes::resource) reports changes of these
    /// resources. `false` by default.
    fn reports_updates(&self) -> bool {
        false
    }
}

/// A request to read a resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceRequest {
    /// The URI of the resource.
    pub uri: String,
    /// The client that asks.
    pub client: Client,
}

/// Prompts for users to choose from.
#[async_trait]
pub trait Prompts: Send + Sync {
    /// Lists the available prompts.
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Prompt>, RequestError>;

    /// Returns a prompt with its arguments filled in.
    ///
    /// # Errors
    /// Fails with [`RequestError::not_found`] if no prompt has that name; the server then tries its
    /// other providers.
    async fn get(&self, ask: PromptRequest) -> Result<PromptReply, RequestError>;
}

/// A request for a prompt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PromptRequest {
    /// The name of the prompt.
    pub name: String,
    /// The arguments of the prompt.
    pub args: BTreeMap<String, String>,
    /// The client that asks.
    pub client: Client,
}

/// Proposes values while a user types them.
#[async_trait]
pub trait Completer: Send + Sync {
    /// Returns possible values, the likeliest first.
    async fn complete(&self, completing: CompletionRequest) -> Result<Completion, RequestError>;
}

/// The input of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The name of the prompt, or the URI template.
    pub of: String,
    /// `true` if `of` is a URI template.
    pub is_resource: bool,
    /// The name of the argument or of the template variable.
    pub argument: String,
    /// The text typed up to now.
    pub value: String,
    /// The values of the other arguments.
    pub others: BTreeMap<String, String>,
}

/// The possible values of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The values; clients get at most 100 of them.
    pub values: Vec<String>,
    /// The total number of values, if known.
    pub total: Option<u32>,
}

impl Completion {
    /// Creates a completion with these values.
    pub fn new(values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            values: values.into_iter().map(Into::into).collect(),
            total: None,
        }
    }

    /// Sets the total number of values.
    #[must_use]
    pub fn with_total(mut self, total: u32) -> Self {
        self.total = Some(total);
        self
    }
}
