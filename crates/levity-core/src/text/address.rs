//! Addresses as they may be shown.

/// The shortest part of a path that may be a key.
const SHORTEST_KEY: usize = 16;

/// An address as it may be shown: without user, password, query and fragment, and with `***` in place of a part of the path
/// that looks like a key.
///
/// Every error, log and `Debug` output that names an address shows it by this function.
///
/// ```
/// # use levity_core::text::bare_url;
/// assert_eq!(bare_url("https://me:hush@host:8080/v1?key=abc#top"), "https://host:8080/v1");
/// assert_eq!(bare_url("https://host/s/0123456789abcdef0/mcp"), "https://host/s/***/mcp");
/// ```
pub fn bare_url(url: &str) -> String {
    let url = url.trim();
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['@', '?', '#']) => (Some(scheme), rest),
        // Without slashes it cannot be told where the host begins.
        _ => (None, url.rsplit_once('@').map_or(url, |(_, rest)| rest)),
    };
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    let mut parts = place.split(['/', '\\']);
    let host = parts.next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let scheme = scheme.map_or_else(String::new, |scheme| format!("{scheme}://"));
    // A password with a slash or a question mark in it looks like a port and a path.
    if !has_good_port(host) {
        return format!("{scheme}***");
    }
    let shown = |part: &str| if looks_like_key(part) { "/***".to_owned() } else { format!("/{part}") };
    format!("{scheme}{host}{}", parts.map(shown).collect::<String>()).replace(char::is_control, "\u{fffd}")
}

fn has_good_port(host: &str) -> bool {
    let port = host.rsplit_once(']').map_or(host, |(_, port)| port);
    port.split_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a part of a path is long and has digits in it, as ids and keys do and words do not.
fn looks_like_key(part: &str) -> bool {
    part.len() >= SHORTEST_KEY && part.contains(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_url_hides_whatever_may_be_a_secret() {
        for (url, shown) in [
            ("http://h", "http://h"),
            ("http://h:80/a/b/", "http://h:80/a/b/"),
            ("http://h?key=hush", "http://h"),
            ("http://h/v1#hush", "http://h/v1"),
            ("http://hush@h/v1", "http://h/v1"),
            ("http://me:hush@h:8080/v1?x=hush@y", "http://h:8080/v1"),
            ("http://me:hu@sh@h/v1", "http://h/v1"),
            ("http://me:hu/sh@h/v1", "http://***"),
            ("http://me:hu?sh@h/v1", "http://***"),
            ("http://me:hu#sh@h/v1", "http://***"),
            ("http://me:hush\\@h", "http://***"),
            ("http:/me:hush@h/v1?hush", "h/v1"),
            ("me:hush@h/v1", "h/v1"),
            ("http://[::1]:80/v1", "http://[::1]:80/v1"),
            ("http://me:hush@[::1]/v1", "http://[::1]/v1"),
            ("http://h/hush0123456789abcdef/x", "http://h/***/x"),
            ("  http://h\n/x ", "http://h\u{fffd}/x"),
            ("?hush", ""),
            ("", ""),
        ] {
            let bare = bare_url(url);
            assert_eq!(bare, shown, "{url}");
            assert!(!bare.contains("hush") && !bare.contains("hu"), "{url}");
        }
    }
}
