//! The settings of one server in a file.
//!
//! An entry is read in two steps. First, each key is matched to a setting: an unknown key is a
//! warning with a suggestion, and two names of one setting with different values are an error. Then
//! the settings are read, in an order that keeps variables of the transport apart from the rest:
//! only the transport expands variables, and the names that it used are stored to mask their values
//! and to show them to a person.

use std::sync::Arc;

use levity_core::Secrets;
use levity_core::text::{bare_url, squeezed};

use super::expand::{Expander, restore_variables, with_placeholders};
use super::keys::{Setting, setting, suggestion};
use super::node::Node;
use super::problem::{ConfigProblem, below, short};
use super::secrets::add_named;
use super::validate::{validate_header, validate_name, validate_url, validate_variable};
use super::{Http, InheritedEnvironment, ServerConfig, Stdio, Transport};

/// The settings of one server as written in the file.
pub(super) struct Entry<'a> {
    pub(super) at: String,
    pub(super) found: Vec<(Setting, &'a str, &'a Node)>,
    pub(super) problems: Vec<ConfigProblem>,
}

impl<'a> Entry<'a> {
    /// Reads the keys of the settings.
    pub(super) fn new(at: String, map: &'a [(String, Node)]) -> Self {
        let mut entry = Self {
            at,
            found: Vec::new(),
            problems: Vec::new(),
        };
        for (key, value) in map {
            entry.find(key, value);
        }
        entry
    }

    /// Matches one key of the entry to a setting.
    fn find(&mut self, key: &'a str, value: &'a Node) {
        match setting(key) {
            Some(Setting::Note) => {}
            Some(Setting::Elsewhere) => self.warn(key, "this setting has no effect in levity"),
            None => {
                let hint = suggestion(key)
                    .map(|suggestion| format!("; did you mean `{suggestion}`?"))
                    .unwrap_or_default();
                self.warn(
                    key,
                    &format!("`{}` is not a server setting{hint}", short(key)),
                );
            }
            Some(setting) => {
                match self.found.iter().find(|(known, ..)| *known == setting) {
                    Some((_, known, _)) if *known == key => self.reject(key, "it appears twice"),
                    // `type` and `transport` usually both appear with the same value.
                    Some((_, _, known)) if *known == value => {}
                    Some((_, known, _)) => {
                        let known = short(known);
                        self.reject(
                            key,
                            &format!(
                                "it contradicts `{known}`, which sets the same value; remove one"
                            ),
                        );
                    }
                    None => self.found.push((setting, key, value)),
                }
            }
        }
    }

    /// Records that an earlier server has the same name.
    pub(super) fn reject_duplicate(&mut self, name: &str) {
        let message = format!(
            "an earlier server is also named `{}` and takes precedence; rename one",
            short(name)
        );
        self.reject_server(&message);
    }

    /// Returns the name, if the servers are in a list.
    pub(super) fn name(&mut self) -> Option<Arc<str>> {
        match self.get(Setting::Name) {
            Some((_, Node::Text(name))) => Some(name.as_str().into()),
            Some((key, other)) => {
                self.reject(
                    key,
                    &format!("it must be a string, and is {}", other.kind()),
                );
                None
            }
            None => {
                self.reject_server("it has no `name`");
                None
            }
        }
    }

