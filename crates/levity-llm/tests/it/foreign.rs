//! What a folder of a stranger's can do with keys: nothing.
//!
//! Each case is a folder with a `.env`, and maybe more files, in which a user with keys of their
//! own asks for a model. Whatever the folder says, none of these keys may reach the stranger's
//! server.

use std::fs;
use std::path::Path;

use levity_core::text::chain;
use levity_core::{Embedder, Message, Model, Purpose, Request};
use levity_llm::{Error, ErrorKind, Models};

use crate::server::{Answer, Seen, Server};

/// Keys that the user has. No case may show one of them to the stranger.
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

/// What the user does.
#[derive(Clone, Copy)]
enum Asks {
    /// Takes what the environment offers.
    Chooses,
    Model(&'static str),
    Embedder(&'static str),
    /// Has an agent whose config, in the folder, names the model.
    Agent(&'static str),
}

/// What becomes of it.
#[derive(Clone, Copy)]
enum Then {
    /// It is refused, and the error says this.
    Refused(&'static [&'static str]),
    /// The stranger gets a request with a key of theirs.
    Own(&'static str),
    /// The stranger gets a request without any key.
    Keyless,
    /// The request goes to where the user wants it, with this key of the user's.
    Home(&'static str),
    /// There is a model, at its provider's own address.
    Provider,
}

struct Case {
    asks: Asks,
    /// `{evil}` is the stranger's address, `{home}` the user's own, `{folder}` the folder.
    env: &'static str,
    list: &'static str,
    then: Then,
}

const fn case(asks: Asks, env: &'static str, then: Then) -> Case {
    Case {
        asks,
        env,
        list: "",
        then,
    }
}

/// A list that the folder's `.env` names.
const fn listed(asks: Asks, list: &'static str, then: Then) -> Case {
    Case {
        asks,
        env: "LEVITY_MODELS={folder}/models.json",
        list,
        then,
    }
}

use Asks::{Agent, Chooses, Embedder as Embeds, Model as Named};
use Then::{Home, Keyless, Own, Provider, Refused};

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
    // However the line is written.
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
    // Both in one file: the stranger's own key, not the user's.
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=theirs\nOPENAI_BASE_URL={evil}",
        Own("Bearer theirs"),
    ),
    case(
        Named("anthropic:m"),
        "ANTHROPIC_API_KEY=theirs\nANTHROPIC_BASE_URL={evil}",
        Own("theirs"),
    ),
    case(
        Named("gemini:m"),
        "GOOGLE_API_KEY=theirs\nGEMINI_BASE_URL={evil}",
        Own("theirs"),
    ),
    case(
        Named("ollama:m"),
        "OLLAMA_API_KEY=theirs\nOLLAMA_HOST={evil}",
        Own("Bearer theirs"),
    ),
    case(
        Embeds("openai:m"),
        "OPENAI_API_KEY=theirs\nOPENAI_BASE_URL={evil}",
        Own("Bearer theirs"),
    ),
    // Nothing in the file stands for a variable of the user's.
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=${OPENAI_API_KEY}\nOPENAI_BASE_URL={evil}",
        Own("Bearer ${OPENAI_API_KEY}"),
    ),
    case(
        Named("openai:m"),
        "OPENAI_API_KEY=\"$(printenv GITHUB_TOKEN)\"\nOPENAI_BASE_URL={evil}",
        Own("Bearer $(printenv GITHUB_TOKEN)"),
    ),
    case(
        Named("openai:m"),
        "openai_base_url={evil}\nOPENAI-BASE-URL={evil}",
        Provider,
    ),
    // Another name for the same key does not replace the user's.
    case(
        Named("gemini:m@{home}"),
        "GOOGLE_API_KEY=theirs",
        Home("victim-gemini-3"),
    ),
    case(
        Named("vertex:m@{home}"),
        "GOOGLE_APPLICATION_CREDENTIALS={folder}/x",
        Home("Bearer victim-google-9"),
    ),
    // What the user sets counts before the file.
    case(
        Named("compatible:m@{home}"),
        "COMPATIBLE_API_KEY=theirs",
        Home("Bearer victim-compatible-4"),
    ),
    case(
        Named("openai:m@{home}"),
        "OPENAI_BASE_URL={evil}",
        Home("Bearer victim-openai-1"),
    ),
    case(
        Named("anthropic:m@{home}"),
        "ANTHROPIC_BASE_URL={evil}",
        Home("victim-anthropic-2"),
    ),
    case(Named("openai:m"), "OPENAI_API_KEY=theirs", Provider),
    // Proxies, certificates and token servers of the file do not count.
    case(
        Named("compatible:m@{home}"),
        "HTTP_PROXY={evil}\nhttp_proxy={evil}\nALL_PROXY={evil}\nall_proxy={evil}\nHTTPS_PROXY={evil}\nNO_PROXY=",
        Home("Bearer victim-compatible-4"),
    ),
    case(
        Named("compatible:m@{home}"),
        "SSL_CERT_FILE={folder}/x\nOTEL_EXPORTER_OTLP_ENDPOINT={evil}\nLEVITY_MCP_SERVERS={folder}/mcp.json",
        Home("Bearer victim-compatible-4"),
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
    // The model's name may hold an address.
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
        Refused(&["access token of Google Cloud"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:m@{evil}\nGOOGLE_APPLICATION_CREDENTIALS=/home/victim/adc.json",
        Refused(&["access token of Google Cloud"]),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=vertex:m@{evil}\nGOOGLE_ACCESS_TOKEN=theirs",
        Own("Bearer theirs"),
    ),
    case(
        Chooses,
        "LEVITY_MODEL=compatible:m@{evil}\nCOMPATIBLE_API_KEY=theirs",
        Own("Bearer theirs"),
    ),
    case(Chooses, "LEVITY_MODEL=openai:gpt-4o", Provider),
    case(
        Chooses,
        "OPENAI_BASE_URL={evil}\nGEMINI_BASE_URL={evil}",
        Refused(&["`GEMINI_API_KEY`"]),
    ),
    case(Chooses, "OPENAI_BASE_URL={evil}", Provider),
    // Lists.
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
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "AWS_SECRET_ACCESS_KEY", "api": "messages"}}}"#,
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
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN", "api": "responses"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    listed(
        Embeds("house:m"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    // The user's address, but a variable of the stranger's choice.
    listed(
        Named("house:m@{home}"),
        r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "GITHUB_TOKEN"}}}"#,
        Refused(&["`GITHUB_TOKEN`"]),
    ),
    // Servers and providers under names that are known.
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
        r#"{"servers": {"gemini": {"base_url": "{evil}/v1", "key": "GEMINI_API_KEY", "default": "m"}}}"#,
        Refused(&["the server `gemini` of"]),
    ),
    // Defaults, which may hold an address.
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
    // Profiles: their models, what stands in for them, and profiles behind profiles.
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "openai:m@{evil}"}}}"#,
        Refused(&["`OPENAI_API_KEY`", "models.json"]),
    ),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "compatible:m@{home}/v1", "fallback": ["anthropic:m@{evil}"]}}}"#,
        Refused(&["`COMPATIBLE_API_KEY`"]),
    ),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "openai:m", "fallback": ["anthropic:m@{evil}"]}}}"#,
        Refused(&["`ANTHROPIC_API_KEY`"]),
    ),
    listed(
        Named("a"),
        r#"{"profiles": {"a": {"model": "b"}, "b": {"model": "openai:m", "fallback": ["c"]}, "c": {"model": "groq:m@{evil}"}}}"#,
        Refused(&["`GROQ_API_KEY`"]),
    ),
    listed(
        Named("fast"),
        r#"{"servers": {"s": {"base_url": "{evil}/v1", "key": "MISTRAL_API_KEY"}}, "profiles": {"fast": {"model": "s:m"}}}"#,
        Refused(&["`MISTRAL_API_KEY`"]),
    ),
    listed(
        Named("fast"),
        r#"{"profiles": {"fast": {"model": "openai:gpt-4o"}}}"#,
        Provider,
    ),
    Case {
        asks: Named("house:m"),
        env: "LEVITY_MODELS={folder}/models.json\nHOUSE_API_KEY=theirs",
        list: r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "HOUSE_API_KEY"}}}"#,
        then: Refused(&["`HOUSE_API_KEY`", "models.json", "absolute path"]),
    },
    // The key of a `.env` does not follow another file either, which somebody may have changed
    // since.
    Case {
        asks: Named("house:m"),
        env: "LEVITY_MODELS={folder}/models.json\nENV_ONLY_KEY=theirs",
        list: r#"{"servers": {"house": {"base_url": "{evil}/v1", "key": "ENV_ONLY_KEY"}}}"#,
        then: Refused(&["`ENV_ONLY_KEY`", "models.json", "absolute path"]),
    },
    Case {
        asks: Named("fast"),
        env: "LEVITY_MODELS={folder}/models.json\nOPENAI_API_KEY=theirs",
        list: r#"{"profiles": {"fast": {"model": "openai:m@{evil}"}}}"#,
        then: Refused(&["`OPENAI_API_KEY`", "models.json"]),
    },
    Case {
        asks: Chooses,
        env: "LEVITY_MODELS={folder}/models.json\nOPENAI_API_KEY=theirs",
        list: r#"{"defaults": {"gemini": "m@{evil}"}}"#,
        then: Refused(&["`GEMINI_API_KEY`", "models.json"]),
    },
    Case {
        asks: Named("house:m"),
        env: "LEVITY_MODELS={folder}/models.json",
        list: r#"{"servers": {"house": {"base_url": "{evil}/v1"}}}"#,
        then: Keyless,
    },
    // Projects in the name of a model.
    case(
        Chooses,
        "LEVITY_MODEL=vertex:projects/evil/locations/global/endpoints/1",
        Refused(&[
            "access token of Google Cloud",
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
        asks: Chooses,
        env: "LEVITY_MODELS={folder}/models.json\nLEVITY_MODEL=fast",
        list: r#"{"profiles": {"fast": {"model": "openai:m@{evil}"}}}"#,
        then: Refused(&["`OPENAI_API_KEY`"]),
    },
    // Configs of agents.
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
        Refused(&["access token of Google Cloud"]),
    ),
    case(Agent("openai:gpt-4o"), "", Provider),
];

