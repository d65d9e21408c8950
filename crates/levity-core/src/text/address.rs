//! Addresses and model names in a form without secrets, for display.

/// The minimum length of a path segment that may be a key.
const MIN_KEY_LENGTH: usize = 16;

/// The replacement for a part that may be a secret.
const HIDDEN: &str = "***";

/// Returns an address for display: without user, password, query and fragment, and with `***` in
/// place of a path segment that looks like a key. An address that is not a plain URL is shown as
/// `***` after its scheme, or as `***` alone.
///
/// Every error, log and `Debug` output that names an address uses this function.
///
/// ```
/// # use levity_core::text::bare_url;
/// assert_eq!(bare_url("https://me:hush@host:8080/v1?key=abc#top"), "https://host:8080/v1");
/// assert_eq!(bare_url("https://host/s/0123456789abcdef0/mcp"), "https://host/s/***/mcp");
/// assert_eq!(bare_url("https://me:hu/sh@host"), "https://***");
/// ```
pub fn bare_url(url: &str) -> String {
    let url = url.trim();
    if url.is_empty() {
        return String::new();
    }
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), url),
    };
    let (authority, behind) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    // An `@` after the host means that a password may have begun before it: `http://me:12/34@host`.
    // Only `https://host.example/@name` is an address in real use.
    let (path, query) = behind.split_at(behind.find(['?', '#']).unwrap_or(behind.len()));
    let names = authority.contains('.') && !authority.contains(['@', ':']);
    let path_marked = if names {
        path.replace("/@", "/").contains('@')
    } else {
        path.contains('@')
    };
    // A bare key in place of an address.
    let is_key = scheme.is_empty() && !host.contains(['.', ':']) && looks_like_key(host);
    let doubtful = path_marked || query.contains('@') || !is_host(host) || is_key;
    if doubtful {
        return format!("{scheme}{HIDDEN}");
    }
    let parts = path.split(['/', '\\']).skip(1);
    let shown = |part: &str| format!("/{}", if is_plain(part) { part } else { HIDDEN });
    format!("{scheme}{host}{}", parts.map(shown).collect::<String>())
}

/// Splits a model's name at the `@` of its address: `provider:id@http://host/v1`.
///
/// The address is any text that begins like one, even in capitals, after spaces or with an
/// unsupported scheme. So a wrong address is never treated as part of the name.
///
/// ```
/// # use levity_core::text::split_model_address;
/// assert_eq!(split_model_address("a:b@ FTP://host"), Some(("a:b", " FTP://host")));
/// assert_eq!(split_model_address("vertex:claude@20250929"), None);
/// ```
pub fn split_model_address(name: &str) -> Option<(&str, &str)> {
    let found = name
        .match_indices('@')
        .find(|(at, _)| begins_address(&name[at + 1..]));
    found.map(|(at, _)| (&name[..at], &name[at + 1..]))
}

/// Returns a model's name for display, with its address, if any, as [`bare_url`] shows it.
///
/// ```
/// # use levity_core::text::bare_model_name;
/// let name = "compatible:m@http://me:hush@host/v1?key=abc";
/// assert_eq!(bare_model_name(name), "compatible:m@http://host/v1");
/// assert_eq!(bare_model_name("compatible:m@me:hush@host"), "compatible:m@***");
/// ```
pub fn bare_model_name(name: &str) -> String {
    let (model, address) = match split_model_address(name) {
        Some((model, address)) => (model, format!("@{}", bare_url(address))),
        None => (name, String::new()),
    };
    let start = model.find(':').map_or(0, |colon| colon + 1);
    // Without a provider, it is a mistyped address: `http:/me:pw@host`, `token@host/v1`.
    let scheme = ["http", "https", "ws", "wss", "ftp", "file"];
    let is_address = scheme.iter().any(|name| {
        model[..start]
            .trim()
            .trim_end_matches(':')
            .eq_ignore_ascii_case(name)
    });
    let has_user = start == 0 && model.contains('@');
    if is_address || has_user || model[..start].contains(['@', '/', '\\', '?', '#']) {
        return HIDDEN.to_owned();
    }
    let shown = match secret_start(&model[start..]) {
        Some(at) => format!("{}{HIDDEN}{address}", &model[..start + at]),
        None => format!("{model}{address}"),
    };
    shown.replace(char::is_control, "\u{fffd}")
}

