//! A server with every feature that the official conformance suite requires.
//!
//! ```text
//! cargo run --example mcp_conformance_server -- 127.0.0.1:0      # over HTTP; prints its address
//! cargo run --example mcp_conformance_server -- stdio            # over standard input and output
//! ```

use std::env;
use std::time::Duration;

use async_trait::async_trait;
use levity::core::{Media, Role, ToolError, ToolSpec, World as _};
use levity::runtime::SystemWorld;
use levity::serve::mcp::{
    Block, ClientLogLevel, Completer, Completion, CompletionRequest, ElicitForm, ElicitReply,
    Handler, HandlerCall, HandlerReply, McpServer, Page, Prompt, PromptArgument, PromptReply,
    PromptRequest, Prompts, RequestError, Resource, ResourceContent, ResourceRequest,
    ResourceTemplate, Resources, SampleRequest, TaskSupport,
};
use levity::serve::{AccessControl, Listener};
use serde_json::{Value, json};

/// One red pixel.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0,
    1, 0, 0, 0, 1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde, 0, 0, 0, 0x0c, 0x49, 0x44, 0x41, 0x54,
    0x08, 0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0, 0, 3, 1, 1, 0, 0x18, 0xdd, 0x8d, 0xb0, 0, 0, 0, 0, 0x49,
    0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// A WAV file without samples.
const WAV: &[u8] =
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = env::args().nth(1) else {
        println!("usage: mcp_conformance_server ADDRESS|stdio");
        return Ok(());
    };
    let server = server()?;
    if address == "stdio" {
        return Ok(server.stdio().await?);
    }
    // Every program on this machine may connect, because the server has nothing to protect.
    let listener = Listener::bind(&address, AccessControl::open()).await?;
    println!("http://{}/mcp", listener.address());
    Ok(server.listen(listener).await?)
}

fn server() -> levity::serve::Result<McpServer> {
    let mut builder = McpServer::builder("levity-conformance", env!("CARGO_PKG_VERSION"))
        .title("levity's conformance server")
        .instructions("Everything here is for tests.")
        .resources(TestResources)
        .prompts(TestPrompts)
        .completions(WordCompleter);
    for tool in TOOLS {
        let spec = ToolSpec::new(tool.name, tool.about);
        let spec = match schema(tool.name) {
            Some(schema) => spec.with_input(schema),
            None => spec,
        };
        builder = builder.handler(Fixture {
            spec,
            behavior: tool.behavior,
        });
    }
    builder.build()
}

struct Fixture {
    spec: ToolSpec,
    behavior: Behavior,
}

#[async_trait]
impl Handler for Fixture {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn task_support(&self) -> TaskSupport {
        match self.behavior {
            Behavior::Wait | Behavior::Break | Behavior::ConfirmDelete | Behavior::AskTwice => {
                TaskSupport::Optional
            }
            Behavior::FailLater => TaskSupport::Required,
            Behavior::AskFirst => TaskSupport::Deferred,
            _ => TaskSupport::Forbidden,
        }
    }

