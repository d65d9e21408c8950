//! The list of models: what is known of them, and where they are served.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use levity_core::text::{bare_model_name, bare_url, json_problem};
use levity_core::{Abilities, Fees, ModelCard, Options, Price};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::place::Foreign;
use crate::Error;

/// The longest list that is read.
const LONGEST: u64 = 8 << 20;

/// What is known of models without calling them: windows, abilities, prices; servers; profiles.
///
/// The list that comes with levity is [`ModelList::builtin`]; a file of your own in the same form
/// adds to it or replaces parts of it. See `docs/models.md` for the form.
///
/// ```
/// # use levity_llm::ModelList;
/// let mine = ModelList::parse(r#"{"models": {"house:big": {"window": 8000, "price": {"input": 1, "output": 2}}}}"#)?;
/// let list = ModelList::clone(ModelList::builtin()).with(mine);
/// assert_eq!(list.card("house", "big").window, Some(8000));
/// assert!(list.card("house", "small").price.is_none());
/// # Ok::<(), levity_llm::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelList {
    /// When the facts in the file were looked up.
    #[serde(default)]
    checked: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, Known>,
    #[serde(default)]
    pub(super) servers: BTreeMap<String, Server>,
    #[serde(default)]
    pub(super) defaults: BTreeMap<String, DefaultModel>,
    #[serde(default)]
    pub(super) profiles: BTreeMap<String, Profile>,
}

/// What is known of a model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    window: Option<u64>,
    max_output: Option<u64>,
    #[serde(default)]
    abilities: Able,
    price: Option<Dollars>,
}

/// What a model can do, as far as it is said.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Able {
    tools: Option<bool>,
    output_schema: Option<bool>,
    images: Option<bool>,
    thinking: Option<bool>,
}

/// Dollars per million tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dollars {
    input: f64,
    output: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    cache_write_hour: Option<f64>,
    /// Percent of the rates for requests that are served before others.
    priority: Option<u32>,
    fees: Option<DollarFees>,
    long: Option<Long>,
}

/// Dollars per thousand uses of tools that the provider runs itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DollarFees {
    search: Option<f64>,
    session: Option<f64>,
    most_uses: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Long {
    over: u64,
    input: f64,
    output: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    cache_write_hour: Option<f64>,
}

/// Where models are served.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    #[serde(default)]
    pub(super) api: Api,
    pub(super) base_url: String,
    /// The variable that holds the key.
    #[serde(default)]
    pub(super) key: Option<String>,
    /// The model to take when nobody names one.
    #[serde(default)]
    pub(super) default: Option<String>,
    /// The file that names it, unless it is the user's own word.
    #[serde(skip)]
    pub(super) foreign: Option<Arc<Foreign>>,
}

/// The model to take of a provider when nobody names one. It may have an address behind it.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub(super) struct DefaultModel {
    pub(super) id: String,
    pub(super) foreign: Option<Arc<Foreign>>,
}

impl From<String> for DefaultModel {
    fn from(id: String) -> Self {
        Self { id, foreign: None }
    }
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Api {
    /// Chat completions.
    #[default]
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// Gemini's generateContent.
    Gemini,
    /// Ollama's own.
    Ollama,
    /// OpenAI's chat completions, which only OpenAI itself has.
    #[serde(skip)]
    OpenAiChat,
    /// Gemini's generateContent, as Vertex AI has it.
    #[serde(skip)]
    Vertex,
}

/// A model with its settings, under a name.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) model: String,
    /// What requests do not set themselves.
    #[serde(default, deserialize_with = "known_options")]
    pub(super) options: Options,
    /// How often a request is sent at most.
    #[serde(default)]
    pub(super) attempts: Option<u64>,
    #[serde(default)]
    pub(super) rate: Option<RateSetting>,
    /// Models to take when this one fails, in order.
    #[serde(default)]
    pub(super) fallback: Vec<String>,
    /// Tool calls by text.
    #[serde(default)]
    pub(super) text_tools: bool,
    /// Thinking for queries that need it.
    #[serde(default)]
    pub(super) auto_thinking: bool,
    /// The file that names it, unless it is the user's own word.
    #[serde(skip)]
    pub(super) foreign: Option<Arc<Foreign>>,
}

// Addresses may have keys in them.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = bare_url(&self.base_url);
        f.debug_struct("Server")
            .field("base_url", &address)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DefaultModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bare_model_name(&self.id))
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fallback: Vec<_> = self
            .fallback
            .iter()
            .map(|name| bare_model_name(name))
            .collect();
        f.debug_struct("Profile")
            .field("model", &bare_model_name(&self.model))
            .field("fallback", &fallback)
            .finish_non_exhaustive()
    }
}

