//! The settings of a request, other than the conversation.
//!
//! Families differ in how they think and whether they combine tools with answer schemas. The API
//! rejects a setting of another family, so the family is inferred from the name. Unknown names get
//! a token budget for thinking, and may combine tools with a schema.

use std::borrow::Cow;

use levity_core::{Request, ThinkingMode, ToolChoice};
use serde_json::{Map, Value, json};

use crate::schema;

/// A model family, as its name shows.
///
/// `models/gemini-2.5-pro` is `Budget { pro: true }`, `gemini-3-flash` is a `Level`, `gemma-3-27b`
/// is `Old` and `my-tuned-model` is `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Models before 2.5 and models other than Gemini, which do not think.
    Old,
    /// Gemini 2.5, which thinks with a token budget.
    Budget { pro: bool },
    /// Gemini 3 and later, and names of the latest model: they think by levels, and require
    /// signatures.
    Level { pro: bool, medium: bool },
    /// A model whose name shows nothing, such as a fine-tuned one.
    Unknown,
}

impl Family {
    /// Infers the family from a name, whose folders are ignored. A number of 100 or more is not a
    /// version but a date or a number of parameters.
    pub(super) fn of(model: &str) -> Self {
        let name = model
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let pro = name.contains("pro");
        if name.starts_with("gemma") || name.starts_with("learnlm") {
            return Self::Old;
        }
        if !name.contains("gemini") {
            return Self::Unknown;
        }
        let version = name
            .split('-')
            .find_map(|word| word.parse::<f32>().ok())
            .filter(|version| *version < 100.0);
        match version {
            Some(version) if version < 2.5 => Self::Old,
            Some(version) if version < 3.0 => Self::Budget { pro },
            // The first of these models supports only low and high.
            Some(version) => Self::Level {
                pro,
                medium: !pro || version > 3.0,
            },
            None if name.ends_with("-latest") => Self::Level { pro, medium: true },
            None => Self::Unknown,
        }
    }

    /// Returns `true` unless the family is known not to think.
    pub(super) fn thinks(self) -> bool {
        self != Self::Old
    }

    /// Returns `true` if calls require signatures, and results may contain images.
    pub(super) fn requires_signatures(self) -> bool {
        matches!(self, Self::Level { .. })
    }

    /// Returns `true` if an answer schema can be enforced while tools are offered.
    fn supports_schema_with_tools(self) -> bool {
        matches!(self, Self::Level { .. } | Self::Unknown)
    }
}

/// The instructions before the conversation.
pub(super) struct Instructions<'a> {
    system: &'a str,
    /// The answer's shape, if only text can describe it.
    pub(super) shape: Option<String>,
}

impl Instructions<'_> {
    /// Returns `true` if there is nothing to instruct.
    pub(super) fn is_empty(&self) -> bool {
        self.system.is_empty() && self.shape.is_none()
    }

    /// Returns the instructions followed by the shape of the answer.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match &self.shape {
            None => Cow::Borrowed(self.system),
            Some(shape) if self.system.is_empty() => Cow::Borrowed(shape),
            Some(shape) => Cow::Owned(format!("{}\n\n{shape}", self.system)),
        }
    }
}

/// Returns the instructions, with the answer's shape if only text can describe it.
pub(super) fn instructions(request: &Request, family: Family, has_tools: bool) -> Instructions<'_> {
    let output = request
        .output
        .as_ref()
        .filter(|_| !enforces_schema(family, has_tools));
    let ask =
        "When you answer, answer with JSON and nothing around it. It must match this JSON Schema";
    let shape = output.map(|output| format!("{ask}: {}", output.schema));
    Instructions {
        system: request.system.as_deref().unwrap_or_default(),
        shape,
    }
}

/// Returns `true` if the answer's schema can be enforced. Before Gemini 3, the API rejects a schema
/// together with tools, both functions and Google's own: "Tool use with a response mime type:
/// 'application/json' is unsupported".
fn enforces_schema(family: Family, has_tools: bool) -> bool {
    !has_tools || family.supports_schema_with_tools()
}

/// Returns the `toolConfig` of a request.
///
/// It is empty if the model decides itself or no tools are offered.
pub(super) fn tools(request: &Request) -> Map<String, Value> {
    let config = match &request.tool_choice {
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
        _ => Value::Null,
    };
    let mut own = Map::new();
    if !config.is_null() && !request.tools.is_empty() {
        own.insert("functionCallingConfig".to_owned(), config);
    }
    own
}

/// Returns the `generationConfig` of a request.
///
/// Only settings that the request makes are written, so Google's defaults apply to all others.
pub(super) fn generation(request: &Request, family: Family, has_tools: bool) -> Map<String, Value> {
    let options = &request.options;
    let mut own = Map::new();
    let mut set =
        |name: &str, value: Option<Value>| own.extend(value.map(|value| (name.to_owned(), value)));
    set("temperature", options.temperature.map(Value::from));
    set("topP", options.top_p.map(Value::from));
    set("maxOutputTokens", options.max_tokens.map(Value::from));
    set("seed", options.seed.map(Value::from));
    set(
        "stopSequences",
        (!options.stop.is_empty()).then(|| json!(options.stop)),
    );
    set(
        "thinkingConfig",
        options.thinking.and_then(|mode| thinking(mode, family)),
    );
    if let Some(output) = request
        .output
        .as_ref()
        .filter(|_| enforces_schema(family, has_tools))
    {
        set("responseMimeType", Some(json!("application/json")));
        set(
            "responseJsonSchema",
            Some(schema::gemini::convert(&output.schema)),
        );
    }
    own
}

