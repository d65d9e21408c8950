#![allow(unused)]

use levity_core::ToolCx;
use levity_macros::tool;

/// Asks the model for what comes from the call.
#[tool]
async fn look(#[tool(default)] cx: ToolCx) {}

fn main() {}
