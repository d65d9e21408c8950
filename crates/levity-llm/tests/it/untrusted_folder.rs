//! Untrusted folders never get the user's keys.
//!
//! Each case is a folder with a `.env`, and possibly more files, in which a user with their own
//! keys requests a model. Whatever the folder contains, none of these keys may reach the attacker's
//! server.

use std::fs;
use std::path::Path;

use levity_core::text::chain;
use levity_core::{Embedder, Message, Model, Purpose, Request};
use levity_llm::{Error, ErrorKind, Models};

use crate::server::{Answer, Seen, Server};

mod choice;
mod files;
mod profiles;

/// The keys of the user. No case may reveal one of them to the attacker.
const KEYS: [(&str, &str); 12] = [
    ("OPENAI_API_KEY", "victim-openai-1"),
    ("ANTHROPIC_API_KEY", "victim-anthropic-2"),
    ("GEMINI_API_KEY", "victim-gemini-3"),
    ("COMPATIBLE_API_KEY", "victim-compatible-4"),
    ("OLLAMA_API_KEY", "victim-ollama-5"),
    ("GITHUB_TOKEN", "victim-github-6"),
    ("AWS_SECRET_ACCESS_KEY", "victim-aws-7"),
    ("GROQ_API_KEY", "victim-groq-8"),
    ("GOOGLE_ACCESS_TOKEN", "victim-google-9"),
    ("GOOGLE_CLOUD_PROJECT", "project"),
    ("HOUSE_API_KEY", "victim-house-10"),
    ("MISTRAL_API_KEY", "victim-mistral-11"),
];

