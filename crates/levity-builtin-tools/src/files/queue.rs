//! The jobs of a search, shared among threads.
//!
//! A search ends when the queue is empty and no thread works on a job that could add more. Both are
//! in one lock, so the end is noticed exactly once per thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::walk::Folder;

/// A unit of work in a search.
#[derive(Debug)]
pub(super) enum Job {
    /// The folder at which the search starts.
    Folder(Folder),
    /// A folder inside another one, which is opened only when the job runs.
    Below(Folder, String),
    /// A batch of files of a folder.
    Files(Folder, Vec<String>),
}

/// A last-in, first-out queue of jobs. This order keeps few folders open: only the parents of the
/// folders in progress.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    jobs: Vec<Job>,
    /// The number of jobs in progress, which may add more.
    busy: usize,
}

impl Queue {
    /// The queue starts with one job; all others follow from it.
    pub(super) fn new(first: Job) -> Self {
        Self {
            state: Mutex::new(State {
                jobs: vec![first],
                busy: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns the next job, or `None` when all jobs are done.
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

    /// Wakes the waiting threads. The last job is taken first.
    pub(super) fn add(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        self.lock().jobs.extend(jobs);
        self.changed.notify_all();
    }

    /// Marks a job from [`next`](Self::next) as done.
    pub(super) fn done(&self) {
        let mut state = self.lock();
        state.busy -= 1;
        if state.busy == 0 && state.jobs.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Discards all remaining jobs.
    pub(super) fn close(&self) {
        self.lock().jobs.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
