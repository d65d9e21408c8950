//! Tool names that every provider accepts.
//!
//! A name depends only on the configuration, never on which servers are currently running. A name
//! that a model saw in one turn is therefore valid in the next.
//!
//! Example names, with the default prefix:
//!
//! | server | tool | name |
//! |---|---|---|
//! | `files` | `read_file` | `mcp_files_read_file` |
//! | `my files` | `read` | `mcp_my_files_read_` and 8 digits of a hash |
//! | `a` beside a server `a_b` | `x` | `mcp_a_x` |
//! | `a_b` beside a server `a` | `x` | `mcp_a_b_x_` and 8 digits of a hash |
//!
//! The hash covers the prefix, the server and the original name, so it is the same in every
//! process.

use std::sync::Arc;

use levity_core::__private::sha256;

use crate::ServerConfig;

/// The default prefix of tool names; a server's settings can change it.
pub(crate) const PREFIX: &str = "mcp_";
/// The maximum length of a name that every provider accepts.
const MAX_LEN: usize = 64;
/// The number of hash digits that distinguish names which would otherwise be equal.
const HASH_DIGITS: usize = 8;

/// Returns the name by which a model calls a tool: `<prefix><server>_<tool>`.
///
/// The name contains only letters, digits, `_` and `-`, starts with a letter or `_`, and has at
/// most 64 characters. If the original name has to be changed for that, a hash of the original is
/// appended.
pub(crate) fn tool_name(prefix: &str, server: &str, tool: &str) -> String {
    let whole = format!("{prefix}{server}_{tool}");
    let name = sanitize(&whole);
    let named = !server.is_empty() && !tool.is_empty();
    if name == whole && name.len() <= MAX_LEN && named {
        name
    } else {
        with_hash(name, prefix, server, tool)
    }
}

/// Generates the tool names of one server.
#[derive(Clone, Debug)]
pub(crate) struct Namer {
    prefix: Arc<str>,
    server: Arc<str>,
    /// Adds a hash to every name, because the names could equal those of another server.
    always_hash: bool,
}

impl Namer {
    /// Creates one namer per server; `servers` must contain all configured servers.
    ///
    /// `a` with the tool `b_c` and `a_b` with the tool `c` would get the same name. If both servers
    /// are configured, every name of the ambiguous server gets a hash.
    pub(crate) fn all(servers: &[ServerConfig]) -> Vec<Self> {
        let starts: Vec<String> = servers.iter().map(name_start).collect();
        let always_hash = |at: usize| {
            let others = starts.iter().enumerate().filter(|(other, _)| *other != at);
            others
                .into_iter()
                .any(|(_, other)| starts[at].starts_with(other.as_str()))
        };
        let namer = |(at, server): (usize, &ServerConfig)| Self {
            prefix: prefix(server).into(),
            server: server.name.clone(),
            always_hash: always_hash(at),
        };
        servers.iter().enumerate().map(namer).collect()
    }

    /// Returns the name of a tool.
    pub(crate) fn name(&self, tool: &str) -> String {
        let Self {
            prefix,
            server,
            always_hash,
        } = self;
        match always_hash {
            false => tool_name(prefix, server, tool),
            true => with_hash(
                sanitize(&format!("{prefix}{server}_{tool}")),
                prefix,
                server,
                tool,
            ),
        }
    }
}

/// Returns the configured prefix, or the default one. An empty prefix counts as configured.
fn prefix(server: &ServerConfig) -> &str {
    server.prefix.as_deref().unwrap_or(PREFIX)
}

/// Returns the common start of the names of all tools of a server.
fn name_start(server: &ServerConfig) -> String {
    sanitize(&format!("{}{}_", prefix(server), server.name))
}

/// Replaces characters that some provider rejects.
fn sanitize(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut clean: String = text
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    if !clean.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        clean.insert(0, '_');
    }
    clean
}

