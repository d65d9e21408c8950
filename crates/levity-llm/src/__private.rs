//! For this project's benchmarks and fuzzing; not for anybody else, and not kept stable.

use levity_core::{ModelError, Response};

/// Puts together what a server of OpenAI's Chat Completions streams, from bytes that are there
/// already.
///
/// # Errors
/// As a model that reads the same from a server.
pub fn decode_chat_stream<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Response, ModelError> {
    crate::http::fold(crate::chat::Chat::compatible(), chunks)
}