    /// Reads all settings. Returns no server if an error prevents its start.
    ///
    /// Errors of a disabled server become warnings: a broken entry that nobody starts must not fail
    /// the check of a file. Such a server is left out all the same.
    pub(super) fn read(
        mut self,
        name: Option<&Arc<str>>,
        expand: &mut Expander<'_>,
    ) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
        if let Some(Err(problem)) = name.map(|name| validate_name(name)) {
            self.reject_server(problem);
        }
        let enabled = self.enabled();
        expand.take_used();
        let transport = self.transport(expand);
        let server = name.cloned().unwrap_or_else(|| "".into());
        let transport_or_none = transport.unwrap_or(Transport::Stdio(Stdio::default()));
        let mut config = ServerConfig::new(server, transport_or_none);
        config.enabled = enabled;
        let used = expand.take_used();
        let values = used
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        config.hidden = add_named(Secrets::new().known_only(), values);
        config.variables = used.into_keys().collect();
        match &mut config.transport {
            Transport::Stdio(stdio) => {
                stdio.written = [Setting::Command, Setting::Args]
                    .map(|setting| self.written(setting))
                    .concat();
                stdio.written_cwd = self.written(Setting::Cwd).pop();
            }
            Transport::Http(http) | Transport::Sse(http) => http.written = self.written_address(),
            Transport::InProcess(_) => {}
        }
        self.limits(&mut config);
        self.tools(&mut config);
        let stops = self.problems.iter().any(|problem| problem.is_error);
        for problem in &mut self.problems {
            problem.server = name.cloned();
            // A server that is not started cannot fail.
            problem.is_error &= enabled;
        }
        ((!stops).then_some(config), self.problems)
    }

    /// Returns the values of a setting as written in the file.
    fn written(&self, setting: Setting) -> Vec<String> {
        let word = |node: &Node| match node {
            Node::Text(text) => Some(text.clone()),
            Node::Number(number) => Some(number.to_string()),
            Node::Bool(truth) => Some(truth.to_string()),
            Node::Null | Node::List(_) | Node::Map(_) => None,
        };
        match self.get(setting) {
            Some((_, Node::List(list))) => list.iter().filter_map(word).collect(),
            Some((_, node)) => word(node).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Returns the URL as written in the file, safe to display, if the file expands variables in
    /// it.
    fn written_address(&self) -> Option<String> {
        let Node::Text(text) = self.get(Setting::Url)?.1 else {
            return None;
        };
        let (placeholder, names) = with_placeholders(text);
        (!names.is_empty()).then(|| restore_variables(&bare_url(&placeholder), &names))
    }

    /// Reads `enabled` and `disabled`, which other programs use; the default is enabled.
    fn enabled(&mut self) -> bool {
        let enabled = self.flag(Setting::Enabled);
        let disabled = self.flag(Setting::Disabled);
        if let (Some((key, enabled)), Some((_, disabled))) = (enabled, disabled)
            && enabled == disabled
        {
            self.reject(key, "`enabled` and `disabled` contradict each other");
        }
        match (enabled, disabled) {
            (Some((_, enabled)), _) => enabled,
            (None, Some((_, disabled))) => !disabled,
            (None, None) => true,
        }
    }

    /// Reads the transport. Without a name, `command` means stdio and `url` means HTTP; both
    /// together need a name.
    fn transport(&mut self, expand: &mut Expander<'_>) -> Option<Transport> {
        let named_transport = self.named_transport();
        let (command, url) = (self.get(Setting::Command), self.get(Setting::Url));
        let kind = match (named_transport, command, url) {
            (Some(kind), ..) => kind?,
            (None, Some(_), None) => Kind::Stdio,
            (None, None, Some(_)) => Kind::Http,
            (None, Some(_), Some((key, _))) => {
                self.reject(
                    key,
                    "there is also a `command`; choose one with `transport`",
                );
                return None;
            }
            (None, None, None) => {
                self.reject_server("it has neither a `command` nor a `url`; add one");
                return None;
            }
        };
        self.warn_unused(kind);
        match kind {
            Kind::Stdio => self.stdio(expand).map(Transport::Stdio),
            Kind::Http => self.http(expand).map(Transport::Http),
            Kind::Sse => self.http(expand).map(Transport::Sse),
        }
    }

    /// Returns the named transport: `None` if none is named, and `Some(None)` if the name is
    /// unknown.
    fn named_transport(&mut self) -> Option<Option<Kind>> {
        let (key, value) = self.get(Setting::Transport)?;
        let Node::Text(text) = value else {
            self.reject(
                key,
                &format!("it must be a string, and is {}", value.kind()),
            );
            return Some(None);
        };
        let kind = match &*squeezed(text) {
            "stdio" | "local" => Kind::Stdio,
            "http" | "https" | "streamablehttp" | "streamable" | "remote" => Kind::Http,
            "sse" => Kind::Sse,
            _ => {
                self.reject(
                    key,
                    "it is not a known transport; use `stdio`, `http` or `sse`",
                );
                return Some(None);
            }
        };
        Some(Some(kind))
    }

    /// Warns about settings that belong to another transport.
    fn warn_unused(&mut self, kind: Kind) {
        let (others, what): (&[Setting], _) = match kind {
            Kind::Stdio => (
                &[Setting::Url, Setting::Headers],
                "a server that levity starts as a program",
            ),
            Kind::Http | Kind::Sse => (
                &[
                    Setting::Command,
                    Setting::Args,
                    Setting::Env,
                    Setting::Inherit,
                    Setting::Cwd,
                ],
                "a server at a URL",
            ),
        };
        for setting in others {
            if let Some((key, _)) = self.get(*setting) {
                self.warn(key, &format!("it has no effect on {what}"));
            }
        }
    }

    /// Reads the settings of a program: command, arguments, variables and folder.
    fn stdio(&mut self, expand: &mut Expander<'_>) -> Option<Stdio> {
        let (command, mut args) = self.command(expand);
        if let Some((key, value)) = self.get(Setting::Args) {
            let at = below(&self.at, key);
            args.extend(self.texts(at, value, expand));
        }
        let env = self.pairs(Setting::Env, expand, validate_variable);
        let inherit = self.inherit();
        let cwd = self.get(Setting::Cwd).and_then(|(key, value)| {
            let at = below(&self.at, key);
            self.text(at, value, expand)
        });
        let command = command?;
        let is_suspicious =
            args.is_empty() && command.contains(' ') && !command.contains(['/', '\\']);
        if let (true, Some((key, _))) = (is_suspicious, self.get(Setting::Command)) {
            self.warn(
                key,
                "it contains a space and is treated as one program name; put arguments into `args`",
            );
        }
        Some(Stdio {
            command,
            args,
            env,
            inherit,
            cwd: cwd.map(Into::into),
            ..Stdio::default()
        })
    }

    /// Returns the program, and the arguments that are in the same list.
    fn command(&mut self, expand: &mut Expander<'_>) -> (Option<String>, Vec<String>) {
        let Some((key, value)) = self.get(Setting::Command) else {
            self.reject_server("it has no `command`");
            return (None, Vec::new());
        };
        let at = below(&self.at, key);
        let mut strings = match value {
            Node::List(_) => self.texts(at, value, expand),
            _ => self.text(at, value, expand).into_iter().collect(),
        };
        if strings
            .first()
            .is_none_or(|command| command.trim().is_empty())
        {
            // Values that could not be read have been reported already.
            if matches!(value, Node::Text(text) if text.trim().is_empty())
                || matches!(value, Node::List(list) if list.is_empty())
            {
                self.reject(key, "it is empty");
            } else if !strings.is_empty() {
                self.reject(key, "it is empty after variables are expanded");
            }
            return (None, Vec::new());
        }
        let args = strings.split_off(1);
        (strings.pop(), args)
    }

    /// Reads the settings of a URL and its headers.
    fn http(&mut self, expand: &mut Expander<'_>) -> Option<Http> {
        let headers = self.pairs(Setting::Headers, expand, validate_header);
        let Some((key, value)) = self.get(Setting::Url) else {
            self.reject_server("it has no `url`");
            return None;
        };
        let url = self.text(below(&self.at, key), value, expand)?;
        if let Err(problem) = validate_url(&url) {
            self.reject(key, problem);
            return None;
        }
        Some(Http::new(url, headers))
    }

    /// Reads the inherited variables: `"basics"`, `"all"` or a list of names.
    fn inherit(&mut self) -> InheritedEnvironment {
        let Some((key, value)) = self.get(Setting::Inherit) else {
            return InheritedEnvironment::default();
        };
        match value {
            Node::Text(word) if word.eq_ignore_ascii_case("basics") => InheritedEnvironment::Basics,
            Node::Text(word) if word.eq_ignore_ascii_case("all") => InheritedEnvironment::All,
            Node::List(_) => InheritedEnvironment::Named(self.strings(key, value)),
            _ => {
                self.reject(
                    key,
                    "it must be \"basics\", \"all\" or a list of variable names",
                );
                InheritedEnvironment::default()
            }
        }
    }
}

/// The transports that a file can name; a server in this process is set up by code only.
#[derive(Clone, Copy)]
enum Kind {
    Stdio,
    Http,
    Sse,
}
