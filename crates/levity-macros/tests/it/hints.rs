use std::time::Duration;

use levity_core::{Hints, Tool};
use levity_macros::tool;

/// Nothing.
#[tool]
async fn _plain() {}

/// Nothing.
#[tool(read_only, timeout = "250ms")]
async fn _reads() {}

/// Nothing.
#[tool(idempotent, destructive, parallel, timeout = "1.5m")]
async fn _writes() {}

/// Nothing.
#[tool]
fn _blocks() {}

/// Nothing.
#[tool(inline)]
fn _returns_at_once() {}

#[track_caller]
fn check(tool: &dyn Tool, expected: &Hints) {
    assert_eq!(tool.spec().hints, *expected);
}

#[test]
fn tool_options_become_hints() {
    check(&_plain, &Hints::new());
    check(
        &_reads,
        &Hints::new().read_only().timeout(Duration::from_millis(250)),
    );
    check(
        &_writes,
        &Hints::new()
            .idempotent()
            .destructive()
            .parallel()
            .timeout(Duration::from_secs(90)),
    );
}

#[test]
fn only_sync_functions_are_blocking() {
    check(&_blocks, &Hints::new().blocking());
    check(&_returns_at_once, &Hints::new());
}
