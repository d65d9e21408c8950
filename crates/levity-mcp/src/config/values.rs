//! Readers for single values of a server's settings.
//!
//! Each reader returns the value, or records a problem with the place of the value and returns
//! nothing. A server with several mistakes therefore reports all of them at once. Texts say what
//! the value must be and which JSON type it has, but never the value.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::Entry;
use super::expand::{Expander, looks_unexpanded};
use super::keys::Setting;
use super::node::Node;
use super::problem::{ConfigProblem, below};
use super::units::{seconds_of, size, time};

impl<'a> Entry<'a> {
    /// Returns the key as written in the file, and the value of a setting.
    pub(super) fn get(&self, setting: Setting) -> Option<(&'a str, &'a Node)> {
        self.found
            .iter()
            .find(|(known, ..)| *known == setting)
            .map(|(_, key, value)| (*key, *value))
    }

    /// Records an error of the whole server.
    pub(super) fn reject_server(&mut self, message: &str) {
        self.problems
            .push(ConfigProblem::new(self.at.clone(), message));
    }

    /// Records an error of a setting, which prevents the start of the server.
    pub(super) fn reject(&mut self, key: &str, message: &str) {
        self.problems
            .push(ConfigProblem::new(below(&self.at, key), message));
    }

    /// Records a warning about a setting that has no effect or an unexpected one.
    pub(super) fn warn(&mut self, key: &str, message: &str) {
        self.reject(key, message);
        if let Some(problem) = self.problems.last_mut() {
            problem.is_error = false;
        }
    }

    /// Reads `true` or `false`; texts such as `"yes"` are rejected.
    pub(super) fn flag(&mut self, setting: Setting) -> Option<(&'a str, bool)> {
        let (key, value) = self.get(setting)?;
        let Node::Bool(flag) = value else {
            self.reject(
                key,
                &format!("it must be true or false, and is {}", value.kind()),
            );
            return None;
        };
        Some((key, *flag))
    }

    /// Reads a duration: a number in `unit` seconds, or a text with a unit of its own.
    pub(super) fn time(&mut self, setting: Setting, unit: f64) -> Option<Duration> {
        let (key, value) = self.get(setting)?;
        let time = match value {
            Node::Number(number) => seconds_of(number * unit),
            Node::Text(text) => time(text),
            _ => Err(format!("it must be a time, and is {}", value.kind())),
        };
        time.map_err(|problem| self.reject(key, &problem)).ok()
    }

    /// Reads a whole number from `min` to `max`; a size may have a unit.
    pub(super) fn count(&mut self, setting: Setting, min: f64, max: f64) -> Option<f64> {
        let (key, value) = self.get(setting)?;
        let number = match value {
            Node::Number(number) => Ok(*number),
            Node::Text(text) if setting == Setting::MaxMessage => size(text),
            _ => Err(format!("it must be a number, and is {}", value.kind())),
        };
        let in_range = |number: f64| number.fract() == 0.0 && (min..=max).contains(&number);
        match number {
            Ok(number) if in_range(number) => Some(number),
            Ok(_) => {
                self.reject(
                    key,
                    &format!("it must be a whole number from {min} to {max}"),
                );
                None
            }
            Err(problem) => {
                self.reject(key, &problem);
                None
            }
        }
    }

    /// Reads one string or a list of strings without expanding variables.
    pub(super) fn strings(&mut self, key: &str, value: &Node) -> Vec<String> {
        let items = match value {
            Node::Text(_) => std::slice::from_ref(value),
            Node::List(items) => items,
            _ => {
                self.reject(
                    key,
                    &format!("it must be a list of strings, and is {}", value.kind()),
                );
                return Vec::new();
            }
        };
        let mut strings = Vec::new();
        for (at, item) in items.iter().enumerate() {
            match item {
                Node::Text(word) => strings.push(word.clone()),
                _ => {
                    let at = format!("{}/{at}", below(&self.at, key));
                    self.problems.push(ConfigProblem::new(
                        at,
                        format!("it must be a string, and is {}", item.kind()),
                    ));
                }
            }
        }
        strings
    }

    /// Reads a list of strings and expands variables in them.
    pub(super) fn texts(
        &mut self,
        at: String,
        value: &Node,
        expand: &mut Expander<'_>,
    ) -> Vec<String> {
        let Node::List(items) = value else {
            self.problems.push(ConfigProblem::new(
                at,
                format!("it must be a list of strings, and is {}", value.kind()),
            ));
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items
            .filter_map(|(index, item)| self.text(format!("{at}/{index}"), item, expand))
            .collect()
    }

    /// Reads a string and expands variables in it. Numbers and booleans are converted to text.
    pub(super) fn text(
        &mut self,
        at: String,
        value: &Node,
        expand: &mut Expander<'_>,
    ) -> Option<String> {
        let text = match value {
            Node::Text(text) => match expand.expand(text) {
                Ok(text) => text,
                Err(problems) => {
                    self.problems.extend(
                        problems
                            .into_iter()
                            .map(|problem| ConfigProblem::new(at.clone(), problem)),
                    );
                    return None;
                }
            },
            Node::Number(number) => number.to_string(),
            Node::Bool(truth) => truth.to_string(),
            Node::Null | Node::List(_) | Node::Map(_) => {
                self.problems.push(ConfigProblem::new(
                    at,
                    format!("it must be a string, and is {}", value.kind()),
                ));
                return None;
            }
        };
        if text.contains('\0') {
            self.problems
                .push(ConfigProblem::new(at, "it contains a zero byte"));
            return None;
        }
        Some(text)
    }

    /// Reads an object of names and values: variables or headers.
    pub(super) fn pairs(
        &mut self,
        setting: Setting,
        expand: &mut Expander<'_>,
        validate: fn(&str, &str) -> Result<(), &'static str>,
    ) -> BTreeMap<String, String> {
        let Some((key, value)) = self.get(setting) else {
            return BTreeMap::new();
        };
        let Node::Map(map) = value else {
            self.reject(
                key,
                &format!("it must be an object of strings, and is {}", value.kind()),
            );
            return BTreeMap::new();
        };
        let mut pairs = BTreeMap::new();
        for (name, value) in map {
            let at = below(&below(&self.at, key), name);
            let Some(text) = self.text(at.clone(), value, expand) else {
                continue;
            };
            if pairs.contains_key(name) {
                self.problems
                    .push(ConfigProblem::new(at, "it appears twice"));
            } else if let Err(problem) = validate(name, &text) {
                self.problems.push(ConfigProblem::new(at, problem));
            } else {
                if matches!(value, Node::Text(text) if looks_unexpanded(text)) {
                    let message = "it is passed on unchanged; only `${NAME}` is expanded";
                    self.problems.push(ConfigProblem {
                        is_error: false,
                        ..ConfigProblem::new(at, message)
                    });
                }
                pairs.insert(name.clone(), text);
            }
        }
        pairs
    }
}
