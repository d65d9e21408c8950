//! How a connection comes to its end, and why.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;

use crate::ErrorKind;

/// The end of one connection, shared by all that may bring it about and all that want to know of
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct End(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: AtomicU8,
    reader: AtomicWaker,
    cause: Mutex<Option<Cause>>,
}

/// Why a connection was ended from our side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// What kind of failure it is.
    pub(crate) kind: ErrorKind,
    /// One lowercase clause.
    pub(crate) message: String,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    /// It is open.
    Open,
    /// The other side has gone: what it wrote before is still read, and nothing is waited for.
    Gone,
    /// It is over.
    Over,
}

impl End {
    /// The other side has gone.
    pub(crate) fn gone(&self) {
        self.to(Stage::Gone);
    }

    /// The connection is over. The first cause that is given stays.
    pub(crate) fn over(&self, cause: Option<Cause>) {
        if let Some(cause) = cause {
            self.0
                .cause
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(cause);
        }
        self.to(Stage::Over);
    }

    /// Why it was ended from our side; none when the other side ended it, or nobody did.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.0
            .cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How far it is.
    pub(crate) fn stage(&self) -> Stage {
        match self.0.state.load(Ordering::Acquire) {
            0 => Stage::Open,
            1 => Stage::Gone,
            _ => Stage::Over,
        }
    }

    /// Has this reader woken when the stage changes.
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.reader.register(waker);
    }

    fn to(&self, stage: Stage) {
        self.0.state.fetch_max(stage as u8, Ordering::AcqRel);
        self.0.reader.wake();
    }
}
