//! The document formats that files use for servers.
//!
//! levity reads the files of other programs unchanged, so it accepts each shape that is in use:
//!
//! ```text
//! {"mcpServers": {"files": {..}}}      Claude, Cursor and most others
//! {"servers": {"files": {..}}}         VS Code
//! {"mcp": {"servers": {"files": {..}}}}
//! {"servers": [{"name": "files", ..}]}
//! {"files": {"command": ..}}           only the map
//! [{"name": "files", ..}]              only the list
//! ```
//!
//! A root key is matched without case and separators. Other root keys belong to other programs and
//! are ignored.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::text::{nearest, squeezed};

use super::entry::Entry;
use super::expand::Expander;
use super::keys::{Setting, setting};
use super::loader::Config;
use super::node::Node;
use super::problem::{ConfigProblem, below, short};

/// Reads one configuration file.
pub(super) struct ConfigReader<'a> {
    config: Config,
    expand: Expander<'a>,
    /// The names of all servers read before, including servers with errors.
    names: BTreeSet<Arc<str>>,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(vars: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            config: Config::default(),
            expand: Expander::new(vars),
            names: BTreeSet::new(),
        }
    }

    /// Reads the whole document.
    pub(super) fn root(mut self, root: &Node) -> Config {
        match root {
            Node::List(list) => self.list("", list),
            Node::Map(map) => self.object(map),
            other => {
                let kind = other.kind();
                self.config.add_problem(ConfigProblem::new(
                    "",
                    format!("it must be an object or a list, and is {kind}"),
                ));
            }
        }
        self.config
    }

    /// Finds the servers in an object. An object without them is read as a map of servers if one of
    /// its values looks like a server.
    fn object(&mut self, map: &[(String, Node)]) {
        let mut found = false;
        for (key, value) in map {
            match (&*squeezed(key), value) {
                ("mcpservers" | "servers", _) => {
                    found = true;
                    self.servers(&below("", key), value);
                }
                ("mcp", Node::Map(inner)) => {
                    for (name, value) in
                        inner.iter().filter(|(name, _)| squeezed(name) == "servers")
                    {
                        found = true;
                        self.servers(&below(&below("", key), name), value);
                    }
                }
                _ => {}
            }
        }
        if found || map.is_empty() {
            return;
        }
        let is_server =
            |(_, value): &(String, Node)| matches!(value, Node::Map(inner) if has_endpoint(inner));
        if map.iter().any(is_server) {
            return self.map("", map);
        }
        let hint = nearest_root(map)
            .map(|key| format!("; did you mean `mcpServers` in place of `{key}`?"))
            .unwrap_or_else(|| "; add one".to_owned());
        self.config.add_problem(ConfigProblem::new(
            "",
            format!("it has no `mcpServers` and no `servers`{hint}"),
        ));
    }

    /// Reads the value of `mcpServers` or `servers`.
    fn servers(&mut self, at: &str, value: &Node) {
        match value {
            Node::Map(map) => self.map(at, map),
            Node::List(list) => self.list(at, list),
            other => {
                let message = format!(
                    "it must be an object or a list of servers, and is {}",
                    other.kind()
                );
                self.config.add_problem(ConfigProblem::new(at, message));
            }
        }
    }

    /// Reads servers by name. Keys with `$` or `_` whose values are no objects are comments.
    fn map(&mut self, at: &str, map: &[(String, Node)]) {
        for (name, value) in map {
            let at = below(at, name);
            match value {
                Node::Map(settings) => {
                    self.entry(Entry::new(at, settings), Some(&name.as_str().into()));
                }
                // A comment, or the schema of the file.
                _ if name.starts_with(['$', '_']) => {}
                other => self.reject_value(at, Some(name.as_str().into()), other),
            }
        }
    }

    /// Reads servers with a `name` each.
    fn list(&mut self, at: &str, list: &[Node]) {
        for (index, value) in list.iter().enumerate() {
            let at = format!("{at}/{index}");
            match value {
                Node::Map(settings) => {
                    let mut entry = Entry::new(at, settings);
                    let name = entry.name();
                    self.entry(entry, name.as_ref());
                }
                other => self.reject_value(at, None, other),
            }
        }
    }

    fn reject_value(&mut self, at: String, server: Option<Arc<str>>, value: &Node) {
        let message = format!("it must be an object of settings, and is {}", value.kind());
        self.config.add_problem(ConfigProblem {
            server,
            ..ConfigProblem::new(at, message)
        });
    }

    /// Adds one server with its problems. A name counts as used even if its first server has
    /// errors, so that a second one does not silently take its place.
    fn entry(&mut self, mut entry: Entry<'_>, name: Option<&Arc<str>>) {
        if let Some(name) = name
            && !self.names.insert(name.clone())
        {
            entry.reject_duplicate(name);
        }
        let (server, problems) = entry.read(name, &mut self.expand);
        problems
            .into_iter()
            .for_each(|problem| self.config.add_problem(problem));
        if let Some(server) = server {
            self.config.add(server);
        }
    }
}

/// Returns `true` if the settings contain a program or a URL.
fn has_endpoint(settings: &[(String, Node)]) -> bool {
    settings
        .iter()
        .any(|(key, _)| matches!(setting(key), Some(Setting::Command | Setting::Url)))
}

/// Returns the root key that was probably meant as `mcpServers`.
fn nearest_root(map: &[(String, Node)]) -> Option<String> {
    let mut keys = map
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| key.len() < 40);
    keys.find(|key| nearest(key, ["mcpServers", "servers"]).is_some())
        .map(short)
}
