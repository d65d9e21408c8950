//! The settings of a server in a file, with all names that other programs use for them.
//!
//! A new name of a setting is one line in `KEYS`. Names that are known but have no meaning here are
//! listed too: `Note` is ignored silently, and `Elsewhere` warns, because a person expects an
//! effect from it, such as `autoApprove`.

use levity_core::text::{nearest, squeezed};

/// The setting that a key sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Name,
    Enabled,
    Disabled,
    Transport,
    Command,
    Args,
    Env,
    Inherit,
    Cwd,
    Url,
    Headers,
    StartTimeout,
    CallTimeout,
    /// A call timeout that some programs write in milliseconds and others in seconds.
    Timeout,
    CallMillis,
    IdleTimeout,
    ProbeTimeout,
    PingEvery,
    Retries,
    MaxConcurrent,
    MaxMessage,
    Allow,
    Deny,
    Prefix,
    Trust,
    /// A key for people or for other programs; levity ignores it.
    Note,
    /// A key that would change the agent's behaviour and is configured elsewhere.
    Elsewhere,
}

use Setting as S;

/// Keys match without case and separators: `startTimeout` equals `start_timeout`.
const KEYS: &[(&str, Setting)] = &[
    ("name", S::Name),
    ("enabled", S::Enabled),
    ("disabled", S::Disabled),
    ("transport", S::Transport),
    ("type", S::Transport),
    ("transportType", S::Transport),
    ("command", S::Command),
    ("args", S::Args),
    ("env", S::Env),
    ("environment", S::Env),
    ("inherit", S::Inherit),
    ("envVars", S::Inherit),
    ("cwd", S::Cwd),
    ("url", S::Url),
    ("serverUrl", S::Url),
    ("httpUrl", S::Url),
    ("headers", S::Headers),
    ("httpHeaders", S::Headers),
    ("startTimeout", S::StartTimeout),
    ("startLimit", S::StartTimeout),
    ("startupTimeout", S::StartTimeout),
    ("startupTimeoutSec", S::StartTimeout),
    ("callTimeout", S::CallTimeout),
    ("callLimit", S::CallTimeout),
    ("toolTimeout", S::CallTimeout),
    ("toolTimeoutSec", S::CallTimeout),
    ("timeout", S::Timeout),
    ("timeoutMs", S::CallMillis),
    ("idleTimeout", S::IdleTimeout),
    ("idleLimit", S::IdleTimeout),
    ("probeTimeout", S::ProbeTimeout),
    ("probeLimit", S::ProbeTimeout),
    ("pingEvery", S::PingEvery),
    ("retries", S::Retries),
    ("maxRetries", S::Retries),
    ("maxConcurrent", S::MaxConcurrent),
    ("maxMessage", S::MaxMessage),
    ("allow", S::Allow),
    ("includeTools", S::Allow),
    ("allowedTools", S::Allow),
    ("enabledTools", S::Allow),
    ("tools", S::Allow),
    ("deny", S::Deny),
    ("excludeTools", S::Deny),
    ("disabledTools", S::Deny),
    ("prefix", S::Prefix),
    ("toolPrefix", S::Prefix),
    ("trust", S::Trust),
    ("description", S::Note),
    ("title", S::Note),
    ("note", S::Note),
    ("comment", S::Note),
    ("_comment", S::Note),
    ("$schema", S::Note),
    ("version", S::Note),
    ("icon", S::Note),
    ("gallery", S::Note),
    ("metadata", S::Note),
    ("tags", S::Note),
    ("autoApprove", S::Elsewhere),
    ("alwaysAllow", S::Elsewhere),
    ("envFile", S::Elsewhere),
    ("dev", S::Elsewhere),
    ("oauth", S::Elsewhere),
    ("authProviderType", S::Elsewhere),
];

/// Returns the setting of `key`.
pub(super) fn setting(key: &str) -> Option<Setting> {
    let key = squeezed(key);
    KEYS.iter()
        .find(|(name, _)| squeezed(name) == key)
        .map(|(_, setting)| *setting)
}

/// Returns the key that was probably meant.
pub(super) fn suggestion(key: &str) -> Option<&'static str> {
    nearest(key, KEYS.iter().map(|(name, _)| *name))
}
