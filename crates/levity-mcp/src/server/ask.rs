//! What can be asked of a server beside its tools.

use levity_core::ToolOutput;
use levity_rpc::mcp::{PromptMessage, ResourceContents, ServerCapabilities};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Server, Shared};
use crate::client::{Client, Era, Patience};
use crate::convert;
use crate::items::{Prompt, PromptReply, Resource, ResourceContent, ResourceTemplate};
use crate::{Error, ErrorKind, Result};

impl Server {
    /// Asks whether it lives and how long the answer took.
    ///
    /// # Errors
    /// When it is away or does not answer in time.
    pub async fn ping(&self) -> Result<std::time::Duration> {
        let client = self.0.client().await?;
        let started = self.0.world.now();
        self.0.is_alive(&client).await?;
        Ok(self.0.world.now().since(started))
    }

    /// What it lets be read; empty when it has no resources.
    ///
    /// # Errors
    /// When it is away, does not answer in time or answers something else.
    pub async fn resources(&self) -> Result<Vec<Resource>> {
        self.list("resources/list", "resources", |has| has.resources.is_some())
            .await
    }

    /// Resources whose addresses have gaps to be filled in.
    ///
    /// # Errors
    /// As for [`resources`](Self::resources).
    pub async fn resource_templates(&self) -> Result<Vec<ResourceTemplate>> {
        self.list("resources/templates/list", "resourceTemplates", |has| {
            has.resources.is_some()
        })
        .await
    }

    /// Reads a resource; one address may stand for several.
    ///
    /// # Errors
    /// When it is away, does not answer in time or has no such resource.
    pub async fn read(&self, uri: &str) -> Result<Vec<ResourceContent>> {
        let result = self.ask("resources/read", json!({"uri": uri})).await?;
        self.0.typed("resources/read", part(result, "/contents"))
    }

    /// Reads a resource as an agent would see it: text as text, pictures as pictures.
    pub(crate) async fn read_content(&self, uri: &str) -> Result<ToolOutput> {
        let result = self.ask("resources/read", json!({"uri": uri})).await?;
        let contents: Vec<ResourceContents> =
            self.0.typed("resources/read", part(result, "/contents"))?;
        let mut output = ToolOutput::default();
        output.content = convert::resource(contents);
        Ok(output)
    }

    /// Wants word when a resource changes:
    /// [`ResourcesChanged`](crate::ServerEventKind::ResourcesChanged). It is asked for again when
    /// the server was restarted.
    ///
    /// # Errors
    /// When it is away, does not answer in time or tells nobody of changes.
    pub async fn subscribe(&self, uri: &str) -> Result<()> {
        let client = self.0.client().await?;
        let can = client
            .info()
            .capabilities
            .resources
            .as_ref()
            .and_then(|has| has.subscribe);
        if can != Some(true) {
            let words = "it tells nobody of changes to its resources";
            return Err(Error::new(
                ErrorKind::Unsupported,
                self.0.config.name.clone(),
                words,
            ));
        }
        let is_new = self.0.subscriptions().insert(uri.to_owned());
        if client.era() == Era::Modern {
            if is_new {
                self.0.relisten.notify_one();
            }
            return Ok(());
        }
        self.ask("resources/subscribe", json!({"uri": uri}))
            .await
            .map(drop)
    }

    /// Wants no more word about a resource.
    ///
    /// # Errors
    /// When it is away or does not answer in time.
    pub async fn unsubscribe(&self, uri: &str) -> Result<()> {
        let was_there = self.0.subscriptions().remove(uri);
        let client = self.0.client().await?;
        if client.era() == Era::Modern {
            if was_there {
                self.0.relisten.notify_one();
            }
            return Ok(());
        }
        self.ask("resources/unsubscribe", json!({"uri": uri}))
            .await
            .map(drop)
    }

    /// The prompts that it has ready; empty when it has none.
    ///
    /// # Errors
    /// As for [`resources`](Self::resources).
    pub async fn prompts(&self) -> Result<Vec<Prompt>> {
        self.list("prompts/list", "prompts", |has| has.prompts.is_some())
            .await
    }

