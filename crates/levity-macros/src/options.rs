//! The options of a whole tool.
//!
//! Options that contradict each other, such as `read_only` and `destructive`, are rejected here.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{LitStr, Meta, Path, Result};

use crate::errors::Errors;
use crate::{meta, name, timeout};

const FUNCTION: &[&str] = &[
    "read_only",
    "idempotent",
    "undo",
    "destructive",
    "parallel",
    "inline",
    "timeout",
    "name",
    "description",
    "output_schema",
    "crate",
];

/// The path of levity is an option of the whole block.
const METHOD: &[&str] = FUNCTION.split_at(FUNCTION.len() - 1).0;
const BLOCK: &[&str] = FUNCTION.split_at(FUNCTION.len() - 1).1;

/// The position of the attribute, which determines its options.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    Function,
    Method,
    Block,
}

/// The options in `#[tool(..)]`. A flag is stored as the path it was written as, for messages.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) read_only: Option<Path>,
    pub(crate) idempotent: Option<Path>,
    /// The function or method that undoes a call.
    pub(crate) undo: Option<Path>,
    pub(crate) destructive: Option<Path>,
    pub(crate) parallel: Option<Path>,
    pub(crate) inline: Option<Path>,
    pub(crate) output_schema: Option<Path>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) levity: Option<Path>,
}

impl Options {
    pub(crate) fn read(tokens: TokenStream, position: Position, errors: &mut Errors) -> Self {
        let known = match position {
            Position::Function => FUNCTION,
            Position::Method => METHOD,
            Position::Block => BLOCK,
        };
        let mut options = Self::default();
        for (name, meta) in meta::options(tokens, known, errors) {
            errors.take(options.set(&name, meta));
        }
        options.check(errors);
        options
    }

    /// Returns calls on `Hints::new()` that describe the behaviour of the tool.
    pub(crate) fn hints(&self, is_async: bool) -> TokenStream {
        let mut calls = TokenStream::new();
        let flags = [
            (self.read_only.is_some(), quote!(.read_only())),
            (self.idempotent.is_some(), quote!(.idempotent())),
            (self.undo.is_some(), quote!(.compensable())),
            (self.destructive.is_some(), quote!(.destructive())),
            (self.parallel.is_some(), quote!(.parallel())),
            (!is_async && self.inline.is_none(), quote!(.blocking())),
        ];
        calls.extend(
            flags
                .into_iter()
                .filter_map(|(set, call)| set.then_some(call)),
        );
        if let Some(time) = self.timeout {
            let (secs, nanos) = (time.as_secs(), time.subsec_nanos());
            calls.extend(quote!(.timeout(::core::time::Duration::new(#secs, #nanos))));
        }
        calls
    }

    fn set(&mut self, name: &str, meta: Meta) -> Result<()> {
        match name {
            "read_only" => self.read_only = Some(meta::flag(meta)?),
            "idempotent" => self.idempotent = Some(meta::flag(meta)?),
            "undo" => self.undo = Some(meta::path(&meta)?),
            "destructive" => self.destructive = Some(meta::flag(meta)?),
            "parallel" => self.parallel = Some(meta::flag(meta)?),
            "inline" => self.inline = Some(meta::flag(meta)?),
            "output_schema" => self.output_schema = Some(meta::flag(meta)?),
            "timeout" => self.timeout = Some(timeout::read(&meta::string(&meta)?)?),
            "name" => self.name = Some(name::check(meta::string(&meta)?)?),
            "description" => self.description = Some(meta::string(&meta)?),
            _ => self.levity = Some(meta::path(&meta)?),
        }
        Ok(())
    }

    fn check(&self, errors: &mut Errors) {
        if let (Some(_), Some(idempotent)) = (&self.read_only, &self.idempotent) {
            errors.at(
                idempotent,
                "a `read_only` tool is `idempotent` anyway: keep one of the two",
            );
        }
        if let (Some(_), Some(undo)) = (&self.read_only, &self.undo) {
            errors.at(
                undo,
                "a `read_only` tool leaves nothing to undo: keep one of the two",
            );
        }
        if let (Some(_), Some(undo)) = (&self.idempotent, &self.undo) {
            errors.at(
                undo,
                "an `idempotent` tool is repeated without being undone: keep one of the two",
            );
        }
        if let (Some(_), Some(destructive)) = (&self.read_only, &self.destructive) {
            errors.at(
                destructive,
                "a `read_only` tool destroys nothing: keep one of the two",
            );
        }
    }
}
