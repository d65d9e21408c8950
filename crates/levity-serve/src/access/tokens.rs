//! The set of named tokens, and the file that stores it.
//!
//! Only hashes are stored, so a copy of the file admits nobody. Tokens of 256 random bits need no
//! slow password hash. Errors about a line never quote it, because the line may contain a token in
//! plain text by mistake.

use std::fmt;
use std::fs;
use std::io::{self};
use std::path::Path;
use std::sync::Arc;

use levity_system::{Replace, secret};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

use super::{Caller, TokenScope};
use crate::error::{Error, Result};
use crate::token::{Token, token_error};

/// Tokens with names and scopes. Only their SHA-256 hashes are stored, in memory and in files.
///
/// A file has one token per line: its name, its scopes and its hash. Lines that begin with `#` are
/// comments.
///
/// ```text
/// ci     run,approve  sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
/// watch  read         sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
/// ```
///
/// ```
/// use levity_serve::{TokenScope, Tokens};
/// let mut tokens = Tokens::new();
/// let token = tokens.add("ci", [TokenScope::Run])?;
/// assert_eq!(tokens.find(token.reveal()).unwrap().name(), Some("ci"));
/// assert!(tokens.find("something else").is_none());
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Tokens(Vec<Entry>);

/// One line of the file. `scopes` is sorted and without duplicates, so that equal sets compare
/// equal.
#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    scopes: Arc<[TokenScope]>,
    hash: [u8; 32],
}

/// The name and scopes of a token, without its secret.
///
/// ```
/// use levity_serve::{TokenScope, Tokens};
/// let mut tokens = Tokens::new();
/// tokens.add("ci", [TokenScope::Run, TokenScope::Approve])?;
/// let info = &tokens.list()[0];
/// assert_eq!((info.name.as_str(), info.scopes.len()), ("ci", 2));
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// The name of the token.
    pub name: String,
    /// The scopes that the token grants.
    pub scopes: Vec<TokenScope>,
}

impl Tokens {
    /// The maximum number of tokens: 1,000.
    pub const MAX_TOKENS: usize = 1_000;
    /// The maximum length of a name: 32 bytes.
    pub const MAX_NAME_LENGTH: usize = 32;
    /// The maximum size of a tokens file: 256 KiB.
    pub const MAX_FILE_BYTES: u64 = 256 << 10;

