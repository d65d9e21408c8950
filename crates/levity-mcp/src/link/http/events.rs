//! The server-sent events of one response.

use std::sync::Arc;

use reqwest::Response;

use super::call::Caller;
use super::parse::{Event, Parser};
use crate::{ErrorKind, Result};

/// Reads events from a response as they arrive.
#[derive(Debug)]
pub(crate) struct Events {
    caller: Arc<Caller>,
    response: Response,
    parser: Parser,
}

impl Events {
    pub(crate) fn new(caller: Arc<Caller>, response: Response) -> Self {
        let parser = Parser::new(caller.limits.max_message);
        Self {
            caller,
            response,
            parser,
        }
    }

    /// Waits for the next event; returns `None` at the end. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.parser.pop() {
                return Ok(Some(event));
            }
            let chunk = self
                .response
                .chunk()
                .await
                .map_err(|error| self.caller.transport_error(&error))?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.parser
                .push(&chunk)
                .map_err(|_| too_large(&self.caller))?;
        }
    }

    /// Reads and discards the rest, so that the connection can be reused.
    pub(crate) async fn drain(&mut self) {
        while let Ok(Some(_)) = self.response.chunk().await {}
    }
}

/// Reads a whole body.
pub(crate) async fn body(caller: &Caller, mut response: Response, max: usize) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    if response
        .content_length()
        .is_some_and(|length| length > max as u64)
    {
        return Err(too_large(caller));
    }
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| caller.transport_error(&error))?
    {
        if body.len() + chunk.len() > max {
            return Err(too_large(caller));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn too_large(caller: &Caller) -> crate::Error {
    let max = caller.limits.max_message;
    caller.error(
        ErrorKind::TooLarge,
        format!("its response is larger than {max} bytes; raise `max_message` to accept it"),
    )
}
