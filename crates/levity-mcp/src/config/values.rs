//! How single values of a server's settings are read.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::Entry;
use super::expand::{Expand, looks_unexpanded};
use super::keys::Setting;
use super::node::Node;
use super::problem::{ConfigProblem, below};
use super::units::{seconds_of, size, time};

impl<'a> Entry<'a> {
    pub(super) fn get(&self, setting: Setting) -> Option<(&'a str, &'a Node)> {
        self.found
            .iter()
            .find(|(known, ..)| *known == setting)
            .map(|(_, key, value)| (*key, *value))
    }

    /// Notes what is wrong with the server as a whole.
    pub(super) fn whole(&mut self, message: &str) {
        self.problems
            .push(ConfigProblem::new(self.at.clone(), message));
    }

    /// Notes what is wrong with a setting, and stops the server.
    pub(super) fn wrong(&mut self, key: &str, message: &str) {
        self.problems
            .push(ConfigProblem::new(below(&self.at, key), message));
    }

    /// Notes what has no effect, or not the one that was meant.
    pub(super) fn tell(&mut self, key: &str, message: &str) {
        self.wrong(key, message);
        if let Some(problem) = self.problems.last_mut() {
            problem.stops = false;
        }
    }

    pub(super) fn flag(&mut self, setting: Setting) -> Option<(&'a str, bool)> {
        let (key, value) = self.get(setting)?;
        let Node::Bool(flag) = value else {
            self.wrong(
                key,
                &format!("it must be true or false, and is {}", value.kind()),
            );
            return None;
        };
        Some((key, *flag))
    }

    pub(super) fn time(&mut self, setting: Setting, unit: f64) -> Option<Duration> {
        let (key, value) = self.get(setting)?;
        let time = match value {
            Node::Number(number) => seconds_of(number * unit),
            Node::Text(text) => time(text),
            _ => Err(format!("it must be a time, and is {}", value.kind())),
        };
        time.map_err(|problem| self.wrong(key, &problem)).ok()
    }

    /// A whole number from `least` to `most`; a size may have a unit.
    pub(super) fn count(&mut self, setting: Setting, least: f64, most: f64) -> Option<f64> {
        let (key, value) = self.get(setting)?;
        let number = match value {
            Node::Number(number) => Ok(*number),
            Node::Text(text) if setting == Setting::MaxMessage => size(text),
            _ => Err(format!("it must be a number, and is {}", value.kind())),
        };
        let good = |number: f64| number.fract() == 0.0 && (least..=most).contains(&number);
        match number {
            Ok(number) if good(number) => Some(number),
            Ok(_) => {
                self.wrong(
                    key,
                    &format!("it must be a whole number from {least} to {most}"),
                );
                None
            }
            Err(problem) => {
                self.wrong(key, &problem);
                None
            }
        }
    }

    /// Strings that are taken as they are: one, or a list.
    pub(super) fn words(&mut self, key: &str, value: &Node) -> Vec<String> {
        let items = match value {
            Node::Text(_) => std::slice::from_ref(value),
            Node::List(items) => items,
            _ => {
                self.wrong(
                    key,
                    &format!("it must be a list of strings, and is {}", value.kind()),
                );
                return Vec::new();
            }
        };
        let mut words = Vec::new();
        for (at, item) in items.iter().enumerate() {
            match item {
                Node::Text(word) => words.push(word.clone()),
                _ => {
                    let at = format!("{}/{at}", below(&self.at, key));
                    self.problems.push(ConfigProblem::new(
                        at,
                        format!("it must be a string, and is {}", item.kind()),
                    ));
                }
            }
        }
        words
    }

    /// A list of strings in which variables are put.
    pub(super) fn texts(
        &mut self,
        at: String,
        value: &Node,
        expand: &mut Expand<'_>,
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

    /// A string in which variables are put. Numbers and truths are taken for the words they are
    /// written in.
    pub(super) fn text(
        &mut self,
        at: String,
        value: &Node,
        expand: &mut Expand<'_>,
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
                .push(ConfigProblem::new(at, "it holds a zero byte"));
            return None;
        }
        Some(text)
    }

    /// Names and values: variables, or headers.
    pub(super) fn pairs(
        &mut self,
        setting: Setting,
        expand: &mut Expand<'_>,
        good: fn(&str, &str) -> Result<(), &'static str>,
    ) -> BTreeMap<String, String> {
        let Some((key, value)) = self.get(setting) else {
            return BTreeMap::new();
        };
        let Node::Map(map) = value else {
            self.wrong(
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
                    .push(ConfigProblem::new(at, "it stands there twice"));
            } else if let Err(problem) = good(name, &text) {
                self.problems.push(ConfigProblem::new(at, problem));
            } else {
                if matches!(value, Node::Text(text) if looks_unexpanded(text)) {
                    let message = "it is passed on as it stands; only `${NAME}` is replaced";
                    self.problems.push(ConfigProblem {
                        stops: false,
                        ..ConfigProblem::new(at, message)
                    });
                }
                pairs.insert(name.clone(), text);
            }
        }
        pairs
    }
}
