//! Internal entry points for this project's benchmarks and fuzzing, without stability guarantees.

use levity_core::{ModelError, Response};

/// Decodes a stream of OpenAI's Chat Completions from bytes in memory.
///
/// # Errors
/// Returns the same errors as a model that reads this stream from a server.
pub fn decode_chat_stream<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Response, ModelError> {
    crate::http::fold(crate::chat::Chat::compatible(), chunks)
}
