#![allow(unused)]

use levity_macros::tool;
use std::borrow::Cow;

use levity_core::ToolCx;

/// Takes what it cannot own.
#[tool]
async fn read(
    path: &str,
    bytes: &[u8],
    number: &u64,
    maybe: Option<&str>,
    cow: Cow<'_, str>,
    cx: &mut ToolCx,
) {
}

fn main() {}
