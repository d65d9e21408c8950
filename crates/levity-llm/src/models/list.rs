//! The model list: facts about models and the servers that offer them.
//!
//! The list is data, in `models.json` of this crate, so that prices and windows change without
//! code. Unknown fields are errors: a misspelt price must not count as free. Capabilities are
//! optional flags, since a list may know one of them and not the others. Prices stay in dollars
//! here and become [`Price`] on demand.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use levity_core::text::{bare_model_name, bare_url, json_problem};
use levity_core::{Capabilities, Fees, ModelCard, Options, Price};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::location::UntrustedFile;
use crate::Error;

/// The maximum size of a list in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// A list of models with windows, capabilities and prices, servers and profiles.
///
/// The built-in list is [`ModelList::builtin`]. Your own file in the same format adds to it or
/// replaces parts of it. See `docs/models.md` for the format.
///
/// ```
/// # use levity_llm::ModelList;
/// let mine = ModelList::parse(
///     r#"{"models": {"house:big": {"window": 8000, "price": {"input": 1, "output": 2}}}}"#,
/// )?;
/// let list = ModelList::clone(ModelList::builtin()).with(mine);
/// assert_eq!(list.card("house", "big").window, Some(8000));
/// assert!(list.card("house", "small").price.is_none());
/// # Ok::<(), levity_llm::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelList {
    /// The date when the facts in the file were checked.
    #[serde(default)]
    checked: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, ModelFacts>,
    #[serde(default)]
    pub(super) servers: BTreeMap<String, Server>,
    #[serde(default)]
    pub(super) defaults: BTreeMap<String, DefaultModel>,
    #[serde(default)]
    pub(super) profiles: BTreeMap<String, Profile>,
}

/// The known facts about a model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFacts {
    window: Option<u64>,
    max_output: Option<u64>,
    #[serde(default, alias = "abilities")]
    capabilities: CapabilityFlags,
    price: Option<DollarPrice>,
}

/// The known capabilities of a model.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CapabilityFlags {
    tools: Option<bool>,
    output_schema: Option<bool>,
    images: Option<bool>,
    thinking: Option<bool>,
}

/// Prices in dollars per million tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DollarPrice {
    input: f64,
    output: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    cache_write_hour: Option<f64>,
    /// The rates for prioritised requests, in percent of the normal rates.
    priority: Option<u32>,
    fees: Option<DollarFees>,
    long: Option<LongRates>,
}

/// Fees in dollars per thousand uses of tools that the provider runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DollarFees {
    search: Option<f64>,
    session: Option<f64>,
    #[serde(alias = "most_uses")]
    max_uses: Option<u64>,
}

/// The rates of requests with more than `over` input tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRates {
    over: u64,
    input: f64,
    output: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    cache_write_hour: Option<f64>,
}

/// A server that offers models.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    #[serde(default)]
    pub(super) api: Api,
    pub(super) base_url: String,
    /// The variable that holds the key.
    #[serde(default)]
    pub(super) key: Option<String>,
    /// The default model if no model is named.
    #[serde(default)]
    pub(super) default: Option<String>,
    /// The untrusted file that defines the server, if any.
    #[serde(skip)]
    pub(super) untrusted: Option<Arc<UntrustedFile>>,
}

/// The default model of a provider, optionally with an address after the name.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub(super) struct DefaultModel {
    pub(super) id: String,
    pub(super) untrusted: Option<Arc<UntrustedFile>>,
}

impl From<String> for DefaultModel {
    fn from(id: String) -> Self {
        Self {
            id,
            untrusted: None,
        }
    }
}

/// The API of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Api {
    /// The Chat Completions API.
    #[default]
    Chat,
    /// The Responses API of OpenAI.
    Responses,
    /// The Messages API of Anthropic.
    Messages,
    /// The `generateContent` API of Gemini.
    Gemini,
    /// The native API of Ollama.
    Ollama,
    /// OpenAI's Chat Completions API, on OpenAI's own servers only.
    #[serde(skip)]
    OpenAiChat,
    /// Gemini's `generateContent` API on Vertex AI.
    #[serde(skip)]
    Vertex,
}

/// A named model with its settings.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) model: String,
    /// Options that requests do not set themselves.
    #[serde(default, deserialize_with = "known_options")]
    pub(super) options: Options,
    /// The maximum number of attempts per request.
    #[serde(default)]
    pub(super) attempts: Option<u64>,
    #[serde(default)]
    pub(super) rate: Option<RateSetting>,
    /// The models to call if this one fails, in order.
    #[serde(default)]
    pub(super) fallback: Vec<String>,
    /// Enables tool calls as text.
    #[serde(default)]
    pub(super) text_tools: bool,
    /// Enables thinking for queries that need it.
    #[serde(default)]
    pub(super) auto_thinking: bool,
    /// The untrusted file that defines the profile, if any.
    #[serde(skip)]
    pub(super) untrusted: Option<Arc<UntrustedFile>>,
}