struct Folder {
    dir: tempfile::TempDir,
    evil: Server,
    home: Server,
}

impl Folder {
    async fn of(case: &Case) -> Self {
        let answer = || Server::saying(Answer::json(200, "{}"));
        let (dir, evil, home) = (tempfile::tempdir().unwrap(), answer().await, answer().await);
        let folder = Self { dir, evil, home };
        fs::write(folder.path().join(".env"), folder.filled(case.env)).unwrap();
        fs::write(folder.path().join("models.json"), folder.filled(case.list)).unwrap();
        folder
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn filled(&self, text: &str) -> String {
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

    /// Makes what is asked for, and sends something to it unless it is at a provider's own address.
    async fn ask(&self, case: &Case) -> Result<(), Error> {
        let models = self.models()?;
        let model = match case.asks {
            Chooses => Ok(models.choose()?.into_model()),
            Named(name) => models.model(&self.filled(name)),
            Agent(name) => {
                models.model_named_in(self.path().join("agent_config.yaml"), &self.filled(name))
            }
            Embeds(name) => {
                let embedder = models.embedder(&self.filled(name))?;
                embed(&*embedder).await;
                return Ok(());
            }
        };
        let model = model?;
        if !matches!(case.then, Provider) {
            complete(&*model).await;
        }
        Ok(())
    }
}

async fn complete(model: &dyn Model) {
    // The reply is none; only where the request went counts.
    let _ = model
        .complete(Request::new().with_message(Message::user("Well?")))
        .await;
}

async fn embed(embedder: &dyn Embedder) {
    let _ = embedder.embed(&["text".to_owned()], Purpose::Query).await;
}

/// The key that came with a request.
fn key(seen: &Seen) -> String {
    let names = ["authorization", "x-api-key", "x-goog-api-key"];
    names.iter().map(|name| seen.header(name)).collect()
}

#[tokio::test]
async fn keys_of_the_user_never_reach_an_address_from_a_folder() {
    for (at, case) in CASES.iter().enumerate() {
        let folder = Folder::of(case).await;
        let done = folder.ask(case).await;
        let about = format!("case {at}: {}{} {done:?}", case.env, case.list);
        let (evil, home) = (folder.evil.seen(), folder.home.seen());
        let shown = format!("{evil:?}");
        for (_, key) in KEYS.iter().filter(|(_, key)| key.starts_with("victim")) {
            assert!(!shown.contains(key), "{about}: {shown}");
        }
        let keys = |seen: &[Seen]| seen.iter().map(key).collect::<Vec<_>>();
        match case.then {
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
            Own(key) => {
                done.expect(&about);
                assert_eq!(keys(&evil), [key], "{about}");
            }
            Keyless => {
                done.expect(&about);
                assert_eq!(keys(&evil), [""], "{about}");
            }
            Home(key) => {
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

#[test]
fn chosen_model_says_which_file_chose_it_and_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".env");
    let chosen = |text: &str| {
        fs::write(&file, text).unwrap();
        Models::new()
            .with_env_file(&file)
            .unwrap()
            .choose()
            .unwrap()
            .to_string()
    };
    let env = format!("`{}`", file.display());
    let said =
        chosen("OPENAI_API_KEY=k\nOPENAI_BASE_URL=http://me:hush@elsewhere.example/v1?key=hush");
    assert!(
        said.contains(&format!("`OPENAI_API_KEY` is set in {env}")),
        "{said}"
    );
    assert!(
        said.contains("at `http://elsewhere.example/v1`") && !said.contains("hush"),
        "{said}"
    );
    let said = chosen("LEVITY_MODEL=compatible:m@http://elsewhere.example/v1?key=hush");
    assert!(
        said.starts_with("compatible:m@http://elsewhere.example/v1, since"),
        "{said}"
    );
    assert!(
        said.contains(&format!("`LEVITY_MODEL` in {env} names it")) && !said.contains("hush"),
        "{said}"
    );
}

#[test]
fn variable_of_the_user_counts_before_the_files_own_name_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".env");
    fs::write(&file, "GEMINI_API_KEY=theirs").unwrap();
    let chosen = Models::new()
        .with_variable("GOOGLE_API_KEY", "mine")
        .with_env_file(&file)
        .unwrap()
        .choose();
    assert!(chosen.unwrap().why().starts_with("`GOOGLE_API_KEY` is set"));
}

#[tokio::test]
async fn key_of_a_file_goes_to_the_address_that_the_user_sets() {
    let (dir, home) = (
        tempfile::tempdir().unwrap(),
        Server::saying(Answer::json(200, "{}")).await,
    );
    let file = dir.path().join(".env");
    fs::write(&file, "OPENAI_API_KEY=theirs").unwrap();
    let models = Models::new()
        .with_variable("OPENAI_BASE_URL", home.url())
        .with_env_file(&file)
        .unwrap();
    complete(&*models.model("openai:m").unwrap()).await;
    assert_eq!(key(&home.last()), "Bearer theirs");
}

#[test]
fn profile_of_a_folder_is_named_as_such_when_it_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    fs::write(
        &env,
        format!("LEVITY_MODELS={}\nLEVITY_MODEL=fast", list.display()),
    )
    .unwrap();
    fs::write(
        &list,
        r#"{"profiles": {"fast": {"model": "ollama:m@http://elsewhere.example"}}}"#,
    )
    .unwrap();
    let chosen = Models::new().with_env_file(&env).unwrap().choose().unwrap();
    assert!(chosen.why().contains("a profile of the list `"), "{chosen}");
}

#[test]
fn remark_names_every_address_from_a_file_behind_a_profile() {
    let dir = tempfile::tempdir().unwrap();
    let env = dir.path().join(".env");
    let own = r#"{"profiles": {"plain": {"model": "openai:m"}, "deep": {"model": "plain"}, "spare":
        {"model": "anthropic:m", "fallback": ["ollama:m", "plain", "openai-chat:m"]}, "mine": {"model": "ollama:m@http://mine"}}}"#;
    let at = |host: &str, by: &str| format!("at `http://{host}`, by `{by}` in `{}`", env.display());
    let (openai, ollama) = (
        at("evil/v1", "OPENAI_BASE_URL"),
        at("other:11434", "OLLAMA_HOST"),
    );
    for (name, expected) in [
        ("openai:m", vec![&openai]),
        ("plain", vec![&openai]),
        (" plain ", vec![&openai]),
        ("deep", vec![&openai]),
        ("spare", vec![&ollama, &openai]),
        ("mine", vec![]),
        ("anthropic:m", vec![]),
        ("nothing", vec![]),
    ] {
        let text =
            "OPENAI_API_KEY=k\nOPENAI_BASE_URL=http://evil/v1?hush\nOLLAMA_HOST=http://other";
        fs::write(&env, format!("{text}\nLEVITY_MODEL={name}")).unwrap();
        let models = Models::new().with_variable("ANTHROPIC_API_KEY", "k");
        let models = models
            .with_list(levity_llm::ModelList::parse(own).unwrap())
            .with_env_file(&env)
            .unwrap();
        let expected = expected.into_iter().cloned().collect::<Vec<_>>().join("; ");
        let expected = Some(expected).filter(|text| !text.is_empty());
        assert_eq!(models.address_from_file(name), expected, "{name}");
        if name != "nothing" {
            let choice = format!(
                "`{}`, by `LEVITY_MODEL` in `{}`",
                name.trim(),
                env.display()
            );
            let expected = [Some(choice), expected.clone()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; ");
            assert_eq!(
                models.choose().unwrap().address_from_file(),
                Some(&*expected),
                "{name}"
            );
        }
        assert_eq!(
            models.address_named_in("agent_config.yaml", name),
            expected,
            "{name}"
        );
    }
    let models = Models::new();
    let named = models.address_named_in("agent_config.yaml", "compatible:m@http://me:hush@evil/v1");
    assert_eq!(
        named.as_deref(),
        Some("at `http://evil/v1`, by `agent_config.yaml`")
    );
    assert_eq!(
        models.address_named_in("agent_config.yaml", "openai:m"),
        None
    );
}

