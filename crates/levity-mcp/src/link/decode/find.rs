//! Finding the id of a message that cannot be read whole.

use rmcp::model::RequestId;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::link::pending::Pending;

/// How much of each end of a message is looked at.
pub(crate) const EDGE: usize = 4 << 10;

/// The id of a pending request that the message with these first and last bytes answers.
pub(super) fn find_id([head, tail]: [&[u8]; 2], pending: &Pending) -> Option<RequestId> {
    let waits = |id: &RequestId| pending.kind(id).is_some();
    id_at_start(head).filter(waits).or_else(|| id_at_end(tail).filter(waits))
}

/// The id among the first keys of an object whose end is missing.
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
    // It fails where the bytes end, and what was found before stays found.
    let _ = serde_json::Deserializer::from_slice(head).deserialize_map(First(&mut id));
    id
}

/// The id among the last keys of an object whose beginning is missing.
///
/// Only what stands right before the closing brace, with nothing but short values after it, can be the message's own: the
/// rest from there on has to be an object when a brace is put before it.
fn id_at_end(tail: &[u8]) -> Option<RequestId> {
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let rest = &tail[at..];
    if rest.len() > EDGE / 4 {
        return None;
    }
    let mut object: Value = serde_json::from_slice(&[b"{", rest].concat()).ok()?;
    serde_json::from_value(object.get_mut("id")?.take()).ok()
}
