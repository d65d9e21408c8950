//! Tools and answers, as a request offers them: made once for each set of tools, and not once a
//! turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{OutputSchema, ToolSpec};
use serde_json::Value;

use super::nulls::Nulls;
use super::object;
use super::strict::strict;
use crate::body::write;

/// How many sets of tools are kept: agents that share a model have one each.
const KEPT: usize = 8;

/// Makes offers, and keeps the last ones.
#[derive(Clone, Debug)]
pub(crate) struct Offers {
    /// Whether models are held to schemas where that can be.
    strict: bool,
    tools: Kept<[Arc<ToolSpec>], Offer>,
    outputs: Kept<OutputSchema, Option<Value>>,
}

/// Tools on offer.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The items of the list.
    pub(crate) json: Vec<u8>,
    /// Which nulls in their arguments stand for nothing.
    pub(crate) nulls: Option<Arc<Nulls>>,
}

impl Offers {
    pub(crate) fn new(strict: bool) -> Self {
        Self {
            strict,
            tools: Kept::default(),
            outputs: Kept::default(),
        }
    }

    /// Offers to a model of OpenAI's. One that was tuned can be held to less.
    pub(crate) fn openai(model: &str) -> Self {
        Self::new(!model.starts_with("ft:"))
    }

    /// The tools, each written by `tool` from its specification, its schema as it is offered, and
    /// whether the model is held to that.
    pub(crate) fn tools(
        &self,
        specs: &Arc<[Arc<ToolSpec>]>,
        tool: impl Fn(&ToolSpec, &Value, bool) -> Value,
    ) -> Arc<Offer> {
        self.tools.get(specs, || {
            let (mut json, mut nulls) = (Vec::new(), Nulls::new());
            for spec in specs.iter() {
                if !json.is_empty() {
                    json.push(b',');
                }
                match self.strict.then(|| strict(&spec.input)).flatten() {
                    Some(made) => {
                        write(&mut json, &tool(spec, &made.schema, true));
                        nulls.extend(made.nulls.map(|shape| (spec.name.clone(), Arc::new(shape))));
                    }
                    None => write(&mut json, &tool(spec, &object::input(&spec.input), false)),
                }
            }
            Offer {
                json,
                nulls: (!nulls.is_empty()).then(|| Arc::new(nulls)),
            }
        })
    }

    /// The schema of an answer in a form that the model is held to. There is none where a property
    /// would have to be null instead of left out: an answer is text that is passed on as it comes.
    pub(crate) fn output(&self, output: &Arc<OutputSchema>) -> Arc<Option<Value>> {
        self.outputs.get(output, || {
            let made = self.strict.then(|| strict(&output.schema)).flatten();
            made.filter(|made| made.nulls.is_none())
                .map(|made| made.schema)
        })
    }
}

/// What was made of something, known by where that is: as long as it is kept, nothing else is
/// there.
#[derive(Debug)]
struct Kept<K: ?Sized, V>(Arc<Mutex<Entries<K, V>>>);

type Entries<K, V> = VecDeque<(Arc<K>, Arc<V>)>;

impl<K: ?Sized, V> Clone for Kept<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: ?Sized, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(VecDeque::new())))
    }
}

impl<K: ?Sized, V> Kept<K, V> {
    fn get(&self, key: &Arc<K>, make: impl FnOnce() -> V) -> Arc<V> {
        let known = |entries: &Entries<K, V>| {
            let found = entries.iter().find(|(known, _)| Arc::ptr_eq(known, key));
            found.map(|(_, made)| made.clone())
        };
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = known(&lock()) {
            return made;
        }
        let made = Arc::new(make());
        let mut entries = lock();
        if entries.len() >= KEPT {
            entries.pop_front();
        }
        entries.push_back((key.clone(), made.clone()));
        made
    }
}
