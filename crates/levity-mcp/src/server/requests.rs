//! Requests to a server other than tool calls.
//!
//! Each request has the call timeout in total and the idle timeout without activity. A server of
//! the newer protocol may ask for input before it answers; `request_in_rounds` handles that.
//! Responses are parsed leniently: a field that levity does not know is ignored, and a list that is
//! missing is an error of the kind `Protocol`.

use levity_core::ToolOutput;
use levity_rpc::mcp::{PromptMessage, ResourceContents, ServerCapabilities};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Server, ServerInner};
use crate::client::{Client, Era, RequestLimits};
use crate::convert;
use crate::items::{Prompt, PromptReply, Resource, ResourceContent, ResourceTemplate};
use crate::{Error, ErrorKind, Result};

impl Server {
    /// Pings the server and returns the response time.
    ///
    /// An error response counts as alive. The limit is 10 s, or the idle timeout if that is
    /// shorter. The newer protocol has no ping, so levity sends `server/discover` there.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable or does not respond in time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_mcp::{Servers, WaitFor};
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [{"name": "now"}],
    /// #                 "content": [{"type": "text", "text": "noon"}],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let servers = Servers::builder().server(clock()).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let clock = servers.get("clock").expect("it is configured");
    /// assert!(clock.ping().await? < Duration::from_secs(10));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<std::time::Duration> {
        let client = self.0.client().await?;
        let started = self.0.world.now();
        self.0.check_alive(&client).await?;
        Ok(self.0.world.now().since(started))
    }

    /// Lists the server's resources; empty if it has none.
    ///
    /// levity follows all pages of the list, up to 200 pages and 10,000 items.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or sends an invalid
    /// response.
    ///
    /// ```
    /// use levity_mcp::{Servers, WaitFor};
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [],
    /// #                 "resources": [{"uri": "clock://now", "name": "now"}],
    /// #                 "contents": [{"uri": "clock://now", "text": "noon"}],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let servers = Servers::builder().server(clock()).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let clock = servers.get("clock").expect("it is configured");
    /// let resource = clock.resources().await?.remove(0);
    /// let content = clock.read_resource(&resource.uri).await?.remove(0);
    /// assert_eq!(content.text.as_deref(), Some("noon"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resources(&self) -> Result<Vec<Resource>> {
        self.list("resources/list", "resources", |has| has.resources.is_some())
            .await
    }

    /// Lists the server's templates for URIs of resources.
    ///
    /// # Errors
    /// Returns the errors of [`resources`](Self::resources).
    pub async fn resource_templates(&self) -> Result<Vec<ResourceTemplate>> {
        self.list("resources/templates/list", "resourceTemplates", |has| {
            has.resources.is_some()
        })
        .await
    }

    /// Reads a resource; one URI may yield several contents.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or does not have the
    /// resource.
    pub async fn read_resource(&self, uri: &str) -> Result<Vec<ResourceContent>> {
        let result = self
            .send_request("resources/read", json!({"uri": uri}))
            .await?;
        self.0
            .parse_result("resources/read", take_part(result, "/contents"))
    }

    /// Reads a resource as an agent sees it: text as text, images as images.
    pub(crate) async fn read_content(&self, uri: &str) -> Result<ToolOutput> {
        let result = self
            .send_request("resources/read", json!({"uri": uri}))
            .await?;
        let contents: Vec<ResourceContents> = self
            .0
            .parse_result("resources/read", take_part(result, "/contents"))?;
        let mut output = ToolOutput::default();
        output.content = convert::resource(contents);
        Ok(output)
    }

    /// Subscribes to changes of a resource, which levity reports as
    /// [`ResourcesChanged`](crate::ServerEventKind::ResourcesChanged). levity renews the
    /// subscription when the server restarts.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or does not support
    /// subscriptions.
    ///
    /// A subscription lasts until [`unsubscribe`](Self::unsubscribe) or until the servers are
    /// dropped.
    pub async fn subscribe(&self, uri: &str) -> Result<()> {
        let client = self.0.client().await?;
        let can_subscribe = client
            .info()
            .capabilities
            .resources
            .as_ref()
            .and_then(|has| has.subscribe);
        if can_subscribe != Some(true) {
            let message = "it does not support subscriptions to resources";
            return Err(Error::new(
                ErrorKind::Unsupported,
                self.0.config.name.clone(),
                message,
            ));
        }
        let is_new = self.0.subscriptions().insert(uri.to_owned());
        if client.era() == Era::Modern {
            if is_new {
                self.0.subscriptions_changed.notify_one();
            }
            return Ok(());
        }
        self.send_request("resources/subscribe", json!({"uri": uri}))
            .await
            .map(drop)
    }

    /// Cancels the subscription to a resource.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable or does not respond in time.
    pub async fn unsubscribe(&self, uri: &str) -> Result<()> {
        let was_there = self.0.subscriptions().remove(uri);
        let client = self.0.client().await?;
        if client.era() == Era::Modern {
            if was_there {
                self.0.subscriptions_changed.notify_one();
            }
            return Ok(());
        }
        self.send_request("resources/unsubscribe", json!({"uri": uri}))
            .await
            .map(drop)
    }

    /// Lists the server's prompts; empty if it has none.
    ///
    /// # Errors
    /// Returns the errors of [`resources`](Self::resources).
    ///
    /// ```
    /// use levity_mcp::{Servers, WaitFor};
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [], "prompts": [
    /// #                     {"name": "greet", "arguments": [{"name": "name", "required": true}]},
    /// #                 ],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let servers = Servers::builder().server(clock()).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let clock = servers.get("clock").expect("it is configured");
    /// let prompts = clock.prompts().await?;
    /// assert_eq!(prompts[0].name, "greet");
    /// assert!(prompts[0].arguments[0].required);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prompts(&self) -> Result<Vec<Prompt>> {
        self.list("prompts/list", "prompts", |has| has.prompts.is_some())
            .await
    }

    /// Returns a prompt with its arguments filled in; `args` is an object of strings.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or does not have the
    /// prompt.
    pub async fn prompt(&self, name: &str, args: Value) -> Result<PromptReply> {
        let args = if args.is_null() { json!({}) } else { args };
        let result = self
            .send_request("prompts/get", json!({"name": name, "arguments": args}))
            .await?;
        let description = result
            .get("description")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let messages: Vec<PromptMessage> = self
            .0
            .parse_result("prompts/get", take_part(result, "/messages"))?;
        Ok(PromptReply {
            description,
            messages: messages.into_iter().map(convert::message).collect(),
        })
    }

    /// Completes an argument of a prompt: returns possible values that start with `prefix`.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or does not support
    /// completion.
    pub async fn complete_prompt(
        &self,
        prompt: &str,
        argument: &str,
        prefix: &str,
    ) -> Result<Vec<String>> {
        self.complete(
            json!({"type": "ref/prompt", "name": prompt}),
            argument,
            prefix,
        )
        .await
    }

    /// Completes a variable in the URI template of a resource: returns possible values that start
    /// with `prefix`.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or does not support
    /// completion.
    pub async fn complete_resource(
        &self,
        template: &str,
        argument: &str,
        prefix: &str,
    ) -> Result<Vec<String>> {
        self.complete(
            json!({"type": "ref/resource", "uri": template}),
            argument,
            prefix,
        )
        .await
    }

    /// Sets the minimum severity of the server's log messages: `debug`, `info`, `warning`, `error`
    /// and so on. Only the older protocol supports this.
    ///
    /// # Errors
    /// Returns an error if the server is unavailable, does not respond in time or rejects the
    /// level.
    pub async fn set_log_level(&self, level: &str) -> Result<()> {
        self.send_request("logging/setLevel", json!({"level": level}))
            .await
            .map(drop)
    }

    /// Requests completions of an argument of a prompt or a template.
    async fn complete(
        &self,
        reference: Value,
        argument: &str,
        prefix: &str,
    ) -> Result<Vec<String>> {
        let params = json!({"ref": reference, "argument": {"name": argument, "value": prefix}});
        let result = self.send_request("completion/complete", params).await?;
        self.0.parse_result(
            "completion/complete",
            take_part(result, "/completion/values"),
        )
    }

    /// Sends a request with the default limits, without a permit: such requests are short, and a
    /// status page must work while calls use all permits.
    async fn send_request(&self, method: &str, params: Value) -> Result<Value> {
        let client = self.0.client().await?;
        client
            .request_in_rounds(method, params, &self.0.limits())
            .await
    }

    /// Lists items of one kind, if the server announces them. A server without the capability is
    /// not asked, because some of them never answer.
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
            .list_all(&client, method, key, self.0.config.idle_timeout)
            .await?;
        self.0.parse_result(method, Value::Array(listed.items))
    }
}

