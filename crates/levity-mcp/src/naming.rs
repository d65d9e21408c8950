//! Names of tools that every provider takes.
//!
//! A name depends on what is configured alone, never on which servers happen to be there: what a
//! model was told in one turn holds in the next.

use std::sync::Arc;

use levity_core::__private::sha256;

use crate::ServerConfig;

/// What names begin with, unless a server's settings say otherwise.
pub(crate) const PREFIX: &str = "mcp_";
/// The longest name that every provider takes.
const LONGEST: usize = 64;
/// How many digits of a hash tell names apart that would be the same.
const DIGITS: usize = 8;

/// The name under which a model calls a tool: `<prefix><server>_<tool>`.
///
/// It has letters, digits, `_` and `-` only, begins with a letter or `_`, and has at most 64
/// characters. Where that takes a change, a hash of what was changed is put behind it.
pub(crate) fn tool_name(prefix: &str, server: &str, tool: &str) -> String {
    let whole = format!("{prefix}{server}_{tool}");
    let name = plain(&whole);
    let named = !server.is_empty() && !tool.is_empty();
    if name == whole && name.len() <= LONGEST && named {
        name
    } else {
        hashed(name, prefix, server, tool)
    }
}

/// Gives names to the tools of one server.
#[derive(Clone, Debug)]
pub(crate) struct Namer {
    prefix: Arc<str>,
    server: Arc<str>,
    /// Whether its names could be those of another server, so that each has a hash.
    apart: bool,
}

impl Namer {
    /// One for each of these servers, which are all that are configured.
    ///
    /// `a` with the tool `b_c` and `a_b` with the tool `c` would have one name. Where both servers
    /// are configured, the one whose names could be taken for the other's is kept apart.
    pub(crate) fn all(servers: &[ServerConfig]) -> Vec<Self> {
        let starts: Vec<String> = servers.iter().map(start).collect();
        let apart = |at: usize| {
            let others = starts.iter().enumerate().filter(|(other, _)| *other != at);
            others
                .into_iter()
                .any(|(_, other)| starts[at].starts_with(other.as_str()))
        };
        let namer = |(at, server): (usize, &ServerConfig)| Self {
            prefix: prefix(server).into(),
            server: server.name.clone(),
            apart: apart(at),
        };
        servers.iter().enumerate().map(namer).collect()
    }

    /// The name of a tool.
    pub(crate) fn name(&self, tool: &str) -> String {
        let Self {
            prefix,
            server,
            apart,
        } = self;
        match apart {
            false => tool_name(prefix, server, tool),
            true => hashed(
                plain(&format!("{prefix}{server}_{tool}")),
                prefix,
                server,
                tool,
            ),
        }
    }
}

fn prefix(server: &ServerConfig) -> &str {
    server.prefix.as_deref().unwrap_or(PREFIX)
}

/// What the names of all tools of a server begin with.
fn start(server: &ServerConfig) -> String {
    plain(&format!("{}{}_", prefix(server), server.name))
}

/// The text in characters that every provider takes.
fn plain(text: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut plain: String = text
        .chars()
        .map(|c| if good(c) { c } else { '_' })
        .collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    plain
}

/// The name, cut if it must be, with a hash of what it was made of.
fn hashed(mut name: String, prefix: &str, server: &str, tool: &str) -> String {
    name.truncate(LONGEST - DIGITS - 1);
    // The lengths keep apart what was put together at different places.
    let parts = format!("{}:{prefix}{}:{server}{tool}", prefix.len(), server.len());
    name.push('_');
    name.extend(sha256(parts.as_bytes()).chars().take(DIGITS));
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
    fn good_names_stay() {
        check("github", "create_issue", "mcp_github_create_issue");
        check("my_server", "read-file", "mcp_my_server_read-file");
        assert_eq!(tool_name("", "files", "read"), "files_read");
        assert_eq!(tool_name("", "_1", "x"), "_1_x");
    }

    #[test]
    fn changed_names_have_a_hash() {
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
        assert_eq!(tool_name(PREFIX, "s", &long).len(), LONGEST);
        assert_ne!(
            tool_name(PREFIX, "s", &long),
            tool_name(PREFIX, "s", &longer)
        );
        let fits = "x".repeat(LONGEST - "mcp_s_".len());
        assert_eq!(tool_name(PREFIX, "s", &fits), format!("mcp_s_{fits}"));
    }

    #[test]
    fn servers_whose_names_could_be_mixed_up_are_kept_apart() {
        let both = namers(&["a", "a_b"]);
        assert_eq!(both[0].name("b_c"), "mcp_a_b_c");
        let apart = both[1].name("c");
        assert!(
            apart.starts_with("mcp_a_b_c_") && apart.len() == "mcp_a_b_c_".len() + DIGITS,
            "{apart}"
        );
        assert_eq!(
            namers(&["a_b", "b"])[0].name("c"),
            "mcp_a_b_c",
            "alone it needs no hash"
        );
        assert_eq!(namers(&["ab", "a"])[0].name("c"), "mcp_ab_c");
        let other = [
            ServerConfig::stdio("y", "x").prefix("x_"),
            ServerConfig::stdio("_y", "x").prefix("x"),
        ];
        let other = Namer::all(&other);
        assert_ne!(other[0].name("z"), other[1].name("z"));
    }

    fn is_good(name: &str) -> bool {
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        first && plain && name.len() <= LONGEST
    }

    proptest! {
        #[test]
        fn every_name_is_good(prefix in ".{0,80}", server in ".{0,80}", tool in ".{0,200}") {
            let name = tool_name(&prefix, &server, &tool);
            prop_assert!(is_good(&name), "{}", name);
            prop_assert_eq!(name, tool_name(&prefix, &server, &tool));
        }

        #[test]
        fn no_two_tools_have_one_name(
            servers in prop::collection::btree_set("[ab_.]{1,4}", 1..5),
            tools in prop::collection::btree_set("[ab_. ]{1,5}|[ab]{60,70}", 1..8),
        ) {
            let servers: Vec<_> = servers.iter().map(String::as_str).collect();
            let mut seen = BTreeSet::new();
            for namer in namers(&servers) {
                for tool in &tools {
                    let name = namer.name(tool);
                    prop_assert!(is_good(&name), "{}", name);
                    prop_assert!(seen.insert(name.clone()), "{} of {:?}", name, servers);
                }
            }
        }

        #[test]
        fn order_and_strangers_change_no_name(tool in "[a-z_.]{1,70}") {
            let one = namers(&["files", "git"]);
            let more = namers(&["search", "git", "files"]);
            prop_assert_eq!(one[0].name(&tool), more[2].name(&tool));
            prop_assert_eq!(one[1].name(&tool), more[1].name(&tool));
        }
    }
}
