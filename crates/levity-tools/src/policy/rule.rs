use std::fmt;
use std::sync::Arc;

use levity_core::{EffectClass, Permit, ToolSpec};
use serde::{Deserialize, Serialize, Serializer, ser};
use serde_json::Value;

use crate::glob;

/// Which calls, and what of them.
///
/// A rule begins with [`tool`](Self::tool), [`hint`](Self::hint) or [`any`](Self::any) and ends
/// with a verdict. All of its conditions have to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// A misspelt condition would be no condition, and the rule would hold for more than was meant.
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<HintMatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<Arg>,
    #[serde(
        skip_deserializing,
        skip_serializing_if = "Option::is_none",
        serialize_with = "refuse"
    )]
    when: Option<When>,
    verdict: Permit,
}

impl Rule {
    /// Calls of tools with this name: `*` stands for any text, `?` for one character.
    pub fn tool(name: impl Into<String>) -> RuleBuilder {
        let mut builder = Self::any();
        builder.0.tool = Some(name.into());
        builder
    }

    /// Calls of tools with this hint.
    pub fn hint(hint: HintMatch) -> RuleBuilder {
        Self::any().hint(hint)
    }

    /// All calls.
    pub fn any() -> RuleBuilder {
        RuleBuilder(Self {
            tool: None,
            hint: None,
            args: Vec::new(),
            when: None,
            verdict: Permit::Allow,
        })
    }

    pub(super) fn verdict(&self) -> &Permit {
        &self.verdict
    }

    pub(super) fn blocks(&self) -> bool {
        self.when.as_ref().is_some_and(|when| when.blocks)
    }

    pub(super) fn matches(&self, spec: &ToolSpec, args: &Value) -> bool {
        self.tool
            .as_ref()
            .is_none_or(|pattern| glob::fits(pattern, &spec.name))
            && self.hint.is_none_or(|hint| hint.matches(spec))
            && self.args.iter().all(|arg| arg.matches(args))
            && self
                .when
                .as_ref()
                .is_none_or(|when| (when.holds)(spec, args))
    }
}

/// A [`Rule`] that has no verdict yet.
#[derive(Clone, Debug)]
#[must_use = "a rule needs a verdict: `allow`, `ask` or `deny`"]
pub struct RuleBuilder(Rule);

impl RuleBuilder {
    /// Only tools with this hint.
    pub fn hint(mut self, hint: HintMatch) -> Self {
        self.0.hint = Some(hint);
        self
    }

    /// Only calls with such an argument, named by a JSON pointer (`/path`, `/files/0`) or by its
    /// bare name.
    pub fn arg(mut self, at: impl Into<String>, is: ArgMatch) -> Self {
        self.0.args.push(Arg { at: at.into(), is });
        self
    }

    /// Only calls this function says yes to, besides the other conditions; the last one given
    /// counts.
    ///
    /// A rule with a function cannot be serialised: without it, the rule would hold for more calls.
    pub fn when(
        mut self,
        when: impl Fn(&ToolSpec, &Value) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.0.when = Some(When {
            holds: Arc::new(when),
            blocks: false,
        });
        self
    }

    /// The same for a function that may block its thread: it reads files, for instance. Agents and
    /// dispatchers call it on a thread of its own; [`Policy::judge`](crate::Policy::judge) calls it
    /// where it is.
    pub fn when_blocking(
        mut self,
        when: impl Fn(&ToolSpec, &Value) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.0.when = Some(When {
            holds: Arc::new(when),
            blocks: true,
        });
        self
    }

    /// They may run.
    pub fn allow(self) -> Rule {
        self.verdict(Permit::Allow)
    }

    /// They may run if a person says so.
    pub fn ask(self, reason: impl Into<String>) -> Rule {
        self.verdict(Permit::ask(reason))
    }

    /// They may not run.
    pub fn deny(self, reason: impl Into<String>) -> Rule {
        self.verdict(Permit::deny(reason))
    }

    fn verdict(self, verdict: Permit) -> Rule {
        Rule { verdict, ..self.0 }
    }
}

/// A hint that a tool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HintMatch {
    /// It changes nothing.
    ReadOnly,
    /// A second call changes nothing more.
    Idempotent,
    /// It can be undone.
    Compensable,
    /// It must not be called twice.
    AtMostOnce,
    /// It may destroy something.
    Destructive,
}

impl HintMatch {
    fn matches(self, spec: &ToolSpec) -> bool {
        match self {
            Self::ReadOnly => spec.hints.class == EffectClass::ReadOnly,
            Self::Idempotent => spec.hints.class == EffectClass::Idempotent,
            Self::Compensable => spec.hints.class == EffectClass::Compensable,
            Self::AtMostOnce => spec.hints.class == EffectClass::AtMostOnce,
            Self::Destructive => spec.hints.destructive,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arg {
    at: String,
    is: ArgMatch,
}

impl Arg {
    fn matches(&self, args: &Value) -> bool {
        let is_pointer = self.at.is_empty() || self.at.starts_with('/');
        let value = if is_pointer {
            args.pointer(&self.at)
        } else {
            args.get(&self.at)
        };
        value.is_some_and(|value| self.is.matches(value))
    }
}

/// What an argument must be; one that is not there matches nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArgMatch {
    /// A string of this form: `*` stands for any text, `?` for one character.
    ///
    /// It sees text and not paths: `/tmp/*` matches `/tmp/../etc/passwd`, too. To allow by it is
    /// only safe for a tool that keeps to its directory by itself.
    Glob(String),
    /// This very value.
    Equals(Value),
    /// One of these values.
    OneOf(Vec<Value>),
    /// Anything, `null` included.
    Present,
}

impl ArgMatch {
    /// A string of this form; see [`Glob`](Self::Glob).
    pub fn glob(pattern: impl Into<String>) -> Self {
        Self::Glob(pattern.into())
    }

    /// This very value.
    pub fn equals(value: impl Into<Value>) -> Self {
        Self::Equals(value.into())
    }

    /// One of these values.
    pub fn one_of<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Self {
        Self::OneOf(values.into_iter().map(Into::into).collect())
    }

    /// Anything that is there.
    pub fn present() -> Self {
        Self::Present
    }

    fn matches(&self, value: &Value) -> bool {
        match self {
            Self::Glob(pattern) => value.as_str().is_some_and(|text| glob::fits(pattern, text)),
            Self::Equals(wanted) => value == wanted,
            Self::OneOf(wanted) => wanted.contains(value),
            Self::Present => true,
        }
    }
}

type Condition = dyn Fn(&ToolSpec, &Value) -> bool + Send + Sync;

#[derive(Clone)]
struct When {
    holds: Arc<Condition>,
    blocks: bool,
}

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("When(..)")
    }
}

impl PartialEq for When {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.holds, &other.holds)
    }
}

fn refuse<S: Serializer>(_: &Option<When>, _: S) -> Result<S::Ok, S::Error> {
    Err(ser::Error::custom(
        "a rule with a function cannot be written down",
    ))
}
