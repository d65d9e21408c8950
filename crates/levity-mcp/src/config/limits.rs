//! The limits of a server, and the selection of its tools.
//!
//! Times are numbers of seconds or texts such as `"20s"`. A missing value keeps its default. An
//! invalid value is an error of its key, and the server is left out.

use std::time::Duration;

use super::entry::Entry;
use super::keys::Setting;
use super::node::Node;
use super::{ServerConfig, Trust};

impl Entry<'_> {
    /// Reads the timeouts, the interval of pings, retries, concurrency and the maximum message.
    pub(super) fn limits(&mut self, config: &mut ServerConfig) {
        let times: [(Setting, &mut Duration); 4] = [
            (Setting::StartTimeout, &mut config.start_timeout),
            (Setting::CallTimeout, &mut config.call_timeout),
            (Setting::IdleTimeout, &mut config.idle_timeout),
            (Setting::ProbeTimeout, &mut config.probe_timeout),
        ];
        for (setting, limit) in times {
            if let Some(time) = self.time(setting, 1.0) {
                *limit = time;
            }
        }
        self.foreign_timeout(config);
        match self.get(Setting::PingEvery) {
            Some((_, Node::Null | Node::Bool(false))) => config.ping_every = None,
            Some(_) => config.ping_every = self.time(Setting::PingEvery, 1.0).or(config.ping_every),
            None => {}
        }
        if let Some(retries) = self.count(Setting::Retries, 0.0, 1e6) {
            config.retries = retries as u32;
        }
        if let Some(calls) = self.count(Setting::MaxConcurrent, 1.0, 1e4) {
            config.max_concurrent = calls as usize;
        }
        if let Some(bytes) = self.count(Setting::MaxMessage, 1024.0, f64::from(1 << 30)) {
            config.max_message = bytes as usize;
        }
    }

    /// Reads `timeout`, which some programs write in milliseconds and others in seconds.
    ///
    /// A value of 1,000 or more is read as milliseconds: as seconds it would be over a quarter of
    /// an hour, and a smaller value in milliseconds would be under a second.
    fn foreign_timeout(&mut self, config: &mut ServerConfig) {
        let unit = match self.get(Setting::Timeout) {
            Some((_, Node::Number(number))) if *number >= 1000.0 => 0.001,
            _ => 1.0,
        };
        let limit = self
            .time(Setting::Timeout, unit)
            .or_else(|| self.time(Setting::CallMillis, 0.001));
        let Some(limit) = limit else { return };
        if let Some((key, _)) = self.get(Setting::CallTimeout) {
            self.warn(key, "it takes precedence over `timeout`");
            return;
        }
        config.call_timeout = limit;
        // Other programs have only this limit, so a call may go without progress for as long.
        if self.get(Setting::IdleTimeout).is_none() {
            config.idle_timeout = limit;
        }
    }

    /// Reads the selection of tools, their prefix (at most 32 bytes) and the trust in annotations.
    pub(super) fn tools(&mut self, config: &mut ServerConfig) {
        if let Some((key, value)) = self.get(Setting::Allow) {
            config.allow = Some(self.strings(key, value));
        }
        if let Some((key, value)) = self.get(Setting::Deny) {
            config.deny = self.strings(key, value);
        }
        if let Some((key, value)) = self.get(Setting::Prefix) {
            match value {
                Node::Text(prefix) if prefix.len() <= 32 => config.prefix = Some(prefix.clone()),
                Node::Text(_) => self.reject(key, "it is longer than 32 bytes"),
                _ => self.reject(
                    key,
                    &format!("it must be a string, and is {}", value.kind()),
                ),
            }
        }
        if let Some((key, value)) = self.get(Setting::Trust) {
            config.trust = match value {
                Node::Bool(true) => Trust::Full,
                Node::Bool(false) => Trust::Cautious,
                Node::Text(word) if word.eq_ignore_ascii_case("full") => Trust::Full,
                Node::Text(word) if ["cautious", "wary"].contains(&&*word.to_ascii_lowercase()) => {
                    Trust::Cautious
                }
                _ => {
                    self.reject(key, "it must be \"cautious\", \"full\", true or false");
                    Trust::default()
                }
            };
        }
    }
}
