//! Decodes replies of the Gemini API.
//!
//! A stream consists of chunks, each a complete JSON object with new parts. There is no end mark:
//! the reply is complete if a candidate has a finish reason or the prompt was blocked. Chunks are
//! parsed strictly first, which is fast, and leniently if that fails.
//!
//! A reply that was withheld completely is an error, because there is nothing to show. One that was
//! withheld in the middle keeps its beginning and ends with `ContentFilter`.
//!
//! A chunk with a thought, followed by the last chunk with a signed call:
//!
//! ```json
//! {"candidates": [{"content": {"parts": [{"text": "The user asks ..", "thought": true}]}}]}
//! {"candidates": [{"content": {"parts": [{"functionCall": {"name": "now", "args": {}},
//!     "thoughtSignature": "CqQB.."}]}, "finishReason": "STOP"}],
//!  "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 31}}
//! ```

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use levity_core::{
    CallId, Delta, Finish, Media, ModelError, ModelErrorKind, Part, ProviderState, Usage,
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::NAME;
use super::args::Args;
use super::chunks::{Blob, Call, Candidate, Chunk, Counts, Piece, remove_invalid_fields};
use crate::http::{Decode, Sink, find_failure};

/// The state of a partially decoded reply.
///
/// At most one call is open, because Gemini completes a call before it starts the next.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The number of calls that have started.
    calls: u32,
    /// A call whose arguments are still arriving.
    open: Option<Open>,
    /// True if the last content was a thought that is not marked as Gemini's yet.
    has_unmarked_thought: bool,
    /// True if anything visible was emitted, so a later block only truncates the reply.
    has_content: bool,
    finish: Option<String>,
    /// The reason that the prompt or the reply was withheld.
    blocked: Option<String>,
}

/// A call whose fragments arrive, and the state that it will have.
#[derive(Debug, Default)]
struct Open {
    index: u32,
    args: Args,
    /// The state that is sent back with the call.
    fields: Map<String, Value>,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let data = data.trim_ascii();
        if data.is_empty() || data == b"[DONE]" {
            return Ok(());
        }
        match serde_json::from_slice::<Chunk>(data) {
            Ok(chunk) if name != "error" => self.chunk(chunk, sink),
            _ => {
                let mut value: Value = serde_json::from_slice(data).map_err(unreadable)?;
                if name == "error" {
                    return Err(find_failure(&json!({ "error": value.take() }))
                        .unwrap_or_default()
                        .into_error(None));
                }
                self.lenient_chunk(value, sink)
            }
        }
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError> {
        if self.finish.is_none() && self.blocked.is_none() {
            return Err(ModelError::new(
                ModelErrorKind::Transport,
                "the reply ended before it was complete",
            ));
        }
        self.finish(sink)
    }
}

