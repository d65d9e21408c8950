//! The journals of this process that drive runs.
//!
//! Two journals of one process may use the same file. If one has released a run and not yet written
//! that, the other finds it here and waits for it instead of reporting that the run is busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::writer::Writer;

/// The owners of this process.
static OWNERS: Mutex<Vec<(i64, Weak<Writer>)>> = Mutex::new(Vec::new());

fn in_process() -> MutexGuard<'static, Vec<(i64, Weak<Writer>)>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers an owner, until [`forget`] is called.
pub(super) fn note(owner: i64, writer: &Arc<Writer>) {
    in_process().push((owner, Arc::downgrade(writer)));
}

pub(super) fn forget(owner: i64) {
    in_process().retain(|(id, _)| *id != owner);
}

/// Returns the writer of an owner, if it is in this process.
pub(super) fn in_this_process(owner: i64) -> Option<Arc<Writer>> {
    in_process()
        .iter()
        .find(|(id, _)| *id == owner)?
        .1
        .upgrade()
}
