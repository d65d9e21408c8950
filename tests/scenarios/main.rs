//! Whole scenarios, through the facade, as a program that depends on levity would meet them.

mod bad_input;
mod cancel;
mod control;
mod crash;
mod delegate;
mod first_program;
mod limits;
mod order;
mod replay;
mod resume;
mod strategies;
mod support;
mod typed;
mod upgrade;
