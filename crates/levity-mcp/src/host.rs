//! Requests that a server may send to its host: a reply of a model ("sampling"), or an answer of a
//! person ("elicitation").
//!
//! A server is untrusted here: it chooses the text that a model or a person sees, how often it
//! asks, and how much it asks for. So requests are parsed and bounded in `wire`, limited per server
//! in `budget`, and answers are validated in `form` before they leave. Both traits get the name of
//! the server with each request, so that an implementation can decide by it.

pub use self::elicit::{
    AcceptDefaults, Decline, ElicitForm, ElicitReply, ElicitRequest, ElicitUrl, Elicitor,
};
pub use self::model::ModelSampler;
pub use self::refusal::{Refusal, RefusalKind};
pub use self::sample::{SampleReply, SampleRequest, Sampler};

pub(crate) use self::wire::{elicit, sample};

mod budget;
mod elicit;
mod form;
mod model;
mod refusal;
mod sample;
mod wire;

#[cfg(test)]
mod tests;