/// Decodes a reply that arrived as a single value, or a whole stream as one list.
///
/// Google sends a stream as one list if the address lacks `alt=sse`.
///
/// # Errors
/// Returns `Malformed` if there is no candidate and no reason for that.
pub(super) fn whole(reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
    let mut decoder = Decoder::default();
    let pieces = match reply {
        Value::Array(pieces) => pieces.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut any = false;
    for piece in pieces {
        any |= piece
            .get("candidates")
            .is_some_and(|list| list.as_array().is_none_or(|list| !list.is_empty()));
        match Chunk::deserialize(piece) {
            Ok(chunk) => decoder.chunk(chunk, sink)?,
            Err(_) => decoder.lenient_chunk(piece.clone(), sink)?,
        }
    }
    if !any && decoder.blocked.is_none() {
        return Err(ModelError::new(
            ModelErrorKind::Malformed,
            "the reply has no candidates",
        ));
    }
    decoder.finish(sink)
}

impl Decoder {
    /// Decodes a chunk in which a field has an unexpected type.
    ///
    /// A list is treated as several chunks; a list within a list is skipped.
    fn lenient_chunk(&mut self, mut value: Value, sink: &mut Sink) -> Result<(), ModelError> {
        if let Value::Array(pieces) = value {
            return pieces.into_iter().try_for_each(|piece| match piece {
                Value::Array(_) => Ok(()),
                piece => self.lenient_chunk(piece, sink),
            });
        }
        remove_invalid_fields(&mut value);
        let chunk = Chunk::deserialize(value).map_err(unreadable)?;
        self.chunk(chunk, sink)
    }

    /// Handles a chunk: an error, the model's version, counts, a blocked prompt, and the first
    /// candidate.
    fn chunk(&mut self, chunk: Chunk, sink: &mut Sink) -> Result<(), ModelError> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(find_failure(&json!({ "error": error }))
                .unwrap_or_default()
                .into_error(None));
        }
        sink.model(chunk.model_version.as_str().unwrap_or_default());
        if let Some(usage) = chunk.usage_metadata.and_then(|counts| count(&counts)) {
            sink.push(Delta::Usage(usage));
        }
        let block = chunk.prompt_feedback.and_then(|feedback| {
            let reason = feedback.block_reason.filter(|reason| !reason.is_empty())?;
            Some(withheld(
                "the prompt was blocked",
                &reason,
                feedback.block_reason_message.as_deref(),
            ))
        });
        self.blocked = block.or_else(|| self.blocked.take());
        let first = |candidate: &Candidate| candidate.index.unwrap_or(0) == 0;
        chunk
            .candidates
            .into_iter()
            .flatten()
            .filter(first)
            .try_for_each(|candidate| self.candidate(candidate, sink))
    }

    /// Handles a candidate: its searches, its parts and its finish reason.
    fn candidate(&mut self, candidate: Candidate, sink: &mut Sink) -> Result<(), ModelError> {
        if let Some(searches) = searches(&candidate.grounding_metadata) {
            let mut usage = Usage::default();
            usage.searches = Some(searches);
            sink.push(Delta::Usage(usage));
        }
        let parts = candidate.content.and_then(|content| content.parts);
        parts
            .into_iter()
            .flatten()
            .try_for_each(|piece| self.piece(piece, sink))?;
        let has_text = |word: &String| !word.is_empty() && word != "FINISH_REASON_UNSPECIFIED";
        let Some(word) = candidate.finish_reason.filter(has_text) else {
            return Ok(());
        };
        if is_filter(&word) {
            self.blocked = Some(withheld(
                "the reply was withheld",
                &word,
                candidate.finish_message.as_deref(),
            ));
        }
        self.finish = Some(word);
        Ok(())
    }

    /// Emits a part. Text without state becomes a delta that later text extends; text with state
    /// stays a part of its own.
    fn piece(&mut self, piece: Piece, sink: &mut Sink) -> Result<(), ModelError> {
        let Piece {
            text,
            thought,
            call,
            data,
            mut rest,
        } = piece;
        let is_thought =
            thought && call.is_none() && data.is_none() && text.is_some() && rest.is_empty();
        if thought {
            rest.insert("thought".to_owned(), true.into());
        }
        match (call, data, text) {
            (Some(call), ..) => return self.call(call, rest, sink),
            (_, Some(data), _) => self.emit(Delta::Part(media_part(data, rest)), sink),
            (.., Some(text)) if is_thought => {
                if !text.is_empty() {
                    (self.has_content, self.has_unmarked_thought) = (true, true);
                    sink.push(Delta::Thinking(text));
                }
            }
            (.., Some(text)) if rest.is_empty() => {
                if !text.is_empty() {
                    self.emit(Delta::Text(text), sink);
                }
            }
            // A signature belongs to its own part, so this part stays separate.
            (.., Some(text)) => {
                let mut part = if thought {
                    Part::thinking(text)
                } else {
                    Part::text(text)
                };
                part.set_opaque(own(rest));
                self.emit(Delta::Part(part), sink);
            }
            _ if rest.is_empty() => {}
            _ => self.emit(Delta::Part(Part::Opaque(own(rest))), sink),
        }
        Ok(())
    }

    /// Emits content that is not a thought, after the mark of the thoughts before it.
    fn emit(&mut self, delta: Delta, sink: &mut Sink) {
        self.mark_thought(sink);
        self.has_content = true;
        sink.push(delta);
    }

    /// Marks the previous thoughts as Gemini's own: only those are sent back to it.
    fn mark_thought(&mut self, sink: &mut Sink) {
        if std::mem::replace(&mut self.has_unmarked_thought, false) {
            sink.push(Delta::Opaque(ProviderState::new(
                NAME,
                json!({"thought": true}),
            )));
        }
    }

    /// Processes a call, or a fragment of one.
    ///
    /// A fragment without a name continues the open call. A name closes the open call and starts
    /// another.
    fn call(
        &mut self,
        call: Call,
        rest: Map<String, Value>,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        let name = call.name.unwrap_or_default();
        if !name.is_empty() || self.open.is_none() {
            self.close(false, sink);
            let is_empty = name.is_empty() && call.args.is_none() && call.partial_args.is_none();
            if is_empty {
                return Ok(());
            }
            self.begin(name, call.id.unwrap_or_default(), sink);
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.args.hold(
            rest.iter()
                .map(|(name, value)| name.len() + value.to_string().len())
                .sum(),
        )?;
        open.fields.extend(rest);
        if let Some(args) = call.args.filter(|args| !args.is_null()) {
            open.args.set(args);
        }
        call.partial_args
            .into_iter()
            .flatten()
            .try_for_each(|partial| open.args.add(partial))?;
        if call.will_continue != Some(true) {
            self.close(false, sink);
        }
        Ok(())
    }

    /// Starts a call and emits its name. Arguments are emitted at its end, because a value may
    /// still change.
    fn begin(&mut self, name: String, id: String, sink: &mut Sink) {
        let index = self.calls;
        self.calls = self.calls.saturating_add(1);
        let mut open = Open {
            index,
            ..Open::default()
        };
        // Ids from Gemini are sent back to it; ids created here are not.
        if !id.is_empty() {
            open.fields
                .insert("functionCall".to_owned(), json!({ "id": id }));
        }
        self.emit(
            Delta::CallStart {
                index,
                id: CallId::new(id),
                name,
            },
            sink,
        );
        self.open = Some(open);
    }

    /// Emits the arguments and the state of the open call. `cut` makes the arguments invalid, so
    /// that a truncated call is never executed.
    fn close(&mut self, cut: bool, sink: &mut Sink) {
        let Some(Open {
            index,
            args,
            fields,
        }) = self.open.take()
        else {
            return;
        };
        let text = if cut { args.truncated() } else { args.whole() };
        sink.push(Delta::CallArgs { index, text });
        if !fields.is_empty() {
            sink.push(Delta::Opaque(own(fields)));
        }
    }

    /// Ends the reply: closes the open call and emits the finish reason.
    ///
    /// # Errors
    /// Returns `ContentFiltered` with Google's reason if nothing but a block arrived.
    fn finish(&mut self, sink: &mut Sink) -> Result<(), ModelError> {
        let stopped = matches!(self.finish.as_deref(), None | Some("STOP"));
        self.close(!stopped, sink);
        self.mark_thought(sink);
        let called = self.calls > 0;
        let finish = match (&self.blocked, self.finish.as_deref()) {
            (Some(reason), _) if !self.has_content => {
                return Err(ModelError::new(
                    ModelErrorKind::ContentFiltered,
                    reason.as_str(),
                ));
            }
            (Some(_), _) => Finish::ContentFilter,
            (None, None) => return Ok(()),
            (None, Some("STOP")) if !called => Finish::Stop,
            (None, Some("MAX_TOKENS")) => Finish::Length,
            // These reasons describe a problem with the call, which is still a call.
            (None, Some(word)) if !called || word.contains("CALL") => {
                Finish::Other(word.to_owned())
            }
            (None, Some(_)) => Finish::ToolCalls,
        };
        sink.push(Delta::Finish(finish));
        Ok(())
    }
}

