//! The secret of a server, and the file that stores it.
//!
//! A token file is created atomically with mode 600 and is refused if other users can read it.
//! Comparisons take constant time, and `Debug` never prints the secret.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use levity_system::secret;
use subtle::ConstantTimeEq as _;

use crate::error::{Error, Result};

/// The secret that a client must present to be admitted. `Debug` never prints it, and comparisons
/// take constant time.
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
    /// The minimum number of characters of a token: 16.
    pub const MIN_LENGTH: usize = 16;

    /// Creates a token from an existing secret.
    ///
    /// White space around the secret is removed, because files and environment variables often end
    /// with a line break.
    ///
    /// ```
    /// use levity_serve::Token;
    /// let token = Token::new("0123456789abcdef\n")?;
    /// assert_eq!(token.reveal(), "0123456789abcdef");
    /// assert!(Token::new("too short").is_err());
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the secret is shorter than [`MIN_LENGTH`](Self::MIN_LENGTH), or has characters that
    /// are invalid in a header.
    pub fn new(token: impl AsRef<str>) -> Result<Self> {
        let token = token.as_ref().trim();
        if token.len() < Self::MIN_LENGTH {
            let least = Self::MIN_LENGTH;
            return Err(token_error(format!(
                "the token is too short; use {least} characters or more"
            )));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(token_error(
                "the token has characters that are invalid in a header; use letters and digits",
            ));
        }
        Ok(Self(token.into()))
    }

    /// Generates a token of 256 random bits.
    ///
    /// The secret has 43 characters that are valid in URLs and headers.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub fn generate() -> Result<Self> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| {
            token_error(format!(
                "cannot generate a token: the system provides no randomness: {error}"
            ))
        })?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bits).into()))
    }

    /// Reads the token from an environment variable, if it is set.
    ///
    /// ```
    /// use levity_serve::Token;
    /// assert!(Token::from_env("LEVITY_EXAMPLE_TOKEN_THAT_IS_NOT_SET")?.is_none());
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the value is not a valid token.
    pub fn from_env(variable: &str) -> Result<Option<Self>> {
        match std::env::var(variable) {
            Ok(token) => Self::new(token)
                .map(Some)
                .map_err(|error| with_location(&format!("`{variable}`"), &error)),
            Err(_) => Ok(None),
        }
    }

    /// Reads the token from a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if users other than its owner can read it, or if its
    /// content is not a valid token.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let shown = format!("`{}`", path.display());
        let failed = |source| Error::Token {
            what: format!("cannot read the token file {shown}"),
            source: Some(source),
        };
        if secret::is_open_to_others(path).map_err(failed)? {
            let what = format!(
                "users other than the owner can read the token file {shown}; run chmod 600 {shown}"
            );
            return Err(token_error(what));
        }
        Self::new(secret::read(path).map_err(failed)?)
            .map_err(|error| with_location(&shown, &error))
    }

    /// Reads the token from a file. If the file does not exist, generates a token and stores it
    /// there, readable only by its owner. Returns `true` as the second value if the token is new.
    ///
    /// Two processes that start at the same time get the same token: the first one creates the
    /// file, the second one reads it.
    ///
    /// ```
    /// use levity_serve::Token;
    /// # let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("token");
    /// let (first, is_new) = Token::from_file_or_new(&path)?;
    /// let (again, is_new_again) = Token::from_file_or_new(&path)?;
    /// assert!(is_new && !is_new_again);
    /// assert!(again.matches(first.reveal()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails under the same conditions as [`from_file`](Self::from_file), and if the file cannot be
    /// created.
    pub fn from_file_or_new(path: impl AsRef<Path>) -> Result<(Self, bool)> {
        let path = path.as_ref();
        let token = Self::generate()?;
        match secret::create(path, token.reveal()) {
            Ok(()) => Ok((token, true)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok((Self::from_file(path)?, false))
            }
            Err(source) => {
                let what = format!("cannot create the token file `{}`", path.display());
                Err(Error::Token {
                    what,
                    source: Some(source),
                })
            }
        }
    }

    /// Returns `true` if the presented text is this token. The time taken reveals only if the
    /// lengths are equal.
    ///
    /// ```
    /// let token = levity_serve::Token::new("0123456789abcdef")?;
    /// assert!(token.matches("0123456789abcdef"));
    /// assert!(!token.matches("0123456789ABCDEF"));
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    pub fn matches(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }

    /// Returns the secret itself, for giving it to clients.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Creates an [`Error::Token`] without a system error as its cause.
pub(crate) fn token_error(what: impl Into<String>) -> Error {
    Error::Token {
        what: what.into(),
        source: None,
    }
}

/// Puts the file or variable in front of a message, because the error itself knows only the secret.
fn with_location(location: &str, error: &Error) -> Error {
    token_error(format!("{location}: {error}"))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn from_file_or_new_creates_a_token_once() {
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

    /// A process that starts while another one creates the token does not wait, and reads the
    /// complete token.
    #[test]
    fn concurrent_from_file_or_new_calls_share_one_token() {
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
    fn new_token_file_and_folder_are_private_to_the_owner() {
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
    fn token_file_readable_by_others_is_rejected() {
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
    fn short_or_non_ascii_token_is_rejected() {
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
