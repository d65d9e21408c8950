//! Profiles: models with their settings, under a name.

use std::sync::Arc;
use std::time::Duration;

use levity_core::Model;

use super::Models;
use super::list::{Profile, RateSetting};
use super::place::Foreign;
use crate::layers::{Defaults, Rate, Retry};
use crate::{Error, ModelExt as _};

/// How many profiles may stand one behind the other.
const DEEPEST: usize = 8;

/// How many models and profiles a profile may lead to in all: each of a few profiles may name the
/// next one many times.
const MOST: usize = 256;

impl Models {
    pub(super) fn profile(
        &self,
        name: &str,
        profile: &Profile,
        depth: usize,
    ) -> Result<Arc<dyn Model>, Error> {
        if depth >= DEEPEST {
            return Err(Error::Circle {
                profile: name.to_owned(),
            });
        }
        if let Some(foreign) = profile
            .foreign
            .as_ref()
            .filter(|_| !profile.options.extra.is_empty())
        {
            self.check_fields(name, foreign)?;
        }
        let mut model = self.resolve(&profile.model, profile.foreign.as_ref(), depth + 1)?;
        if let Some(rate) = &profile.rate {
            model = Arc::new(model.rate_limit(rate.rate()));
        }
        if let Some(attempts) = profile.attempts {
            model = Arc::new(Retry::new(model).attempts(attempts));
        }
        for next in &profile.fallback {
            model = Arc::new(model.fallback(self.resolve(
                next,
                profile.foreign.as_ref(),
                depth + 1,
            )?));
        }
        if profile.text_tools {
            model = Arc::new(model.text_tools());
        }
        if profile.auto_thinking {
            model = Arc::new(model.auto_thinking());
        }
        Ok(Arc::new(Defaults::new(model, profile.options.clone())))
    }
}

impl Models {
    /// # Errors
    /// When a name leads to too many models, or back to itself.
    pub(super) fn check_size(&self, name: &str) -> Result<(), Error> {
        self.visit(name, None, &mut |_, _| {})
    }

    /// # Errors
    /// When a model that a profile leads to is asked with a key, which cannot be from the profile's
    /// file. Fields of a provider's own may have it call any server, keep what is said, or take
    /// more money.
    fn check_fields(&self, name: &str, foreign: &Foreign) -> Result<(), Error> {
        let mut key = None;
        let mut see = |name: &str, by: Option<&Arc<Foreign>>| {
            if !self.list.profiles.contains_key(name) {
                key = key.take().or_else(|| self.key_in_words(name, by));
            }
        };
        self.visit(name, None, &mut see)?;
        key.map_or(Ok(()), |key| Err(foreign.refused_fields(name, key)))
    }

    /// The first model behind a name, and the file that says so unless it is the user's own word.
    ///
    /// # Errors
    /// When profiles lead back to each other.
    pub(super) fn first_model<'a>(
        &'a self,
        mut name: &'a str,
    ) -> Result<(&'a str, Option<&'a Arc<Foreign>>), Error> {
        let mut foreign = None;
        for _ in 0..=DEEPEST {
            let Some(profile) = self.list.profiles.get(name) else {
                return Ok((name, foreign));
            };
            (name, foreign) = (&profile.model, profile.foreign.as_ref().or(foreign));
        }
        Err(Error::Circle {
            profile: name.to_owned(),
        })
    }

    /// Calls `see` with each profile and each model that a name leads to, and with the file that
    /// says so unless it is the user's own word.
    ///
    /// # Errors
    /// When there are too many of them.
    pub(super) fn visit<'a>(
        &'a self,
        name: &'a str,
        foreign: Option<&'a Arc<Foreign>>,
        see: &mut dyn FnMut(&'a str, Option<&'a Arc<Foreign>>),
    ) -> Result<(), Error> {
        let mut next = vec![(name, foreign, 0)];
        for _ in 0..MOST {
            let Some((name, foreign, depth)) = next.pop() else {
                return Ok(());
            };
            let profile = self.list.profiles.get(name);
            see(
                name,
                profile.map_or(foreign, |profile| profile.foreign.as_ref()),
            );
            let Some(profile) = profile else { continue };
            if depth >= DEEPEST {
                return Err(Error::Circle {
                    profile: name.to_owned(),
                });
            }
            let models = profile.fallback.iter().rev().chain([&profile.model]);
            next.extend(models.map(|model| (&**model, profile.foreign.as_ref(), depth + 1)));
        }
        if next.is_empty() {
            Ok(())
        } else {
            Err(Error::TooMany {
                profile: name.to_owned(),
                most: MOST,
            })
        }
    }
}

impl RateSetting {
    fn rate(&self) -> Rate {
        let mut rate = Rate::new();
        if let Some(requests) = self.requests {
            rate = rate.requests(requests);
        }
        if let Some(tokens) = self.tokens {
            rate = rate.tokens(tokens);
        }
        let gap = self
            .gap_seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if let Some(gap) = gap {
            rate = rate.gap(gap);
        }
        rate
    }
}
