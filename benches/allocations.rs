//! Counts allocations while a counter is active.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system allocator. It counts only while a [`Counter`] exists, so that counting does not slow
/// down measurements.
pub struct CountingAllocator;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Allocations since the start of a counter.
pub struct Count {
    /// Number of calls of the allocator, including reallocations.
    pub calls: u64,
    /// Number of allocated bytes, including freed ones.
    pub bytes: u64,
    /// Number of bytes that are not freed.
    pub live: i64,
    /// Maximum number of bytes in use at once.
    pub peak: i64,
}

/// A counter that starts at zero and stops when it is dropped.
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

fn record_allocation(bytes: usize) {
    if ON.load(Relaxed) {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
        add_live_bytes(bytes as i64);
    }
}

fn record_free(bytes: usize) {
    if ON.load(Relaxed) {
        LIVE.fetch_sub(bytes as i64, Relaxed);
    }
}

fn add_live_bytes(bytes: i64) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record_allocation(layout.size());
        // SAFETY: the caller fulfils the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record_allocation(layout.size());
        // SAFETY: the caller fulfils the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        record_free(layout.size());
        // SAFETY: the caller fulfils the contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        record_free(layout.size());
        record_allocation(size);
        // SAFETY: the caller fulfils the contract.
        unsafe { System.realloc(block, layout, size) }
    }
}
