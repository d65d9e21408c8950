//! Lenient lists: a missing field, `null` and any other value that is not a list become an empty
//! list.
//!
//! A server may send `"tool_calls": null`, `""` or `{}` for "none". With a derived implementation
//! each of them would make the whole chunk an error, and the reply would be lost.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A list that is almost always empty.
///
/// Items that are `null` are skipped. An empty list allocates nothing.
pub(super) struct LenientList<T>(Vec<T>);

impl<T> Default for LenientList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> LenientList<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> IntoIterator for LenientList<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// The visitor that turns every other type into an empty list.
struct Reader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
    type Value = LenientList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<LenientList<T>, A::Error> {
        let mut list = LenientList::default();
        while let Some(item) = items.next_element::<Option<T>>()? {
            list.0.extend(item);
        }
        Ok(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<LenientList<T>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(LenientList::default())
    }

    fn visit_unit<E>(self) -> Result<LenientList<T>, E> {
        Ok(LenientList::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<LenientList<T>, E> {
        Ok(LenientList::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<LenientList<T>, E> {
        Ok(LenientList::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<LenientList<T>, E> {
        Ok(LenientList::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<LenientList<T>, E> {
        Ok(LenientList::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<LenientList<T>, E> {
        Ok(LenientList::default())
    }
}
