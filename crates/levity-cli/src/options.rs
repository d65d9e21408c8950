//! Options that commands share: limits, guards, a cache of replies, thinking.
//!
//! Values are parsed here into small enums at once, so that clap reports a wrong value with exit
//! code 2 before anything starts; the enums become guards, layers and limits when a run is built.
//!
//! The order of layers is fixed: the cache lies inside of thinking, because the mode of thinking is
//! part of the request that the cache compares. Replies in a folder are bound to this user by a
//! secret and to the server of the model by its address, so neither another user of a shared folder
//! nor another server can supply an answer.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use clap::Args;
use levity::agent::{AgentBuilder, SecretGuard, SizeGuard, TopicGuard};
use levity::core::{Guard, Limits, Model, Record, ThinkingMode};
use levity::llm::ModelExt as _;
use levity::llm::layers::{Cache, Scrub};
use levity_system::secret;

use crate::limits::LimitArgs;
use crate::state;
use crate::terminal::{advise, note};

/// The options shared by every command that runs agents.
#[derive(Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    limits: LimitArgs,
    /// Check the input and output of agents; may be given more than once. `secrets` replaces keys
    /// and passwords by markers; `secrets:block` blocks texts that contain one. `input:BYTES`,
    /// `call:BYTES`, `result:BYTES` and `answer:BYTES` block longer texts. `topic:WORDS` blocks
    /// texts that, as the model judges, are about none of the topics.
    #[arg(long = "guard", value_name = "RULE", value_parser = rule, help_heading = "Guards")]
    guards: Vec<Rule>,
    /// Answer repeated requests from a cache: in memory, or also in this folder.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Models"
    )]
    cache: Option<Option<PathBuf>>,
    /// Write every prompt and every reply to this folder, as text files that only you can read;
    /// their names state the agent and its step.
    #[arg(long, value_name = "DIR", help_heading = "Models")]
    debug_log: Option<PathBuf>,
    /// Set how much models think, if they support it. `auto` enables thinking for goals that need
    /// it (analyse, compare, why, ...), as long as the reply has room for it. `model` leaves the
    /// choice to the model. Other values: `off`, `low`, `medium`, `high`, or a number of tokens.
    #[arg(
        long,
        value_name = "HOW",
        value_parser = thinking,
        default_value = "auto",
        help_heading = "Models"
    )]
    thinking: Thinking,
}

/// A rule of the option `--guard`.
///
/// Sizes are in bytes and greater than zero.
#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Secrets { block: bool },
    Input(usize),
    Call(usize),
    Result(usize),
    Answer(usize),
    Topic(String),
}

/// Examples: `secrets`, `secrets:block`, `answer:20000`, `topic:orders and deliveries`. Each error
/// states the valid form.
fn rule(text: &str) -> Result<Rule, String> {
    let (kind, rest) = text
        .split_once(':')
        .map_or((text, None), |(kind, rest)| (kind, Some(rest.trim())));
    let bytes = || {
        let bytes = rest
            .and_then(|rest| rest.parse().ok())
            .filter(|bytes| *bytes > 0);
        bytes.ok_or_else(|| format!("give the maximum number of bytes, such as `{kind}:20000`"))
    };
    Ok(match (kind, rest) {
        ("secrets", None) => Rule::Secrets { block: false },
        ("secrets", Some("block")) => Rule::Secrets { block: true },
        ("secrets", Some(_)) => return Err("use `secrets` or `secrets:block`".to_owned()),
        ("input", _) => Rule::Input(bytes()?),
        ("call", _) => Rule::Call(bytes()?),
        ("result", _) => Rule::Result(bytes()?),
        ("answer", _) => Rule::Answer(bytes()?),
        ("topic", Some(topic)) if !topic.is_empty() => Rule::Topic(topic.to_owned()),
        ("topic", _) => {
            return Err(
                "give the allowed topics, such as `topic:orders and deliveries`".to_owned(),
            );
        }
        _ => {
            return Err(format!(
                "unknown guard `{kind}`; use secrets, secrets:block, input:BYTES, call:BYTES, \
                    result:BYTES, answer:BYTES or topic:WORDS"
            ));
        }
    })
}

