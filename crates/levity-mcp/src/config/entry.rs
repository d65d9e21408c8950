//! One server of a file.

use std::sync::Arc;

use levity_core::Secrets;
use levity_core::text::{bare_url, squeezed};

use super::expand::{Expand, with_letters};
use super::good::{good_header, good_name, good_url, good_variable};
use super::keys::{Setting, meant, setting};
use super::node::Node;
use super::problem::{ConfigProblem, below, short};
use super::secrets::named;
use super::{Http, InheritedEnvironment, ServerConfig, Stdio, Transport};

/// The settings of one server, as they stand in the file.
pub(super) struct Entry<'a> {
    pub(super) at: String,
    pub(super) found: Vec<(Setting, &'a str, &'a Node)>,
    pub(super) problems: Vec<ConfigProblem>,
}

impl<'a> Entry<'a> {
    /// Looks at the keys.
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

    fn find(&mut self, key: &'a str, value: &'a Node) {
        match setting(key) {
            Some(Setting::Note) => {}
            Some(Setting::Elsewhere) => self.tell(key, "it has no effect here"),
            None => {
                let near = meant(key)
                    .map(|near| format!("; `{near}` is near"))
                    .unwrap_or_default();
                self.tell(
                    key,
                    &format!("`{}` is no setting of a server{near}", short(key)),
                );
            }
            Some(setting) => {
                match self.found.iter().find(|(known, ..)| *known == setting) {
                    Some((_, known, _)) if *known == key => {
                        self.wrong(key, "it stands there twice");
                    }
                    // `type` and `transport` side by side say the same as a rule.
                    Some((_, _, known)) if *known == value => {}
                    Some((_, known, _)) => {
                        let known = short(known);
                        self.wrong(
                            key,
                            &format!("it says something else than `{known}`, which means the same"),
                        );
                    }
                    None => self.found.push((setting, key, value)),
                }
            }
        }
    }

    /// Notes that another server before it has its name.
    pub(super) fn second(&mut self, name: &str) {
        let message = format!(
            "another server before it is named `{}`; that one counts",
            short(name)
        );
        self.whole(&message);
    }

    /// The name, where a list has it.
    pub(super) fn name(&mut self) -> Option<Arc<str>> {
        match self.get(Setting::Name) {
            Some((_, Node::Text(name))) => Some(name.as_str().into()),
            Some((key, other)) => {
                self.wrong(
                    key,
                    &format!("it must be a string, and is {}", other.kind()),
                );
                None
            }
            None => {
                self.whole("it has no `name`");
                None
            }
        }
    }

    /// Reads everything. There is no server when something is wrong that stops it.
    pub(super) fn read(
        mut self,
        name: Option<&Arc<str>>,
        expand: &mut Expand<'_>,
    ) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
        if let Some(Err(problem)) = name.map(|name| good_name(name)) {
            self.whole(problem);
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
        config.hidden = named(Secrets::new().known_only(), values);
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
        let stops = self.problems.iter().any(|problem| problem.stops);
        for problem in &mut self.problems {
            problem.server = name.cloned();
            // What is not started is not in anybody's way.
            problem.stops &= enabled;
        }
        ((!stops).then_some(config), self.problems)
    }

    /// The words of a setting as they stand in the file.
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

    /// The address as it stands in the file and may be shown, where variables are put into it.
    fn written_address(&self) -> Option<String> {
        let Node::Text(text) = self.get(Setting::Url)?.1 else {
            return None;
        };
        let (letters, names) = with_letters(text);
        let back = |text: String, (letters, name): &(String, String)| text.replace(letters, name);
        (!names.is_empty()).then(|| names.iter().fold(bare_url(&letters), back))
    }

    fn enabled(&mut self) -> bool {
        let enabled = self.flag(Setting::Enabled);
        let disabled = self.flag(Setting::Disabled);
        if let (Some((key, enabled)), Some((_, disabled))) = (enabled, disabled)
            && enabled == disabled
        {
            self.wrong(key, "`enabled` and `disabled` contradict each other");
        }
        match (enabled, disabled) {
            (Some((_, enabled)), _) => enabled,
            (None, Some((_, disabled))) => !disabled,
            (None, None) => true,
        }
    }