// Addresses may contain keys, so `Debug` prints them without secrets.
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

/// A limit on the rate of calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateSetting {
    pub(super) requests: Option<u64>,
    pub(super) tokens: Option<u64>,
    #[serde(default, deserialize_with = "seconds")]
    pub(super) gap_seconds: Option<f64>,
}

/// Deserializes options and rejects unknown names.
///
/// [`Options`] itself accepts unknown fields; a typing error in a list would then have no effect.
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
    if let Some(unknown) = map.keys().find(|name| !NAMES.contains(&name.as_str())) {
        let problem = format!(
            "there is no option `{unknown}`; the options are {}",
            NAMES.join(", ")
        );
        return Err(D::Error::custom(problem));
    }
    Options::deserialize(Value::Object(map)).map_err(|error| D::Error::custom(json_problem(&error)))
}

/// Negative, infinite and huge values are errors, because they are no duration.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Err(_)) => Err(D::Error::custom(
            "`gap_seconds` is not a valid time; write a number of seconds, 0 or more",
        )),
        _ => Ok(seconds),
    }
}

impl ModelList {
    /// Returns the built-in list of models.
    ///
    /// The list is parsed once per process.
    ///
    /// ```
    /// use levity_llm::ModelList;
    ///
    /// let list = ModelList::builtin();
    /// assert!(list.names().count() > 50);
    /// assert!(list.card("gemini", "gemini-3.8-flash").window.is_some());
    /// ```
    pub fn builtin() -> &'static Arc<Self> {
        static BUILTIN: OnceLock<Arc<ModelList>> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            // A test parses the list, so it is valid.
            Arc::new(Self::parse(include_str!("../../models.json")).unwrap_or_default())
        })
    }

    /// Parses a list from JSON.
    ///
    /// ```
    /// use levity_llm::{ErrorKind, ModelList};
    ///
    /// let error = ModelList::parse(r#"{"models": {"small": {}}}"#).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::File);
    /// assert!(error.to_string().contains("write `provider:model`"));
    /// ```
    ///
    /// # Errors
    /// Returns an error if the text is not JSON, or a part of it is invalid or unknown.
    pub fn parse(json: &str) -> Result<Self, Error> {
        Self::parse_at(json, "the list of models")
    }

    /// Reads a list from a file.
    ///
    /// The file may have up to 8 MiB.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or the same errors as [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |source| Error::File {
            path: path.to_owned(),
            source,
        };
        let json = read(path).map_err(failed)?;
        Self::parse_at(&json, &format!("`{}`", path.display()))
    }

    /// Marks all entries as defined by an untrusted file.
    ///
    /// Facts about models carry no mark: they have no address and receive no key.
    pub(super) fn of(mut self, untrusted: &Arc<UntrustedFile>) -> Self {
        self.servers
            .values_mut()
            .for_each(|server| server.untrusted = Some(untrusted.clone()));
        self.profiles
            .values_mut()
            .for_each(|profile| profile.untrusted = Some(untrusted.clone()));
        self.defaults
            .values_mut()
            .for_each(|model| model.untrusted = Some(untrusted.clone()));
        self
    }

    /// `place` begins the error: `` `mine.json`, line 3: .. ``.
    fn parse_at(json: &str, place: &str) -> Result<Self, Error> {
        let list_error = |place: String, problem: String| Error::InvalidList { place, problem };
        let list: Self = serde_json::from_str(json).map_err(|error| {
            let problem = json_problem(&error);
            let (problem, _) = problem.rsplit_once(" at line ").unwrap_or((&problem, ""));
            let (line, column) = (error.line(), error.column());
            list_error(
                format!("{place}, line {line}, column {column}"),
                problem.to_owned(),
            )
        })?;
        if let Some(name) = list.models.keys().find(|name| !name.contains(':')) {
            let problem = format!("the model `{name}` has no provider; write `provider:model`");
            return Err(list_error(place.to_owned(), problem));
        }
        if let Some(name) = list
            .profiles
            .keys()
            .chain(list.servers.keys())
            .find(|name| name.contains(':'))
        {
            let problem = format!("`{name}` must not contain a colon");
            return Err(list_error(place.to_owned(), problem));
        }
        Ok(list)
    }

    /// Merges another list, whose entries take precedence.
    ///
    /// Facts about a model are merged field by field: an entry with only a price keeps the known
    /// window. A server, default or profile is replaced as a whole.
    ///
    /// ```
    /// use levity_llm::ModelList;
    ///
    /// let window = ModelList::parse(r#"{"models": {"house:big": {"window": 8000}}}"#)?;
    /// let price = r#"{"models": {"house:big": {"price": {"input": 1, "output": 2}}}}"#;
    /// let card = window.with(ModelList::parse(price)?).card("house", "big");
    /// assert_eq!(card.window, Some(8000));
    /// assert!(card.price.is_some());
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
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

    /// Returns the date when the facts in the list were checked.
    ///
    /// The built-in list has a date such as `2026-11-15`. Prices change, so only the provider's
    /// bill is final.
    pub fn checked(&self) -> Option<&str> {
        self.checked.as_deref()
    }

    /// Returns the names of all models in the list, as `provider:model`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    /// Returns the names of all profiles in the list.
    ///
    /// The built-in list has none; profiles come from your own list.
    ///
    /// ```
    /// let json = r#"{"profiles": {"fast": {"model": "ollama:qwen3"}}}"#;
    /// let list = levity_llm::ModelList::parse(json)?;
    /// assert_eq!(list.profiles().collect::<Vec<_>>(), ["fast"]);
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// Returns the card of a model, with only its name if the model is unknown.
    ///
    /// A date at the end of a name is ignored: `gpt-4o-2024-08-06` counts as `gpt-4o` unless the
    /// list contains the full name.
    ///
    /// ```
    /// use levity_llm::ModelList;
    ///
    /// let list = ModelList::parse(r#"{"models": {"house:big": {"window": 8000}}}"#)?;
    /// assert_eq!(list.card("house", "big-2026-08-06").window, Some(8000));
    /// assert_eq!(list.card("house", "huge").window, None);
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    pub fn card(&self, provider: &str, id: &str) -> ModelCard {
        self.complete(ModelCard::new(provider, id))
    }

    /// Completes a card with the facts in the list.
    pub(crate) fn complete(&self, mut card: ModelCard) -> ModelCard {
        if let Some(known) = self.find(&card.provider, &card.id) {
            card.window = known.window.or(card.window);
            card.max_output = known.max_output.or(card.max_output);
            card.price = known.price.as_ref().map(DollarPrice::price).or(card.price);
            card.capabilities = known.capabilities.apply_to(card.capabilities);
        }
        card
    }

    /// Vertex and OpenAI's Chat Completions share the entries of their families. An entry of their
    /// own has precedence. A path before `models/` is ignored.
    fn find(&self, provider: &str, id: &str) -> Option<&ModelFacts> {
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
        known(id).or_else(|| without_version(id).find_map(known))
    }
}