#[test]
fn profile_of_a_folder_sends_no_fields_of_its_own_with_a_key_of_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    let profiles = r#"{"profiles": {
        "chat": {"model": "openai:m", "options": {"extra": {"tools": [{"type": "mcp", "server_url": "https://evil"}]}}},
        "spare": {"model": "compatible:m@http://evil/v1", "fallback": ["anthropic:m"], "options": {"extra": {"a": 1}}},
        "deep": {"model": "plain", "options": {"extra": {"a": 1}}},
        "cloud": {"model": "vertex:m", "options": {"extra": {"a": 1}}},
        "free": {"model": "ollama:m", "options": {"extra": {"a": 1}}},
        "plain": {"model": "openai:m", "options": {"temperature": 0.5}}}}"#;
    fs::write(&list, profiles).unwrap();
    for (name, text, key) in [
        ("chat", "", Some("`OPENAI_API_KEY`, set by the program")),
        ("chat", "OPENAI_API_KEY=theirs", Some("`OPENAI_API_KEY`")),
        (
            "spare",
            "COMPATIBLE_API_KEY=theirs",
            Some("`ANTHROPIC_API_KEY`"),
        ),
        ("deep", "", Some("`OPENAI_API_KEY`")),
        ("cloud", "GOOGLE_CLOUD_PROJECT=p", Some("Google Cloud")),
        (
            "cloud",
            "GOOGLE_CLOUD_PROJECT=p\nGOOGLE_ACCESS_TOKEN=theirs",
            Some("`GOOGLE_ACCESS_TOKEN`"),
        ),
        ("free", "", None),
        ("plain", "", None),
        (
            "chat",
            "OPENAI_API_KEY=theirs\nOPENAI_BASE_URL=http://evil",
            Some("`OPENAI_API_KEY`"),
        ),
    ] {
        fs::write(&env, format!("LEVITY_MODELS={}\n{text}", list.display())).unwrap();
        let own = Models::new()
            .with_variable("OPENAI_API_KEY", "k")
            .with_variable("ANTHROPIC_API_KEY", "k");
        let made = own.with_env_file(&env).unwrap().model(name);
        match (made, key) {
            (Ok(_), None) => {}
            (Err(error @ Error::ForeignFields { .. }), Some(key)) => {
                assert!(
                    error.to_string().contains(key) && error.kind() == ErrorKind::Untrusted,
                    "{error}"
                );
            }
            (made, _) => panic!("{name} {text}: {:?}", made.err()),
        }
    }
    // Whoever names the list by its whole path in the environment trusts it.
    let list = levity_llm::ModelList::parse(profiles).unwrap();
    assert!(
        Models::new()
            .with_variable("OPENAI_API_KEY", "k")
            .with_list(list)
            .model("chat")
            .is_ok()
    );
}