/// How fast a model may be called.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateSetting {
    pub(super) requests: Option<u64>,
    pub(super) tokens: Option<u64>,
    #[serde(default, deserialize_with = "seconds")]
    pub(super) gap_seconds: Option<f64>,
}

/// Options, none of which is misspelt.
fn known_options<'de, D: Deserializer<'de>>(from: D) -> Result<Options, D::Error> {
    const NAMES: [&str; 7] = [
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "thinking",
        "seed",
        "extra",
    ];
    let map = Map::deserialize(from)?;
    if let Some(odd) = map.keys().find(|name| !NAMES.contains(&name.as_str())) {
        let problem = format!("there is no option `{odd}`; there are {}", NAMES.join(", "));
        return Err(D::Error::custom(problem));
    }
    Options::deserialize(Value::Object(map)).map_err(|error| D::Error::custom(json_problem(&error)))
}

fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Err(_)) => Err(D::Error::custom(
            "`gap_seconds` is no time; write seconds from 0 on",
        )),
        _ => Ok(seconds),
    }
}

impl ModelList {
    /// The list that comes with levity.
    pub fn builtin() -> &'static Arc<Self> {
        static BUILTIN: OnceLock<Arc<ModelList>> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            // A test reads it, so that it is right.
            Arc::new(Self::parse(include_str!("../../models.json")).unwrap_or_default())
        })
    }

    /// Reads a list from JSON.
    ///
    /// # Errors
    /// When it is not JSON, or something in it is wrong or unknown.
    pub fn parse(json: &str) -> Result<Self, Error> {
        Self::parse_at(json, "the list of models")
    }

    /// Reads a list from a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as for [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |source| Error::File {
            path: path.to_owned(),
            source,
        };
        let json = read(path).map_err(failed)?;
        Self::parse_at(&json, &format!("`{}`", path.display()))
    }

    /// Says that a file named all that is in it.
    pub(super) fn of(mut self, foreign: &Arc<Foreign>) -> Self {
        self.servers
            .values_mut()
            .for_each(|server| server.foreign = Some(foreign.clone()));
        self.profiles
            .values_mut()
            .for_each(|profile| profile.foreign = Some(foreign.clone()));
        self.defaults
            .values_mut()
            .for_each(|model| model.foreign = Some(foreign.clone()));
        self
    }

    fn parse_at(json: &str, place: &str) -> Result<Self, Error> {
        let wrong = |place: String, problem: String| Error::List { place, problem };
        let list: Self = serde_json::from_str(json).map_err(|error| {
            wrong(
                format!("{place}, line {}", error.line()),
                json_problem(&error),
            )
        })?;
        if let Some(name) = list.models.keys().find(|name| !name.contains(':')) {
            let problem = format!("the model `{name}` has no provider; write `provider:model`");
            return Err(wrong(place.to_owned(), problem));
        }
        if let Some(name) = list
            .profiles
            .keys()
            .chain(list.servers.keys())
            .find(|name| name.contains(':'))
        {
            let problem = format!("`{name}` must have no colon in it");
            return Err(wrong(place.to_owned(), problem));
        }
        Ok(list)
    }

    /// Adds another list, which counts where both know something.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.checked = other.checked.or(self.checked);
        for (name, known) in other.models {
            self.models.entry(name).or_default().update(known);
        }
        self.servers.extend(other.servers);
        self.defaults.extend(other.defaults);
        self.profiles.extend(other.profiles);
        self
    }

    /// When the facts in it were looked up, as a date.
    pub fn checked(&self) -> Option<&str> {
        self.checked.as_deref()
    }

    /// The names of all models in it, as `provider:model`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    /// The names of all profiles in it.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// What is known of a model; a card with its name alone when nothing is.
    ///
    /// A date behind a name does not matter: `gpt-4o-2024-08-06` is a `gpt-4o` unless it is listed
    /// itself.
    pub fn card(&self, provider: &str, id: &str) -> ModelCard {
        self.complete(ModelCard::new(provider, id))
    }

    /// A card with what the list says of its model.
    pub(crate) fn complete(&self, mut card: ModelCard) -> ModelCard {
        if let Some(known) = self.find(&card.provider, &card.id) {
            card.window = known.window.or(card.window);
            card.max_output = known.max_output.or(card.max_output);
            card.price = known.price.as_ref().map(Dollars::price).or(card.price);
            card.abilities = known.abilities.over(card.abilities);
        }
        card
    }

    fn find(&self, provider: &str, id: &str) -> Option<&Known> {
        let family = match provider {
            "vertex" => "gemini",
            "openai-chat" => "openai",
            provider => provider,
        };
        let id = id.rsplit_once("models/").map_or(id, |(_, id)| id);
        let known = |id: &str| {
            let own = self.models.get(&format!("{provider}:{id}"));
            own.or_else(|| self.models.get(&format!("{family}:{id}")))
        };
        known(id).or_else(|| undated(id).find_map(known))
    }
}

