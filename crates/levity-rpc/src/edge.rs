//! Finds the id of a message that cannot be read as a whole.
//!
//! A peer may send a response that is longer than the limit, or one that is not valid JSON. The
//! call that waits for it must fail, and not wait until its timeout. Its id is usually among the
//! first keys of the message (`{"jsonrpc": "2.0", "id": 7, ..`) or among the last ones (`.., "id":
//! 7}`). So [`LineBuffer`](crate::LineBuffer) retains both ends of a long line, and this module
//! searches them.
//!
//! An id inside the payload must not be mistaken for the id of the message. Therefore the search
//! accepts only keys at the outermost level, and only ids that a caller waits for.

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::mcp::RequestId;

/// The number of bytes to inspect at each end of a message: 4 KiB.
///
/// [`Line::TooLong`](crate::Line::TooLong) retains this many bytes of each end.
pub const EDGE: usize = 4 << 10;

/// Finds the id of the message with these first and last bytes. Ids that are not `known` are
/// skipped.
///
/// The function never fails: it returns `None` if neither end has a known id. Both ends may
/// overlap, for example if the message is shorter than [`EDGE`].
///
/// ```
/// use levity_rpc::find_id;
/// use levity_rpc::mcp::RequestId;
///
/// let head: &[u8] = br#"{"jsonrpc": "2.0", "id": 7, "result": {"text": "a very long te"#;
/// let tail: &[u8] = br#"xt that ends here"}}"#;
/// assert_eq!(find_id([head, tail], |_| true), Some(RequestId::Number(7)));
///
/// // No call waits for this id, so the message belongs to none.
/// assert_eq!(find_id([head, tail], |id| *id == RequestId::Number(8)), None);
/// ```
pub fn find_id([head, tail]: [&[u8]; 2], known: impl Fn(&RequestId) -> bool) -> Option<RequestId> {
    id_at_start(head)
        .filter(&known)
        .or_else(|| id_at_end(tail).filter(&known))
}

/// Returns the id among the first keys of an object whose end is missing.
fn id_at_start(head: &[u8]) -> Option<RequestId> {
    struct First<'a>(&'a mut Option<RequestId>);

    impl<'de> Visitor<'de> for First<'_> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                if key == "id" {
                    *self.0 = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }

    let mut id = None;
    // Parsing fails where the bytes end, but the id found before remains.
    let _ = serde_json::Deserializer::from_slice(head).deserialize_map(First(&mut id));
    id
}

/// Returns the id among the last keys of an object whose beginning is missing.
///
/// Only a key directly before the closing brace, followed by nothing but short values, can be the
/// message's own. The text from there on must be an object when a brace is put before it.
fn id_at_end(tail: &[u8]) -> Option<RequestId> {
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let rest = &tail[at..];
    if rest.len() > EDGE / 4 {
        return None;
    }
    let mut object: Value = serde_json::from_slice(&[b"{", rest].concat()).ok()?;
    serde_json::from_value(object.get_mut("id")?.take()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_id_checks_both_ends_and_ignores_nested_ids() {
        let number = |id| Some(RequestId::Number(id));
        let cases: [(&str, &str, Option<RequestId>); 7] = [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"text":"xx"#,
                "xx",
                number(7),
            ),
            (
                r#"{"id":"a","result":"xx"#,
                "xx",
                Some(RequestId::String("a".into())),
            ),
            (r#"{"result":{"text":"xx"#, r#"xx"},"id":7}"#, number(7)),
            (
                r#"{"result":{"text":"xx"#,
                "xx\"},\"id\":7,\"jsonrpc\":\"2.0\"}\r",
                number(7),
            ),
            // The id of a nested object is not the message's.
            (r#"{"params":{"id":5,"text":"xx"#, r#"xx"}}"#, None),
            (r#"{"params":{"text":"xx"#, r#"xx","id":5}}"#, None),
            ("", "", None),
        ];
        for (head, tail, id) in cases {
            assert_eq!(
                find_id([head.as_bytes(), tail.as_bytes()], |_| true),
                id,
                "{head} .. {tail}"
            );
        }
        assert_eq!(
            find_id([br#"{"id":1,"#, br#""id":2}"#], |id| *id
                == RequestId::Number(2)),
            number(2)
        );
    }
}
