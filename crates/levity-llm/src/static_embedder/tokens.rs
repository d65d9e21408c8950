//! A tokenizer with a byte-pair encoding from a `tokenizer.json`.
//!
//! Only what tables in use need is implemented: normalization by prefix and replacement,
//! characters, byte fallback and merges. A tokenizer with anything else is rejected, because a
//! wrong split yields plausible but useless vectors.
//!
//! Merges use a heap of candidate pairs over a linked list, so the time is O(n log n) for a text
//! without spaces too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use super::head;

/// The maximum number of normalization steps, and the maximum length of a replacement.
const MAX_STEPS: usize = 16;
const MAX_STEP_BYTES: usize = 16;

/// A tokenizer that splits texts into tokens.
///
/// Merges apply to the text as a whole. If no token continues after a word, as usual, the result is
/// the same for each word alone, and words that occurred before need no merges.
pub(super) struct Tokenizer {
    steps: Vec<Step>,
    /// The vocabulary: a text and the number of its token.
    known: HashMap<String, u32>,
    /// The tokens of single bytes, for characters without a token.
    bytes: Vec<Option<u32>>,
    /// The token for characters that have neither a token nor bytes.
    unknown: Option<u32>,
    /// The merge rules: a pair of tokens, its rank and the resulting token.
    merges: HashMap<(u32, u32), (u32, u32)>,
    count: usize,
    /// `true` if no token continues after a word, so that each word can be split on its own.
    splits_words: bool,
    /// The tokens of words that occurred before.
    words: Mutex<HashMap<Box<str>, Box<[u32]>>>,
}

/// The sign for a space in front of a word.
const SPACE: char = '\u{2581}';
/// The maximum number of words whose tokens are kept, and their maximum size in bytes.
const MAX_KEPT_WORDS: usize = 1 << 16;
const MAX_KEPT_BYTES: usize = 32;

/// A change of the text before it is split.
#[derive(Debug)]
enum Step {
    Prepend(String),
    Replace(String, String),
}

/// The parts of a `tokenizer.json` that are used.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Model,
}

/// The vocabulary and the merge rules. Affixes of words are not supported.
#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: String,
    vocab: HashMap<String, u32>,
    merges: Vec<Pair>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

/// Two tokens separated by a space, or in a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Text(String),
    List([String; 2]),
}

impl Pair {
    /// Returns both tokens of a pair.
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::Text(text) => text.split_once(' '),
            Self::List([left, right]) => Some((left, right)),
        }
    }
}

impl Tokenizer {
    /// Parses the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Returns the problem in words: not JSON, another kind of tokenizer, an unsupported step, or a
    /// merge of unknown tokens.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| format!("it cannot be read: {error}"))?;
        let model = document.model;
        let affixed = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
        let affixed = affixed
            .iter()
            .any(|affix| affix.as_ref().is_some_and(|affix| !affix.is_empty()));
        if model.kind != "BPE" || affixed || !document.pre_tokenizer.is_null() {
            return Err("it is not a plain byte-pair encoding; other kinds are not \
                supported"
                .to_owned());
        }
        let mut steps = Vec::new();
        read_steps(&document.normalizer, &mut steps)?;
        let known = model.vocab;
        let merges = model
            .merges
            .iter()
            .zip(0..)
            .map(|(pair, rank)| merge(pair, rank, &known));
        let merges = merges
            .collect::<Option<_>>()
            .ok_or("it merges tokens that are not in its vocabulary")?;
        let byte = |byte: u8| {
            known
                .get(&format!("<0x{byte:02X}>"))
                .copied()
                .filter(|_| model.byte_fallback)
        };
        let bytes = (0..=u8::MAX).map(byte).collect();
        let unknown = model.unk_token.and_then(|token| known.get(&token).copied());
        let count = known.values().max().map_or(0, |last| *last as usize + 1);
        let continues = |token: &str| token.trim_start_matches(SPACE).contains(SPACE);
        Ok(Self {
            splits_words: known.contains_key(SPACE.encode_utf8(&mut [0; 4]))
                && !known.keys().any(|token| continues(token)),
            words: Mutex::default(),
            steps,
            known,
            bytes,
            unknown,
            merges,
            count,
        })
    }

    /// Returns the number of the last token plus one.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the tokens of a text; empty if the text is.
    ///
    /// The text is cut to 64 KiB after each step, so replacements cannot multiply it.
    pub(super) fn of(&self, text: &str) -> Vec<u32> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        let mut text = text.to_owned();
        for step in &self.steps {
            match step {
                Step::Prepend(before) => text.insert_str(0, before),
                Step::Replace(old, new) => text = text.replace(old, new),
            }
            // A replacement may be longer than the text that it replaces.
            text.truncate(head(&text).len());
        }
        if !self.splits_words {
            return self.split(&text);
        }
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tokens = Vec::with_capacity(text.len() / 3);
        for word in words_of(&text) {
            if let Some(known) = words.get(word) {
                tokens.extend_from_slice(known);
                continue;
            }
            let new = self.split(word);
            tokens.extend_from_slice(&new);
            if word.len() <= MAX_KEPT_BYTES {
                if words.len() >= MAX_KEPT_WORDS {
                    words.clear();
                }
                words.insert(word.into(), new.into());
            }
        }
        tokens
    }

    /// Splits a text into tokens as a whole.
    fn split(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len());
        let mut buffer = [0; 4];
        for c in text.chars() {
            let c: &str = c.encode_utf8(&mut buffer);
            match self.known.get(c) {
                Some(token) => tokens.push(*token),
                None => self.encode_bytes(c, &mut tokens),
            }
        }
        self.join(tokens)
    }

    /// Encodes a character without a token byte by byte.
    fn encode_bytes(&self, c: &str, tokens: &mut Vec<u32>) {
        let bytes = c
            .bytes()
            .map(|byte| self.bytes.get(usize::from(byte)).copied().flatten());
        match bytes.collect::<Option<Vec<_>>>() {
            Some(bytes) => tokens.extend(bytes),
            // Several unknown characters in a row become one token.
            None if tokens.last().copied() == self.unknown => {}
            None => tokens.extend(self.unknown),
        }
    }

    /// Merges neighbours in the order of the merge rules.
    ///
    /// Candidates become stale if one of their tokens was merged. They are recognised on removal,
    /// which is cheaper than finding them in the heap.
    fn join(&self, tokens: Vec<u32>) -> Vec<u32> {
        let mut chain = TokenChain::new(tokens);
        let mut pairs = Pairs::new();
        for at in 0..chain.tokens.len() {
            self.push(&chain, at, &mut pairs);
        }
        while let Some(Reverse((_, left, pair))) = pairs.pop() {
            // One of the two may already be part of another token.
            if chain.pair(left) != Some(pair) {
                continue;
            }
            let Some((_, joined)) = self.merges.get(&pair) else {
                continue;
            };
            let before = chain.join(left, *joined);
            self.push(&chain, left, &mut pairs);
            if let Some(before) = before {
                self.push(&chain, before, &mut pairs);
            }
        }
        chain.tokens.into_iter().flatten().collect()
    }

    /// Adds the pair at this position as a candidate, if a rule merges it.
    fn push(&self, chain: &TokenChain, left: usize, pairs: &mut Pairs) {
        let Some(pair) = chain.pair(left) else { return };
        if let Some((rank, _)) = self.merges.get(&pair) {
            pairs.push(Reverse((*rank, left, pair)));
        }
    }
}

