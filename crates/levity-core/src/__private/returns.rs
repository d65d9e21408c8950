//! What a function returns becomes a tool's output or error by its type, and a macro sees no types.
//!
//! The compiler decides instead, by the tag-dispatch form of autoref specialisation: a method is
//! looked up on `&&Probe<T>`, where an implementation for `&Probe<T>` is found before one for
//! `Probe<T>`. It returns a tag, and the tag's method does the work. The last resort is there for
//! every `T`, and its bound is on the tag's method, so that a type that does not fit is named in
//! the message.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::schema;
use crate::{ToolError, ToolErrorKind, ToolOutput};

/// Stands for a type while a method is looked up.
#[derive(Debug)]
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Probe<T> {
    /// Stands for `T`.
    #[expect(clippy::new_without_default, reason = "only generated code makes one")]
    pub fn new() -> Self {
        Self(PhantomData)
    }

    /// Stands for the type of a value.
    pub fn of(_: &T) -> Self {
        Self::new()
    }
}

/// Tag: the function returns a `Result`.
#[derive(Debug)]
pub struct Fallible;

/// Tag: the function returns a plain value.
#[derive(Debug)]
pub struct Plain;

/// First choice among what a function returns.
pub trait ReturnsResult {
    /// The tag.
    fn returns(&self) -> Fallible {
        Fallible
    }
}

/// Second choice among what a function returns.
pub trait ReturnsValue {
    /// The tag.
    fn returns(&self) -> Plain {
        Plain
    }
}

impl<T, E> ReturnsResult for &Probe<Result<T, E>> {}
impl<T> ReturnsValue for Probe<T> {}

impl Fallible {
    /// The result as it is.
    pub fn split<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        result
    }

    /// The schema of the value in the result.
    pub fn schema<T: JsonSchema, E>(self, _: Probe<Result<T, E>>) -> Value {
        schema::<T>()
    }
}

impl Plain {
    /// A result without error.
    pub fn split<T>(self, value: T) -> Result<T, Infallible> {
        Ok(value)
    }

    /// The schema of the value.
    pub fn schema<T: JsonSchema>(self, _: Probe<T>) -> Value {
        schema::<T>()
    }
}

/// A value that becomes output in a way of its own.
pub trait Known {
    /// The output.
    fn into_output(self) -> ToolOutput;
}

impl Known for ToolOutput {
    fn into_output(self) -> ToolOutput {
        self
    }
}

impl Known for String {
    fn into_output(self) -> ToolOutput {
        ToolOutput::text(self)
    }
}

impl Known for &str {
    fn into_output(self) -> ToolOutput {
        ToolOutput::text(self)
    }
}

impl Known for () {
    fn into_output(self) -> ToolOutput {
        ToolOutput::text("done")
    }
}

/// Tag: the value becomes output in a way of its own.
#[derive(Debug)]
pub struct Own;

/// Tag: the value becomes JSON.
#[derive(Debug)]
pub struct Json;

/// First choice among the forms of a value.
pub trait FormKnown {
    /// The tag.
    fn form(&self) -> Own {
        Own
    }
}

/// Second choice among the forms of a value.
pub trait FormAny {
    /// The tag.
    fn form(&self) -> Json {
        Json
    }
}

impl<T: Known> FormKnown for &Probe<T> {}
impl<T> FormAny for Probe<T> {}

impl Own {
    /// The output for a value.
    pub fn output<T: Known>(self, value: T) -> Result<ToolOutput, ToolError> {
        Ok(value.into_output())
    }
}

impl Json {
    /// The output for a value.
    pub fn output<T: Serialize>(self, value: T) -> Result<ToolOutput, ToolError> {
        serde_json::to_value(value)
            .map(ToolOutput::value)
            .map_err(|error| {
                ToolError::new(
                    ToolErrorKind::InvalidOutput,
                    "the output could not be written as JSON",
                )
                .with_source(error)
            })
    }
}

/// Tag: the value cannot be shown in a schema.
#[derive(Debug)]
pub struct Hidden;

/// First choice among the ways to show a default.
pub trait ShownJson {
    /// The tag.
    fn shown(&self) -> Json {
        Json
    }
}

/// Second choice among the ways to show a default.
pub trait ShownAny {
    /// The tag.
    fn shown(&self) -> Hidden {
        Hidden
    }
}

impl<T: Serialize> ShownJson for &Probe<T> {}
impl<T> ShownAny for Probe<T> {}

impl Json {
    /// The default in a schema.
    pub fn default<T: Serialize>(self, value: T) -> Option<Value> {
        serde_json::to_value(value).ok()
    }
}

impl Hidden {
    /// No default in a schema.
    pub fn default<T>(self, _: T) -> Option<Value> {
        None
    }
}

/// An error that becomes a tool's error in a way of its own.
pub trait KnownError {
    /// The tool's error.
    fn into_error(self) -> ToolError;
}

impl KnownError for ToolError {
    fn into_error(self) -> ToolError {
        self
    }
}

impl KnownError for Box<dyn Error + Send + Sync> {
    fn into_error(self) -> ToolError {
        match self.downcast::<ToolError>() {
            Ok(error) => *error,
            Err(error) => {
                let failed = ToolError::failed(error.to_string());
                if error.source().is_some() {
                    failed.with_source(Causes(error))
                } else {
                    failed
                }
            }
        }
    }
}

/// What is behind an error, without the error's own text, which is the tool error's message
/// already.
#[derive(Debug)]
struct Causes(Box<dyn Error + Send + Sync>);

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .source()
            .map_or(Ok(()), |cause| fmt::Display::fmt(cause, f))
    }
}

impl Error for Causes {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()?.source()
    }
}

/// Tag: the error becomes a tool's error in a way of its own.
#[derive(Debug)]
pub struct OwnError;

/// Tag: the error has causes, which are kept.
#[derive(Debug)]
pub struct Caused;

/// Tag: the error has only text.
#[derive(Debug)]
pub struct Told;

/// First choice among the reasons of a failure.
pub trait ReasonKnown {
    /// The tag.
    fn reason(&self) -> OwnError {
        OwnError
    }
}

/// Second choice among the reasons of a failure.
pub trait ReasonError {
    /// The tag.
    fn reason(&self) -> Caused {
        Caused
    }
}

/// Third choice among the reasons of a failure.
pub trait ReasonAny {
    /// The tag.
    fn reason(&self) -> Told {
        Told
    }
}

impl<E: KnownError> ReasonKnown for &&Probe<E> {}
impl<E: Error + Send + Sync + 'static> ReasonError for &Probe<E> {}
impl<E> ReasonAny for Probe<E> {}

impl OwnError {
    /// The tool's error for an error.
    pub fn error<E: KnownError>(self, error: E) -> ToolError {
        error.into_error()
    }
}

impl Caused {
    /// The tool's error for an error.
    pub fn error<E: Error + Send + Sync + 'static>(self, error: E) -> ToolError {
        OwnError.error::<Box<dyn Error + Send + Sync>>(Box::new(error))
    }
}

impl Told {
    /// The tool's error for an error. `anyhow` and its kin tell their causes in the alternate form.
    pub fn error<E: fmt::Display>(self, error: E) -> ToolError {
        ToolError::failed(format!("{error:#}"))
    }
}