/// The action of the user.
#[derive(Clone, Copy)]
enum UserAction {
    /// Uses the model that the environment offers.
    Chooses,
    Model(&'static str),
    Embedder(&'static str),
    /// Runs an agent whose config, in the folder, names the model.
    Agent(&'static str),
}

/// The expected result of the action.
#[derive(Clone, Copy)]
enum Expected {
    /// The action fails, and the error contains these texts.
    Refused(&'static [&'static str]),
    /// The attacker's server gets a request with the attacker's own key.
    AttackerKey(&'static str),
    /// The attacker's server gets a request without any key.
    Keyless,
    /// The request goes to the user's address, with this key of the user.
    UserKey(&'static str),
    /// There is a model, at its provider's own address.
    Provider,
}

struct Case {
    action: UserAction,
    /// `{evil}` is the attacker's address, `{home}` the user's own, `{folder}` the folder.
    env: &'static str,
    list: &'static str,
    expected_result: Expected,
}

const fn case(action: UserAction, env: &'static str, expected_result: Expected) -> Case {
    Case {
        action,
        env,
        list: "",
        expected_result,
    }
}

/// Creates a case with a model list that the folder's `.env` names.
const fn listed(action: UserAction, list: &'static str, expected_result: Expected) -> Case {
    Case {
        action,
        env: "LEVITY_MODELS={folder}/models.json",
        list,
        expected_result,
    }
}

use Expected::{AttackerKey, Keyless, Provider, Refused, UserKey};
use UserAction::{Agent, Chooses, Embedder as Embeds, Model as Named};

const CASES: &[Case] = &[
    // Addresses of providers.
    case(
        Named("openai:m"),
        "OPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`", "`OPENAI_BASE_URL`", ".env`"]),
    ),
    case(
        Named("openai-chat:m"),
        "OPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`", "set by the program"]),
    ),
    case(
        Named("anthropic:m"),
        "ANTHROPIC_BASE_URL={evil}",
        Refused(&["`ANTHROPIC_API_KEY`", "put the key into"]),
    ),
    case(
        Named("gemini:m"),
        "GEMINI_BASE_URL={evil}",
        Refused(&["`GEMINI_API_KEY`", "yourself"]),
    ),
    case(
        Named("ollama:m"),
        "OLLAMA_HOST={evil}",
        Refused(&["`OLLAMA_API_KEY`", "`OLLAMA_HOST`"]),
    ),
    case(
        Embeds("openai:m"),
        "OPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Embeds("openai-chat:m"),
        "OPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Embeds("gemini:m"),
        "GEMINI_BASE_URL={evil}",
        Refused(&["`GEMINI_API_KEY`"]),
    ),
    case(
        Embeds("ollama:m"),
        "OLLAMA_HOST={evil}",
        Refused(&["`OLLAMA_API_KEY`"]),
    ),
    // Different spellings of the same line.
    case(
        Named("openai:m"),
        "export OPENAI_BASE_URL=\"{evil}\" # x",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Named("openai:m"),
        "\u{feff}OPENAI_BASE_URL='{evil}'\r\n",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=\nOPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=' '\nOPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Named("openai:m"),
        "GITHUB_TOKEN=x\nOPENAI_BASE_URL={evil}",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    // Both in one file: the attacker's own key, not the user's.
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=theirs\nOPENAI_BASE_URL={evil}",
        AttackerKey("Bearer theirs"),
    ),
    case(
        Named("anthropic:m"),
        "ANTHROPIC_API_KEY=theirs\nANTHROPIC_BASE_URL={evil}",
        AttackerKey("theirs"),
    ),
    case(
        Named("gemini:m"),
        "GOOGLE_API_KEY=theirs\nGEMINI_BASE_URL={evil}",
        AttackerKey("theirs"),
    ),
    case(
        Named("ollama:m"),
        "OLLAMA_API_KEY=theirs\nOLLAMA_HOST={evil}",
        AttackerKey("Bearer theirs"),
    ),
    case(
        Embeds("openai:m"),
        "OPENAI_API_KEY=theirs\nOPENAI_BASE_URL={evil}",
        AttackerKey("Bearer theirs"),
    ),
    // The file cannot refer to a variable of the user.
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=${OPENAI_API_KEY}\nOPENAI_BASE_URL={evil}",
        AttackerKey("Bearer ${OPENAI_API_KEY}"),
    ),
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=\"$(printenv GITHUB_TOKEN)\"\nOPENAI_BASE_URL={evil}",
        AttackerKey("Bearer $(printenv GITHUB_TOKEN)"),
    ),
    case(
        Named("openai:m"),
        "openai_base_url={evil}\nOPENAI-BASE-URL={evil}",
        Provider,
    ),
    // An alias of the same key does not replace the user's.
    case(
        Named("gemini:m@{home}"),
        "GOOGLE_API_KEY=theirs",
        UserKey("victim-gemini-3"),
    ),
    case(
        Named("vertex:m@{home}"),
        "GOOGLE_APPLICATION_CREDENTIALS={folder}/x",
        UserKey("Bearer victim-google-9"),
    ),
    // The user's own variables take precedence over the file.
    case(
        Named("compatible:m@{home}"),
        "COMPATIBLE_API_KEY=theirs",
        UserKey("Bearer victim-compatible-4"),
    ),
    case(
        Named("openai:m@{home}"),
        "OPENAI_BASE_URL={evil}",
        UserKey("Bearer victim-openai-1"),
    ),
    case(
        Named("anthropic:m@{home}"),
        "ANTHROPIC_BASE_URL={evil}",
        UserKey("victim-anthropic-2"),
    ),
    case(Named("openai:m"), "OPENAI_API_KEY=theirs", Provider),
    // Proxies, certificates and token servers of the file are ignored.
    case(
        Named("compatible:m@{home}"),
        "HTTP_PROXY={evil}\nhttp_proxy={evil}\nALL_PROXY={evil}\nall_proxy={evil}\n\
            HTTPS_PROXY={evil}\nNO_PROXY=",
        UserKey("Bearer victim-compatible-4"),
    ),
    case(
        Named("compatible:m@{home}"),
        "SSL_CERT_FILE={folder}/x\nOTEL_EXPORTER_OTLP_ENDPOINT={evil}\n\
            LEVITY_MCP_SERVERS={folder}/mcp.json",
        UserKey("Bearer victim-compatible-4"),
    ),
    case(
        Named("vertex:m"),
        "GOOGLE_CLOUD_LOCATION=evil.example/#",
        Provider,
    ),
    case(
        Named("vertex:m"),
        "GOOGLE_TOKEN_URI={evil}\nCLOUDSDK_CONFIG={folder}",
        Provider,
    ),
    // The name of the model may contain an address.
    case(
        Chooses,
        "LEVITY_MODEL=compatible:m@{evil}",
        Refused(&["`COMPATIBLE_API_KEY`", "`LEVITY_MODEL`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=openai:m@{evil}",
        Refused(&["`OPENAI_API_KEY`", "`LEVITY_MODEL`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=openai-chat:m@{evil}",
        Refused(&["`OPENAI_API_KEY`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=anthropic:m@{evil}",
        Refused(&["`ANTHROPIC_API_KEY`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=gemini:m@{evil}",
        Refused(&["`GEMINI_API_KEY`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=ollama:m@{evil}",
        Refused(&["`OLLAMA_API_KEY`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=groq:m@{evil}",
        Refused(&["`GROQ_API_KEY`"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:m@{evil}",
        Refused(&["Google Cloud access token"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:m@{evil}\nGOOGLE_APPLICATION_CREDENTIALS=/home/victim/adc.json",
        Refused(&["Google Cloud access token"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:m@{evil}\nGOOGLE_ACCESS_TOKEN=theirs",
        AttackerKey("Bearer theirs"),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=compatible:m@{evil}\nCOMPATIBLE_API_KEY=theirs",
        AttackerKey("Bearer theirs"),
    ),
    case(Chooses, "LEVITY_MODEL=openai:gpt-4o", Provider),
    case(
        Chooses,
        "OPENAI_BASE_URL={evil}\nGEMINI_BASE_URL={evil}",
        Refused(&["`GEMINI_API_KEY`"]),
    ),
    case(Chooses, "OPENAI_BASE_URL={evil}", Provider),
    // Model lists.
    listed(
        Named("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN"}}}"#,
        Refused(&[
            "`GITHUB_TOKEN`",
            "models.json",
            "`LEVITY_MODELS`",
            "absolute path",
        ]),
    ),
    listed(
        Named("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "AWS_SECRET_ACCESS_KEY",
            "api": "messages"}}}"#,
        Refused(&["`AWS_SECRET_ACCESS_KEY`"]),
    ),
    listed(
        Named("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}", "key": "GITHUB_TOKEN", "api": "gemini"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    listed(
        Named("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}", "key": "GITHUB_TOKEN", "api": "ollama"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    listed(
        Named("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN",
            "api": "responses"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    listed(
        Embeds("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    // The user's address, but a variable that the attacker chose.
    listed(
        Named("house:m@{home}"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    // Servers and providers under well-known names.
    listed(
        Named("groq:m"),
        r#"{"servers": {"groq": {"base_url": "{evil}/v1", "key": "GROQ_API_KEY"}}}"#,
        Refused(&["the server `groq` of"]),
    ),
    listed(
        Named("openai:m"),
        r#"{"servers": {"openai": {"base_url": "{evil}/v1", "key": "OPENAI_API_KEY"}}}"#,
        Refused(&["the server `openai` of"]),
    ),
    listed(
        Named("vertex:m"),
        r#"{"servers": {"vertex": {"base_url": "{evil}/v1", "key": "GOOGLE_ACCESS_TOKEN"}}}"#,
        Refused(&["the server `vertex` of"]),
    ),
    listed(
        Named("openai:m"),
        r#"{"servers": {"openai": {"base_url": "{evil}/v1"}}}"#,
        Refused(&["the server `openai` of"]),
    ),
    listed(
        Chooses,
        r#"{"servers": {"gemini": {"base_url": "{evil}/v1", "key": "GEMINI_API_KEY",
            "default": "m"}}}"#,
        Refused(&["the server `gemini` of"]),
    ),
    // Defaults, which may contain an address.
    listed(
        Chooses,
        r#"{"defaults": {"gemini": "m@{evil}"}}"#,
        Refused(&["`GEMINI_API_KEY`"]),
    ),
    listed(
        Chooses,
        r#"{"defaults": {"gemini": "gemini-2.5-pro"}}"#,
        Provider,
    ),
    // Profiles: their models, fallbacks, and nested profiles.
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "openai:m@{evil}"}}}"#,
        Refused(&["`OPENAI_API_KEY`", "models.json"]),
    ),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "compatible:m@{home}/v1",
            "fallback": ["anthropic:m@{evil}"]}}}"#,
        Refused(&["`COMPATIBLE_API_KEY`"]),
    ),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "openai:m", "fallback": ["anthropic:m@{evil}"]}}}"#,
        Refused(&["`ANTHROPIC_API_KEY`"]),
    ),
    listed(
        Named("a"),
        r#"{"profiles": {"a": {"model": "b"}, "b": {"model": "openai:m", "fallback": ["c"]},
            "c": {"model": "groq:m@{evil}"}}}"#,
        Refused(&["`GROQ_API_KEY`"]),
    ),
    listed(
        Named("fast"),
        r#"{"servers": {"s": {"base_url": "{evil}/v1", "key": "MISTRAL_API_KEY"}},
            "profiles": {"fast": {"model": "s:m"}}}"#,
        Refused(&["`MISTRAL_API_KEY`"]),
    ),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "openai:gpt-4o"}}}"#,
        Provider,
    ),
    Case {
        action: Named("house:m"),
        env: "LEVITY_MODELS={folder}/models.json\nHOUSE_API_KEY=theirs",
        list: r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "HOUSE_API_KEY"}}}"#,
        expected_result: Refused(&["`HOUSE_API_KEY`", "models.json", "absolute path"]),
    },
    // The key of a `.env` is not sent to the address of another file either, which may have changed
    // since.
    Case {
        action: Named("house:m"),
        env: "LEVITY_MODELS={folder}/models.json\nENV_ONLY_KEY=theirs",
        list: r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "ENV_ONLY_KEY"}}}"#,
        expected_result: Refused(&["`ENV_ONLY_KEY`", "models.json", "absolute path"]),
    },
    Case {
        action: Named("fast"),
        env: "LEVITY_MODELS={folder}/models.json\nOPENAI_API_KEY=theirs",
        list: r#"{"profiles": {"fast": {"model": "openai:m@{evil}"}}}"#,
        expected_result: Refused(&["`OPENAI_API_KEY`", "models.json"]),
    },
    Case {
        action: Chooses,
        env: "LEVITY_MODELS={folder}/models.json\nOPENAI_API_KEY=theirs",
        list: r#"{"defaults": {"gemini": "m@{evil}"}}"#,
        expected_result: Refused(&["`GEMINI_API_KEY`", "models.json"]),
    },
    Case {
        action: Named("house:m"),
        env: "LEVITY_MODELS={folder}/models.json",
        list: r#"{"servers": {"house": {"base_url": "{evil}/v1"}}}"#,
        expected_result: Keyless,
    },
    // Projects in the name of a model.
    case(
        Chooses,
        "LEVITY_MODEL=vertex:projects/evil/locations/global/endpoints/1",
        Refused(&[
            "Google Cloud access token",
            "projects/evil",
            "`LEVITY_MODEL`",
        ]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:./projects/evil/x",
        Refused(&["projects/evil"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:projects/evil/x\nGOOGLE_APPLICATION_CREDENTIALS=/home/victim/adc.json",
        Refused(&["projects/evil"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:projects/evil/x\nGOOGLE_ACCESS_TOKEN=theirs",
        Provider,
    ),
    case(Chooses, "LEVITY_MODEL=vertex:gemini-2.5-pro", Provider),
    case(
        Agent("vertex:projects/evil/x"),
        "",
        Refused(&["projects/evil", "agent_config.yaml"]),
    ),
    case(Named("vertex:projects/mine/x"), "", Provider),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "vertex:projects/evil/x"}}}"#,
        Refused(&["projects/evil"]),
    ),
    Case {
        action: Chooses,
        env: "LEVITY_MODELS={folder}/models.json\nLEVITY_MODEL=fast",
        list: r#"{"profiles": {"fast": {"model": "openai:m@{evil}"}}}"#,
        expected_result: Refused(&["`OPENAI_API_KEY`"]),
    },
    // Agent configs.
    case(
        Agent("openai:m@{evil}"),
        "",
        Refused(&["`OPENAI_API_KEY`", "agent_config.yaml"]),
    ),
    case(
        Agent("compatible:m@{evil}"),
        "COMPATIBLE_API_KEY=theirs",
        Refused(&["`COMPATIBLE_API_KEY`"]),
    ),
    case(
        Agent("vertex:m@{evil}"),
        "",
        Refused(&["Google Cloud access token"]),
    ),
    case(Agent("openai:gpt-4o"), "", Provider),
];