    fn transport(&mut self, expand: &mut Expand<'_>) -> Option<Transport> {
        let wanted = self.wanted();
        let (command, url) = (self.get(Setting::Command), self.get(Setting::Url));
        let kind = match (wanted, command, url) {
            (Some(kind), ..) => kind?,
            (None, Some(_), None) => Kind::Stdio,
            (None, None, Some(_)) => Kind::Http,
            (None, Some(_), Some((key, _))) => {
                self.wrong(
                    key,
                    "there is a `command` beside it; say by `transport` which one counts",
                );
                return None;
            }
            (None, None, None) => {
                self.whole("it has neither a `command` nor a `url`");
                return None;
            }
        };
        self.unused(kind);
        match kind {
            Kind::Stdio => self.stdio(expand).map(Transport::Stdio),
            Kind::Http => self.http(expand).map(Transport::Http),
            Kind::Sse => self.http(expand).map(Transport::Sse),
        }
    }

    /// The transport that is named: none when none is, and `Some(None)` when there is no such
    /// transport.
    fn wanted(&mut self) -> Option<Option<Kind>> {
        let (key, value) = self.get(Setting::Transport)?;
        let Node::Text(text) = value else {
            self.wrong(
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
                let text = short(text);
                self.wrong(
                    key,
                    &format!("`{text}` is no transport; there are `stdio`, `http` and `sse`"),
                );
                return Some(None);
            }
        };
        Some(Some(kind))
    }

    /// Tells of settings that belong to another transport.
    fn unused(&mut self, kind: Kind) {
        let (others, what): (&[Setting], _) = match kind {
            Kind::Stdio => (
                &[Setting::Url, Setting::Headers],
                "a program that is started",
            ),
            Kind::Http | Kind::Sse => (
                &[
                    Setting::Command,
                    Setting::Args,
                    Setting::Env,
                    Setting::Inherit,
                    Setting::Cwd,
                ],
                "a server at an address",
            ),
        };
        for setting in others {
            if let Some((key, _)) = self.get(*setting) {
                self.tell(key, &format!("it has no effect on {what}"));
            }
        }
    }

    fn stdio(&mut self, expand: &mut Expand<'_>) -> Option<Stdio> {
        let (command, mut args) = self.command(expand);
        if let Some((key, value)) = self.get(Setting::Args) {
            let at = below(&self.at, key);
            args.extend(self.texts(at, value, expand));
        }
        let env = self.pairs(Setting::Env, expand, good_variable);
        let inherit = self.inherit();
        let cwd = self.get(Setting::Cwd).and_then(|(key, value)| {
            let at = below(&self.at, key);
            self.text(at, value, expand)
        });
        let command = command?;
        let bare = args.is_empty() && command.contains(' ') && !command.contains(['/', '\\']);
        if let (true, Some((key, _))) = (bare, self.get(Setting::Command)) {
            self.tell(
                key,
                "it holds a space and is taken for one name; arguments belong into `args`",
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

    /// The program, and the arguments that stand in one list with it.
    fn command(&mut self, expand: &mut Expand<'_>) -> (Option<String>, Vec<String>) {
        let Some((key, value)) = self.get(Setting::Command) else {
            self.whole("it has no `command`");
            return (None, Vec::new());
        };
        let at = below(&self.at, key);
        let mut words = match value {
            Node::List(_) => self.texts(at, value, expand),
            _ => self.text(at, value, expand).into_iter().collect(),
        };
        if words
            .first()
            .is_none_or(|command| command.trim().is_empty())
        {
            // What could not be read has been named already.
            if matches!(value, Node::Text(text) if text.trim().is_empty())
                || matches!(value, Node::List(list) if list.is_empty())
            {
                self.wrong(key, "it is empty");
            } else if !words.is_empty() {
                self.wrong(key, "nothing is left of it once variables are put in");
            }
            return (None, Vec::new());
        }
        let args = words.split_off(1);
        (words.pop(), args)
    }

    fn http(&mut self, expand: &mut Expand<'_>) -> Option<Http> {
        let headers = self.pairs(Setting::Headers, expand, good_header);
        let Some((key, value)) = self.get(Setting::Url) else {
            self.whole("it has no `url`");
            return None;
        };
        let url = self.text(below(&self.at, key), value, expand)?;
        if let Err(problem) = good_url(&url) {
            self.wrong(key, problem);
            return None;
        }
        Some(Http::new(url, headers))
    }

    fn inherit(&mut self) -> InheritedEnvironment {
        let Some((key, value)) = self.get(Setting::Inherit) else {
            return InheritedEnvironment::default();
        };
        match value {
            Node::Text(word) if word.eq_ignore_ascii_case("basics") => InheritedEnvironment::Basics,
            Node::Text(word) if word.eq_ignore_ascii_case("all") => InheritedEnvironment::All,
            Node::List(_) => InheritedEnvironment::Named(self.words(key, value)),
            _ => {
                self.wrong(
                    key,
                    "it must be \"basics\", \"all\" or a list of names of variables",
                );
                InheritedEnvironment::default()
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Stdio,
    Http,
    Sse,
}
