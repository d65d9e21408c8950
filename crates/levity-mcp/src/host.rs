//! Requests that a server may send to its host: a reply of a model, or an answer of a person.

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
