//! The secrets in a server's settings, which must not be displayed even if the server repeats them.
//!
//! levity cannot know which settings are secret, so it guesses by place and name: every header,
//! every query value of the URL, and variables and arguments with names such as `API_KEY`. Values
//! of these below 8 bytes are not masked, because masking `true` or `admin` everywhere would make
//! errors unreadable. Parts of a URL are masked as written and decoded from `%` escapes, and long
//! texts such as keys in PEM also line by line.

use levity_core::Secrets;
use levity_core::text::bare_url;

use super::{ServerConfig, Transport};
use crate::redact::with_lines;

/// The minimum length of a secret, in bytes; a shorter text may be an ordinary word.
const MIN_LEN: usize = 8;

impl ServerConfig {
    /// Returns all values in the settings that may be secrets.
    ///
    /// These are headers, the parts of the URL beyond host and plain path segments, variables and
    /// arguments with names of secrets, inherited variables of that kind, and the settings of the
    /// login.
    pub(crate) fn secrets(&self) -> Secrets {
        let known = self.hidden.clone();
        match &self.transport {
            Transport::Http(http) | Transport::Sse(http) => {
                let headers = http.headers.values().flat_map(|value| {
                    // A server may repeat `Bearer abc` as `abc`.
                    [
                        Some(value.as_str()),
                        value.split_once(' ').map(|(_, rest)| rest),
                    ]
                    .into_iter()
                    .flatten()
                });
                let known = headers
                    .filter(|value| value.len() >= MIN_LEN)
                    .fold(known, Secrets::known);
                #[cfg(feature = "oauth")]
                let known = http
                    .oauth
                    .iter()
                    .flat_map(crate::OAuth::secrets)
                    .fold(known, with_lines);
                url_secrets(&http.url)
                    .into_iter()
                    .fold(known, Secrets::known)
            }
            Transport::Stdio(stdio) => {
                let pairs = stdio.args.iter().filter_map(|arg| arg.split_once('='));
                let next = stdio.args.iter().zip(stdio.args.iter().skip(1));
                let next = next.filter(|(name, _)| name.starts_with('-'));
                let args = pairs.chain(next.map(|(name, value)| (name.as_str(), value.as_str())));
                let env = stdio
                    .env
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str()));
                let known = add_named(known, env.chain(args));
                let inherited = crate::link::inherited(&stdio.inherit);
                let inherited = inherited
                    .iter()
                    .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
                add_named(known, inherited)
            }
            Transport::InProcess(_) => known,
        }
    }
}

/// The ends of names of variables and arguments that commonly contain keys. A wrong guess only
/// hides a word of an error.
const SECRET_SUFFIXES: [&str; 9] = [
    "token",
    "key",
    "secret",
    "password",
    "passwd",
    "auth",
    "credentials",
    "_pat",
    "cookie",
];

/// Adds the values whose names look like secrets, and the passwords within URLs.
pub(super) fn add_named<'a>(
    known: Secrets,
    all: impl Iterator<Item = (&'a str, &'a str)>,
) -> Secrets {
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        Secrets::is_name(&name) || SECRET_SUFFIXES.iter().any(|end| name.ends_with(end))
    };
    all.filter(|(_, value)| value.len() >= MIN_LEN)
        .fold(known, |known, (name, value)| match is_secret(name) {
            true => with_lines(known, value),
            false => url_passwords(value).into_iter().fold(known, Secrets::known),
        })
}

/// Returns the user with the password in a URL, and the password alone, both encoded and decoded.
fn url_passwords(address: &str) -> Vec<String> {
    let place = address
        .split_once("://")
        .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let user = place
        .and_then(|place| place.rsplit_once('@'))
        .map(|(user, _)| user);
    let Some((user, (_, url_passwords))) =
        user.and_then(|user| Some((user, user.split_once(':')?)))
    else {
        return Vec::new();
    };
    vec![
        user.to_owned(),
        url_passwords.to_owned(),
        percent_decoded(url_passwords),
    ]
}

/// Returns the parts of a URL beyond its host and the path segments that may be displayed.
fn url_secrets(url: &str) -> Vec<String> {
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (place, query) = before.split_once('?').unwrap_or((before, ""));
    let rest = place.split_once("://").map_or("", |(_, rest)| rest);
    let mut steps = rest.split('/');
    let user = steps
        .next()
        .and_then(|host| host.rsplit_once('@'))
        .map_or("", |(user, _)| user);
    let hidden = |step: &&str| bare_url(&format!("h/{step}")) != format!("h/{step}");
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let values = pairs
        .map(|(_, value)| value)
        .chain((!query.contains('=')).then_some(query));
    let values = values.filter(|value| value.len() >= MIN_LEN);
    let found = values
        .chain(user.splitn(2, ':').skip(1))
        .chain([user, fragment])
        .chain(steps.filter(hidden));
    found
        .flat_map(|part| [part.to_owned(), percent_decoded(part)])
        .collect()
}

/// Decodes the `%` escapes of a part of a URL.
fn percent_decoded(part: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|two| std::str::from_utf8(two).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        rest = if byte.is_some() { &after[2..] } else { after };
        bytes.push(byte.unwrap_or(*first));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
