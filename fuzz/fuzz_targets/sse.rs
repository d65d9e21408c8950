//! Checks that the stream decoder never panics and returns the same result for every chunk size.
//! The first byte of the input sets the chunk size.
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