    async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError> {
        match self.behavior {
            Behavior::Show(show) => Ok(show()),
            Behavior::Fail => Err(ToolError::failed(
                "This tool intentionally returns an error for testing",
            )
            .into()),
            Behavior::Log => log(&call).await,
            Behavior::Progress => progress(&call).await,
            Behavior::Sample => sample(&call).await,
            Behavior::Elicit(form) => elicit(&call, form).await,
            Behavior::Ask(ask) => ask_client(&call, ask).await,
            Behavior::Change => {
                call.client.changes().tools();
                call.client.changes().prompts();
                Ok(HandlerReply::text("Clients were notified."))
            }
            Behavior::Take => Ok(HandlerReply::text(call.args.to_string())),
            Behavior::Greet => Ok(HandlerReply::text(format!(
                "Hello, {}!",
                call.args["name"].as_str().unwrap_or("you")
            ))),
            Behavior::Wait => {
                let seconds = call.args["seconds"]
                    .as_f64()
                    .unwrap_or(1.0)
                    .clamp(0.0, 600.0);
                SystemWorld.sleep(Duration::from_secs_f64(seconds)).await;
                Ok(HandlerReply::text(format!("computed for {seconds} s")))
            }
            Behavior::FailLater => {
                SystemWorld.sleep(Duration::from_millis(300)).await;
                Err(ToolError::failed("This job always fails").into())
            }
            Behavior::Break => Err(RequestError::failed("the job failed")),
            Behavior::ConfirmDelete => {
                let reply = call
                    .client
                    .named("confirm")
                    .elicit(confirm_form("Delete the file?"))
                    .await?;
                Ok(HandlerReply::text(
                    if matches!(reply, ElicitReply::Accept(_)) {
                        "deleted"
                    } else {
                        "kept"
                    },
                ))
            }
            Behavior::AskTwice => {
                let (one, two) = (call.client.named("first"), call.client.named("second"));
                let (one, two) = tokio::join!(
                    one.elicit(confirm_form("The first?")),
                    two.elicit(confirm_form("The second?"))
                );
                one.and(two).map_err(RequestError::from)?;
                Ok(HandlerReply::text("both were answered"))
            }
            Behavior::AskFirst => {
                let form = ElicitForm::new(
                    "What is your name?",
                    json!({
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    }),
                );
                let reply = call.client.named("user_name").elicit(form).await?;
                call.client.become_task().await;
                SystemWorld.sleep(Duration::from_millis(300)).await;
                match reply {
                    ElicitReply::Accept(content) => {
                        Ok(HandlerReply::text(format!("Done for {}", content["name"])))
                    }
                    _ => Ok(HandlerReply::text("Done without a name")),
                }
            }
        }
    }
}

struct ToolEntry {
    name: &'static str,
    about: &'static str,
    behavior: Behavior,
}

#[derive(Clone, Copy)]
enum Behavior {
    Show(fn() -> HandlerReply),
    Fail,
    Log,
    Progress,
    Sample,
    Elicit(fn(&Value) -> ElicitForm),
    Ask(Ask),
    Change,
    Take,
    Greet,
    Wait,
    FailLater,
    Break,
    ConfirmDelete,
    AskTwice,
    AskFirst,
}

/// The request of a tool to its client.
#[derive(Clone, Copy)]
enum Ask {
    Name,
    Capital,
    Roots,
    Confirm,
    All,
    Steps,
    Supported,
}

const fn tool(name: &'static str, about: &'static str, behavior: Behavior) -> ToolEntry {
    ToolEntry {
        name,
        about,
        behavior,
    }
}