/// The value of the option `--thinking`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    /// Thinking is enabled for queries that need it.
    Auto,
    /// The model decides, as it does without this option.
    AsModel,
    Always(ThinkingMode),
}

/// A number is a budget in tokens, and 0 means `off`.
fn thinking(text: &str) -> Result<Thinking, String> {
    Ok(match text {
        "auto" => Thinking::Auto,
        "model" => Thinking::AsModel,
        "off" => Thinking::Always(ThinkingMode::Off),
        "low" => Thinking::Always(ThinkingMode::Low),
        "medium" => Thinking::Always(ThinkingMode::Medium),
        "high" => Thinking::Always(ThinkingMode::High),
        other => match other.parse() {
            Ok(0) => Thinking::Always(ThinkingMode::Off),
            Ok(tokens) => Thinking::Always(ThinkingMode::Budget(tokens)),
            Err(_) => {
                return Err(
                    "use auto, model, off, low, medium, high, or a number of tokens".to_owned(),
                );
            }
        },
    })
}

/// The layers that wrap each model. Clones share the cache.
///
/// One value serves all models of a command, so agents of a team share the cache.
#[derive(Clone)]
pub(crate) struct Layers {
    cache: Option<Cache>,
    /// A secret of this user, so that no other user can plant replies in the cache.
    secret: Arc<str>,
    thinking: Thinking,
    /// The folder for prompts and replies, and the secrets that they must not contain.
    debug_log: Option<(PathBuf, Scrub)>,
    text_tools: bool,
}

/// The name of an agent that has none, in names of files.
const AGENT: &str = "agent";

impl Layers {
    /// Returns the layers with or without that which reads tool calls from text.
    pub(crate) fn text_tools(mut self, text_tools: bool) -> Self {
        self.text_tools = text_tools;
        self
    }

    /// Returns the model inside its layers; `place` identifies the server of the model.
    ///
    /// The namespace of the cache joins the secret and the place. Without a folder the secret is
    /// empty, as nobody else can reach the memory of the process.
    pub(crate) fn around(&self, model: Arc<dyn Model>, place: &str) -> Arc<dyn Model> {
        // The log is the innermost layer, so it has the text of every request that is sent.
        let model = match &self.debug_log {
            Some((folder, scrub)) => {
                let log = model.debug_log(folder).name(AGENT);
                Arc::new(log.scrub(scrub.clone()))
            }
            None => model,
        };
        let model = match self.text_tools {
            true => Arc::new(model.text_tools()) as Arc<dyn Model>,
            false => model,
        };
        // The thinking mode changes the reply, so the cache is the inner layer.
        let model = match &self.cache {
            Some(cache) => {
                let namespace = format!("{}\n{place}", self.secret);
                Arc::new(model.cached(cache.clone().namespace(namespace)))
            }
            None => model,
        };
        match self.thinking {
            Thinking::Auto => Arc::new(model.auto_thinking()),
            Thinking::AsModel => model,
            Thinking::Always(mode) => Arc::new(model.auto_thinking().rule(move |_| Some(mode))),
        }
    }

    /// Returns a warning about this model, if the user needs one.
    ///
    /// Only an explicit request for thinking is worth a warning; `auto` and `off` have nothing to
    /// promise.
    pub(crate) fn note(&self, model: &dyn Model) -> Option<String> {
        let requested =
            matches!(self.thinking, Thinking::Always(mode) if mode != ThinkingMode::Off);
        let card = model.card();
        let text = format!(
            "the model `{}` is not known to support thinking: `--thinking` has no effect",
            card.id
        );
        (requested && !card.capabilities.thinking).then_some(text)
    }
}

impl RunOptions {
    /// Returns the limits of a new run.
    pub(crate) fn limits(&self) -> Limits {
        self.limits.limits()
    }