/// Returns `true` if a text begins like an address, read leniently.
fn begins_address(text: &str) -> bool {
    let text = text.trim_start_matches(super::blank::is_invisible);
    let web = |scheme: &str| {
        ["http", "https"]
            .iter()
            .any(|name| scheme.eq_ignore_ascii_case(name))
    };
    // One letter is a drive.
    let other = |scheme: &str, rest: &str| {
        scheme.len() > 1 && is_scheme(scheme) && rest.starts_with(['/', '\\'])
    };
    let scheme = text
        .split_once(':')
        .is_some_and(|(scheme, rest)| web(scheme) || other(scheme, rest));
    scheme || text.starts_with("//") || text.starts_with("\\\\")
}

/// Returns the position in a model id where a possible address with a secret begins, even if it
/// does not look like one.
fn secret_start(id: &str) -> Option<usize> {
    if begins_address(id) {
        return Some(0);
    }
    let before_mark = |mark: &str| id.find(mark).filter(|at| id[*at..].contains('@'));
    // Some ids begin with an `@`, and so does a user with a password and no id.
    let scoped = id.strip_prefix('@').and_then(|rest| rest.split('@').next());
    let start = usize::from(scoped.is_some_and(|scope| !scope.contains(':')));
    let first = id[start..].find('@').map(|at| start + at + 1);
    let second = first.filter(|first| id[*first..].contains('@'));
    // The text after an `@` is a version or a digest, or else an address.
    let address = first.filter(|first| {
        let rest = &id[*first..];
        let pair = *first > 1 && rest.contains(':') && !is_digest(rest);
        pair || rest.contains([';', '=', '&', '%', '?', '#'])
    });
    let query = [id.find(['?', '#']), address].into_iter().flatten().min();
    let slashes = ["://", "//", "\\\\"]
        .into_iter()
        .filter_map(|mark| id.find(mark))
        .min();
    let slash = [":/", ":\\"].into_iter().filter_map(before_mark).min();
    [second, query, slashes, slash].into_iter().flatten().min()
}