const TOOLS: &[ToolEntry] = &[
    tool(
        "test_simple_text",
        "Shows text.",
        Behavior::Show(|| HandlerReply::text("This is a simple text response for testing.")),
    ),
    tool(
        "test_image_content",
        "Shows an image.",
        Behavior::Show(|| HandlerReply::default().with(image())),
    ),
    tool(
        "test_audio_content",
        "Plays a sound.",
        Behavior::Show(|| HandlerReply::default().with(Media::bytes("audio/wav", WAV))),
    ),
    tool(
        "test_embedded_resource",
        "Shows a resource.",
        Behavior::Show(|| {
            let text = ResourceContent::text(
                "test://embedded-resource",
                "This is an embedded resource content.",
            );
            HandlerReply::default().with(text.with_mime("text/plain"))
        }),
    ),
    tool(
        "test_multiple_content_types",
        "Shows text, an image and a resource.",
        Behavior::Show(|| {
            let data = ResourceContent::text(
                "test://mixed-content-resource",
                r#"{"test":"data","value":123}"#,
            );
            HandlerReply::text("Multiple content types test:")
                .with(image())
                .with(data.with_mime("application/json"))
        }),
    ),
    tool("test_error_handling", "Fails.", Behavior::Fail),
    tool(
        "test_tool_with_logging",
        "Logs its progress.",
        Behavior::Log,
    ),
    tool("test_logging_tool", "Logs its progress.", Behavior::Log),
    tool(
        "test_tool_with_progress",
        "Reports its progress.",
        Behavior::Progress,
    ),
    tool("test_reconnection", "Takes a while.", Behavior::Progress),
    tool(
        "test_sampling",
        "Samples the model of the client.",
        Behavior::Sample,
    ),
    tool(
        "test_missing_capability",
        "Samples the model of the client.",
        Behavior::Ask(Ask::Capital),
    ),
    tool(
        "test_elicitation",
        "Asks for a user name.",
        Behavior::Elicit(user_form),
    ),
    tool(
        "test_streaming_elicitation",
        "Asks for a user name.",
        Behavior::Elicit(user_form),
    ),
    tool(
        "test_elicitation_sep1034_defaults",
        "Asks with default answers.",
        Behavior::Elicit(defaults),
    ),
    tool(
        "test_elicitation_sep1330_enums",
        "Asks for choices.",
        Behavior::Elicit(choices),
    ),
    tool(
        "json_schema_2020_12_tool",
        "Tool with JSON Schema 2020-12 features",
        Behavior::Take,
    ),
    tool(
        "test_custom_headers",
        "Accepts an argument that is also a header.",
        Behavior::Take,
    ),
    tool(
        "test_trigger_tool_change",
        "Reports that the tools changed.",
        Behavior::Change,
    ),
    tool(
        "test_trigger_prompt_change",
        "Reports that the prompts changed.",
        Behavior::Change,
    ),
    tool(
        "test_input_required_result_elicitation",
        "Asks for a name.",
        Behavior::Ask(Ask::Name),
    ),
    tool(
        "test_input_required_result_sampling",
        "Samples a model.",
        Behavior::Ask(Ask::Capital),
    ),
    tool(
        "test_input_required_result_list_roots",
        "Asks for folders.",
        Behavior::Ask(Ask::Roots),
    ),
    tool(
        "test_input_required_result_request_state",
        "Asks for confirmation.",
        Behavior::Ask(Ask::Confirm),
    ),
    tool(
        "test_input_required_result_tampered_state",
        "Asks for confirmation.",
        Behavior::Ask(Ask::Confirm),
    ),
    tool(
        "test_input_required_result_multiple_inputs",
        "Asks for several inputs at once.",
        Behavior::Ask(Ask::All),
    ),
    tool(
        "test_input_required_result_multi_round",
        "Asks twice.",
        Behavior::Ask(Ask::Steps),
    ),
    tool(
        "test_input_required_result_capabilities",
        "Asks for what the client supports.",
        Behavior::Ask(Ask::Supported),
    ),
    tool("greet", "Says hello.", Behavior::Greet),
    tool(
        "slow_compute",
        "Takes the given number of seconds.",
        Behavior::Wait,
    ),
    tool("failing_job", "Fails after a while.", Behavior::FailLater),
    tool(
        "protocol_error_job",
        "Fails with a protocol error.",
        Behavior::Break,
    ),
    tool(
        "confirm_delete",
        "Asks before it deletes.",
        Behavior::ConfirmDelete,
    ),
    tool(
        "multi_input",
        "Asks two things at once.",
        Behavior::AskTwice,
    ),
    tool(
        "test_tool_with_task",
        "Asks, then works as a task.",
        Behavior::AskFirst,
    ),
];

fn confirm_form(text: &str) -> ElicitForm {
    ElicitForm::new(
        text,
        json!({
            "type": "object",
            "properties": {"confirm": {"type": "boolean"}},
            "required": ["confirm"],
        }),
    )
}

fn schema(tool: &str) -> Option<Value> {
    let text = |name: &str, about: &str| {
        json!({
            "type": "object",
            "properties": {name: {"type": "string", "description": about}},
            "required": [name],
        })
    };
    Some(match tool {
        "greet" => text("name", "The name to greet"),
        "slow_compute" => json!({
            "type": "object",
            "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}},
        }),
        "confirm_delete"
        | "multi_input"
        | "failing_job"
        | "protocol_error_job"
        | "test_tool_with_task" => {
            json!({"type": "object"})
        }
        "test_sampling" => text("prompt", "What to ask"),
        "test_elicitation" => text("message", "What to show"),
        "test_custom_headers" => json!({
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }),
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }},
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {
                "properties": {"contactMethod": {"const": "phone"}},
                "required": ["contactMethod"],
            },
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        }),
        _ => return None,
    })
}

fn image() -> Media {
    Media::bytes("image/png", PNG)
}

async fn log(call: &HandlerCall) -> Result<HandlerReply, RequestError> {
    for text in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        call.client.log(ClientLogLevel::Info, text);
        SystemWorld.sleep(Duration::from_millis(50)).await;
    }
    Ok(HandlerReply::text("All messages were logged."))
}

