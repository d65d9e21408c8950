//! What clients of a server must show, and where it is kept.

use std::path::{Path, PathBuf};

use levity::serve::Token;

use crate::state;
use crate::terminal::{chain, note};

/// Where a token is from.
pub(crate) enum Source {
    /// The environment.
    Given(Token),
    /// This file.
    File(PathBuf),
}

/// Where the token is from: the file `named`, if one is; else the variable `env`, if that is set;
/// else the file `name` in the user's state folder.
pub(crate) fn source(env: &str, named: Option<&Path>, name: &str) -> Result<Source, String> {
    if let Some(file) = named {
        return Ok(Source::File(file.to_owned()));
    }
    if let Some(token) = Token::from_env(env).map_err(|error| chain(&error))? {
        return Ok(Source::Given(token));
    }
    let nowhere = |problem| format!("{problem}; set `{env}`, or name a file with `--token-file`");
    Ok(Source::File(state::folder().map_err(nowhere)?.join(name)))
}

/// The token that clients must show, from its [`source`]. A file that is not there is made, with a
/// new token, which is printed this once.
pub(crate) fn token(env: &str, named: Option<&Path>, name: &str) -> Result<Token, String> {
    let path = match source(env, named, name)? {
        Source::Given(token) => {
            note(&format!("clients show the token in `{env}`"));
            return Ok(token);
        }
        Source::File(path) => path,
    };
    if let Some(folder) = path.parent().filter(|_| named.is_none()) {
        state::make(folder)?;
    }
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