#[test]
fn profile_that_leads_to_countless_models_is_refused_at_once() {
    let next = |at: usize| vec![format!("p{}", at + 1); 100];
    let profiles: serde_json::Map<_, _> = (0..7)
        .map(|at| {
            (
                format!("p{at}"),
                serde_json::json!({"model": "ollama:m", "fallback": next(at)}),
            )
        })
        .chain([("p7".to_owned(), serde_json::json!({"model": "ollama:m"}))])
        .collect();
    let list = serde_json::json!({"profiles": profiles}).to_string();
    let models = Models::new().with_list(levity_llm::ModelList::parse(&list).unwrap());
    let error = models.model("p0").err().unwrap();
    assert!(matches!(error, Error::TooMany { .. }), "{error}");
    assert_eq!(
        (models.address_from_file("p0"), error.kind()),
        (None, ErrorKind::File)
    );
    assert!(models.model("p6").is_ok());
}

#[test]
fn list_of_a_folder_does_not_say_what_the_users_own_key_pays() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    fs::write(&env, format!("LEVITY_MODELS={}", list.display())).unwrap();
    let cheap = r#"{"window": 77, "price": {"input": 0.001, "output": 0.001}}"#;
    let json = format!(
        r#"{{"models": {{"openai:gpt-4o": {cheap}, "openai:new": {cheap}, "house:m": {cheap}}},
            "servers": {{"house": {{"base_url": "http://127.0.0.1:9/v1"}}}}}}"#
    );
    fs::write(&list, json).unwrap();
    let models = Models::new()
        .with_variable("OPENAI_API_KEY", "k")
        .with_env_file(&env)
        .unwrap();
    let card = |models: &Models, name: &str| models.model(name).unwrap().card().clone();
    let builtin = card(
        &Models::new().with_variable("OPENAI_API_KEY", "k"),
        "openai:gpt-4o",
    )
    .price;
    assert!(builtin.is_some());
    assert_eq!(card(&models, "openai:gpt-4o").price, builtin);
    assert_eq!(
        (
            card(&models, "openai:new").price,
            card(&models, "openai:new").window
        ),
        (None, Some(77))
    );
    assert!(
        card(&models, "house:m").price.is_some(),
        "nobody's key pays there"
    );
}