/// Takes a part of a response, which may be any JSON value.
fn take_part(mut answer: Value, pointer: &str) -> Value {
    answer
        .pointer_mut(pointer)
        .map(Value::take)
        .unwrap_or_default()
}

impl ServerInner {
    /// Converts a part of a response. The error names the method; the parser's reason in it may
    /// quote a value of the response.
    fn parse_result<T: DeserializeOwned>(&self, method: &str, value: Value) -> Result<T> {
        serde_json::from_value(value).map_err(|error| {
            let message = format!("the response to `{method}` violates the protocol: {error}");
            Error::new(ErrorKind::Protocol, self.config.name.clone(), message)
        })
    }

    /// Returns the limits of a request: the configured timeouts, without progress and cancellation.
    pub(super) fn limits(&self) -> RequestLimits<'static> {
        RequestLimits {
            total: self.config.call_timeout,
            idle: self.config.idle_timeout,
            ..RequestLimits::within(self.config.call_timeout)
        }
    }

    /// Renews all subscriptions of the server.
    pub(super) async fn resubscribe(&self, client: &Client) {
        let uris: Vec<String> = self.subscriptions().iter().cloned().collect();
        for uri in uris {
            let _ = client
                .send_request(
                    "resources/subscribe",
                    json!({"uri": uri}),
                    &RequestLimits::within(self.config.idle_timeout),
                )
                .await;
        }
    }
}
