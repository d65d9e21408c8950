//! Options that commands share: limits, guards, a cache of replies, thinking.

use std::path::PathBuf;
use std::sync::{Arc, Once};

use clap::Args;
use levity::agent::{AgentBuilder, SecretGuard, SizeGuard, TopicGuard};
use levity::core::{Guard, Limits, Model, ThinkingMode};
use levity::llm::ModelExt as _;
use levity::llm::layers::Cache;
use levity::serve::Token;

use crate::limits::LimitArgs;
use crate::state;
use crate::terminal::{chain, note};

/// The options of every command that runs agents.
#[derive(Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    limits: LimitArgs,
    /// Look at what goes in and out of agents; may be given more than once. `secrets` replaces keys
    /// and passwords by markers, `secrets:block` blocks what has one in it. `input:BYTES`,
    /// `call:BYTES`, `result:BYTES` and `answer:BYTES` block what is longer. `topic:WORDS` blocks
    /// what is about none of the topics, as the model judges.
    #[arg(long = "guard", value_name = "RULE", value_parser = rule, help_heading = "Guards")]
    guards: Vec<Rule>,
    /// Answer a request that was made before from a cache: in memory, or also in this folder.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, help_heading = "Models")]
    cache: Option<Option<PathBuf>>,
    /// How much models think, where they can. `auto` switches thinking on for goals that need it
    /// (analyse, compare, why, ...), as long as there is room for it in the reply; `model` leaves
    /// it to the model; or `off`, `low`, `medium`, `high`, or a number of tokens.
    #[arg(long, value_name = "HOW", value_parser = thinking, default_value = "auto", help_heading = "Models")]
    thinking: Thinking,
}

/// What a guard looks at.
#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Secrets { block: bool },
    Input(usize),
    Call(usize),
    Result(usize),
    Answer(usize),
    Topic(String),
}

fn rule(text: &str) -> Result<Rule, String> {
    let (kind, rest) = text
        .split_once(':')
        .map_or((text, None), |(kind, rest)| (kind, Some(rest.trim())));
    let bytes = || {
        let bytes = rest
            .and_then(|rest| rest.parse().ok())
            .filter(|bytes| *bytes > 0);
        bytes.ok_or_else(|| format!("say how many bytes may pass, such as `{kind}:20000`"))
    };
    Ok(match (kind, rest) {
        ("secrets", None) => Rule::Secrets { block: false },
        ("secrets", Some("block")) => Rule::Secrets { block: true },
        ("secrets", Some(_)) => return Err("write `secrets`, or `secrets:block`".to_owned()),
        ("input", _) => Rule::Input(bytes()?),
        ("call", _) => Rule::Call(bytes()?),
        ("result", _) => Rule::Result(bytes()?),
        ("answer", _) => Rule::Answer(bytes()?),
        ("topic", Some(topic)) if !topic.is_empty() => Rule::Topic(topic.to_owned()),
        ("topic", _) => {
            return Err(
                "say what may be spoken of, such as `topic:orders and deliveries`".to_owned(),
            );
        }
        _ => {
            return Err(format!(
                "there is no guard `{kind}`; there are secrets, secrets:block, input:BYTES, \
                    call:BYTES, result:BYTES, answer:BYTES and \
                 topic:WORDS"
            ));
        }
    })
}

/// How much models think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    /// Where the query needs it.
    Auto,
    /// As the model does by itself.
    AsModel,
    Always(ThinkingMode),
}

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
                    "write auto, model, off, low, medium, high, or a number of tokens".to_owned(),
                );
            }
        },
    })
}

/// What is put around each model. Clones share the cache.
#[derive(Clone)]
pub(crate) struct Layers {
    cache: Option<Cache>,
    /// A secret of this user, so that nobody else plants replies.
    secret: Arc<str>,
    thinking: Thinking,
}

impl Layers {
    /// The model with what stands around it; `place` says where the model is.
    pub(crate) fn around(&self, model: Arc<dyn Model>, place: &str) -> Arc<dyn Model> {
        // A reply that was thought about is another one, so the cache stands below.
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

    /// What the user should know about this model.
    pub(crate) fn note(&self, model: &dyn Model) -> Option<String> {
        let wanted = matches!(self.thinking, Thinking::Always(mode) if mode != ThinkingMode::Off);
        let card = model.card();
        let text = format!(
            "the model `{}` is not known to think: `--thinking` changes nothing",
            card.id
        );
        (wanted && !card.abilities.thinking).then_some(text)
    }
}

impl RunOptions {
    pub(crate) fn limits(&self) -> Limits {
        self.limits.limits()
    }

    /// The limits, if some were given.
    pub(crate) fn given_limits(&self) -> Option<Limits> {
        self.limits.given()
    }

    /// Whether the limit on money can be kept with this model.
    pub(crate) fn check_price(&self, model: &dyn Model) -> Result<(), String> {
        self.limits.check(model)
    }

    /// What is put around models. A folder for the cache is made, if it is not there.
    pub(crate) fn layers(&self) -> Result<Layers, String> {
        let mut secret = Arc::default();
        let cache = match &self.cache {
            None => None,
            Some(None) => Some(Cache::new()),
            Some(Some(folder)) => {
                std::fs::create_dir_all(folder).map_err(|error| {
                    format!(
                        "replies cannot be kept in `{}`: {error}; name another folder with \
                            `--cache`",
                        folder.display()
                    )
                })?;
                secret = cache_secret()?;
                Some(Cache::new().folder(folder))
            }
        };
        Ok(Layers {
            cache,
            secret,
            thinking: self.thinking,
        })
    }

    /// Whether a model is asked to judge what is said.
    pub(crate) fn needs_judge(&self) -> bool {
        self.guards
            .iter()
            .any(|rule| matches!(rule, Rule::Topic(_)))
    }

    /// The guards; `judge` is the model that judges topics.
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

    /// The agent within the limits, and with the guards.
    pub(crate) fn add_to(&self, agent: AgentBuilder, judge: &Arc<dyn Model>) -> AgentBuilder {
        self.guards(judge)
            .into_iter()
            .fold(agent.limits(self.limits()), AgentBuilder::guard)
    }
}

/// A secret of this user's, without which nobody can write replies into a folder that this user is
/// given.
fn cache_secret() -> Result<Arc<str>, String> {
    let kept = state::folder().and_then(|folder| {
        state::make(&folder)?;
        Token::from_file_or_new(folder.join("cache.key")).map_err(|error| chain(&error))
    });
    let secret = match kept {
        Ok((secret, _)) => secret,
        Err(problem) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                note(&format!(
                    "replies of earlier calls are not found in the cache: {problem}"
                ));
            });
            Token::generate().map_err(|error| chain(&error))?
        }
    };
    Ok(secret.reveal().into())
}

/// The place of a model, as far as it is known: its name, what a file says, and the addresses in
/// the environment.
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
    fn guard_rules_are_read_or_refused_with_the_way_out() {
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
            ("", "there is no guard ``"),
            ("secret", "there are secrets"),
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
    fn thinking_is_a_word_or_a_number_of_tokens() {
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
