//! Validation of names and values.
//!
//! The checks reject what would fail later with a worse error, or would do harm: a line break in a
//! header could add another header, a control character in a name could change a terminal.

/// Checks the name of a server: not blank, at most 128 bytes, no control characters.
pub(super) fn validate_name(name: &str) -> Result<(), &'static str> {
    match name {
        _ if name.trim().is_empty() => Err("its name is empty"),
        _ if name.len() > 128 => Err("its name is longer than 128 bytes"),
        _ if name.chars().any(char::is_control) => Err("its name contains a control character"),
        _ => Ok(()),
    }
}

/// Checks the name of an environment variable, which must not contain `=`.
pub(super) fn validate_variable(name: &str, _: &str) -> Result<(), &'static str> {
    match name.is_empty() || name.contains(['=', '\0']) {
        true => Err("this is not a valid name of an environment variable"),
        false => Ok(()),
    }
}

/// Checks the name of a header as RFC 9110 defines it, and its value for control characters.
pub(super) fn validate_header(name: &str, value: &str) -> Result<(), &'static str> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("this is not a valid header name");
    }
    match value.chars().any(|c| c != '\t' && c.is_control()) {
        true => Err("its value contains a control character, such as a line break"),
        false => Ok(()),
    }
}

/// Checks for an `http` or `https` URL with a host. The transport parses it completely at the
/// start.
pub(super) fn validate_url(url: &str) -> Result<(), &'static str> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let start = url.get(..scheme.len())?;
        start
            .eq_ignore_ascii_case(scheme)
            .then(|| &url[scheme.len()..])
    });
    let Some(rest) = rest else {
        return Err("it must begin with `https://` or `http://`");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty()
        || host.starts_with(':')
        || url.contains(|c: char| c.is_whitespace() || c.is_control())
    {
        return Err("it is not a valid URL");
    }
    Ok(())
}
