//! The conditions of rules.
//!
//! Unknown fields of a stored rule are an error. A rule whose condition was lost would match more
//! calls than its author meant.

use std::fmt;
use std::sync::Arc;

use levity_core::{EffectClass, Permit, ToolSpec};
use serde::{Deserialize, Serialize, Serializer, ser};
use serde_json::Value;

use crate::glob;

/// A rule of a policy: a condition on calls, and a verdict.
///
/// A rule begins with [`tool`](Self::tool), [`hint`](Self::hint) or [`any`](Self::any) and ends
/// with a verdict. All of its conditions have to hold.
///
/// ```
/// use levity_tools::{ArgMatch, HintMatch, Rule};
/// use serde_json::json;
///
/// let rule = Rule::hint(HintMatch::Destructive)
///     .arg("/path", ArgMatch::glob("/tmp/*"))
///     .ask("it deletes temporary files");
/// let stored = serde_json::to_value(&rule)?;
/// assert_eq!(stored["hint"], json!("destructive"));
/// assert_eq!(serde_json::from_value::<Rule>(stored)?, rule);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// A misspelt condition would be ignored, and the rule would match more calls than intended.
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
    /// Matches calls of tools with this name: `*` matches any text, `?` one character.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{Policy, Rule};
    /// use serde_json::json;
    ///
    /// let policy = Policy::new().rule(Rule::tool("delete_*").deny("nothing is deleted today"));
    /// let spec = ToolSpec::new("delete_file", "Deletes a file.");
    /// assert!(matches!(policy.judge(&spec, &json!({})), Permit::Deny { .. }));
    /// ```
    pub fn tool(name: impl Into<String>) -> RuleBuilder {
        let mut builder = Self::any();
        builder.0.tool = Some(name.into());
        builder
    }

    /// Matches calls of tools with this hint.
    pub fn hint(hint: HintMatch) -> RuleBuilder {
        Self::any().hint(hint)
    }

    /// Matches all calls of all tools.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{Policy, Rule};
    /// use serde_json::json;
    ///
    /// let policy = Policy::new().rule(Rule::any().ask("a person decides"));
    /// let spec = ToolSpec::new("look", "Looks around.");
    /// assert_eq!(policy.judge(&spec, &json!({})), Permit::ask("a person decides"));
    /// ```
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
///
/// ```
/// use levity_core::{Permit, ToolSpec};
/// use levity_tools::{Policy, Rule};
/// use serde_json::json;
///
/// let large = Rule::tool("pay").when(|_, args| args["amount"].as_u64() > Some(100));
/// let policy = Policy::new().rule(large.ask("it is a large amount"));
/// let pay = ToolSpec::new("pay", "Pays an amount.");
/// assert_eq!(policy.judge(&pay, &json!({"amount": 5})), Permit::Allow);
/// assert_eq!(policy.judge(&pay, &json!({"amount": 500})), Permit::ask("it is a large amount"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rule needs a verdict: `allow`, `ask` or `deny`"]
pub struct RuleBuilder(Rule);

impl RuleBuilder {
    /// Restricts the rule to tools with this hint.
    pub fn hint(mut self, hint: HintMatch) -> Self {
        self.0.hint = Some(hint);
        self
    }

    /// Restricts the rule to calls with such an argument, named by a JSON pointer (`/path`,
    /// `/files/0`) or by its bare name.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{ArgMatch, Policy, Rule};
    /// use serde_json::json;
    ///
    /// let rule = Rule::tool("write").arg("/path", ArgMatch::glob("*.rs")).ask("it changes code");
    /// let policy = Policy::new().rule(rule);
    /// let judge = |path| policy.judge(&ToolSpec::new("write", "Writes."), &json!({"path": path}));
    /// assert_eq!(judge("notes.txt"), Permit::Allow);
    /// assert_eq!(judge("main.rs"), Permit::ask("it changes code"));
    /// ```
    pub fn arg(mut self, at: impl Into<String>, is: ArgMatch) -> Self {
        self.0.args.push(Arg { at: at.into(), is });
        self
    }

