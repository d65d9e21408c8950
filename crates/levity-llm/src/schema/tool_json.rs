//! Cached JSON for tools and answers, created once for each set of tools instead of once per turn.
//!
//! Tools of an agent stay in one `Arc` for its lifetime, so the address of the set is its identity.
//! A comparison of contents would visit every schema in each turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{OutputSchema, ToolSpec};
use serde_json::Value;

use super::nulls::Nulls;
use super::object;
use super::strict::strict;
use crate::body::write;

/// The number of cached tool sets: agents that share a model each have their own.
const MAX_ENTRIES: usize = 8;

/// Creates the JSON of tools and answers, and caches the most recent results.
///
/// Clones of a model share the cache. A change of the strict setting replaces it.
///
/// The items are separated by commas, without the brackets of the list.
#[derive(Clone, Debug)]
pub(crate) struct ToolJsonCache {
    /// True if strict mode is used wherever possible.
    strict: bool,
    tools: AddressCache<[Arc<ToolSpec>], ToolJson>,
    outputs: AddressCache<OutputSchema, Option<Value>>,
}

/// The JSON of a set of tools.
#[derive(Debug)]
pub(crate) struct ToolJson {
    /// The items of the JSON list.
    pub(crate) json: Vec<u8>,
    /// The nulls in their arguments that mean an absent value.
    pub(crate) nulls: Option<Arc<Nulls>>,
}

impl ToolJsonCache {
    /// Creates an empty cache.
    pub(crate) fn new(strict: bool) -> Self {
        Self {
            strict,
            tools: AddressCache::default(),
            outputs: AddressCache::default(),
        }
    }

    /// Creates a cache for an OpenAI model. Fine-tuned models do not support strict mode fully.
    pub(crate) fn openai(model: &str) -> Self {
        Self::new(!model.starts_with("ft:"))
    }

    /// Returns the tools. `tool` writes each one from its specification, the offered schema and the
    /// strict flag.
    ///
    /// A tool whose schema has no strict form is offered without it; the others are not affected.
    pub(crate) fn tools(
        &self,
        specs: &Arc<[Arc<ToolSpec>]>,
        tool: impl Fn(&ToolSpec, &Value, bool) -> Value,
    ) -> Arc<ToolJson> {
        self.tools.get(specs, || {
            let (mut json, mut nulls) = (Vec::new(), Nulls::new());
            for spec in specs.iter() {
                if !json.is_empty() {
                    json.push(b',');
                }
                match self.strict.then(|| strict(&spec.input)).flatten() {
                    Some(converted) => {
                        write(&mut json, &tool(spec, &converted.schema, true));
                        nulls.extend(
                            converted
                                .nulls
                                .map(|shape| (spec.name.clone(), Arc::new(shape))),
                        );
                    }
                    None => write(&mut json, &tool(spec, &object::input(&spec.input), false)),
                }
            }
            ToolJson {
                json,
                nulls: (!nulls.is_empty()).then(|| Arc::new(nulls)),
            }
        })
    }

    /// Returns the strict schema of an answer. It is `None` if a property would become null instead
    /// of being omitted, because an answer is text that is forwarded unchanged.
    pub(crate) fn output(&self, output: &Arc<OutputSchema>) -> Arc<Option<Value>> {
        self.outputs.get(output, || {
            let converted = self.strict.then(|| strict(&output.schema)).flatten();
            converted
                .filter(|converted| converted.nulls.is_none())
                .map(|converted| converted.schema)
        })
    }
}

/// A cache that identifies keys by address. An entry retains its key, so the address stays unique.
///
/// It stores the eight most recent entries, and drops the oldest one first.
#[derive(Debug)]
struct AddressCache<K: ?Sized, V>(Arc<Mutex<Entries<K, V>>>);

type Entries<K, V> = VecDeque<(Arc<K>, Arc<V>)>;

impl<K: ?Sized, V> Clone for AddressCache<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: ?Sized, V> Default for AddressCache<K, V> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(VecDeque::new())))
    }
}

impl<K: ?Sized, V> AddressCache<K, V> {
    /// Returns the value of a key, created by `make` outside the lock. Two threads may create the
    /// same value; both results are equal.
    fn get(&self, key: &Arc<K>, make: impl FnOnce() -> V) -> Arc<V> {
        let known = |entries: &Entries<K, V>| {
            let found = entries.iter().find(|(known, _)| Arc::ptr_eq(known, key));
            found.map(|(_, value)| value.clone())
        };
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known(&lock()) {
            return value;
        }
        let value = Arc::new(make());
        let mut entries = lock();
        if entries.len() >= MAX_ENTRIES {
            entries.pop_front();
        }
        entries.push_back((key.clone(), value.clone()));
        value
    }
}