async fn progress(call: &HandlerCall) -> Result<HandlerReply, RequestError> {
    for done in [0.0, 50.0, 100.0] {
        call.client.progress(done, Some(100.0), None);
        SystemWorld.sleep(Duration::from_millis(50)).await;
    }
    Ok(HandlerReply::text("It is done."))
}

async fn sample(call: &HandlerCall) -> Result<HandlerReply, RequestError> {
    let prompt = call.args["prompt"].as_str().unwrap_or_default();
    let reply = call.client.sample(SampleRequest::new(prompt, 100)).await?;
    Ok(HandlerReply::text(format!(
        "LLM response: {:?}",
        reply.parts
    )))
}

async fn elicit(
    call: &HandlerCall,
    form: fn(&Value) -> ElicitForm,
) -> Result<HandlerReply, RequestError> {
    let text = match call.client.elicit(form(&call.args)).await? {
        ElicitReply::Accept(content) => {
            format!("action=accept, content={}", Value::Object(content))
        }
        ElicitReply::Decline => "action=decline".to_owned(),
        _ => "action=cancel".to_owned(),
    };
    Ok(HandlerReply::text(format!("Elicitation completed: {text}")))
}

fn user_form(args: &Value) -> ElicitForm {
    let message = args["message"]
        .as_str()
        .unwrap_or("What is your user name?");
    ElicitForm::new(
        message,
        json!({
            "type": "object",
            "properties": {
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            },
            "required": ["username", "email"],
        }),
    )
}

fn defaults(_: &Value) -> ElicitForm {
    ElicitForm::new(
        "What are your details?",
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {
                    "type": "string",
                    "enum": ["active", "inactive", "pending"],
                    "default": "active",
                },
                "verified": {"type": "boolean", "default": true},
            },
        }),
    )
}

