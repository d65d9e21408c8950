use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
#[cfg(target_os = "linux")]
use std::path::Path;

/// The environment of commands: what was named, and nothing else of the host's.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    set: BTreeMap<OsString, OsString>,
}

/// Where programs are looked for when the host does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables that keep programs from running others, from the network and from writing on the side.
#[cfg(target_os = "linux")]
const READING: &[(&str, &str)] = &[
    // What the system says of git is out of reach, and an error if it is there.
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // Notes may be any blob.
    ("GIT_NOTES_REF", "refs/notes/none"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("RIPGREP_CONFIG_PATH", ""),
];

/// Settings of git that outrank those of a repository.
#[cfg(target_os = "linux")]
const GIT_SETTINGS: &[&str] = &[
    "safe.bareRepository=explicit",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "log.showSignature=false",
    "submodule.recurse=false",
    "grep.fallbackToNoIndex=false",
];

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

    /// Keeps programs that only read from what files of the workspace say, and from programs in it. The kernel does not let
    /// them do harm; these settings spare them the attempt.
    #[cfg(target_os = "linux")]
    pub(super) fn keep_to_reading(&mut self, workspace: &Path, home: &Path, temp: &Path) {
        self.set("HOME", home);
        self.set("TMPDIR", temp);
        // Git looks for no repository above the workspace, whose files it could not read.
        if let Some(above) = workspace.parent() {
            self.set("GIT_CEILING_DIRECTORIES", above);
        }
        for (name, value) in READING {
            self.set(*name, *value);
        }
        let mut settings = self.get("GIT_CONFIG_PARAMETERS").map(OsStr::to_owned).unwrap_or_default();
        for setting in GIT_SETTINGS {
            // Git does not bear a space before the first.
            settings.push(if settings.is_empty() { "'" } else { " '" });
            settings.push(format!("{setting}'"));
        }
        self.set("GIT_CONFIG_PARAMETERS", settings);
        let path = self.get("PATH").unwrap_or(OsStr::new(PATH)).to_owned();
        let is_outside = |place: &Path| place.canonicalize().is_ok_and(|real| !real.starts_with(workspace));
        let outside = std::env::split_paths(&path).filter(|place| place.is_absolute() && is_outside(place));
        if let Ok(path) = std::env::join_paths(outside) {
            self.set("PATH", path);
        }
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