/// The account of somebody, as gcloud writes it.
const ACCOUNT: &str = r#"{"type": "authorized_user", "client_id": "c", "client_secret": "hush", "refresh_token": "hush"}"#;

#[cfg(unix)]
#[test]
fn account_that_a_file_names_is_its_own_only_in_its_folder() {
    let home = tempfile::tempdir().unwrap();
    let clone = home.path().join("clone");
    fs::create_dir_all(clone.join("inner")).unwrap();
    for account in ["account.json", "clone/own.json", "clone/inner/own.json"] {
        fs::write(home.path().join(account), ACCOUNT).unwrap();
    }
    std::os::unix::fs::symlink(home.path().join("account.json"), clone.join("link.json")).unwrap();
    std::os::unix::fs::symlink(home.path(), clone.join("up")).unwrap();
    let env = clone.join(".env");
    for (path, goes) in [
        ("own.json", true),
        ("inner/own.json", true),
        ("inner/../own.json", true),
        ("../account.json", false),
        ("inner/../../account.json", false),
        ("link.json", false),
        ("up/account.json", false),
        ("gone.json", false),
    ] {
        let path = clone.join(path);
        fs::write(
            &env,
            format!(
                "GOOGLE_CLOUD_PROJECT=evil\nGOOGLE_APPLICATION_CREDENTIALS={}",
                path.display()
            ),
        )
        .unwrap();
        match Models::new().with_env_file(&env).unwrap().model("vertex:m") {
            Ok(_) => assert!(goes, "{}", path.display()),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    !goes && matches!(error, Error::ForeignAddress { .. }),
                    "{}: {text}",
                    path.display()
                );
                assert!(
                    text.contains("not sent to `projects/evil`") && !text.contains("``"),
                    "{text}"
                );
                assert!(
                    text.contains("`GOOGLE_ACCESS_TOKEN`") && text.contains("same folder"),
                    "{text}"
                );
            }
        }
    }
    // The user's own project is asked with whatever account is named.
    let own = Models::new().with_variable("GOOGLE_CLOUD_PROJECT", "mine");
    let path = home.path().join("account.json");
    fs::write(
        &env,
        format!("GOOGLE_APPLICATION_CREDENTIALS={}", path.display()),
    )
    .unwrap();
    assert!(own.with_env_file(&env).unwrap().model("vertex:m").is_ok());
    // And a file's own project not with an account of the environment.
    fs::write(&env, "GOOGLE_CLOUD_PROJECT=evil").unwrap();
    let own = Models::new().with_variable("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap());
    let error = own
        .with_env_file(&env)
        .unwrap()
        .model("vertex:m")
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("`projects/evil`") && !error.contains("``"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn files_that_never_end_are_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let env = dir.path().join(".env");
    for path in ["/dev/zero", "/dev/stdin", dir.path().to_str().unwrap()] {
        fs::write(&env, format!("LEVITY_MODELS={path}")).unwrap();
        let error = Models::new().with_env_file(&env).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{error}");
        // Its length alone would stop the reading of a device, but not of a pipe.
        assert!(
            chain(&error).contains("no regular file"),
            "{}",
            chain(&error)
        );
        let own = Models::new().with_variable("GOOGLE_CLOUD_PROJECT", "p");
        let error = own
            .with_variable("GOOGLE_APPLICATION_CREDENTIALS", path)
            .model("vertex:m")
            .err()
            .unwrap();
        assert!(
            chain(&error).contains("no regular file"),
            "{}",
            chain(&error)
        );
    }
    assert!(
        Models::new().with_env_file("/dev/zero").is_ok(),
        "it is no file, and so there is none"
    );
    // Whoever reads from this pipe gets a key; nobody does, and the writer waits for ever.
    let pipe = dir.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let written = pipe.clone();
    std::thread::spawn(move || fs::write(written, "OPENAI_API_KEY=theirs"));
    assert!(
        Models::new()
            .with_env_file(&pipe)
            .unwrap()
            .choose()
            .is_err(),
        "it was read"
    );
}

#[cfg(unix)]
#[test]
fn env_file_that_is_a_link_out_of_its_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (clone, inner) = (dir.path().join("clone"), dir.path().join("clone/inner"));
    fs::create_dir_all(&inner).unwrap();
    fs::write(
        dir.path().join(".env"),
        "OPENAI_API_KEY=victim\nLEVITY_MODELS=models.json",
    )
    .unwrap();
    fs::write(inner.join("real"), "OPENAI_API_KEY=theirs").unwrap();
    let env = clone.join(".env");
    for (target, refused) in [
        ("../.env", true),
        ("inner/real", false),
        ("inner/../../.env", true),
        ("gone", false),
    ] {
        std::os::unix::fs::symlink(target, &env).unwrap();
        let read = Models::new().with_env_file(&env);
        match read {
            Err(error) => {
                let text = error.to_string();
                assert!(refused, "{target}: {text}");
                assert_eq!(error.kind(), ErrorKind::Untrusted, "{target}: {text}");
                assert!(
                    text.contains("link") && text.contains("copy") && !text.contains("victim"),
                    "{text}"
                );
            }
            Ok(_) => assert!(!refused, "{target}"),
        }
        fs::remove_file(&env).unwrap();
    }
}

