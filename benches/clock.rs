//! Reads the CPU time and the memory of this process.

use std::time::Duration;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

/// `CLOCK_PROCESS_CPUTIME_ID` on Linux.
const PROCESS_CPU: i32 = 2;

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// Returns the CPU time of all threads of this process. Other programs do not affect it.
pub fn cpu() -> Duration {
    let mut time = Timespec {
        seconds: 0,
        nanos: 0,
    };
    // SAFETY: the struct has the layout of 64-bit Linux, and outlives the call.
    let status = unsafe { clock_gettime(PROCESS_CPU, &raw mut time) };
    assert_eq!(status, 0, "the CPU clock is available");
    Duration::new(time.seconds as u64, time.nanos as u32)
}

/// Returns the resident memory of this process in bytes.
pub fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}
