use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf, absolute};

use tokio::process::Command;

/// Makes the package that `sys.argv[1]` names importable.
const PACKAGE: &str = include_str!("../judge/package.py");

/// The variables that Python keeps: none of them is a key, and none adds code.
const KEPT: [&str; 6] = [
    "PATH",
    "HOME",
    "LANG",
    "SYSTEMROOT",
    "USERPROFILE",
    "APPDATA",
];

/// A script of this crate in Python, and the folder that has the package for it.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) package: Option<PathBuf>,
}

impl Script {
    /// Python with the script, which imports `bfcl_eval` and `mpmath` from the folder of the
    /// package, or the installed ones.
    ///
    /// No other code is imported from the working directory, that folder or the paths in variables:
    /// Python is isolated (`-I`), starts in the root folder and gets no variable beside [`KEPT`].
    pub(crate) fn command(&self, program: &OsStr) -> Command {
        // A relative path means the same file after the change of the folder.
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
            KEPT.iter()
                .filter_map(|name| Some((name, env::var_os(name)?))),
        );
        command.current_dir("/");
        command
    }
}