/// Returns `true` if a finish reason means that the rest is withheld.
///
/// Reasons for images have the prefix `IMAGE_` and the same meaning.
fn is_filter(word: &str) -> bool {
    let words = [
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
    ];
    words.contains(&word.strip_prefix("IMAGE_").unwrap_or(word))
}

/// Describes a block in words: the reason, and Google's explanation if there is one.
fn withheld(what: &str, reason: &str, message: Option<&str>) -> String {
    let (message, reason) = (
        whole_words(message.unwrap_or_default(), 500),
        whole_words(reason, 100),
    );
    match message {
        "" => format!("{what}: `{reason}`"),
        message => format!("{what}: `{reason}`, {message}"),
    }
}

/// Returns as many whole words of a text as fit. Keys of the request are removed from errors later,
/// and a part of one would not be recognised.
fn whole_words(text: &str, limit: usize) -> &str {
    let cut = levity_core::text::head(text.trim(), limit);
    let goes_on = text.trim()[cut.len()..].starts_with(|c: char| !c.is_whitespace());
    let whole = if goes_on {
        cut.trim_end_matches(|c: char| !c.is_whitespace())
    } else {
        cut
    };
    whole.trim_end()
}

/// Creates the state of a part, which only this protocol reads.
fn own(fields: Map<String, Value>) -> ProviderState {
    ProviderState::new(NAME, Value::Object(fields))
}