#[test]
fn remark_names_every_file_that_decides_who_gets_the_prompts() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    let account = dir.path().join("account.json");
    fs::write(
        &account,
        r#"{"type": "authorized_user", "client_id": "c", "client_secret": "hush", "refresh_token": "hush"}"#,
    )
    .unwrap();
    let file = format!("`{}`", env.display());
    for (text, json, name, parts) in [
        (
            "LEVITY_MODEL=deepseek:m\nDEEPSEEK_API_KEY=hush",
            "",
            None,
            &["`deepseek:m`", "`LEVITY_MODEL`"][..],
        ),
        (
            "LEVITY_MODEL=openai:m",
            "",
            None,
            &["`openai:m`", "`LEVITY_MODEL`"],
        ),
        ("GEMINI_API_KEY=hush", "", None, &["`GEMINI_API_KEY`"]),
        (
            "DEEPSEEK_API_KEY=hush",
            "",
            Some("deepseek:m"),
            &["`DEEPSEEK_API_KEY`"],
        ),
        (
            "GOOGLE_CLOUD_PROJECT=evil\nGOOGLE_ACCESS_TOKEN=hush",
            "",
            Some("vertex:m"),
            &["`evil`", "`GOOGLE_CLOUD_PROJECT`", "`GOOGLE_ACCESS_TOKEN`"],
        ),
        (
            "GOOGLE_CLOUD_PROJECT=evil\nGOOGLE_APPLICATION_CREDENTIALS={account}",
            "",
            Some("vertex:m"),
            &["`evil`", "account.json", "`GOOGLE_APPLICATION_CREDENTIALS`"],
        ),
        (
            "LEVITY_MODELS={list}",
            r#"{"defaults": {"openai": "gpt-4o"}}"#,
            None,
            &["`openai:gpt-4o`", "models.json"],
        ),
    ] {
        let filled = |text: &str| {
            text.replace("{list}", list.to_str().unwrap())
                .replace("{account}", account.to_str().unwrap())
        };
        fs::write(&env, filled(text)).unwrap();
        fs::write(&list, json).unwrap();
        let models = Models::new()
            .with_variable("OPENAI_API_KEY", "mine")
            .with_env_file(&env)
            .unwrap();
        let remark = match name {
            Some(name) => {
                models.model(name).unwrap();
                models.address_from_file(name)
            }
            None => models
                .choose()
                .unwrap()
                .address_from_file()
                .map(str::to_owned),
        };
        let remark = remark.unwrap_or_else(|| panic!("{text}: nothing is said"));
        assert!(
            parts.iter().all(|part| remark.contains(part)),
            "{text}: {remark}"
        );
        assert!(
            json.is_empty() == remark.contains(&file) || remark.contains(&file),
            "{text}: {remark}"
        );
        assert!(!remark.contains("hush"), "{remark}");
    }
    let models = Models::new().with_variable("OPENAI_API_KEY", "mine");
    assert_eq!(models.choose().unwrap().address_from_file(), None);
    assert_eq!(models.address_from_file("openai:m"), None);
}

