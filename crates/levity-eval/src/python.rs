use std::env;
use std::ffi::OsStr;
use std::path::{Path, absolute};

use tokio::process::Command;

/// Makes the package that `sys.argv[1]` names importable.
const PACKAGE: &str = include_str!("../judge/package.py");

/// The variables that Python keeps: none of them is a key, and none adds code.
const KEPT: [&str; 6] = ["PATH", "HOME", "LANG", "SYSTEMROOT", "USERPROFILE", "APPDATA"];

/// Python with a script of this crate, which imports `bfcl_eval` from the folder `package`, or the installed one.
///
/// No other code is imported from the working directory, the folder `package` or the paths in variables: Python is
/// isolated (`-I`), starts in the root folder and gets no variable beside [`KEPT`].
pub(crate) fn python(program: &OsStr, script: &str, package: Option<&Path>) -> Command {
    // A relative path means the same file after the change of the folder.
    let named = Path::new(program);
    let program = match named.components().count() {
        0 | 1 if !named.has_root() => named.to_owned(),
        _ => absolute(named).unwrap_or_else(|_| named.to_owned()),
    };
    let mut command = Command::new(program);
    command.args(["-I", "-X", "utf8", "-c"]).arg(format!("{PACKAGE}\n{script}")).args(package);
    command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, env::var_os(name)?))));
    command.current_dir("/");
    command
}
