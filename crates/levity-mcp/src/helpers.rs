//! Tools that help an agent to explore its servers.
//!
//! With many servers, the definitions of all tools may be too much for the context of a model. An
//! agent with these tools can look for a tool and read its definition only when it needs it. They
//! read levity's own state, so they work while a server is away, and they are marked as read-only,
//! so no policy asks for approval by default.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use crate::{Server, Servers};

impl Servers {
    /// Returns tools that help an agent to explore the servers: `list_mcp_servers`,
    /// `list_mcp_tools`, `get_mcp_tool_help` and `mcp_health_check`.
    ///
    /// ```
    /// use levity_core::ToolCx;
    /// use levity_mcp::{ServerConfig, Servers};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let files = ServerConfig::stdio("files", "mcp-files").disabled();
    /// let servers = Servers::builder().server(files).start()?;
    /// let list = &servers.helper_tools()[0];
    /// assert_eq!(list.spec().name, "list_mcp_servers");
    /// let output = list.call(json!({}), &ToolCx::detached()).await?;
    /// let value = output.value.unwrap_or_default();
    /// assert_eq!(value["servers"][0]["state"], "disabled");
    /// # Ok(())
    /// # }
    /// ```
    pub fn helper_tools(&self) -> Vec<Arc<dyn Tool>> {
        let server = json!({"server": {"type": "string", "description": "The name of one server; \
            all of them when left out."}});
        let tool = json!({"tool": {"type": "string", "description": "The name of the tool, as it \
            is called or as its server names it."}});
        vec![
            self.helper(
                "list_mcp_servers",
                "Lists the MCP servers with their status and number of tools.",
                &json!({}),
                &[],
                |servers, _| {
                    Box::pin(async move {
                        Ok(ToolOutput::value(json!({"servers": servers.overview()})))
                    })
                },
            ),
            self.helper(
                "list_mcp_tools",
                "Lists the tools of MCP servers with a line about each.",
                &server,
                &[],
                |servers, args| {
                    Box::pin(async move {
                        servers.tool_list(args.get("server").and_then(Value::as_str))
                    })
                },
            ),
            self.helper(
                "get_mcp_tool_help",
                "Shows what a tool of an MCP server does and takes.",
                &tool,
                &["tool"],
                |servers, args| {
                    Box::pin(
                        async move { servers.tool_help(args["tool"].as_str().unwrap_or_default()) },
                    )
                },
            ),
            self.helper(
                "mcp_health_check",
                "Checks whether MCP servers respond.",
                &server,
                &[],
                |servers, args| {
                    Box::pin(async move {
                        servers
                            .health(args.get("server").and_then(Value::as_str))
                            .await
                    })
                },
            ),
        ]
    }