    /// Restricts the rule to calls for which this function returns `true`; the last function
    /// counts.
    ///
    /// A rule with a function cannot be serialized: without it, the rule would match more calls.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{Policy, Rule};
    /// use serde_json::json;
    ///
    /// let dear = Rule::tool("pay").when(|_, args| args["amount"].as_u64() > Some(100));
    /// let policy = Policy::new().rule(dear.ask("it is a large amount"));
    /// let pay = ToolSpec::new("pay", "Pays.");
    /// let judge = |amount| policy.judge(&pay, &json!({"amount": amount}));
    /// assert_eq!(judge(20), Permit::Allow);
    /// assert_eq!(judge(200), Permit::ask("it is a large amount"));
    /// ```
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

    /// Restricts the rule by a function that may block its thread, because it reads files, for
    /// instance. Agents and dispatchers call it on a separate thread;
    /// [`Policy::judge`](crate::Policy::judge) calls it in place.
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

    /// Allows the matching calls.
    pub fn allow(self) -> Rule {
        self.verdict(Permit::Allow)
    }

    /// Requires a person's approval of the matching calls.
    pub fn ask(self, reason: impl Into<String>) -> Rule {
        self.verdict(Permit::ask(reason))
    }

    /// Denies the matching calls.
    pub fn deny(self, reason: impl Into<String>) -> Rule {
        self.verdict(Permit::deny(reason))
    }

    fn verdict(self, verdict: Permit) -> Rule {
        Rule { verdict, ..self.0 }
    }
}

/// A hint of a tool, as a condition.
///
/// ```
/// # use levity_core::{Hints, Permit, ToolSpec};
/// # use levity_tools::{HintMatch, Policy, Rule};
/// # use serde_json::json;
/// let read_only = Policy::new()
///     .rule(Rule::hint(HintMatch::ReadOnly).allow())
///     .rule(Rule::any().deny("this agent only reads"));
/// let look = ToolSpec::new("look", "Looks.").with_hints(Hints::new().read_only());
/// assert_eq!(read_only.judge(&look, &json!({})), Permit::Allow);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HintMatch {
    /// The tool changes nothing.
    ReadOnly,
    /// A second call changes nothing more.
    Idempotent,
    /// A call can be undone.
    Compensable,
    /// A call must not be made twice.
    AtMostOnce,
    /// A call may destroy something.
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

/// A condition on an argument; a missing argument never matches.
///
/// ```
/// # use levity_core::{Permit, ToolSpec};
/// # use levity_tools::{ArgMatch, Policy, Rule};
/// # use serde_json::json;
/// let known = Rule::tool("mail").arg("to", ArgMatch::one_of(["ann", "bob"])).allow();
/// let policy = Policy::new().rule(known).rule(Rule::tool("mail").deny("unknown recipient"));
/// let mail = ToolSpec::new("mail", "Sends a mail.");
/// assert_eq!(policy.judge(&mail, &json!({"to": "ann"})), Permit::Allow);
/// assert_eq!(policy.judge(&mail, &json!({"to": "eve"})), Permit::deny("unknown recipient"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArgMatch {
    /// A string of this form: `*` matches any text, `?` one character.
    ///
    /// It compares text and not paths: `/tmp/*` matches `/tmp/../etc/passwd`, too. Allow calls by
    /// it only for a tool that confines itself to its directory.
    Glob(String),
    /// Exactly this value, and no other.
    Equals(Value),
    /// One of these values.
    OneOf(Vec<Value>),
    /// Any value, including `null`.
    Present,
}

impl ArgMatch {
    /// Matches a string of this form; see [`Glob`](Self::Glob).
    pub fn glob(pattern: impl Into<String>) -> Self {
        Self::Glob(pattern.into())
    }

    /// Matches exactly this value.
    pub fn equals(value: impl Into<Value>) -> Self {
        Self::Equals(value.into())
    }

    /// Matches one of these values.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{ArgMatch, Policy, Rule};
    /// use serde_json::json;
    ///
    /// let rule = Rule::tool("move").arg("/to", ArgMatch::one_of(["north", "south"])).allow();
    /// let policy = Policy::ask_all().rule(rule);
    /// let judge = |to| policy.judge(&ToolSpec::new("move", "Moves."), &json!({"to": to}));
    /// assert_eq!(judge("north"), Permit::Allow);
    /// assert!(matches!(judge("west"), Permit::Ask { .. }));
    /// ```
    pub fn one_of<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Self {
        Self::OneOf(values.into_iter().map(Into::into).collect())
    }

    /// Matches any value that is present.
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
        "a rule with a function cannot be serialized",
    ))
}
