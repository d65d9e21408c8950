//! The token that clients of a server must send, and its file.
//!
//! HTTP servers, MCP servers over HTTP and bridges accept only clients that send a token. This
//! module finds it, creates it at the first start, and tells the user about its location. The token
//! itself is printed once, when it is created, and never again.
//!
//! The order of the sources is: the named file, the environment, the state folder of the user. An
//! explicit option thereby wins over an environment that the user may have forgotten. The file in
//! the state folder lies in a folder that only its owner can read.

use std::path::{Path, PathBuf};
use std::sync::Once;

use levity::serve::Token;

use crate::state;
use crate::terminal::{chain, note};

/// The source of a token.
///
/// The client side of a bridge reads the same source without creating anything.
pub(crate) enum Source {
    /// The environment holds the token.
    Env(Token),
    /// This file holds the token.
    File(PathBuf),
}

/// Finds the source of the token: the file `named`, if given; else the variable `env`, if set; else
/// the file `name` in the user's state folder.
///
/// Nothing is read from the file and nothing is created. Fails if the variable holds an invalid
/// token, or if no state folder can be determined; the message then lists the two alternatives.
pub(crate) fn source(env: &str, named: Option<&Path>, name: &str) -> Result<Source, String> {
    if let Some(file) = named {
        return Ok(Source::File(file.to_owned()));
    }
    if let Some(token) = Token::from_env(env).map_err(|error| chain(&error))? {
        return Ok(Source::Env(token));
    }
    let add_hint = |problem| {
        format!(
            "{problem}; or set `{env}`, or name a file with \
        `--token-file`"
        )
    };
    Ok(Source::File(state::folder().map_err(add_hint)?.join(name)))
}

/// Returns the token that clients must send, from its [`source`]. If the file does not exist,
/// levity creates it with a new token and prints the token once.
///
/// The folder is created only for the default file; the folder of a file that the user named must
/// exist, because a mistyped path should not leave new folders behind. The note about the token
/// goes to standard error, so standard output remains free for the protocol. `levity ui` needs the
/// token twice, and prints the note once.
pub(crate) fn token(env: &str, named: Option<&Path>, name: &str) -> Result<Token, String> {
    let path = match source(env, named, name)? {
        Source::Env(token) => {
            tell(&format!("clients must send the token in `{env}`"));
            return Ok(token);
        }
        Source::File(path) => path,
    };
    if let Some(folder) = path.parent().filter(|_| named.is_none()) {
        state::create(folder)?;
    }
    let (token, new) = Token::from_file_or_new(&path).map_err(|error| chain(&error))?;
    match new {
        true => tell(&format!(
            "clients must send this token, which is stored in `{}` and not printed again: {}",
            path.display(),
            token.reveal()
        )),
        false => tell(&format!(
            "clients must send the token in `{}`",
            path.display()
        )),
    }
    Ok(token)
}

/// Prints the first note about the token of this process.
fn tell(text: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| note(text));
}