/// Truncates the name if necessary and appends a hash of its parts.
fn with_hash(mut name: String, prefix: &str, server: &str, tool: &str) -> String {
    name.truncate(MAX_LEN - HASH_DIGITS - 1);
    // The lengths distinguish equal texts that were split at different positions.
    let parts = format!("{}:{prefix}{}:{server}{tool}", prefix.len(), server.len());
    name.push('_');
    name.extend(sha256(parts.as_bytes()).chars().take(HASH_DIGITS));
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(server: &str, tool: &str, expected: &str) {
        assert_eq!(tool_name(PREFIX, server, tool), expected);
    }

    fn namers(names: &[&str]) -> Vec<Namer> {
        let servers: Vec<_> = names
            .iter()
            .map(|name| ServerConfig::stdio(*name, "x"))
            .collect();
        Namer::all(&servers)
    }

    #[test]
    fn tool_name_with_valid_parts_is_unchanged() {
        check("github", "create_issue", "mcp_github_create_issue");
        check("my_server", "read-file", "mcp_my_server_read-file");
        assert_eq!(tool_name("", "files", "read"), "files_read");
        assert_eq!(tool_name("", "_1", "x"), "_1_x");
    }

    #[test]
    fn tool_name_with_changed_parts_has_hash() {
        check(
            "git.hub",
            "create issue",
            "mcp_git_hub_create_issue_3ea278f3",
        );
        assert_ne!(
            tool_name(PREFIX, "git-hub", "x.y"),
            tool_name(PREFIX, "git-hub", "x_y")
        );
        assert_ne!(
            tool_name(PREFIX, "git-hub", "x.y"),
            tool_name(PREFIX, "git-hub", "x:y")
        );
        assert!(tool_name("", "7up", "x").starts_with("_7up_x_"));
        assert!(tool_name("", "", "").starts_with("__"));
        let (long, longer) = ("x".repeat(80), "x".repeat(81));
        assert_eq!(tool_name(PREFIX, "s", &long).len(), MAX_LEN);
        assert_ne!(
            tool_name(PREFIX, "s", &long),
            tool_name(PREFIX, "s", &longer)
        );
        let fits = "x".repeat(MAX_LEN - "mcp_s_".len());
        assert_eq!(tool_name(PREFIX, "s", &fits), format!("mcp_s_{fits}"));
    }

    #[test]
    fn namer_hashes_names_of_ambiguous_servers() {
        let both = namers(&["a", "a_b"]);
        assert_eq!(both[0].name("b_c"), "mcp_a_b_c");
        let always_hash = both[1].name("c");
        assert!(
            always_hash.starts_with("mcp_a_b_c_")
                && always_hash.len() == "mcp_a_b_c_".len() + HASH_DIGITS,
            "{always_hash}"
        );
        assert_eq!(
            namers(&["a_b", "b"])[0].name("c"),
            "mcp_a_b_c",
            "an unambiguous server needs no hash"
        );
        assert_eq!(namers(&["ab", "a"])[0].name("c"), "mcp_ab_c");
        let other = [
            ServerConfig::stdio("y", "x").prefix("x_"),
            ServerConfig::stdio("_y", "x").prefix("x"),
        ];
        let other = Namer::all(&other);
        assert_ne!(other[0].name("z"), other[1].name("z"));
    }

    fn is_valid(name: &str) -> bool {
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let has_valid_chars = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        first && has_valid_chars && name.len() <= MAX_LEN
    }

    proptest! {
        #[test]
        fn tool_name_is_valid_for_any_input(
            prefix in ".{0,80}",
            server in ".{0,80}",
            tool in ".{0,200}",
        ) {
            let name = tool_name(&prefix, &server, &tool);
            prop_assert!(is_valid(&name), "{}", name);
            prop_assert_eq!(name, tool_name(&prefix, &server, &tool));
        }

        #[test]
        fn namer_gives_unique_names(
            servers in prop::collection::btree_set("[ab_.]{1,4}", 1..5),
            tools in prop::collection::btree_set("[ab_. ]{1,5}|[ab]{60,70}", 1..8),
        ) {
            let servers: Vec<_> = servers.iter().map(String::as_str).collect();
            let mut seen = BTreeSet::new();
            for namer in namers(&servers) {
                for tool in &tools {
                    let name = namer.name(tool);
                    prop_assert!(is_valid(&name), "{}", name);
                    prop_assert!(seen.insert(name.clone()), "{} of {:?}", name, servers);
                }
            }
        }

        #[test]
        fn namer_ignores_order_and_unrelated_servers(tool in "[a-z_.]{1,70}") {
            let one = namers(&["files", "git"]);
            let more = namers(&["search", "git", "files"]);
            prop_assert_eq!(one[0].name(&tool), more[2].name(&tool));
            prop_assert_eq!(one[1].name(&tool), more[1].name(&tool));
        }
    }
}
