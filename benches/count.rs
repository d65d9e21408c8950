//! Counts what is allocated, while somebody wants to know.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator. Nothing is counted unless asked for, so that counting does not slow down
/// what is timed.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// What was allocated from the start of a count.
pub struct Count {
    /// Calls of the allocator; growing a block is one too.
    pub calls: u64,
    /// Bytes asked for, those given back included.
    pub bytes: u64,
    /// Bytes not given back.
    pub live: i64,
    /// The most that was in use at once.
    pub peak: i64,
}

/// Counts from zero, until it is dropped.
pub struct Counter(());

impl Counter {
    pub fn start() -> Self {
        CALLS.store(0, Relaxed);
        BYTES.store(0, Relaxed);
        LIVE.store(0, Relaxed);
        PEAK.store(0, Relaxed);
        ON.store(true, Relaxed);
        Self(())
    }

    pub fn read(&self) -> Count {
        Count {
            calls: CALLS.load(Relaxed),
            bytes: BYTES.load(Relaxed),
            live: LIVE.load(Relaxed),
            peak: PEAK.load(Relaxed),
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        ON.store(false, Relaxed);
    }
}

fn took(bytes: usize) {
    if ON.load(Relaxed) {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
        change(bytes as i64);
    }
}

fn gave(bytes: usize) {
    if ON.load(Relaxed) {
        LIVE.fetch_sub(bytes as i64, Relaxed);
    }
}

fn change(bytes: i64) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps to the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps to the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: the caller keeps to the contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave(layout.size());
        took(size);
        // SAFETY: the caller keeps to the contract.
        unsafe { System.realloc(block, layout, size) }
    }
}
