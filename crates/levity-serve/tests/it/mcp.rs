//! The MCP server, as clients of every version see it.

mod asks;
mod fixture;
mod hostile;
mod http;
mod lists;
mod peers;
mod raw_http;
mod stdio;
mod tasks;
mod tenants;
mod tools;
