//! Empty replacements for spans without the feature `tracing`.
//!
//! The functions have the signatures of the real ones, so that the driver needs no conditional
//! code. They compile to nothing.

use futures_util::future::BoxFuture;
use levity_core::{Effect, Ending, Executor, Machine, Outcome, RunId, Secrets};
use levity_driver::Action;

#[derive(Default)]
pub(crate) struct Trace;

#[derive(Default)]
pub(crate) struct ParentSpan;

impl ParentSpan {
    pub(crate) fn here() -> Self {
        Self
    }

    pub(crate) fn within<T: 'static>(self, work: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
        work
    }
}

impl Trace {
    pub(crate) fn run(_: &RunId, _: &dyn Machine, _: Option<&str>, _: bool, _: ParentSpan) -> Self {
        Self
    }

    pub(crate) fn above(&self) -> ParentSpan {
        ParentSpan
    }

    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn begins(&mut self, _: &[Action]) {}

    pub(crate) fn effect(
        &mut self,
        _: &Effect,
        _: &dyn Executor,
        _: Option<&Secrets>,
    ) -> EffectTrace {
        EffectTrace
    }

    pub(crate) fn ended(&self, _: Option<&Ending>) {}

    pub(crate) fn stopped(&self, _: &levity_core::RuntimeError) {}
}

pub(crate) struct EffectTrace;

impl EffectTrace {
    pub(crate) fn around<T: Send + 'static>(
        self,
        perform: BoxFuture<'static, T>,
        _: fn(&T) -> Option<&Outcome>,
    ) -> BoxFuture<'static, T> {
        perform
    }
}
