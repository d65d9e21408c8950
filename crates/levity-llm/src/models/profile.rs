//! Profiles: named models with their settings.
//!
//! A profile names a model, models to fall back to, and settings of layers. Its entries may be
//! profiles themselves, so expansion is limited in depth and in total size: the list may come from
//! a third party. The order of the layers is fixed: rate limit, retry, fallbacks, tools as text,
//! automatic thinking, then the options as the outermost layer.

use std::sync::Arc;
use std::time::Duration;

use levity_core::Model;

use super::Models;
use super::list::{Profile, RateSetting};
use super::location::UntrustedFile;
use crate::layers::{Defaults, Rate, Retry};
use crate::{Error, ModelExt as _};

/// The maximum length of a chain of profiles.
const MAX_DEPTH: usize = 8;

/// The maximum number of models and profiles that a profile may refer to in total. Without it, a
/// few profiles that each name the next one many times would expand without limit.
const MAX_MODELS: usize = 256;

impl Models {
    /// Each fallback is resolved like a name of its own, with its own layers.
    ///
    /// # Errors
    /// Returns [`Error::ProfileCycle`] beyond eight profiles in a chain, [`Error::UntrustedFields`]
    /// for extra fields of an untrusted profile, and the errors of the named models.
    pub(super) fn profile(
        &self,
        name: &str,
        profile: &Profile,
        depth: usize,
    ) -> Result<Arc<dyn Model>, Error> {
        if depth >= MAX_DEPTH {
            return Err(Error::ProfileCycle {
                profile: name.to_owned(),
            });
        }
        if let Some(untrusted) = profile
            .untrusted
            .as_ref()
            .filter(|_| !profile.options.extra.is_empty())
        {
            self.check_fields(name, untrusted)?;
        }
        let mut model = self.resolve(&profile.model, profile.untrusted.as_ref(), depth + 1)?;
        if let Some(rate) = &profile.rate {
            model = Arc::new(model.rate_limit(rate.rate()));
        }
        if let Some(attempts) = profile.attempts {
            model = Arc::new(Retry::new(model).attempts(attempts));
        }
        for next in &profile.fallback {
            model = Arc::new(model.fallback(self.resolve(
                next,
                profile.untrusted.as_ref(),
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
    /// Checks the number of models that a name refers to.
    ///
    /// # Errors
    /// Returns an error if a name refers to too many models, or back to itself.
    pub(super) fn check_size(&self, name: &str) -> Result<(), Error> {
        self.visit(name, None, &mut |_, _| {})
    }

    /// Checks that a profile from a file sends no extra fields with a key.
    ///
    /// # Errors
    /// Returns an error if a model of the profile uses a key, which cannot come from the profile's
    /// file. Provider-specific fields may make the provider call any server, store the conversation
    /// or charge more.
    fn check_fields(&self, name: &str, untrusted: &UntrustedFile) -> Result<(), Error> {
        let mut key = None;
        let mut visitor = |name: &str, by: Option<&Arc<UntrustedFile>>| {
            if !self.list.profiles.contains_key(name) {
                key = key.take().or_else(|| self.describe_key(name, by));
            }
        };
        self.visit(name, None, &mut visitor)?;
        key.map_or(Ok(()), |key| Err(untrusted.refused_fields(name, key)))
    }

    /// Returns the first model that a name refers to, and the untrusted file that names it, if any.
    ///
    /// The innermost profile from an untrusted file counts.
    ///
    /// # Errors
    /// Returns an error if profiles refer to each other in a cycle.
    pub(super) fn first_model<'a>(
        &'a self,
        mut name: &'a str,
    ) -> Result<(&'a str, Option<&'a Arc<UntrustedFile>>), Error> {
        let mut untrusted = None;
        for _ in 0..=MAX_DEPTH {
            let Some(profile) = self.list.profiles.get(name) else {
                return Ok((name, untrusted));
            };
            (name, untrusted) = (&profile.model, profile.untrusted.as_ref().or(untrusted));
        }
        Err(Error::ProfileCycle {
            profile: name.to_owned(),
        })
    }

    /// Calls `visitor` with each profile and each model that a name refers to, and with the
    /// untrusted file that names it, if any.
    ///
    /// The walk uses a stack in the order of the chain: the model first, then its fallbacks. It
    /// counts each occurrence, so a profile that is named twice counts twice.
    ///
    /// # Errors
    /// Returns an error if there are too many of them.
    pub(super) fn visit<'a>(
        &'a self,
        name: &'a str,
        untrusted: Option<&'a Arc<UntrustedFile>>,
        visitor: &mut dyn FnMut(&'a str, Option<&'a Arc<UntrustedFile>>),
    ) -> Result<(), Error> {
        let mut next = vec![(name, untrusted, 0)];
        for _ in 0..MAX_MODELS {
            let Some((name, untrusted, depth)) = next.pop() else {
                return Ok(());
            };
            let profile = self.list.profiles.get(name);
            visitor(
                name,
                profile.map_or(untrusted, |profile| profile.untrusted.as_ref()),
            );
            let Some(profile) = profile else { continue };
            if depth >= MAX_DEPTH {
                return Err(Error::ProfileCycle {
                    profile: name.to_owned(),
                });
            }
            let models = profile.fallback.iter().rev().chain([&profile.model]);
            next.extend(models.map(|model| (&**model, profile.untrusted.as_ref(), depth + 1)));
        }
        if next.is_empty() {
            Ok(())
        } else {
            Err(Error::TooManyModels {
                profile: name.to_owned(),
                limit: MAX_MODELS,
            })
        }
    }
}

impl RateSetting {
    /// Converts the setting of the list. The time was validated when the list was parsed.
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
            rate = rate.min_interval(gap);
        }
        rate
    }
}