    /// Creates an empty set of tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the tokens from a file.
    ///
    /// ```
    /// use levity_serve::{TokenScope, Tokens};
    /// # let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("tokens");
    /// let mut tokens = Tokens::new();
    /// let token = tokens.add("ci", [TokenScope::Run])?;
    /// tokens.save(&path)?;
    /// let read = Tokens::from_file(&path)?;
    /// assert_eq!(read.find(token.reveal()).unwrap().name(), Some("ci"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be read, if users other than its owner can read it, or if a line is
    /// invalid.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let shown = path.display();
        let failed = |source| Error::Token {
            what: format!("cannot read the tokens file `{shown}`"),
            source: Some(source),
        };
        if secret::is_open_to_others(path).map_err(failed)? {
            return Err(token_error(format!(
                "users other than the owner can read the tokens file `{shown}`; run chmod 600 \
                    `{shown}`"
            )));
        }
        if fs::metadata(path).map_err(failed)?.len() > Self::MAX_FILE_BYTES {
            return Err(token_error(format!(
                "the tokens file `{shown}` has more than {} bytes; remove unused tokens",
                Self::MAX_FILE_BYTES
            )));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut tokens = Self::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            // The error does not quote the line, which may contain a token in plain text.
            let wrong = |error| {
                token_error(format!(
                    "line {number} of the tokens file `{shown}`: {error}"
                ))
            };
            Entry::read(line)
                .and_then(|entry| tokens.push(entry))
                .map_err(wrong)?;
        }
        Ok(tokens)
    }

    /// Writes the tokens to a file that only its owner can read. Replaces the file atomically.
    ///
    /// The folder is created if it does not exist. The content is on disk when this returns, and a
    /// crash leaves either the old file or the new one.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.write(path).map_err(|source| Error::Token {
            what: format!("cannot write the tokens file `{}`", path.display()),
            source: Some(source),
        })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder)?;
        }
        Replace::new(path).synced().write(self.text().as_bytes())
    }

    /// Returns the content of the file: a comment that explains the format, then one line per
    /// token.
    fn text(&self) -> String {
        let mut text =
            "# Tokens of levity: name, scopes (read, run, approve, admin), hash of the token.\n"
                .to_owned();
        for entry in &self.0 {
            let hex: String = entry
                .hash
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            text.push_str(&format!(
                "{} {} sha256:{hex}\n",
                entry.name,
                scopes_text(&entry.scopes)
            ));
        }
        text
    }

    /// Adds a new token of 256 random bits and returns it. The token cannot be read again later.
    ///
    /// ```
    /// use levity_serve::{TokenScope, Tokens};
    /// let mut tokens = Tokens::new();
    /// let secret = tokens.add("acme.ann", [TokenScope::Run])?; // user `ann` of tenant `acme`
    /// assert_eq!(secret.reveal().len(), 43);
    /// assert!(tokens.add("acme.ann", [TokenScope::Read]).is_err(), "the name is taken");
    /// assert!(tokens.add("acme-ann", [TokenScope::Read]).is_err(), "a name has no `-`");
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the name is taken or invalid, if there is no scope, or if the system has no
    /// randomness.
    pub fn add(
        &mut self,
        name: &str,
        scopes: impl IntoIterator<Item = TokenScope>,
    ) -> Result<Token> {
        let token = Token::generate()?;
        self.insert(name, scopes, &token)?;
        Ok(token)
    }

    /// Adds an existing token under a name.
    ///
    /// Use it for a secret that another system distributes, such as one from a secret store.
    ///
    /// ```
    /// use levity_serve::{Token, TokenScope, Tokens};
    /// let mut tokens = Tokens::new();
    /// let token = Token::new("0123456789abcdef")?;
    /// tokens.insert("ci", [TokenScope::Run], &token)?;
    /// assert!(tokens.find("0123456789abcdef").is_some());
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the name is taken or invalid, or if there is no scope.
    pub fn insert(
        &mut self,
        name: &str,
        scopes: impl IntoIterator<Item = TokenScope>,
        token: &Token,
    ) -> Result<()> {
        let mut scopes: Vec<_> = scopes.into_iter().collect();
        scopes.sort_unstable();
        scopes.dedup();
        self.push(Entry {
            name: validate_name(name)?,
            scopes: scopes.into(),
            hash: hash(token.reveal()),
        })
    }

    /// Removes the token with this name and returns `true` if it existed.
    ///
    /// An [`AccessControl`](crate::AccessControl) has its own copy of the set: a running server
    /// admits the token until it is restarted with the new set.
    ///
    /// ```
    /// use levity_serve::{TokenScope, Tokens};
    /// let mut tokens = Tokens::new();
    /// tokens.add("ci", [TokenScope::Run])?;
    /// assert!(tokens.remove("ci") && !tokens.remove("ci"));
    /// assert!(tokens.is_empty());
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|entry| &*entry.name != name);
        self.0.len() < before
    }

    /// Returns the tokens in the order in which they were added.
    pub fn list(&self) -> Vec<TokenInfo> {
        let info = |entry: &Entry| TokenInfo {
            name: entry.name.to_string(),
            scopes: entry.scopes.to_vec(),
        };
        self.0.iter().map(info).collect()
    }

    /// Returns `true` if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the caller that owns the presented token. The time taken depends on the number of
    /// tokens, not on which one matches.
    pub fn find(&self, shown: &str) -> Option<Caller> {
        let shown = hash(shown);
        let mut found = None;
        for entry in &self.0 {
            if bool::from(entry.hash.ct_eq(&shown)) {
                found = Some(entry);
            }
        }
        found.map(|entry| Caller::named(entry.name.clone(), entry.scopes.clone()))
    }

    /// Adds an entry that is already well formed. It checks the rules about the whole set: the
    /// number of tokens and unique names.
    fn push(&mut self, entry: Entry) -> Result<()> {
        if self.0.len() >= Self::MAX_TOKENS {
            return Err(token_error(format!(
                "there are {} tokens, which is the limit; remove unused ones",
                Self::MAX_TOKENS
            )));
        }
        if entry.scopes.is_empty() {
            return Err(token_error(format!(
                "token `{}` has no scope; give it one",
                entry.name
            )));
        }
        if self.0.iter().any(|known| known.name == entry.name) {
            return Err(token_error(format!(
                "a token named `{}` already exists; remove it first, or use another name",
                entry.name
            )));
        }
        self.0.push(entry);
        Ok(())
    }
}

