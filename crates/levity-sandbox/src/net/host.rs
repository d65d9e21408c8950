//! Host names: detection of local names, and patterns.
//!
//! A name that public DNS does not know can only lead into a local network, where services often
//! trust every caller. Such names are refused by their text, before a resolver is asked: a search
//! domain of the host could complete `intranet` to a private name.

use url::Host;

/// Suffixes of names that belong to a local network or to one machine.
const LOCAL: &[&str] = &[
    "corp",
    "domain",
    "home",
    "home.arpa",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "svc",
    "test",
    "workgroup",
];

/// Names of cloud metadata services, in addition to the suffixes above.
const METADATA: &[&str] = &[
    "metadata.goog",
    "metadata.azure.com",
    "metadata.tencentyun.com",
];

/// Returns `true` if public DNS does not know a name. The name is in lower case and has no dot at
/// its end.
///
/// A name without a dot is always local.
pub(super) fn is_local(name: &str) -> bool {
    let ends = |suffix: &&str| {
        name.strip_suffix(*suffix)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    !name.contains('.')
        || LOCAL.iter().any(ends)
        || METADATA.iter().any(|known| name == *known || ends(known))
}

/// A pattern for one name, or for all names below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// The pattern `*`, which matches every name.
    Any,
    /// A single name, such as `example.org`.
    Exact(String),
    /// `*.example.org`, stored with its dot.
    Below(String),
}

impl Pattern {
    /// Parses a pattern in any spelling that a URL may have.
    ///
    /// For example, `Bücher.example.` gives `Exact("xn--bcher-kva.example")`. An address below `*.`
    /// is refused, as is any text with a scheme, a path or a port.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = normalize(&Host::parse(name).ok()?)?;
        let is_name = name.parse::<std::net::Ipv4Addr>().is_err() && !name.starts_with('[');
        match below {
            true => is_name.then(|| Self::Below(format!(".{name}"))),
            false => Some(Self::Exact(name)),
        }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(own) => own == name,
            Self::Below(end) => name.ends_with(end.as_str()) && name.len() > end.len(),
        }
    }
}

/// Returns a host in its canonical form: ASCII, lower case, no dot at its end. `None` if a part is
/// empty.
pub(super) fn normalize<S: AsRef<str>>(host: &Host<S>) -> Option<String> {
    let Host::Domain(name) = host else {
        return Some(host.to_string());
    };
    let name = name.as_ref().to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let sound = |part: &str| (1..=63).contains(&part.len()) && part.chars().all(plain);
    (name.len() <= 253 && name.split('.').all(sound)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let pattern = Pattern::parse(pattern).expect("a pattern");
        yes.iter()
            .for_each(|name| assert!(pattern.matches(name), "{name}"));
        no.iter()
            .for_each(|name| assert!(!pattern.matches(name), "{name}"));
    }

    #[test]
    fn patterns_match_canonical_form_of_names() {
        check("*", &["a.org", "127.0.0.1"], &[]);
        check(
            "Example.ORG.",
            &["example.org"],
            &["www.example.org", "example.orgs", "badexample.org"],
        );
        check(
            "*.example.org",
            &["www.example.org", "a.b.example.org"],
            &["example.org", "badexample.org"],
        );
        check(
            "bücher.example",
            &["xn--bcher-kva.example"],
            &["bucher.example"],
        );
        check(
            "*.Bücher.example",
            &["a.xn--bcher-kva.example"],
            &["xn--bcher-kva.example"],
        );
        check("0x7f.1", &["127.0.0.1"], &["0x7f.1"]);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in [
            "",
            "*.",
            "*.*.org",
            "a..b",
            "https://a.org",
            "a b",
            "*.127.0.0.1",
            "a.org/x",
            "a@b.org",
        ] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn local_names_are_detected() {
        for name in [
            "localhost",
            "intranet",
            "a.localhost",
            "printer.local",
            "metadata.google.internal",
        ] {
            assert!(is_local(name), "{name}");
        }
        for name in [
            "kubernetes.default.svc",
            "metadata.goog",
            "router.home.arpa",
            "x.metadata.goog",
        ] {
            assert!(is_local(name), "{name}");
        }
        for name in [
            "example.org",
            "local.example.org",
            "mylocal.org",
            "localhost.org",
            "notlocalhost.net",
        ] {
            assert!(!is_local(name), "{name}");
        }
    }
}