    /// A prompt with its gaps filled in; `args` is an object of strings.
    ///
    /// # Errors
    /// When it is away, does not answer in time or has no such prompt.
    pub async fn prompt(&self, name: &str, args: Value) -> Result<PromptReply> {
        let args = if args.is_null() { json!({}) } else { args };
        let result = self
            .ask("prompts/get", json!({"name": name, "arguments": args}))
            .await?;
        let description = result
            .get("description")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let messages: Vec<PromptMessage> =
            self.0.typed("prompts/get", part(result, "/messages"))?;
        Ok(PromptReply {
            description,
            messages: messages.into_iter().map(convert::message).collect(),
        })
    }

    /// What an argument of a prompt could be, given how it begins.
    ///
    /// # Errors
    /// When it is away, does not answer in time or completes nothing.
    pub async fn complete_prompt(
        &self,
        prompt: &str,
        argument: &str,
        begins: &str,
    ) -> Result<Vec<String>> {
        self.complete(
            json!({"type": "ref/prompt", "name": prompt}),
            argument,
            begins,
        )
        .await
    }

    /// What a gap in the address of a resource could be, given how it begins.
    ///
    /// # Errors
    /// When it is away, does not answer in time or completes nothing.
    pub async fn complete_resource(
        &self,
        template: &str,
        argument: &str,
        begins: &str,
    ) -> Result<Vec<String>> {
        self.complete(
            json!({"type": "ref/resource", "uri": template}),
            argument,
            begins,
        )
        .await
    }

    /// Sets how grave something must be for the server to log it: `debug`, `info`, `warning`,
    /// `error` and so on. Only servers of the older protocol know this.
    ///
    /// # Errors
    /// When it is away, does not answer in time or does not know the level.
    pub async fn log_level(&self, level: &str) -> Result<()> {
        self.ask("logging/setLevel", json!({"level": level}))
            .await
            .map(drop)
    }

    async fn complete(&self, of: Value, argument: &str, begins: &str) -> Result<Vec<String>> {
        let params = json!({"ref": of, "argument": {"name": argument, "value": begins}});
        let result = self.ask("completion/complete", params).await?;
        self.0
            .typed("completion/complete", part(result, "/completion/values"))
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value> {
        let client = self.0.client().await?;
        client
            .ask_in_rounds(method, params, &self.0.patience())
            .await
    }

    async fn list<T: DeserializeOwned>(
        &self,
        method: &str,
        key: &str,
        has: impl Fn(&ServerCapabilities) -> bool,
    ) -> Result<Vec<T>> {
        let client = self.0.client().await?;
        if !has(&client.info().capabilities) {
            return Ok(Vec::new());
        }
        let listed = self
            .0
            .list_all(&client, method, key, self.0.config.idle_limit)
            .await?;
        self.0.typed(method, Value::Array(listed.items))
    }
}

/// A part of an answer, which may be anything at all.
fn part(mut answer: Value, pointer: &str) -> Value {
    answer
        .pointer_mut(pointer)
        .map(Value::take)
        .unwrap_or_default()
}

impl Shared {
    fn typed<T: DeserializeOwned>(&self, method: &str, value: Value) -> Result<T> {
        serde_json::from_value(value).map_err(|error| {
            let words = format!("the answer to `{method}` is not what the protocol says: {error}");
            Error::new(ErrorKind::Protocol, self.config.name.clone(), words)
        })
    }

    pub(super) fn patience(&self) -> Patience<'static> {
        Patience {
            total: self.config.call_limit,
            idle: self.config.idle_limit,
            ..Patience::of(self.config.call_limit)
        }
    }

    /// Asks again for word about everything that somebody wanted word about.
    pub(super) async fn resubscribe(&self, client: &Client) {
        let uris: Vec<String> = self.subscriptions().iter().cloned().collect();
        for uri in uris {
            let _ = client
                .ask(
                    "resources/subscribe",
                    json!({"uri": uri}),
                    &Patience::of(self.config.idle_limit),
                )
                .await;
        }
    }
}