    /// The limits of a resumed run, if the call changes one of them.
    ///
    /// A resumed run keeps its stored limits unless this returns some.
    pub(crate) fn resumed_limits(&self, records: &[Record]) -> Option<Limits> {
        self.limits.resumed(records)
    }

    /// Checks that the limit on money can be enforced for this model.
    ///
    /// A limit in money needs a known price; a model without one would pass it unnoticed.
    pub(crate) fn check_price(&self, model: &dyn Model) -> Result<(), String> {
        self.limits.check(model)
    }

    /// Returns the layers for models. Creates the folder of the cache if it does not exist.
    ///
    /// Fails if the folder of the cache cannot be created, or if no secret can be generated.
    pub(crate) fn layers(&self) -> Result<Layers, String> {
        let mut secret = Arc::default();
        let cache = match &self.cache {
            None => None,
            Some(None) => Some(Cache::new()),
            Some(Some(folder)) => {
                std::fs::create_dir_all(folder).map_err(|error| {
                    format!(
                        "cannot store replies in `{}`: {error}; choose another folder with \
                            `--cache`",
                        folder.display()
                    )
                })?;
                secret = cache_secret()?;
                Some(Cache::new().folder(folder))
            }
        };
        let debug_log = match &self.debug_log {
            None => None,
            Some(folder) => {
                state::create(folder)
                    .map_err(|problem| advise(problem, "choose another folder"))?;
                Some((folder.clone(), Scrub::from(crate::logs::secrets())))
            }
        };
        Ok(Layers {
            cache,
            secret,
            thinking: self.thinking,
            debug_log,
            text_tools: false,
        })
    }

    /// Returns `true` if a guard needs a model to judge texts.
    pub(crate) fn needs_judge(&self) -> bool {
        self.guards
            .iter()
            .any(|rule| matches!(rule, Rule::Topic(_)))
    }

    /// Builds the guards; `judge` is the model that judges topics.
    ///
    /// Rules of one kind are merged: one guard for secrets, which blocks if any rule blocks; one
    /// for sizes, in which a later value replaces an earlier one; one for all topics together.
    /// Guards for secrets come first, so that no key reaches the model that judges topics.
    pub(crate) fn guards(&self, judge: &Arc<dyn Model>) -> Vec<Arc<dyn Guard>> {
        let mut guards: Vec<Arc<dyn Guard>> = Vec::new();
        let block = self.guards.iter().filter_map(|rule| match rule {
            Rule::Secrets { block } => Some(*block),
            _ => None,
        });
        if let Some(block) = block.reduce(|one, other| one || other) {
            let guard = SecretGuard::new().secrets(crate::logs::secrets());
            guards.push(Arc::new(if block { guard.blocking() } else { guard }));
        }
        let sizes = self
            .guards
            .iter()
            .fold(None, |sizes: Option<SizeGuard>, rule| {
                let guard = sizes.clone().unwrap_or_default();
                Some(match rule {
                    Rule::Input(bytes) => guard.input(*bytes),
                    Rule::Call(bytes) => guard.call(*bytes),
                    Rule::Result(bytes) => guard.result(*bytes),
                    Rule::Answer(bytes) => guard.answer(*bytes),
                    _ => return sizes,
                })
            });
        if let Some(sizes) = sizes {
            guards.push(Arc::new(sizes));
        }
        let topics: Vec<_> = self
            .guards
            .iter()
            .filter_map(|rule| match rule {
                Rule::Topic(topic) => Some(topic.as_str()),
                _ => None,
            })
            .collect();
        if !topics.is_empty() {
            guards.push(Arc::new(TopicGuard::new(judge.clone(), topics)));
        }
        guards
    }

    /// Adds the limits and the guards to the agent.
    pub(crate) fn add_to(&self, agent: AgentBuilder, judge: &Arc<dyn Model>) -> AgentBuilder {
        self.guards(judge)
            .into_iter()
            .fold(agent.limits(self.limits()), AgentBuilder::guard)
    }
}

