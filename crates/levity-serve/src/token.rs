use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use crate::error::{Error, Result};

/// What a client must show to be let in. It is never shown by `Debug`, and compared in constant
/// time.
///
/// ```
/// # use levity_serve::Token;
/// let token = Token::generate()?;
/// assert!(token.matches(token.reveal()));
/// assert!(!token.matches("something else"));
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// How many characters a token has at least: 16.
    pub const SHORTEST: usize = 16;

    /// A token that was agreed upon.
    ///
    /// # Errors
    /// When it is shorter than [`SHORTEST`](Self::SHORTEST), or has characters that a header cannot
    /// carry.
    pub fn new(token: impl AsRef<str>) -> Result<Self> {
        let token = token.as_ref().trim();
        if token.len() < Self::SHORTEST {
            let least = Self::SHORTEST;
            return Err(refused(format!(
                "the token is too short; it must have {least} characters or more"
            )));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused(
                "the token has characters that a header cannot carry; use letters and digits",
            ));
        }
        Ok(Self(token.into()))
    }

    /// A new one of 256 random bits.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Self> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| {
            refused(format!(
                "the system gives no randomness for a token: {error}"
            ))
        })?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bits).into()))
    }

    /// The token in an environment variable, if it is set.
    ///
    /// # Errors
    /// When what it holds is no token.
    pub fn from_env(variable: &str) -> Result<Option<Self>> {
        match std::env::var(variable) {
            Ok(token) => Self::new(token)
                .map(Some)
                .map_err(|error| named(&format!("`{variable}`"), &error)),
            Err(_) => Ok(None),
        }
    }

    /// The token in a file.
    ///
    /// # Errors
    /// When it cannot be read, others than its owner may read it, or what it holds is no token.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let shown = format!("`{}`", path.display());
        let failed = |source| Error::Token {
            what: format!("the token file {shown} cannot be read"),
            source: Some(source),
        };
        if is_open_to_others(path).map_err(failed)? {
            let what = format!(
                "others may read the token file {shown}; take that from them: chmod 600 {shown}"
            );
            return Err(refused(what));
        }
        Self::new(fs::read_to_string(path).map_err(failed)?).map_err(|error| named(&shown, &error))
    }

    /// The token in a file; when there is no such file, a new token is made and kept there, for its
    /// owner alone. Says whether it is new.
    ///
    /// # Errors
    /// As for [`from_file`](Self::from_file), and when the file cannot be made.
    pub fn from_file_or_new(path: impl AsRef<Path>) -> Result<(Self, bool)> {
        let path = path.as_ref();
        let token = Self::generate()?;
        match keep(path, &token) {
            Ok(()) => Ok((token, true)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok((Self::from_file(path)?, false))
            }
            Err(source) => {
                let what = format!("the token file `{}` cannot be made", path.display());
                Err(Error::Token {
                    what,
                    source: Some(source),
                })
            }
        }
    }

    /// Whether what a client shows is this token. How long that takes says nothing but whether the
    /// lengths are the same.
    pub fn matches(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }

    /// The token itself, to be told to whoever may come in.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

pub(crate) fn refused(what: impl Into<String>) -> Error {
    Error::Token {
        what: what.into(),
        source: None,
    }
}

fn named(place: &str, error: &Error) -> Error {
    refused(format!("{place}: {error}"))
}

/// Makes the file in one go, so that two processes that begin at once do not have two tokens, and
/// none finds half of one.
fn keep(path: &Path, token: &Token) -> io::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
    }
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{:016x}.part", u64::from_ne_bytes(salt)));
    let part = Path::new(&part);
    write(part, token)?;
    let kept = match fs::hard_link(part, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => write(path, token), // Where files have one name.
        linked => linked,
    };
    let _ = fs::remove_file(part);
    kept
}

fn write(path: &Path, token: &Token) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(format!("{}\n", token.reveal()).as_bytes())?;
    file.sync_all()
}

#[cfg(unix)]
pub(crate) fn is_open_to_others(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata(path)?.mode() & 0o077 != 0)
}

#[cfg(not(unix))]
pub(crate) fn is_open_to_others(path: &Path) -> io::Result<bool> {
    fs::metadata(path).map(|_| false)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_kept_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/token");
        let (first, new) = Token::from_file_or_new(&path).unwrap();
        assert!(new);
        let (second, new) = Token::from_file_or_new(&path).unwrap();
        assert!(!new);
        assert!(first.matches(second.reveal()));
        assert_eq!(format!("{first:?}"), "Token(..)");
        assert_eq!(
            fs::read_dir(folder.path().join("below")).unwrap().count(),
            1
        );
    }

    /// Whoever comes while another one makes the token waits for nothing and finds all of it.
    #[test]
    fn those_who_begin_at_once_have_one_token() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("token");
            let begin = std::sync::Barrier::new(4);
            let tokens: Vec<_> = std::thread::scope(|scope| {
                let make = || {
                    begin.wait();
                    Token::from_file_or_new(&path).unwrap()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(tokens.iter().filter(|(_, new)| *new).count(), 1);
            assert!(
                tokens
                    .iter()
                    .all(|(token, _)| token.matches(tokens[0].0.reveal()))
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn new_token_and_its_folder_are_made_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        Token::from_file_or_new(folder.path().join("state/token")).unwrap();
        for path in ["state", "state/token"] {
            let mode = fs::metadata(folder.path().join(path))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o077, 0, "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_token_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            Token::from_file(&path)
                .unwrap_err()
                .to_string()
                .contains("chmod 600")
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::from_file(&path).unwrap().matches("0123456789abcdef"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert!(Token::new("short").is_err());
        assert!(Token::new("0123456789 abcdef").is_err());
        assert!(Token::new("0123456789abcdé-").is_err());
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(
            !token.matches("0123456789abcdeg")
                && !token.matches("")
                && !token.matches("0123456789abcdef0")
        );
    }
}
