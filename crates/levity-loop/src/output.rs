use std::fmt;
use std::sync::{Arc, OnceLock};

use levity_core::OutputSchema;
use levity_tools::Schema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The shape an answer must have, and the means to tell whether it has it.
#[derive(Clone)]
pub(crate) struct OutputCheck {
    pub(crate) schema: Arc<OutputSchema>,
    compiled: Arc<OnceLock<Result<Schema, String>>>,
    decode: Option<Decode>,
}

type Decode = Arc<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

impl OutputCheck {
    /// The shape of a schema.
    pub(crate) fn new(schema: Arc<OutputSchema>) -> Self {
        Self {
            schema,
            compiled: Arc::default(),
            decode: None,
        }
    }

    /// The shape of a type.
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

    /// Whether a type of the user's has a say, too.
    pub(crate) fn is_typed(&self) -> bool {
        self.decode.is_some()
    }

    /// The value in `text`, or what is wrong with it, in words the model can act on.
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

    /// The JSON values that `text` may mean, likeliest first: all of it, a fenced block, the first
    /// value in braces or brackets; or the text itself, when a string is wanted.
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

/// What stands between the first pair of code fences.
fn fenced(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("```")?;
    let (_, block) = after.split_once('\n')?;
    let (block, _) = block.split_once("```")?;
    Some(block.trim())
}

/// The first object or array that can be read from `text`. Few starts are tried, so that a long
/// text full of braces costs little.
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