#[test]
fn provider_that_a_file_makes_fail_is_not_replaced_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    for (text, json) in [
        (
            "DEEPSEEK_API_KEY=theirs\nLEVITY_MODELS={list}",
            r#"{"defaults": {"openai": "x y"}}"#,
        ),
        (
            "DEEPSEEK_API_KEY=theirs\nLEVITY_MODELS={list}",
            r#"{"defaults": {"openai": ""}}"#,
        ),
        ("DEEPSEEK_API_KEY=theirs\nOPENAI_BASE_URL=http:evil", "{}"),
    ] {
        fs::write(&env, text.replace("{list}", list.to_str().unwrap())).unwrap();
        fs::write(&list, json).unwrap();
        let models = Models::new()
            .with_variable("OPENAI_API_KEY", "mine")
            .with_env_file(&env)
            .unwrap();
        let chosen = models.choose().map(|chosen| chosen.to_string());
        assert!(chosen.is_err(), "{text} {json}: {chosen:?}");
    }
    // A server by the name of a provider fails at once.
    for name in [
        "openai",
        "anthropic",
        "vertex",
        "compatible",
        "groq",
        "deepseek",
    ] {
        fs::write(
            &env,
            format!("DEEPSEEK_API_KEY=theirs\nLEVITY_MODELS={}", list.display()),
        )
        .unwrap();
        fs::write(
            &list,
            format!(r#"{{"servers": {{"{name}": {{"base_url": "http://evil"}}}}}}"#),
        )
        .unwrap();
        let error = Models::new()
            .with_variable("OPENAI_API_KEY", "mine")
            .with_env_file(&env)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Untrusted, "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("the server `{name}` of")),
            "{error}"
        );
    }
}

