//! What clients of a server must show, and where it is kept.

use std::env;
use std::path::{Path, PathBuf};

use levity::serve::Token;

use crate::terminal::{chain, note};

/// The token that clients must show: the one in `file`, if a file is named; the one in the variable `env`, if that is set; else the
/// one in the file `name` in the user's state folder. A file that is not there is made, with a new token, which is printed this once.
pub(crate) fn token(env: &str, file: Option<&Path>, name: &str) -> Result<Token, String> {
    if file.is_none()
        && let Some(token) = Token::from_env(env).map_err(|error| chain(&error))?
    {
        note(&format!("clients show the token in `{env}`"));
        return Ok(token);
    }
    let path = match file {
        Some(file) => file.to_owned(),
        None => state_folder().ok_or_else(|| nowhere(env))?.join("levity").join(name),
    };
    let (token, new) = Token::from_file_or_new(&path).map_err(|error| chain(&error))?;
    match new {
        true => note(&format!(
            "clients show this token, which is not printed again and is kept in `{}`: {}",
            path.display(),
            token.reveal()
        )),
        false => note(&format!("clients show the token in `{}`", path.display())),
    }
    Ok(token)
}

fn nowhere(env: &str) -> String {
    format!("there is no folder to keep a token in; set `{env}`, or name a file with `--token-file`")
}

/// Where programs keep what is not to be lost and is not worth moving to another machine.
fn state_folder() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .or_else(|| folder("LOCALAPPDATA"))
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
}
