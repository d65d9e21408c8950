//! Structured answers: finds the JSON in a reply and validates it.
//!
//! Models wrap JSON in prose or fences. The check tries the whole text, then a fenced block, then
//! the first value in it, and accepts the first one that matches the schema. The error for the
//! model names the problem and not only that there is one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use levity_core::OutputSchema;
use levity_tools::Schema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The schema of an answer, and its validator.
#[derive(Clone)]
pub(crate) struct OutputCheck {
    pub(crate) schema: Arc<OutputSchema>,
    compiled: Arc<OnceLock<Result<Schema, String>>>,
    decode: Option<Decode>,
}

type Decode = Arc<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

impl OutputCheck {
    /// Creates the check for a schema.
    pub(crate) fn new(schema: Arc<OutputSchema>) -> Self {
        Self {
            schema,
            compiled: Arc::default(),
            decode: None,
        }
    }

    /// Creates the check for a type.
    pub(crate) fn of<T: DeserializeOwned + schemars::JsonSchema>() -> Self {
        let decode = |value: &Value| match T::deserialize(value) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        Self {
            decode: Some(Arc::new(decode)),
            ..Self::new(Arc::new(OutputSchema::of::<T>()))
        }
    }

    /// Returns `true` if the answer must also parse as a type of the user.
    pub(crate) fn is_typed(&self) -> bool {
        self.decode.is_some()
    }

    /// Returns the value in `text`, or an error in words that the model can act on.
    pub(crate) fn check(&self, text: &str) -> Result<Value, String> {
        let mut complaint = None;
        for value in self.candidates(text) {
            match self.problems(&value) {
                None => return Ok(value),
                Some(problems) => complaint = complaint.or(Some(problems)),
            }
        }
        Err(complaint.unwrap_or_else(|| "it is no JSON".to_owned()))
    }

    fn problems(&self, value: &Value) -> Option<String> {
        let compile = || Schema::new(&self.schema.schema).map_err(|error| error.to_string());
        let problems = match self.compiled.get_or_init(compile) {
            Ok(schema) => schema.problems(value),
            Err(error) => Some(error.clone()),
        };
        problems.or_else(|| self.decode.as_ref().and_then(|decode| decode(value).err()))
    }

    /// Returns the JSON values that `text` may mean, likeliest first: all of it, a fenced block,
    /// the first value in braces or brackets. If a string is expected, the text itself is one.
    fn candidates(&self, text: &str) -> impl Iterator<Item = Value> {
        let text = text.trim();
        let whole = serde_json::from_str(text).ok();
        let mended = if whole.is_some() {
            [None, None]
        } else {
            [
                fenced(text).and_then(|block| serde_json::from_str(block).ok()),
                first_value(text),
            ]
        };
        let wants_text = self
            .schema
            .schema
            .get("type")
            .is_some_and(|kind| kind == "string");
        let plain = wants_text.then(|| Value::String(text.to_owned()));
        std::iter::once(whole)
            .chain(mended)
            .chain([plain])
            .flatten()
    }
}

impl fmt::Debug for OutputCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputCheck")
            .field(&self.schema.name)
            .finish()
    }
}

/// Returns the text between the first pair of code fences.
fn fenced(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("```")?;
    let (_, block) = after.split_once('\n')?;
    let (block, _) = block.split_once("```")?;
    Some(block.trim())
}

/// Returns the first object or array in `text`. It tries few starting points, so that a long text
/// full of braces costs little.
fn first_value(text: &str) -> Option<Value> {
    text.match_indices(['{', '['])
        .take(16)
        .find_map(|(start, _)| {
            let mut values =
                serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
            values
                .next()?
                .ok()
                .filter(|value| !value.as_array().is_some_and(Vec::is_empty))
        })
}