/// Reads a file that has an end.
fn read(path: &Path) -> std::io::Result<String> {
    // A pipe or a device may never end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut json = String::new();
    std::fs::File::open(path)?
        .take(LONGEST + 1)
        .read_to_string(&mut json)?;
    if json.len() as u64 > LONGEST {
        return Err(std::io::Error::other(format!(
            "it has more than {} MiB",
            LONGEST >> 20
        )));
    }
    Ok(json)
}

impl Known {
    fn update(&mut self, newer: Self) {
        self.window = newer.window.or(self.window);
        self.max_output = newer.max_output.or(self.max_output);
        self.abilities.update(newer.abilities);
        self.price = newer.price.or_else(|| self.price.take());
    }
}

impl Able {
    fn update(&mut self, newer: Self) {
        self.tools = newer.tools.or(self.tools);
        self.output_schema = newer.output_schema.or(self.output_schema);
        self.images = newer.images.or(self.images);
        self.thinking = newer.thinking.or(self.thinking);
    }

    /// What is known, and the rest as it was.
    fn over(self, mut abilities: Abilities) -> Abilities {
        abilities.tools = self.tools.unwrap_or(abilities.tools);
        abilities.output_schema = self.output_schema.unwrap_or(abilities.output_schema);
        abilities.images = self.images.unwrap_or(abilities.images);
        abilities.thinking = self.thinking.unwrap_or(abilities.thinking);
        abilities
    }
}

impl Dollars {
    fn price(&self) -> Price {
        let mut price = rates(
            self.input,
            self.output,
            self.cached,
            [self.cache_write, self.cache_write_hour],
        );
        price = self
            .priority
            .map_or(price, |percent| price.with_priority(percent));
        price = self
            .fees
            .as_ref()
            .map_or(price, |fees| price.with_fees(fees.fees()));
        let long = |long: &Long| {
            let writes = [long.cache_write, long.cache_write_hour];
            (
                long.over,
                rates(long.input, long.output, long.cached, writes),
            )
        };
        self.long
            .as_ref()
            .map(long)
            .map_or(price, |(over, long)| price.with_long(over, long))
    }
}

impl DollarFees {
    fn fees(&self) -> Fees {
        let mut fees = Fees::new();
        fees = self
            .search
            .map_or(fees, |dollars| fees.with_search(dollars / 1_000.0));
        fees = self
            .session
            .map_or(fees, |dollars| fees.with_session(dollars / 1_000.0));
        self.most_uses
            .map_or(fees, |uses| fees.with_most_uses(uses))
    }
}

/// Rates with those for writing to the cache: for minutes, and for an hour.
fn rates(input: f64, output: f64, cached: Option<f64>, [write, hour]: [Option<f64>; 2]) -> Price {
    let mut price = Price::new(input, output);
    price = cached.map_or(price, |dollars| price.with_cached(dollars));
    price = write.map_or(price, |dollars| price.with_cache_write(dollars));
    hour.map_or(price, |dollars| price.with_cache_write_hour(dollars))
}

/// A name without the date, `latest` or number of its version behind it; the longest first.
fn undated(id: &str) -> impl Iterator<Item = &str> {
    let marks = id
        .char_indices()
        .rev()
        .filter(|(_, c)| matches!(c, '-' | '@'));
    marks
        .filter(|(at, _)| is_version(id.get(at + 1..).unwrap_or_default()))
        .filter_map(|(at, _)| id.get(..at))
}

/// `2024-08-06`, `05-20`, `20250929`, `001`, `latest`. A number before a date is of another model:
/// `5-7-20270101` is no version.
fn is_version(end: &str) -> bool {
    let digits = |group: &str| {
        group
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(group.len())
    };
    let groups: Option<Vec<usize>> = end.split('-').map(digits).collect();
    end == "latest"
        || groups.is_some_and(|groups| {
            matches!(groups[..], [3..=usize::MAX] | [4, 2, 2] | [2, 2] | [2, 4])
        })
}

#[cfg(test)]
mod tests;