/// Returns the `thinkingConfig`. A model that cannot disable thinking thinks as little as possible.
///
/// Gemini 2.5 receives tokens: 1,024 for `Low`, 8,192 for `Medium`, 24,576 for `High` and -1
/// (Gemini decides) for `Auto`. The minimum of 2.5 Pro is 128. Gemini 3 receives a level. Thoughts
/// are shown unless thinking is off.
fn thinking(mode: ThinkingMode, family: Family) -> Option<Value> {
    let mode = if mode == ThinkingMode::Budget(0) {
        ThinkingMode::Off
    } else {
        mode
    };
    let shown = mode != ThinkingMode::Off;
    let mut config = match family {
        Family::Old => return None,
        Family::Budget { .. } | Family::Unknown => {
            let minimum = if family == (Family::Budget { pro: true }) {
                128
            } else {
                0
            };
            let budget: i64 = match mode {
                ThinkingMode::Off => minimum,
                ThinkingMode::Low => 1_024,
                ThinkingMode::Medium => 8_192,
                ThinkingMode::High => 24_576,
                ThinkingMode::Budget(tokens) => {
                    i64::try_from(tokens).unwrap_or(i64::MAX).max(minimum)
                }
                _ => -1,
            };
            json!({ "thinkingBudget": budget })
        }
        Family::Level { pro, medium } => match mode {
            ThinkingMode::Off if !pro => json!({"thinkingLevel": "MINIMAL"}),
            ThinkingMode::Off | ThinkingMode::Low => json!({"thinkingLevel": "LOW"}),
            ThinkingMode::Medium if medium => json!({"thinkingLevel": "MEDIUM"}),
            ThinkingMode::Medium | ThinkingMode::High => json!({"thinkingLevel": "HIGH"}),
            // The budget is still accepted, and is the only way to state a number.
            ThinkingMode::Budget(tokens) => json!({"thinkingBudget": tokens}),
            _ => json!({}),
        },
    };
    if shown {
        config["includeThoughts"] = true.into();
    }
    Some(config)
}

/// Merges `more` into `own` recursively, key by key; `more` takes precedence.
pub(super) fn merge(own: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (own.get_mut(&name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => merge(own, more),
            (_, value) => drop(own.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_determines_family() {
        let check = |name: &str, family| assert_eq!(Family::of(name), family, "{name}");
        check("gemini-1.5-flash", Family::Old);
        check("gemini-2.0-flash-001", Family::Old);
        check("gemma-3-27b-it", Family::Old);
        check(
            "models/gemini-2.5-flash-lite",
            Family::Budget { pro: false },
        );
        check("gemini-2.5-pro-preview-05-06", Family::Budget { pro: true });
        check(
            "gemini-3-pro-preview",
            Family::Level {
                pro: true,
                medium: false,
            },
        );
        check(
            "publishers/google/models/gemini-3.1-flash",
            Family::Level {
                pro: false,
                medium: true,
            },
        );
        check(
            "gemini-flash-latest",
            Family::Level {
                pro: false,
                medium: true,
            },
        );
        check("gemini-exp-1206", Family::Unknown);
        check("tunedModels/mine", Family::Unknown);
    }

    #[test]
    fn thinking_config_matches_family() {
        let check = |mode, name: &str, expected: Value| {
            assert_eq!(
                thinking(mode, Family::of(name)).unwrap_or_default(),
                expected,
                "{mode:?} for {name}"
            );
        };
        let shown = |name: &str, value: Value| json!({name: value, "includeThoughts": true});
        check(
            ThinkingMode::Off,
            "gemini-2.5-flash",
            json!({"thinkingBudget": 0}),
        );
        check(
            ThinkingMode::Off,
            "gemini-2.5-pro",
            json!({"thinkingBudget": 128}),
        );
        check(
            ThinkingMode::Budget(0),
            "gemini-2.5-pro",
            json!({"thinkingBudget": 128}),
        );
        check(
            ThinkingMode::Auto,
            "gemini-2.5-flash",
            shown("thinkingBudget", json!(-1)),
        );
        check(
            ThinkingMode::Budget(500),
            "gemini-2.5-flash",
            shown("thinkingBudget", json!(500)),
        );
        check(
            ThinkingMode::Off,
            "gemini-3-flash",
            json!({"thinkingLevel": "MINIMAL"}),
        );
        check(
            ThinkingMode::Off,
            "gemini-3-pro",
            json!({"thinkingLevel": "LOW"}),
        );
        check(
            ThinkingMode::High,
            "gemini-3-pro",
            shown("thinkingLevel", json!("HIGH")),
        );
        check(
            ThinkingMode::Medium,
            "gemini-3-pro",
            shown("thinkingLevel", json!("HIGH")),
        );
        check(
            ThinkingMode::Medium,
            "gemini-3.1-pro",
            shown("thinkingLevel", json!("MEDIUM")),
        );
        check(
            ThinkingMode::Budget(500),
            "gemini-3-pro",
            shown("thinkingBudget", json!(500)),
        );
        check(
            ThinkingMode::Auto,
            "gemini-3-pro",
            json!({"includeThoughts": true}),
        );
        check(ThinkingMode::High, "gemini-2.0-flash", Value::Null);
    }
}