/// Returns a secret of this user. Without it, no one else can write replies that levity accepts
/// into a shared cache folder.
///
/// The secret is stored in `cache.key` of the state folder. If it cannot be stored, a random one
/// serves this process: the cache then works within one call, and a note says so once.
fn cache_secret() -> Result<Arc<str>, String> {
    let random = || secret::random().map_err(|error| format!("cannot make a secret: {error}"));
    let stored = state::folder().and_then(|folder| {
        state::create(&folder)?;
        read_or_create(&folder.join("cache.key"), &random()?)
    });
    stored.or_else(|problem| {
        static NOTED_ONCE: Once = Once::new();
        NOTED_ONCE.call_once(|| {
            note(&format!(
                "the cache cannot find replies of earlier calls: {problem}"
            ));
        });
        Ok(random()?.into())
    })
}

/// Returns the secret in the file, or stores this one there if the file does not exist.
fn read_or_create(path: &Path, random: &str) -> Result<Arc<str>, String> {
    let stored = match secret::create(path, random) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => secret::read(path),
        created => created.map(|()| random.to_owned()),
    };
    let failed = |error| format!("`{}`: {error}", path.display());
    let stored = stored.map_err(failed)?;
    match stored.trim() {
        "" => Err(format!("`{}` is empty; delete it", path.display())),
        secret => Ok(secret.into()),
    }
}

/// Identifies the server of a model by its name, its address in a file, and the addresses in the
/// environment.
///
/// Variables such as `OPENAI_BASE_URL` move a model to another server without changing its name.
/// All of them are part of the place: one that does not matter costs a missed reply, while a
/// missing one could return an answer of another server.
pub(crate) fn place_of(name: &str, from_file: Option<&str>) -> String {
    let is_address = |name: &str| {
        ["_BASE_URL", "_HOST", "_ENDPOINT"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let set = std::env::vars_os()
        .filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
    let mut set: Vec<_> = set.filter(|(name, _)| is_address(name)).collect();
    set.sort();
    format!("{name:?} {from_file:?} {set:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_rule_parses_or_error_shows_valid_form() {
        for (text, expected) in [
            ("secrets", Rule::Secrets { block: false }),
            ("secrets:block", Rule::Secrets { block: true }),
            ("input:5", Rule::Input(5)),
            ("call: 7", Rule::Call(7)),
            ("result:8", Rule::Result(8)),
            ("answer:9", Rule::Answer(9)),
            (
                "topic: orders: new ones",
                Rule::Topic("orders: new ones".to_owned()),
            ),
        ] {
            assert_eq!(rule(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("", "unknown guard ``"),
            ("secret", "use secrets"),
            ("secrets:maybe", "`secrets:block`"),
            ("input", "`input:20000`"),
            ("input:0", "`input:20000`"),
            ("answer:-1", "`answer:20000`"),
            ("call:many", "`call:20000`"),
            ("topic", "`topic:orders and deliveries`"),
            ("topic: ", "`topic:orders and deliveries`"),
        ] {
            let problem = rule(text).unwrap_err();
            assert!(
                problem.contains(expected) && !problem.contains('\n'),
                "{text}: {problem}"
            );
        }
    }

    #[test]
    fn thinking_parses_keyword_or_number_of_tokens() {
        for (text, expected) in [
            ("auto", Thinking::Auto),
            ("model", Thinking::AsModel),
            ("off", Thinking::Always(ThinkingMode::Off)),
            ("0", Thinking::Always(ThinkingMode::Off)),
            ("high", Thinking::Always(ThinkingMode::High)),
            ("2048", Thinking::Always(ThinkingMode::Budget(2048))),
        ] {
            assert_eq!(thinking(text), Ok(expected), "{text}");
        }
        for text in ["", "on", "-1", "1.5", "AUTO"] {
            assert!(
                thinking(text).unwrap_err().contains("number of tokens"),
                "{text}"
            );
        }
    }
}