/// Reads a regular file of limited size.
fn read(path: &Path) -> std::io::Result<String> {
    let bytes = levity_system::files::read_at_most(path, MAX_BYTES)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8; save it as UTF-8"))
}

impl ModelFacts {
    /// Takes over the facts that `newer` has, and keeps the others.
    fn update(&mut self, newer: Self) {
        self.window = newer.window.or(self.window);
        self.max_output = newer.max_output.or(self.max_output);
        self.capabilities.update(newer.capabilities);
        self.price = newer.price.or_else(|| self.price.take());
    }
}

impl CapabilityFlags {
    fn update(&mut self, newer: Self) {
        self.tools = newer.tools.or(self.tools);
        self.output_schema = newer.output_schema.or(self.output_schema);
        self.images = newer.images.or(self.images);
        self.thinking = newer.thinking.or(self.thinking);
    }

    /// Overrides the capabilities that are known and keeps the others.
    fn apply_to(self, mut capabilities: Capabilities) -> Capabilities {
        capabilities.tools = self.tools.unwrap_or(capabilities.tools);
        capabilities.output_schema = self.output_schema.unwrap_or(capabilities.output_schema);
        capabilities.images = self.images.unwrap_or(capabilities.images);
        capabilities.thinking = self.thinking.unwrap_or(capabilities.thinking);
        capabilities
    }
}

impl DollarPrice {
    /// Converts dollars per million tokens to a price.
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
        let long = |long: &LongRates| {
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
    /// Converts dollars per thousand uses to fees per use.
    fn fees(&self) -> Fees {
        let mut fees = Fees::new();
        fees = self
            .search
            .map_or(fees, |dollars| fees.with_search(dollars / 1_000.0));
        fees = self
            .session
            .map_or(fees, |dollars| fees.with_session(dollars / 1_000.0));
        self.max_uses.map_or(fees, |uses| fees.with_max_uses(uses))
    }
}

/// Creates a price with the rates for cache writes: for minutes, and for an hour.
fn rates(input: f64, output: f64, cached: Option<f64>, [write, hour]: [Option<f64>; 2]) -> Price {
    let mut price = Price::new(input, output);
    price = cached.map_or(price, |dollars| price.with_cached(dollars));
    price = write.map_or(price, |dollars| price.with_cache_write(dollars));
    hour.map_or(price, |dollars| price.with_cache_write_hour(dollars))
}

/// Returns the name without a date, `latest` or version number at its end; the longest first.
fn without_version(id: &str) -> impl Iterator<Item = &str> {
    let marks = id
        .char_indices()
        .rev()
        .filter(|(_, c)| matches!(c, '-' | '@'));
    marks
        .filter(|(at, _)| is_version(id.get(at + 1..).unwrap_or_default()))
        .filter_map(|(at, _)| id.get(..at))
}

/// Returns `true` for `2024-08-06`, `05-20`, `20250929`, `001` and `latest`. A number before a date
/// belongs to another model: `5-7-20270101` is not a version.
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
