//! Scripts of this crate in an isolated Python.
//!
//! A benchmark's package is third-party code that has to run. It gets no keys, no code from the
//! working directory, and no import path beyond its own folder.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf, absolute};

use tokio::process::Command;

/// The code that makes the package in `sys.argv[1]` importable.
const PACKAGE: &str = include_str!("../judge/package.py");

/// The environment variables passed to Python: none of them is a key, and none adds code.
const KEPT_VARIABLES: [&str; 6] = [
    "PATH",
    "HOME",
    "LANG",
    "SYSTEMROOT",
    "USERPROFILE",
    "APPDATA",
];

/// A Python script of this crate, and the folder that contains its package.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) package: Option<PathBuf>,
}

impl Script {
    /// Returns the command that runs the script, which imports `bfcl_eval` and `mpmath` from the
    /// folder of the package, or the installed ones.
    ///
    /// No other code is imported from the working directory, that folder or paths in variables.
    /// Python is isolated (`-I`), starts in the root folder and gets only the variables in
    /// [`KEPT_VARIABLES`].
    pub(crate) fn command(&self, program: &OsStr) -> Command {
        // A relative path must be resolved before the folder changes.
        let named = Path::new(program);
        let program = match named.components().count() {
            0 | 1 if !named.has_root() => named.to_owned(),
            _ => absolute(named).unwrap_or_else(|_| named.to_owned()),
        };
        let mut command = Command::new(program);
        command
            .args(["-I", "-X", "utf8", "-c"])
            .arg(format!("{PACKAGE}\n{}", self.text))
            .args(&self.package);
        command.env_clear().envs(
            KEPT_VARIABLES
                .iter()
                .filter_map(|name| Some((name, env::var_os(name)?))),
        );
        command.current_dir("/");
        command
    }
}
