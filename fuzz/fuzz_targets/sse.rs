//! No bytes panic, and how a stream is cut changes nothing. The first byte says how long the pieces
//! are.
#![no_main]

use levity_llm::__private::decode_chat_stream;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, stream)) = bytes.split_first() else { return };
    let whole = decode_chat_stream([stream]);
    for length in [1, usize::from(*first).max(1)] {
        assert_eq!(decode_chat_stream(stream.chunks(length)), whole);
    }
});
