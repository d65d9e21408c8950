//! The state that ends a connection, and the cause of its end.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;

use crate::ErrorKind;

/// The closing state of one connection, shared by every part that may close it or must know about
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseState(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: AtomicU8,
    reader: AtomicWaker,
    cause: Mutex<Option<CloseCause>>,
}

/// The reason why levity closed a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloseCause {
    /// The kind of the failure.
    pub(crate) kind: ErrorKind,
    /// The message: one lowercase clause.
    pub(crate) message: String,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The connection is open.
    Open,
    /// The server has closed its side: data that it wrote before is still read, but nothing is
    /// awaited.
    PeerClosed,
    /// The connection is closed.
    Closed,
}

impl CloseState {
    /// Records that the server has closed its side.
    pub(crate) fn peer_closed(&self) {
        self.advance_to(Stage::PeerClosed);
    }

    /// Closes the connection. The first cause is retained.
    pub(crate) fn close(&self, cause: Option<CloseCause>) {
        if let Some(cause) = cause {
            self.0
                .cause
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(cause);
        }
        self.advance_to(Stage::Closed);
    }

    /// Returns the reason why levity closed the connection; `None` if it did not.
    pub(crate) fn cause(&self) -> Option<CloseCause> {
        self.0
            .cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the current stage.
    pub(crate) fn stage(&self) -> Stage {
        match self.0.state.load(Ordering::Acquire) {
            0 => Stage::Open,
            1 => Stage::PeerClosed,
            _ => Stage::Closed,
        }
    }

    /// Registers a reader to be woken when the stage changes.
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.reader.register(waker);
    }

    fn advance_to(&self, stage: Stage) {
        self.0.state.fetch_max(stage as u8, Ordering::AcqRel);
        self.0.reader.wake();
    }
}
