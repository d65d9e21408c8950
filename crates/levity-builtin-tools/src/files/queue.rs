//! The work of a search, shared among threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::walk::Folder;

/// A piece of work.
#[derive(Debug)]
pub(super) enum Job {
    /// The folder to begin with.
    Folder(Folder),
    /// A folder in another one, which is opened only when its turn comes.
    Below(Folder, String),
    /// Files of a folder.
    Files(Folder, Vec<String>),
}

/// Jobs, of which the last to come is the first to go. So few folders are open at a time: those
/// above the ones that are worked on.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    jobs: Vec<Job>,
    /// How many jobs are under way, and may lead to more.
    busy: usize,
}

impl Queue {
    pub(super) fn new(first: Job) -> Self {
        Self {
            state: Mutex::new(State {
                jobs: vec![first],
                busy: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// The next job; nothing when all is done.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop() {
                state.busy += 1;
                return Some(job);
            }
            if state.busy == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn add(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        self.lock().jobs.extend(jobs);
        self.changed.notify_all();
    }

    /// A job that [`next`](Self::next) gave is done.
    pub(super) fn done(&self) {
        let mut state = self.lock();
        state.busy -= 1;
        if state.busy == 0 && state.jobs.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Forgets all jobs that are left.
    pub(super) fn close(&self) {
        self.lock().jobs.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
