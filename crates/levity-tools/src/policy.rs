//! The policy: an ordered list of rules, as data.

use levity_core::{Permit, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use rule::{ArgMatch, HintMatch, Rule, RuleBuilder};

mod rule;

/// The rules for calls, of which the first that matches decides.
///
/// Without rules, calls of destructive tools require approval, and so do those for which a tool
/// requests it ([`Tool::permit`](levity_core::Tool::permit)). All others are allowed. A policy is
/// data, and can be stored in a file:
///
/// ```
/// use levity_core::{Hints, ToolSpec};
/// use levity_core::Permit;
/// use levity_tools::{ArgMatch, Policy, Rule};
/// use serde_json::json;
///
/// let policy = Policy::new()
///     .rule(
///         Rule::tool("write_*")
///             .arg("/path", ArgMatch::glob("/etc/*"))
///             .deny("`/etc` is not yours"),
///     )
///     .rule(Rule::tool("write_*").ask("it writes"));
///
/// let write = ToolSpec::new("write_file", "Writes a file.");
/// let denied = policy.judge(&write, &json!({"path": "/etc/hosts"}));
/// assert_eq!(denied, Permit::deny("`/etc` is not yours"));
/// assert_eq!(policy.judge(&write, &json!({"path": "a.txt"})), Permit::ask("it writes"));
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
    otherwise: Option<Permit>,
}

impl Policy {
    /// Creates a policy under which destructive tools require approval and all others are allowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a policy that allows everything.
    ///
    /// ```
    /// use levity_core::{Hints, Permit, ToolSpec};
    /// use levity_tools::Policy;
    /// use serde_json::json;
    ///
    /// let hints = Hints::new().destructive();
    /// let delete = ToolSpec::new("delete", "Deletes a file.").with_hints(hints);
    /// assert_eq!(Policy::allow_all().judge(&delete, &json!({})), Permit::Allow);
    /// ```
    pub fn allow_all() -> Self {
        Self::new().default_permit(Permit::Allow)
    }

    /// Creates a policy under which every call requires approval.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::Policy;
    /// use serde_json::json;
    ///
    /// let look = ToolSpec::new("look", "Looks around.");
    /// assert!(matches!(Policy::ask_all().judge(&look, &json!({})), Permit::Ask { .. }));
    /// ```
    pub fn ask_all() -> Self {
        Self::new().default_permit(Permit::ask("every call requires approval"))
    }

    /// Adds a rule after the existing ones.
    ///
    /// The first rule that matches a call decides, so add exceptions before general rules.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{Policy, Rule};
    /// use serde_json::json;
    ///
    /// let policy = Policy::new()
    ///     .rule(Rule::tool("read_secret").deny("it is private"))
    ///     .rule(Rule::tool("read_*").allow());
    /// let judge = |name| policy.judge(&ToolSpec::new(name, "Reads a file."), &json!({}));
    /// assert_eq!(judge("read_notes"), Permit::Allow);
    /// assert_eq!(judge("read_secret"), Permit::deny("it is private"));
    /// ```
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the verdict for calls that no rule matches, in place of asking for approval of
    /// destructive tools.
    ///
    /// ```
    /// use levity_core::{Permit, ToolSpec};
    /// use levity_tools::{Policy, Rule};
    /// use serde_json::json;
    ///
    /// let policy = Policy::new().rule(Rule::tool("look").allow());
    /// let policy = policy.default_permit(Permit::deny("it is not on the list"));
    /// let judge = |name| policy.judge(&ToolSpec::new(name, "Does something."), &json!({}));
    /// assert_eq!(judge("look"), Permit::Allow);
    /// assert_eq!(judge("dig"), Permit::deny("it is not on the list"));
    /// ```
    #[must_use]
    pub fn default_permit(mut self, verdict: Permit) -> Self {
        self.otherwise = Some(verdict);
        self
    }

    /// Decides on a call of a tool.
    ///
    /// ```
    /// use levity_core::{Hints, Permit, ToolSpec};
    /// use levity_tools::Policy;
    /// use serde_json::json;
    ///
    /// let hints = Hints::new().destructive();
    /// let delete = ToolSpec::new("delete", "Deletes a file.").with_hints(hints);
    /// let verdict = Policy::new().judge(&delete, &json!({"path": "notes.txt"}));
    /// assert_eq!(verdict, Permit::ask("it may destroy something"));
    /// ```
    pub fn judge(&self, spec: &ToolSpec, args: &Value) -> Permit {
        match self.ruled(spec, args) {
            Some(verdict) => verdict.clone(),
            None if spec.hints.destructive => Permit::ask("it may destroy something"),
            None => Permit::Allow,
        }
    }

    /// Returns `true` if a decision may block its thread.
    pub(crate) fn blocks(&self) -> bool {
        self.rules.iter().any(Rule::blocks)
    }

    /// Returns the verdict of the first rule that matches, or the default verdict, if one was set.
    pub(crate) fn ruled(&self, spec: &ToolSpec, args: &Value) -> Option<&Permit> {
        let first = self.rules.iter().find(|rule| rule.matches(spec, args));
        first.map(Rule::verdict).or(self.otherwise.as_ref())
    }
}

#[cfg(test)]
mod tests;
