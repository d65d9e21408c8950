use std::sync::Arc;

use levity_core::{Failure, Status, Step as Wants};
use levity_loop::Agent;

use crate::desk::{Came, Desk, Duty};
use crate::error::Result;
use crate::machine::Play;
use crate::pattern::Given;
use crate::rules::{Rules, Start};

/// Workers speak in turns, and a judge decides.
#[derive(Clone, Debug)]
pub struct Debate;

impl Debate {
    pub(crate) fn leads(&self) -> Vec<(&'static str, Agent)> {
        Vec::new()
    }

    pub(crate) fn given(&self, _: &str, _: &Rules) -> Vec<Given> {
        Vec::new()
    }

    pub(crate) fn check(&self, _: &[Arc<str>]) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Debating;

impl Debating {
    pub(crate) fn new(_: &Debate, _: &Start) -> Self {
        Self
    }
}

impl Play for Debating {
    fn begin(&mut self, desk: &mut Desk, _: &mut Wants) {
        desk.end(Status::Failed(Failure::Unreached("not there yet".into())), String::new(), None);
    }

    fn came(&mut self, _: Duty, _: Came, _: &mut Desk, _: &mut Wants) {}

    fn stirred(&mut self, _: &mut Desk, _: &mut Wants) {}

    fn so_far(&self, _: &Desk) -> String {
        String::new()
    }
}
