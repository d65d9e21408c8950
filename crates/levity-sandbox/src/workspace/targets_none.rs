//! Systems where no workspace can be opened, so nothing here is ever called.

use super::Inner;
use super::sys::Fd;

#[derive(Debug, Default)]
pub(super) struct Targets;

impl Targets {
    pub(super) fn deny(&self, _: &str) -> bool {
        false
    }

    pub(super) fn deny_step(&self, _: &str) -> bool {
        false
    }

    pub(super) fn deny_opened(&self, fd: &Fd) -> bool {
        match *fd {}
    }

    pub(super) fn deny_in(&self, folder: &Fd, _: &str) -> bool {
        match *folder {}
    }

    pub(super) fn are_below(&self, _: &str) -> bool {
        false
    }

    pub(super) fn have_folders(&self) -> bool {
        false
    }
}

impl Inner {
    pub(super) fn find_targets(&self) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        self.deny.denies_entry(dir, name)
    }
}