fn choices(_: &Value) -> ElicitForm {
    let options = json!(["option1", "option2", "option3"]);
    let titled = json!([
        {"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]);
    ElicitForm::new(
        "Which?",
        json!({
            "type": "object",
            "properties": {
                "untitledSingle": {"type": "string", "enum": options},
                "titledSingle": {"type": "string", "oneOf": titled},
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                "titledMulti": {"type": "array", "items": {"anyOf": titled}},
            },
        }),
    )
}

fn field(message: &str, name: &str, kind: &str) -> ElicitForm {
    let schema =
        json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
    ElicitForm::new(message, schema)
}

async fn ask_client(call: &HandlerCall, ask: Ask) -> Result<HandlerReply, RequestError> {
    let client = &call.client;
    let name = || client.named("user_name");
    let name = || async move {
        name()
            .elicit(field("What is your name?", "name", "string"))
            .await
    };
    let capital = SampleRequest::new("What is the capital of France?", 100);
    let text = match ask {
        Ask::Name => match name().await? {
            ElicitReply::Accept(content) => {
                format!("Hello, {}!", content["name"].as_str().unwrap_or_default())
            }
            _ => "Hello, stranger!".to_owned(),
        },
        Ask::Capital => format!(
            "{:?}",
            client
                .named("capital_question")
                .sample(capital)
                .await?
                .parts
        ),
        Ask::Roots => format!("{:?}", client.named("client_roots").roots().await?),
        Ask::Confirm => {
            let reply = client
                .named("confirm")
                .elicit(field("Please confirm", "ok", "boolean"))
                .await?;
            format!("state-ok: {reply:?}")
        }
        Ask::All => {
            let (greeting, roots) = (client.named("greeting"), client.named("client_roots"));
            let greeting = greeting.sample(SampleRequest::new("Generate a greeting", 50));
            let (name, greeting, roots) = tokio::join!(name(), greeting, roots.roots());
            format!("{:?} {:?} {:?}", name?, greeting?, roots?)
        }
        Ask::Steps => {
            let step1 = client.named("step1");
            let name = step1
                .elicit(field("Step 1: What is your name?", "name", "string"))
                .await?;
            let step2 = client.named("step2");
            let color = step2
                .elicit(field(
                    "Step 2: What is your favorite color?",
                    "color",
                    "string",
                ))
                .await?;
            format!("{name:?} {color:?}")
        }
        Ask::Supported if client.capabilities().elicit => format!("{:?}", name().await?),
        Ask::Supported => format!("{:?}", client.sample(capital).await?.parts),
    };
    Ok(HandlerReply::text(text))
}

struct TestResources;

#[async_trait]
impl Resources for TestResources {
    async fn list(&self, _: Option<&str>) -> Result<Page<Resource>, RequestError> {
        Ok(Page::all([
            Resource::new("test://static-text", "static-text")
                .with_mime("text/plain")
                .with_description("Some text."),
            Resource::new("test://static-binary", "static-binary")
                .with_mime("image/png")
                .with_description("A pixel."),
            Resource::new("test://watched-resource", "watched-resource")
                .with_description("It may change."),
        ]))
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, RequestError> {
        let template = ResourceTemplate::new("test://template/{id}/data", "template");
        Ok(Page::all([template
            .with_mime("application/json")
            .with_description("One for each id.")]))
    }

    async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError> {
        let uri = &*ask.uri;
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let content = match (uri, id) {
            ("test://static-text", _) => {
                ResourceContent::text(uri, "This is the content of the static text resource.")
                    .with_mime("text/plain")
            }
            ("test://static-binary", _) => ResourceContent::bytes(uri, PNG).with_mime("image/png"),
            ("test://watched-resource", _) => ResourceContent::text(uri, "It has not changed yet."),
            (_, Some(id)) => {
                let data =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                ResourceContent::text(uri, data.to_string()).with_mime("application/json")
            }
            _ => return Err(RequestError::not_found("no resource has this URI")),
        };
        Ok(vec![content])
    }

    fn reports_updates(&self) -> bool {
        true
    }
}

struct TestPrompts;

#[async_trait]
impl Prompts for TestPrompts {
    async fn list(&self, _: Option<&str>) -> Result<Page<Prompt>, RequestError> {
        let argument = |name: &str| PromptArgument::required(name).with_description("For tests");
        Ok(Page::all([
            Prompt::new("test_simple_prompt").with_description("Returns a fixed text."),
            Prompt::new("test_prompt_with_arguments")
                .with_description("Returns its arguments.")
                .with_argument(argument("arg1"))
                .with_argument(argument("arg2")),
            Prompt::new("test_prompt_with_embedded_resource")
                .with_description("Shows a resource.")
                .with_argument(argument("resourceUri")),
            Prompt::new("test_prompt_with_image").with_description("Shows an image."),
            Prompt::new("test_input_required_result_prompt").with_description("Asks first."),
        ]))
    }

    async fn get(&self, ask: PromptRequest) -> Result<PromptReply, RequestError> {
        let arg = |name: &str| ask.args.get(name).cloned().unwrap_or_default();
        let then = |reply: PromptReply, text: &str| reply.then(Role::User, Block::from(text));
        Ok(match &*ask.name {
            "test_simple_prompt" => PromptReply::user("This is a simple prompt for testing."),
            "test_prompt_with_arguments" => {
                let (arg1, arg2) = (arg("arg1"), arg("arg2"));
                PromptReply::user(format!(
                    "Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
                ))
            }
            "test_prompt_with_embedded_resource" => {
                let text = ResourceContent::text(
                    arg("resourceUri"),
                    "Embedded resource content for testing.",
                );
                then(
                    PromptReply::user(text.with_mime("text/plain")),
                    "Please process the embedded resource above.",
                )
            }
            "test_prompt_with_image" => then(
                PromptReply::user(image()),
                "Please analyze the image above.",
            ),
            "test_input_required_result_prompt" => {
                let form = field("What context should the prompt use?", "context", "string");
                let reply = ask.client.named("user_context").elicit(form).await?;
                PromptReply::user(format!("The context is {reply:?}."))
            }
            _ => return Err(RequestError::not_found("no prompt has this name")),
        })
    }
}

struct WordCompleter;

#[async_trait]
impl Completer for WordCompleter {
    async fn complete(&self, completing: CompletionRequest) -> Result<Completion, RequestError> {
        let known = ["paris", "park", "party", "test"];
        Ok(Completion::new(
            known
                .into_iter()
                .filter(|word| word.starts_with(&completing.value)),
        ))
    }
}