impl Entry {
    /// Parses a line such as `ci run,approve sha256:9f86..`. The words are separated by any white
    /// space.
    fn read(line: &str) -> Result<Self> {
        let wrong = || {
            token_error(
                "expected a name, scopes separated by commas, and `sha256:` followed by 64 hex \
                    digits",
            )
        };
        let mut words = line.split_whitespace();
        let (Some(name), Some(scopes), Some(sum), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(wrong());
        };
        let digits = sum
            .strip_prefix("sha256:")
            .filter(|digits| digits.len() == 64)
            .ok_or_else(wrong)?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let digit = |at: usize| {
                pair.get(at)
                    .and_then(|digit| char::from(*digit).to_digit(16))
            };
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err(wrong());
            };
            *byte = u8::try_from(high * 16 + low).map_err(|_| wrong())?;
        }
        let mut scopes: Vec<_> = scopes.split(',').map(str::parse).collect::<Result<_>>()?;
        scopes.sort_unstable();
        scopes.dedup();
        Ok(Self {
            name: validate_name(name)?,
            scopes: scopes.into(),
            hash,
        })
    }
}

/// Validates the name of a token. Ids begin with the name up to their first `-`, so a name contains
/// no `-`. A dot separates the tenant from the user.
fn validate_name(name: &str) -> Result<Arc<str>> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| !part.is_empty() && part.bytes().all(good);
    let fits = name.len() <= Tokens::MAX_NAME_LENGTH;
    match fits && name.split('.').count() <= 2 && name.split('.').all(part) {
        true => Ok(name.into()),
        false => Err(token_error(
            "the name of a token must be 1 to 32 lower-case letters and digits, optionally two \
                such parts separated by a dot",
        )),
    }
}

fn scopes_text(scopes: &[TokenScope]) -> String {
    scopes
        .iter()
        .map(|scope| scope.name())
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns the SHA-256 hash of a token. Comparing hashes instead of tokens also hides the length of
/// the stored token.
fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_saved_as_hashes_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/tokens");
        let mut tokens = Tokens::new();
        let ci = tokens
            .add(
                "ci",
                [TokenScope::Run, TokenScope::Approve, TokenScope::Run],
            )
            .unwrap();
        let watch = tokens.add("watch", [TokenScope::Read]).unwrap();
        tokens.save(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("ci run,approve sha256:"), "{text}");
        assert!(!text.contains(ci.reveal()) && !text.contains(watch.reveal()));
        assert!(!format!("{tokens:?}").contains(ci.reveal()));
        let mut read = Tokens::from_file(&path).unwrap();
        assert_eq!(read.list(), tokens.list());
        assert_eq!(read.find(ci.reveal()).unwrap().name(), Some("ci"));
        assert!(read.find(&format!("{}x", ci.reveal())).is_none() && read.find("").is_none());
        assert!(read.remove("ci") && !read.remove("ci"));
        read.save(&path).unwrap();
        assert!(
            Tokens::from_file(&path)
                .unwrap()
                .find(ci.reveal())
                .is_none()
        );
        assert_eq!(
            fs::read_dir(folder.path().join("below")).unwrap().count(),
            1
        );
    }

    #[test]
    fn invalid_names_and_lines_are_rejected_without_quoting_them() {
        let mut tokens = Tokens::new();
        for name in [
            "",
            "CI",
            "a-b",
            "a_b",
            "a.b.c",
            ".a",
            "a.",
            ".",
            "a b",
            "é",
            &"a".repeat(33),
        ] {
            assert!(tokens.add(name, [TokenScope::Read]).is_err(), "{name}");
        }
        assert!(tokens.add("ci", []).is_err());
        tokens.add("ci", [TokenScope::Read]).unwrap();
        assert!(
            tokens
                .add("ci", [TokenScope::Read])
                .unwrap_err()
                .to_string()
                .contains("another name")
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let hex = "0".repeat(64);
        for line in [
            "0123456789abcdef-secret".to_owned(),
            format!("ci run {hex}"),
            format!("ci run sha256:{hex}0"),
            format!("ci run sha256:{}", "x".repeat(64)),
            format!("ci root sha256:{hex}"),
            format!("ci , sha256:{hex}"),
            format!("ci run sha256:{hex} more"),
            format!("C run sha256:{hex}"),
            format!("ci run sha256:{hex}\nci run sha256:{hex}"),
        ] {
            Tokens::new().save(&path).unwrap();
            fs::write(&path, format!("# comment\n\n{line}\n")).unwrap();
            let error = Tokens::from_file(&path).unwrap_err().to_string();
            assert!(
                error.contains("line ") && !error.contains("secret"),
                "{line}: {error}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn tokens_file_readable_by_others_is_rejected() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        Tokens::new().save(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(
            Tokens::from_file(&path)
                .unwrap_err()
                .to_string()
                .contains("chmod 600")
        );
    }
}
