//! Whole scenarios, through the facade, as a program that depends on levity would meet them.

mod ask;
mod bad_input;
mod budget;
mod builtin;
mod cancel;
mod compaction;
mod control;
mod conversation;
mod crash;
mod delegate;
mod first_program;
mod fork;
mod limits;
mod local_model;
mod long_results;
mod lost;
mod order;
mod recall;
mod replay;
mod resume;
mod stops;
mod strategies;
mod support;
mod typed;
mod upgrade;
mod wait;