/// Divides a text in front of each word: where a sign for a space follows another character.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let spaces = rest.len() - rest.trim_start_matches(SPACE).len();
        let end = rest[spaces..]
            .find(SPACE)
            .map_or(rest.len(), |at| spaces + at);
        let (word, after) = rest.split_at(end);
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

/// Pairs of neighbours that can be merged: rank, position and tokens.
type Pairs = BinaryHeap<Reverse<(u32, usize, (u32, u32))>>;

/// A list of tokens in which some were merged into their predecessor.
struct TokenChain {
    tokens: Vec<Option<u32>>,
    next: Vec<usize>,
    before: Vec<usize>,
}

impl TokenChain {
    /// Creates a chain in which each token is followed by the next.
    fn new(tokens: Vec<u32>) -> Self {
        let count = tokens.len();
        let before = (0..count).map(|at| at.wrapping_sub(1)).collect();
        Self {
            tokens: tokens.into_iter().map(Some).collect(),
            next: (1..=count).collect(),
            before,
        }
    }

    /// Returns the token at this position and the next one.
    fn pair(&self, left: usize) -> Option<(u32, u32)> {
        let right = *self.next.get(left)?;
        Some(((*self.tokens.get(left)?)?, (*self.tokens.get(right)?)?))
    }

    /// Replaces this token and the next one with a merged token, and returns the previous position.
    fn join(&mut self, left: usize, joined: u32) -> Option<usize> {
        let right = *self.next.get(left)?;
        let after = *self.next.get(right)?;
        *self.tokens.get_mut(left)? = Some(joined);
        *self.tokens.get_mut(right)? = None;
        *self.next.get_mut(left)? = after;
        if let Some(before) = self.before.get_mut(after) {
            *before = left;
        }
        self.before
            .get(left)
            .copied()
            .filter(|before| *before < left)
    }
}

/// Looks up the tokens of a merge rule. Returns `None` if one is not in the vocabulary.
fn merge(pair: &Pair, rank: u32, known: &HashMap<String, u32>) -> Option<((u32, u32), (u32, u32))> {
    let (left, right) = pair.parts()?;
    let joined = known.get(&format!("{left}{right}"))?;
    Some(((*known.get(left)?, *known.get(right)?), (rank, *joined)))
}

/// Collects the steps of a normalizer, at most 16, each with texts of at most 16 bytes.
///
/// # Errors
/// Returns the problem in words.
fn read_steps(value: &Value, steps: &mut Vec<Step>) -> Result<(), String> {
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| text.len() <= MAX_STEP_BYTES)
            .map(str::to_owned)
    };
    let step = match value.get("type").and_then(Value::as_str) {
        None if value.is_null() => return Ok(()),
        Some("Sequence") => {
            let list = value
                .get("normalizers")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            return list.iter().try_for_each(|value| read_steps(value, steps));
        }
        Some("Prepend") => value.get("prepend").and_then(text).map(Step::Prepend),
        Some("Replace") => {
            let old = value
                .pointer("/pattern/String")
                .and_then(text)
                .filter(|old| !old.is_empty());
            old.zip(value.get("content").and_then(text))
                .map(|(old, new)| Step::Replace(old, new))
        }
        _ => None,
    };
    steps.push(step.ok_or("it has an unsupported normalization step")?);
    if steps.len() > MAX_STEPS {
        Err("it has too many normalization steps".to_owned())
    } else {
        Ok(())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({}, {:?})", self.count, self.steps)
    }
}
