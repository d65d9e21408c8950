//! Converts the return value of a function to a tool's output or error by its type, which a macro
//! cannot see.
//!
//! The compiler decides instead, by the tag-dispatch form of autoref specialization. A method is
//! looked up on `&&Probe<T>`, where an implementation for `&Probe<T>` has precedence over one for
//! `Probe<T>`. It returns a tag, and the tag's method does the work. The last fallback exists for
//! every `T`, and its bound is on the tag's method. So the compiler's message names a type that
//! does not fit.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::schema;
use crate::{ToolError, ToolErrorKind, ToolOutput};

/// Represents a type during method lookup.
#[derive(Debug)]
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Probe<T> {
    /// Creates a probe for `T`.
    #[expect(
        clippy::new_without_default,
        reason = "only generated code creates one"
    )]
    pub fn new() -> Self {
        Self(PhantomData)
    }

    /// Creates a probe for the type of a value.
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

/// First choice for the return type of a function.
pub trait ReturnsResult {
    /// Returns the tag of this choice.
    fn returns(&self) -> Fallible {
        Fallible
    }
}

/// Second choice for the return type of a function.
pub trait ReturnsValue {
    /// Returns the tag of this choice.
    fn returns(&self) -> Plain {
        Plain
    }
}

impl<T, E> ReturnsResult for &Probe<Result<T, E>> {}
impl<T> ReturnsValue for Probe<T> {}

impl Fallible {
    /// Returns the result unchanged.
    pub fn split<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        result
    }

    /// Returns the schema of the value in the result.
    pub fn schema<T: JsonSchema, E>(self, _: Probe<Result<T, E>>) -> Value {
        schema::<T>()
    }
}

impl Plain {
    /// Wraps the value in a result without error.
    pub fn split<T>(self, value: T) -> Result<T, Infallible> {
        Ok(value)
    }

    /// Returns the schema of the value.
    pub fn schema<T: JsonSchema>(self, _: Probe<T>) -> Value {
        schema::<T>()
    }
}

/// A value with a custom conversion to output.
pub trait Known {
    /// Converts the value to output.
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

/// Tag: the value has a custom conversion to output.
#[derive(Debug)]
pub struct Own;

/// Tag: the value becomes JSON.
#[derive(Debug)]
pub struct Json;

/// First choice for the form of a value.
pub trait FormKnown {
    /// Returns the tag of this choice.
    fn form(&self) -> Own {
        Own
    }
}

/// Second choice for the form of a value.
pub trait FormAny {
    /// Returns the tag of this choice.
    fn form(&self) -> Json {
        Json
    }
}

impl<T: Known> FormKnown for &Probe<T> {}
impl<T> FormAny for Probe<T> {}

impl Own {
    /// Returns the output for a value.
    pub fn output<T: Known>(self, value: T) -> Result<ToolOutput, ToolError> {
        Ok(value.into_output())
    }
}

impl Json {
    /// Returns the output for a value.
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

/// First choice for showing a default.
pub trait ShownJson {
    /// Returns the tag of this choice.
    fn shown(&self) -> Json {
        Json
    }
}

/// Second choice for showing a default.
pub trait ShownAny {
    /// Returns the tag of this choice.
    fn shown(&self) -> Hidden {
        Hidden
    }
}

impl<T: Serialize> ShownJson for &Probe<T> {}
impl<T> ShownAny for Probe<T> {}

impl Json {
    /// Returns the default for a schema.
    pub fn default<T: Serialize>(self, value: T) -> Option<Value> {
        serde_json::to_value(value).ok()
    }
}

impl Hidden {
    /// Returns no default for a schema.
    pub fn default<T>(self, _: T) -> Option<Value> {
        None
    }
}

/// An error with a custom conversion to a tool's error.
pub trait KnownError {
    /// Converts the error to a tool's error.
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

/// The causes of an error without its own text, which is already the message of the tool error.
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

/// Tag: the error has a custom conversion to a tool's error.
#[derive(Debug)]
pub struct OwnError;

/// Tag: the error has causes, which are preserved.
#[derive(Debug)]
pub struct Caused;

/// Tag: the error has only text.
#[derive(Debug)]
pub struct Told;

/// First choice for the reason of a failure.
pub trait ReasonKnown {
    /// Returns the tag of this choice.
    fn reason(&self) -> OwnError {
        OwnError
    }
}

/// Second choice for the reason of a failure.
pub trait ReasonError {
    /// Returns the tag of this choice.
    fn reason(&self) -> Caused {
        Caused
    }
}

/// Third choice for the reason of a failure.
pub trait ReasonAny {
    /// Returns the tag of this choice.
    fn reason(&self) -> Told {
        Told
    }
}

impl<E: KnownError> ReasonKnown for &&Probe<E> {}
impl<E: Error + Send + Sync + 'static> ReasonError for &Probe<E> {}
impl<E> ReasonAny for Probe<E> {}

impl OwnError {
    /// Returns the tool's error for an error.
    pub fn error<E: KnownError>(self, error: E) -> ToolError {
        error.into_error()
    }
}

impl Caused {
    /// Returns the tool's error for an error.
    pub fn error<E: Error + Send + Sync + 'static>(self, error: E) -> ToolError {
        OwnError.error::<Box<dyn Error + Send + Sync>>(Box::new(error))
    }
}

impl Told {
    /// Returns the tool's error for an error. `anyhow` and similar types show their causes in the
    /// alternate form.
    pub fn error<E: fmt::Display>(self, error: E) -> ToolError {
        ToolError::failed(format!("{error:#}"))
    }
}