    /// Returns tools for reading the resources of servers: `list_mcp_resources` and
    /// `read_mcp_resource`.
    ///
    /// The model chooses the URI, so give these tools only to agents that may read every resource
    /// of every server.
    ///
    /// ```
    /// use levity_core::ToolCx;
    /// use levity_mcp::Servers;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let servers = Servers::builder().start()?;
    /// let read = &servers.resource_tools()[1];
    /// let args = json!({"server": "notes", "uri": "file:///todo.md"});
    /// let error = read.call(args, &ToolCx::detached()).await.unwrap_err();
    /// assert!(error.to_string().contains("there is no MCP server `notes`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn resource_tools(&self) -> Vec<Arc<dyn Tool>> {
        let server = json!({"server": {"type": "string", "description": "The name of one server; \
            all of them when left out."}});
        let resource = json!({
            "server": {"type": "string", "description": "The name of the server."},
            "uri": {"type": "string", "description": "The address of the resource."},
        });
        vec![
            self.helper(
                "list_mcp_resources",
                "Lists the resources that MCP servers offer for reading.",
                &server,
                &[],
                |servers, args| {
                    Box::pin(async move {
                        servers
                            .resource_list(args.get("server").and_then(Value::as_str))
                            .await
                    })
                },
            ),
            self.helper(
                "read_mcp_resource",
                "Reads a resource of an MCP server.",
                &resource,
                &["server", "uri"],
                |servers, args| {
                    Box::pin(async move {
                        let server = servers.named(args["server"].as_str().unwrap_or_default())?;
                        server
                            .read_content(args["uri"].as_str().unwrap_or_default())
                            .await
                            .map_err(ToolError::from)
                    })
                },
            ),
        ]
    }

    /// Creates a read-only tool from a function; arguments beyond `properties` are rejected by the
    /// schema.
    fn helper(
        &self,
        name: &str,
        description: &str,
        properties: &Value,
        required: &[&str],
        work: Work,
    ) -> Arc<dyn Tool> {
        let input = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        let spec = ToolSpec::new(name, description)
            .with_input(input)
            .with_hints(Hints::new().read_only());
        Arc::new(Helper {
            spec,
            servers: self.clone(),
            work,
        })
    }

    /// Returns the server, or an error for the model that lists the names that exist.
    fn named(&self, name: &str) -> Result<Server, ToolError> {
        self.get(name).ok_or_else(|| {
            let names: Vec<_> = self
                .all()
                .iter()
                .map(|server| format!("`{}`", server.name()))
                .collect();
            ToolError::failed(format!(
                "there is no MCP server `{name}`; the servers are {}",
                names.join(", ")
            ))
        })
    }

    fn selected(&self, name: Option<&str>) -> Result<Vec<Server>, ToolError> {
        match name {
            Some(name) => Ok(vec![self.named(name)?]),
            None => Ok(self.all()),
        }
    }

    /// Returns one entry per server: its state, the reason if it is away, and at most 2 KiB of its
    /// instructions.
    fn overview(&self) -> Vec<Value> {
        let entry = |status: crate::ServerStatus| {
            let mut entry = json!({
                "name": status.name, "transport": status.transport,
                "state": status.state.to_string(), "tools": status.tools,
            });
            if let crate::ServerState::Unavailable { error, .. } = &status.state {
                entry["why"] = json!(error.to_string());
            }
            if let Some(instructions) = &status.instructions {
                entry["instructions"] = json!(crate::text::truncate(instructions, 2048));
            }
            entry
        };
        self.status().into_iter().map(entry).collect()
    }

    /// Lists the tools with the first line of each description, at most 200 bytes. The state
    /// appears only for a server that is not ready.
    fn tool_list(&self, server: Option<&str>) -> Result<ToolOutput, ToolError> {
        let mut tools = Vec::new();
        for server in self.selected(server)? {
            let state = server.0.state();
            for tool in server.0.tools().list.iter() {
                let line = tool.spec().description.lines().next().unwrap_or_default();
                let mut entry =
                    json!({"tool": tool.name(), "about": crate::text::truncate(line, 200)});
                if !state.is_ready() {
                    entry["state"] = json!(state.to_string());
                }
                tools.push(entry);
            }
        }
        Ok(ToolOutput::value(json!({"tools": tools})))
    }

    /// Returns the whole definition of a tool, found by either of its names. The first server wins.
    fn tool_help(&self, name: &str) -> Result<ToolOutput, ToolError> {
        for server in self.all() {
            let tools = server.0.tools();
            let Some(tool) = tools
                .list
                .iter()
                .find(|tool| tool.name() == name || tool.original() == name)
            else {
                continue;
            };
            let spec = tool.spec();
            return Ok(ToolOutput::value(json!({
                "tool": spec.name, "server": server.name(), "title": tool.title(),
                "description": spec.description,
                "input": spec.input, "output": spec.output, "state": server.0.state().to_string(),
            })));
        }
        Err(ToolError::failed(format!(
            "no MCP server has a tool `{name}`; call `list_mcp_tools` for the available ones"
        )))
    }

    /// Pings the servers concurrently; a server that is away is reported with the reason.
    async fn health(&self, server: Option<&str>) -> Result<ToolOutput, ToolError> {
        let servers = self.selected(server)?;
        let checks = servers.iter().map(|server| async move {
            match server.ping().await {
                Ok(time) => {
                    json!({
                        "server": server.name(),
                        "healthy": true,
                        "milliseconds": time.as_millis() as u64,
                    })
                }
                Err(error) => {
                    json!({"server": server.name(), "healthy": false, "why": error.to_string()})
                }
            }
        });
        Ok(ToolOutput::value(
            json!({"servers": futures_util::future::join_all(checks).await}),
        ))
    }

    /// Lists the resources of the servers concurrently. A server that fails has a reason in place
    /// of its list.
    async fn resource_list(&self, server: Option<&str>) -> Result<ToolOutput, ToolError> {
        let servers = self.selected(server)?;
        let listings = servers.iter().map(|server| async move {
            let (resources, templates) =
                futures_util::join!(server.resources(), server.resource_templates());
            match resources {
                Ok(resources) => json!({
                    "server": server.name(),
                    "resources": resources,
                    "templates": templates.unwrap_or_default(),
                }),
                Err(error) => json!({"server": server.name(), "why": error.to_string()}),
            }
        });
        Ok(ToolOutput::value(
            json!({"servers": futures_util::future::join_all(listings).await}),
        ))
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;
type Work = fn(Servers, Value) -> Answer;

struct Helper {
    spec: ToolSpec,
    servers: Servers,
    work: Work,
}

#[async_trait]
impl Tool for Helper {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        (self.work)(self.servers.clone(), args).await
    }
}
