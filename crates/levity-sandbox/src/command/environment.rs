use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The environment of commands: what was named, and nothing else of the host's.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    set: BTreeMap<OsString, OsString>,
}

/// Where programs are looked for when the host does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

impl Environment {
    /// What every command gets: where programs are, the language, and a terminal that can do nothing.
    pub(super) fn new() -> Self {
        let mut environment = Self::default();
        environment.set("PATH", PATH);
        environment.set("TERM", "dumb");
        for (name, value) in std::env::vars_os() {
            let harmless = name == "PATH" || name == "LANG" || name.as_encoded_bytes().starts_with(b"LC_");
            if harmless && !value.is_empty() {
                environment.set(name, value);
            }
        }
        environment
    }

    pub(super) fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.set.insert(name.into(), value.into());
    }

    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.set.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.set.iter()
    }

    /// `NAME=value`, in the order of the names.
    #[cfg(target_os = "linux")]
    pub(super) fn lines(&self) -> impl Iterator<Item = OsString> + '_ {
        self.set.iter().map(|(name, value)| {
            let mut line = name.clone();
            line.push("=");
            line.push(value);
            line
        })
    }
}
