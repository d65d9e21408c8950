use levity_core::{Permit, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use rule::{ArgMatch, HintMatch, Rule, RuleBuilder};

mod rule;

/// What may be called: rules, of which the first that matches decides.
///
/// Without rules, calls of tools that may destroy something are asked about, and so are those that a tool wants to be
/// asked about ([`Tool::permit`](levity_core::Tool::permit)); all others are allowed.
/// A policy is data, and can stand in a file:
///
/// ```
/// use levity_core::{Hints, ToolSpec};
/// use levity_tools::{ArgMatch, Policy, Rule, Verdict};
/// use serde_json::json;
///
/// let policy = Policy::new()
///     .rule(Rule::tool("write_*").arg("/path", ArgMatch::glob("/etc/*")).deny("`/etc` is not yours"))
///     .rule(Rule::tool("write_*").ask("it writes"));
///
/// let write = ToolSpec::new("write_file", "Writes a file.");
/// assert_eq!(policy.judge(&write, &json!({"path": "/etc/hosts"})), Verdict::deny("`/etc` is not yours"));
/// assert_eq!(policy.judge(&write, &json!({"path": "a.txt"})), Verdict::ask("it writes"));
///
/// let from_file: Policy = serde_json::from_value(json!({"rules": [
///     {"tool": "write_*", "args": [{"at": "/path", "is": {"glob": "/etc/*"}}],
///      "verdict": {"deny": {"reason": "`/etc` is not yours"}}},
///     {"tool": "write_*", "verdict": {"ask": {"reason": "it writes"}}},
/// ]}))?;
/// assert_eq!(from_file, policy);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    rules: Vec<Rule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    otherwise: Option<Verdict>,
}

impl Policy {
    /// Tools that may destroy something are asked about, all others allowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything is allowed.
    pub fn allow_all() -> Self {
        Self::new().otherwise(Verdict::Allow)
    }

    /// Everything is asked about.
    pub fn ask_all() -> Self {
        Self::new().otherwise(Verdict::ask("every call is asked about"))
    }

    /// Adds a rule behind those that are there.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Says what holds when no rule matches, in place of asking about what may destroy something.
    #[must_use]
    pub fn otherwise(mut self, verdict: Verdict) -> Self {
        self.otherwise = Some(verdict);
        self
    }

    /// Decides on a call.
    pub fn judge(&self, spec: &ToolSpec, args: &Value) -> Verdict {
        match self.ruled(spec, args) {
            Some(verdict) => verdict.clone(),
            None if spec.hints.destructive => Verdict::ask("it may destroy something"),
            None => Verdict::Allow,
        }
    }

    /// What the first rule that matches says, or what holds otherwise, where that was said.
    pub(crate) fn ruled(&self, spec: &ToolSpec, args: &Value) -> Option<&Verdict> {
        let first = self.rules.iter().find(|rule| rule.matches(spec, args));
        first.map(Rule::verdict).or(self.otherwise.as_ref())
    }
}

/// What a policy says of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run.
    Allow,
    /// It may run if a person says so.
    Ask {
        /// Why, for the person.
        reason: String,
    },
    /// It may not run.
    Deny {
        /// Why not, for the model.
        reason: String,
    },
}

impl From<Permit> for Verdict {
    fn from(permit: Permit) -> Self {
        match permit {
            Permit::Allow => Self::Allow,
            Permit::Ask { reason } => Self::Ask { reason },
            Permit::Deny { reason } => Self::Deny { reason },
            _ => Self::deny("the tool gave a permit of an unknown kind"),
        }
    }
}

impl Verdict {
    /// It may run if a person says so; the reason is for the person.
    pub fn ask(reason: impl Into<String>) -> Self {
        Self::Ask { reason: reason.into() }
    }

    /// It may not run; the reason is for the model.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny { reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;