/// Returns `true` if a text is a digest: `sha256:0a1b`.
fn is_digest(text: &str) -> bool {
    let digest = text
        .strip_prefix("sha256:")
        .or_else(|| text.strip_prefix("sha512:"));
    digest.is_some_and(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Returns `true` if a text is strictly a host with or without a port.
fn is_host(host: &str) -> bool {
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((inner, port)) => {
            let address = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
            if inner.is_empty() || !inner.chars().all(address) {
                return false;
            }
            ("h", port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = port.strip_prefix(':').map_or(port.is_empty(), |port| {
        port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    port && !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

/// Returns `true` if a path segment can be shown: it is not a key and hides no query behind other
/// characters.
fn is_plain(part: &str) -> bool {
    let part = part.strip_prefix('@').unwrap_or(part);
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | ':' | '+' | ',');
    part.chars().all(plain) && !looks_like_key(part)
}

/// Returns `true` if a path segment is long and has digits, like ids and keys and unlike words.
fn looks_like_key(part: &str) -> bool {
    part.len() >= MIN_KEY_LENGTH && part.contains(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_url_hides_possible_secrets() {
        for (url, shown) in [
            ("http://h", "http://h"),
            ("http://h:80/a/b/", "http://h:80/a/b/"),
            ("HTTPS://H.example/v1", "HTTPS://H.example/v1"),
            ("http://h?key=hush", "http://h"),
            ("http://h/v1#hush", "http://h/v1"),
            ("http://hush@h/v1", "http://h/v1"),
            ("http://me:hush@h:8080/v1?x=hush", "http://h:8080/v1"),
            ("http://me:hush@h:8080/v1?x=hush@y", "http://***"),
            ("http://me:hu@sh@h/v1", "http://h/v1"),
            ("http://me:hu/sh@h/v1", "http://***"),
            ("http://me:12/hush@h/v1", "http://***"),
            ("http://me:hu?sh@h/v1", "http://***"),
            ("http://me:12?hush@h/v1", "http://***"),
            ("http://me:hu#sh@h/v1", "http://***"),
            ("http://hush#@h/v1", "http://***"),
            ("http://hush?@h/v1", "http://***"),
            ("http://me:hush\\@h", "http://***"),
            ("http://\\me:hush@h", "http://***"),
            ("http:///me:hush@h", "http://***"),
            ("http:////me:hush@h", "http://***"),
            ("http:///h/v1", "http://***"),
            ("http://me:hush", "http://***"),
            ("http://me:hush%40h", "http://***"),
            ("http://hush%40h/v1", "http://***"),
            ("http://hush\u{ff20}h/v1", "http://***"),
            ("http://hush@", "http://***"),
            ("http://", "http://***"),
            ("http:/me:hush@h/v1?hush", "***"),
            ("http:me:hush@h/v1?hush", "h/v1"),
            ("me:hush@h/v1", "h/v1"),
            ("h?x=1@hush", "***"),
            ("host:8080/v1", "host:8080/v1"),
            ("sk-hush0123456789abcdef", "***"),
            ("ht tp://me:hush@h", "***"),
            (
                "https://host.example/@name/x/mcp",
                "https://host.example/@name/x/mcp",
            ),
            (
                "https://host.example/@name/x?key=hush",
                "https://host.example/@name/x",
            ),
            ("https://host.example/@name/x?key=hush@h", "https://***"),
            ("https://host.example:12/@hush", "https://***"),
            ("https://hush/@h", "https://***"),
            ("https://me.hush/x@h", "https://***"),
            ("http://[::1]:80/v1", "http://[::1]:80/v1"),
            ("http://me:hush@[::1]/v1", "http://[::1]/v1"),
            ("http://[hush", "http://***"),
            ("http://h/hush0123456789abcdef/x", "http://h/***/x"),
            ("http://h/hush0123456789.abcdef.x/x", "http://h/***/x"),
            ("http://h/bot:hush0123456789abc/x", "http://h/***/x"),
            (
                "a1b2c3d4e5f6g7h8.example:80/x",
                "a1b2c3d4e5f6g7h8.example:80/x",
            ),
            ("http://h/v1;key=hush/x", "http://h/***/x"),
            ("http://h/v1%3Fkey=hush", "http://h/***"),
            ("  http://h/x ", "http://h/x"),
            ("  http://h\n/x ", "http://***"),
            ("?hush", "***"),
            ("", ""),
        ] {
            let bare = bare_url(url);
            assert_eq!(bare, shown, "{url}");
            assert!(!bare.contains("hush") && !bare.contains("hu"), "{url}");
        }
    }

    /// Returns odd addresses with a secret as user, password, query value and fragment.
    fn odd_addresses(secret: &str) -> Vec<String> {
        let schemes = [
            "http://",
            "HTTPS://",
            "ftp://",
            "http:/",
            "http:",
            "http:///",
            "http://\\",
            "http:\\\\",
            "//",
            "",
            " http://",
            "\u{200b}http://",
            "ht\ttp://",
            "http://@",
            "h://h://",
            "://",
            "1http://",
            "file:///",
            "http:// ",
        ];
        let users = [
            "",
            "§@",
            "§:§@",
            "me:§@",
            "§:pw@",
            ":§@",
            "§:12/§@",
            "me:12/§@",
            "me:1?§@",
            "me:1#§@",
            "me:1\\§@",
            "§/@",
            "§?@",
            "§#@",
            "me@§@",
            "me:§%40@",
            "m%65:§@",
            "§\n@",
            "§ @",
            "me:§@me:§@",
            "me:12/@§@",
            "me:\u{ff0f}§@",
        ];
        let hosts = ["h:80", "[::1]", "", "h:notaport", "h.example"];
        let ends = [
            "",
            "/",
            "/v1",
            "?§",
            "?key=§",
            "/v1?key=§&x=§",
            "#§",
            "/v1#§",
            "?key=§#§",
            "/?a@b=§",
            "?x=y@§",
            "#@§",
            "?\n§",
            "/v1;k=§",
            "/%3fkey=§",
            "/v1?x=//§@h",
            "?a://§",
            "/a@b?§",
            "?key=http://§:§@h",
        ];
        let mut all = Vec::new();
        for scheme in schemes {
            for user in users {
                for host in hosts {
                    all.extend(
                        ends.map(|end| format!("{scheme}{user}{host}{end}").replace('§', secret)),
                    );
                }
            }
        }
        all
    }

    #[test]
    fn bare_names_hide_secrets_of_odd_addresses() {
        let secret = "CANARY";
        for url in odd_addresses(secret) {
            let shown = bare_url(&url);
            assert!(!shown.contains(secret), "{url:?}: {shown}");
            assert!(!shown.contains(char::is_control), "{url:?}: {shown:?}");
            let mut names = vec![format!("compatible:m@{url}"), format!("a:@cf/x@{url}")];
            // Without its slashes, it looks like an id with a version.
            let has_slashes = url.find("://").is_some_and(|at| !url[..at].contains('@'));
            names.extend(has_slashes.then(|| format!("openai:{url}")));
            for name in names {
                let shown = bare_model_name(&name);
                assert!(!shown.contains(secret), "{name:?}: {shown}");
            }
        }
    }

    #[test]
    fn split_model_address_finds_address_of_name() {
        for (name, expected) in [
            (
                "compatible:m@http://h/v1",
                Some(("compatible:m", "http://h/v1")),
            ),
            (
                "compatible:m@HTTPS://h",
                Some(("compatible:m", "HTTPS://h")),
            ),
            (
                "compatible:m@ http://h",
                Some(("compatible:m", " http://h")),
            ),
            (
                "compatible:m@\u{200b}http://h",
                Some(("compatible:m", "\u{200b}http://h")),
            ),
            (
                "compatible:m@ftp://me:pw@h",
                Some(("compatible:m", "ftp://me:pw@h")),
            ),
            ("compatible:m@http:/h", Some(("compatible:m", "http:/h"))),
            ("compatible:m@//h", Some(("compatible:m", "//h"))),
            (
                "cloudflare:@cf/meta/m@https://h",
                Some(("cloudflare:@cf/meta/m", "https://h")),
            ),
            ("vertex:claude@20250929", None),
            ("ollama:m@sha256:abc", None),
            ("cloudflare:@cf/meta/m", None),
            ("compatible:C:\\m.gguf", None),
        ] {
            assert_eq!(split_model_address(name), expected, "{name}");
        }
        for (name, shown) in [
            ("vertex:claude@20250929", "vertex:claude@20250929"),
            (
                "cloudflare:@cf/meta/m@https://h?key=hush",
                "cloudflare:@cf/meta/m@https://h",
            ),
            ("cloudflare:@cf/meta/m@1", "cloudflare:@cf/meta/m@1"),
            ("compatible:m@me:hush@h", "compatible:m@***"),
            ("compatible://me:hush@h", "compatible:***"),
            (
                "compatible:/models/m.gguf@http://h",
                "compatible:/models/m.gguf@http://h",
            ),
            (
                "vertex:publishers/a/models/claude@20250514",
                "vertex:publishers/a/models/claude@20250514",
            ),
            ("openai:http:/hush@h", "openai:***"),
            ("openai:https://me:hush@h", "openai:***"),
            ("openai:m?key=hush", "openai:m***"),
            ("hush@h:80/v1", "***"),
            (":@me:hush@h/v1", ":@***"),
            (
                "cloudflare:@cf/m:free@https://h",
                "cloudflare:@cf/m:free@https://h",
            ),
            ("compatible:a=b;c%20&d", "compatible:a=b;c%20&d"),
            ("http:/me:hush@h", "***"),
            ("HTTPS:me:hush@h", "***"),
            ("http:hush", "***"),
            ("hush@localhost/v1", "***"),
            ("compatible:m@me:hush%40h", "compatible:m@***"),
            ("compatible:m@me:hush", "compatible:m@***"),
            ("compatible:m@hush?x", "compatible:m@***"),
            ("compatible:m@localhost:8080/v1", "compatible:m@***"),
            ("ollama:m@sha256:0abc", "ollama:m@sha256:0abc"),
            ("ollama:m@sha256:hush", "ollama:m@***"),
            ("gpt-4o", "gpt-4o"),
        ] {
            assert_eq!(bare_model_name(name), shown, "{name}");
        }
    }
}
