//! Lists that servers fill as they see fit: nothing, `null` and anything else that is no list are
//! an empty one.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A list that nearly always has no items.
pub(super) struct Many<T>(Vec<T>);

impl<T> Default for Many<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Many<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> IntoIterator for Many<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
    type Value = Many<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Many<T>, A::Error> {
        let mut list = Many::default();
        while let Some(item) = items.next_element::<Option<T>>()? {
            list.0.extend(item);
        }
        Ok(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Many<T>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Many::default())
    }

    fn visit_unit<E>(self) -> Result<Many<T>, E> {
        Ok(Many::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Many<T>, E> {
        Ok(Many::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Many<T>, E> {
        Ok(Many::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Many<T>, E> {
        Ok(Many::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Many<T>, E> {
        Ok(Many::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Many<T>, E> {
        Ok(Many::default())
    }
}