/// Converts an image, audio or video from Gemini. Media that cannot be decoded stay unchanged.
fn media_part(data: Blob, mut rest: Map<String, Value>) -> Part {
    let mime = data.mime_type.unwrap_or_default();
    let Some(bytes) = decoded(&data.data) else {
        rest.insert(
            "inlineData".to_owned(),
            json!({"mimeType": mime, "data": data.data}),
        );
        return Part::Opaque(own(rest));
    };
    let mut media = Media::bytes(mime, bytes);
    media.opaque = (!rest.is_empty()).then(|| own(rest));
    Part::Media(media)
}

/// Decodes base64 in either alphabet, with or without padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) {
        &URL_SAFE
    } else {
        &STANDARD
    };
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}

/// Returns the number of searches that a reply is grounded in, each of which has a fee. Empty
/// queries have none.
fn searches(grounding: &Value) -> Option<u64> {
    let queries = grounding.get("webSearchQueries")?.as_array()?;
    let has_text = |query: &&Value| query.as_str().is_none_or(|query| !query.trim().is_empty());
    Some(queries.iter().filter(has_text).count() as u64).filter(|count| *count > 0)
}

/// Converts token counts. Gemini counts thoughts and the input of its own tools separately.
///
/// The output includes thoughts. Without a count of the reply, the output is the total minus the
/// input.
fn count(counts: &Counts) -> Option<Usage> {
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    let mut usage = Usage::default();
    usage.input = counts
        .prompt_token_count
        .and_then(|tokens| sum(Some(tokens), counts.tool_use_prompt_token_count));
    usage.output = sum(counts.candidates_token_count, counts.thoughts_token_count)
        .or_else(|| counts.total_token_count?.checked_sub(usage.input?));
    usage.cached = counts.cached_content_token_count;
    usage.reasoning = counts.thoughts_token_count;
    let tiers = [&counts.service_tier, &counts.traffic_type]
        .into_iter()
        .filter_map(Value::as_str);
    usage.priority = tiers
        .into_iter()
        .any(|tier| tier.to_ascii_lowercase().ends_with("priority"));
    (usage != Usage::default()).then_some(usage)
}

/// Creates the error for a chunk that is not JSON, which is retryable if it is only incomplete.
fn unreadable(error: serde_json::Error) -> ModelError {
    // A stream that is truncated within a chunk ends with the start of one.
    let (kind, message) = match error.is_eof() {
        true => (
            ModelErrorKind::Transport,
            "the reply ended before it was complete",
        ),
        false => (
            ModelErrorKind::Malformed,
            "cannot parse a chunk of the reply",
        ),
    };
    ModelError::new(kind, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::whole_words;

    #[test]
    fn truncated_text_ends_with_whole_word() {
        for (text, limit, expected) in [
            (
                "blocked for AIzaSecret here",
                100,
                "blocked for AIzaSecret here",
            ),
            ("blocked for AIzaSecret here", 20, "blocked for"),
            ("blocked for AIzaSecret here", 22, "blocked for AIzaSecret"),
            ("AIzaSecret", 5, ""),
            ("é é", 3, "é"),
            ("", 5, ""),
        ] {
            assert_eq!(whole_words(text, limit), expected, "{text} {limit}");
        }
    }
}
