//! Profiles: models with their settings, under a name.

use std::sync::Arc;
use std::time::Duration;

use levity_core::Model;

use super::Models;
use super::list::{Profile, RateSetting};
use crate::layers::{Defaults, Rate, Retry};
use crate::{Error, ModelExt as _};

/// How many profiles may stand one behind the other.
const DEEPEST: usize = 8;

impl Models {
    pub(super) fn profile(
        &self,
        name: &str,
        profile: &Profile,
        depth: usize,
    ) -> Result<Arc<dyn Model>, Error> {
        if depth >= DEEPEST {
            return Err(Error::Circle { profile: name.to_owned() });
        }
        let mut model = self.resolve(&profile.model, profile.foreign.as_ref(), depth + 1)?;
        if let Some(rate) = &profile.rate {
            model = Arc::new(model.rate_limit(rate.rate()));
        }
        if let Some(attempts) = profile.attempts {
            model = Arc::new(Retry::new(model).attempts(attempts));
        }
        for next in &profile.fallback {
            model = Arc::new(model.fallback(self.resolve(next, profile.foreign.as_ref(), depth + 1)?));
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

impl RateSetting {
    fn rate(&self) -> Rate {
        let mut rate = Rate::new();
        if let Some(requests) = self.requests {
            rate = rate.requests(requests);
        }
        if let Some(tokens) = self.tokens {
            rate = rate.tokens(tokens);
        }
        let gap = self.gap_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if let Some(gap) = gap {
            rate = rate.gap(gap);
        }
        rate
    }
}