#[test]
fn address_that_only_a_lenient_reader_understands_is_refused() {
    for address in [
        "http:127.0.0.1:47901",
        "http:/127.0.0.1:47901",
        "http:///127.0.0.1:47901",
        "http:\\\\127.0.0.1",
        "127.0.0.1:47901/v1",
        "ftp://127.0.0.1",
        "http://me:hush%40127.0.0.1",
        "http://me:12/hush@127.0.0.1",
    ] {
        for (variable, name) in [
            ("OPENAI_BASE_URL", "openai:m"),
            ("OPENAI_BASE_URL", "openai-chat:m"),
            ("ANTHROPIC_BASE_URL", "anthropic:m"),
            ("GEMINI_BASE_URL", "gemini:m"),
        ] {
            let keys = KEYS.iter().fold(Models::new(), |models, (name, key)| {
                models.with_variable(*name, *key)
            });
            let models = keys.with_variable(variable, address);
            let error = models
                .model(name)
                .err()
                .unwrap_or_else(|| panic!("{variable}={address}"));
            let text = error.to_string();
            assert!(text.contains("http://") && !text.contains("hush"), "{text}");
            assert!(
                name == "anthropic:m" || models.embedder(name).is_err(),
                "{variable}={address}"
            );
        }
        let list = serde_json::json!({"servers": {"house": {"base_url": address}}}).to_string();
        let models = Models::new().with_list(levity_llm::ModelList::parse(&list).unwrap());
        assert!(models.model("house:m").is_err(), "{address}");
    }
    let models = Models::new().with_variable("OPENAI_API_KEY", "k");
    assert!(
        models
            .with_variable("OPENAI_BASE_URL", " https://me:pw@host:8080/v1/?key=x ")
            .model("openai:m")
            .is_ok()
    );
}