struct Folder {
    dir: tempfile::TempDir,
    evil: Server,
    home: Server,
}

impl Folder {
    async fn create(case: &Case) -> Self {
        let answer = || Server::with_answer(Answer::json(200, "{}"));
        let (dir, evil, home) = (tempfile::tempdir().unwrap(), answer().await, answer().await);
        let folder = Self { dir, evil, home };
        fs::write(
            folder.path().join(".env"),
            folder.fill_placeholders(case.env),
        )
        .unwrap();
        fs::write(
            folder.path().join("models.json"),
            folder.fill_placeholders(case.list),
        )
        .unwrap();
        folder
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn fill_placeholders(&self, text: &str) -> String {
        let folder = self.path().to_str().unwrap();
        text.replace("{evil}", self.evil.url())
            .replace("{home}", self.home.url())
            .replace("{folder}", folder)
    }

    fn models(&self) -> Result<Models, Error> {
        let own = KEYS.iter().fold(Models::new(), |models, (name, key)| {
            models.with_variable(*name, *key)
        });
        own.with_env_file(self.path().join(".env"))
    }

    /// Creates the requested model, and sends it a request unless it is at a provider's own
    /// address.
    async fn run_action(&self, case: &Case) -> Result<(), Error> {
        let models = self.models()?;
        let model = match case.action {
            Chooses => Ok(models.choose()?.into_model()),
            Named(name) => models.model(&self.fill_placeholders(name)),
            Agent(name) => models.model_named_in(
                self.path().join("agent_config.yaml"),
                &self.fill_placeholders(name),
            ),
            Embeds(name) => {
                let embedder = models.embedder(&self.fill_placeholders(name))?;
                embed(&*embedder).await;
                return Ok(());
            }
        };
        let model = model?;
        if !matches!(case.expected_result, Provider) {
            complete(&*model).await;
        }
        Ok(())
    }
}

async fn complete(model: &dyn Model) {
    // The reply is invalid; only the destination of the request matters.
    let _ = model
        .complete(Request::new().with_message(Message::user("Well?")))
        .await;
}

async fn embed(embedder: &dyn Embedder) {
    let _ = embedder.embed(&["text".to_owned()], Purpose::Query).await;
}

/// Returns the key in a request.
fn key(seen: &Seen) -> String {
    let names = ["authorization", "x-api-key", "x-goog-api-key"];
    names.iter().map(|name| seen.header(name)).collect()
}

#[tokio::test]
async fn user_keys_never_reach_address_from_folder() {
    for (at, case) in CASES.iter().enumerate() {
        let folder = Folder::create(case).await;
        let done = folder.run_action(case).await;
        let about = format!("case {at}: {}{} {done:?}", case.env, case.list);
        let (evil, home) = (folder.evil.seen(), folder.home.seen());
        let shown = format!("{evil:?}");
        for (_, key) in KEYS.iter().filter(|(_, key)| key.starts_with("victim")) {
            assert!(!shown.contains(key), "{about}: {shown}");
        }
        let keys = |seen: &[Seen]| seen.iter().map(key).collect::<Vec<_>>();
        match case.expected_result {
            Refused(parts) => {
                let error = done.expect_err(&about);
                assert_eq!(error.kind(), ErrorKind::Untrusted, "{about}");
                let text = error.to_string();
                assert!(
                    parts.iter().all(|part| text.contains(part)),
                    "{about}: {text}"
                );
                assert!(!text.contains("victim"), "{text}");
                assert!(evil.is_empty() && home.is_empty(), "{about}");
            }
            AttackerKey(key) => {
                done.expect(&about);
                assert_eq!(keys(&evil), [key], "{about}");
            }
            Keyless => {
                done.expect(&about);
                assert_eq!(keys(&evil), [""], "{about}");
            }
            UserKey(key) => {
                done.expect(&about);
                assert!(evil.is_empty(), "{about}");
                assert_eq!(keys(&home), [key], "{about}");
            }
            Provider => {
                done.expect(&about);
                assert!(evil.is_empty() && home.is_empty(), "{about}");
            }
        }
    }
    assert!(CASES.len() >= 40);
}
