//! Vectors from a static word table.

use std::path::{Path, PathBuf};

use levity_core::{Embedder as _, Purpose};
use levity_llm::{ErrorKind, StaticEmbedder};
use levity_test::conformance;
use serde_json::{Value, json};

/// The files of one embedder.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(table: &[u8], tokens: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tiny.safetensors"), table).unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), tokens).unwrap();
        Self { dir }
    }

    fn open(&self) -> Result<StaticEmbedder, levity_llm::Error> {
        StaticEmbedder::open(
            self.dir.path().join("tiny.safetensors"),
            self.dir.path().join("tokenizer.json"),
        )
    }
}

const VOCAB: [&str; 12] = [
    "<unk>", "▁", "t", "e", "a", "te", "tea", "▁tea", "s", "<0xC3>", "<0xA9>", "at",
];

fn tokens() -> Value {
    let vocab: serde_json::Map<String, Value> = VOCAB
        .iter()
        .zip(0..)
        .map(|(token, id)| ((*token).to_owned(), json!(id)))
        .collect();
    json!({
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing"},
        "model": {
            "type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": vocab,
            "merges": ["t e", "te a", "▁ tea", "a t"],
        },
    })
}

/// Creates a table in the format, with one row for each token: the token's number, and one.
fn table(dtype: &str) -> Vec<u8> {
    let number = |number: f32| match dtype {
        "F32" => number.to_le_bytes().to_vec(),
        "BF16" => number.to_bits().to_be_bytes()[..2]
            .iter()
            .rev()
            .copied()
            .collect(),
        // Small integers as half-precision floats.
        _ => match number as u32 {
            0 => vec![0, 0],
            whole => {
                let exponent = whole.ilog2();
                let fraction = (whole << (10 - exponent)) & 0x3ff;
                u16::try_from(((exponent + 15) << 10) | fraction)
                    .unwrap()
                    .to_le_bytes()
                    .to_vec()
            }
        },
    };
    let data: Vec<u8> = (0..VOCAB.len())
        .flat_map(|row| [number(row as f32), number(1.0)])
        .flatten()
        .collect();
    let header = json!({"__metadata__": {"format": "pt"},
        "embedding.weight": {"dtype": dtype, "shape": [VOCAB.len(), 2],
            "data_offsets": [0, data.len()]}});
    file(&header.to_string(), &data)
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

async fn vector(embedder: &StaticEmbedder, text: &str) -> Vec<f32> {
    embedder
        .embed(&[text.to_owned()], Purpose::Document)
        .await
        .unwrap()
        .vectors
        .remove(0)
}

#[tokio::test]
async fn vector_is_mean_of_token_rows() {
    for dtype in ["F32", "F16", "BF16"] {
        let files = Files::new(&table(dtype), tokens().to_string().as_bytes());
        let embedder = files.open().unwrap();
        assert_eq!(embedder.card().dimensions, Some(2));
        for (text, expected) in [
            ("tea", vec![7]),
            ("tea tea", vec![7, 7]),
            ("teas", vec![7, 8]),
            // Pairs are merged in the order of their list, not from left to right.
            ("ate", vec![1, 4, 5]),
            ("at", vec![1, 11]),
            ("é", vec![1, 9, 10]),
            ("x", vec![1, 0]),
            ("xyz", vec![1, 0]),
            ("", vec![]),
            (" \n", vec![]),
        ] {
            let sum: f32 = expected.iter().map(|id| *id as f32).sum();
            let count = expected.len() as f32;
            let length = (sum * sum + count * count).sqrt();
            let expected = if length == 0.0 {
                vec![0.0, 0.0]
            } else {
                vec![sum / length, count / length]
            };
            let found = vector(&embedder, text).await;
            let close = found
                .iter()
                .zip(&expected)
                .all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close, "{dtype} {text:?}: {found:?}, not {expected:?}");
        }
    }
}

#[tokio::test]
async fn static_embedder_conforms() {
    let files = Files::new(&table("F16"), tokens().to_string().as_bytes());
    conformance::embedder(|| files.open().unwrap()).await;
}

#[test]
fn different_files_have_different_names() {
    let one = Files::new(&table("F16"), tokens().to_string().as_bytes())
        .open()
        .unwrap();
    let mut changed = table("F16");
    *changed.last_mut().unwrap() ^= 1;
    let other = Files::new(&changed, tokens().to_string().as_bytes())
        .open()
        .unwrap();
    assert!(one.card().id.starts_with("tiny-"), "{}", one.card().id);
    assert_ne!(one.card(), other.card());
}

#[track_caller]
fn check_rejected(table: &[u8], tokens: &[u8], problem: &str) {
    let error = Files::new(table, tokens)
        .open()
        .err()
        .unwrap_or_else(|| panic!("{problem}: it was taken"));
    assert_eq!(error.kind(), ErrorKind::File);
    assert!(
        error.to_string().contains(problem),
        "{error}, not {problem}"
    );
}

#[test]
fn invalid_table_is_rejected() {
    let good = tokens().to_string();
    let check = |table: &[u8], problem: &str| check_rejected(table, good.as_bytes(), problem);
    check(b"", "no header");
    check(&[0xff; 8], "too long");
    check(&u64::MAX.to_le_bytes(), "too long");
    check(&file("{", b""), "cannot be read");
    check(&file(&"[".repeat(100_000), b""), "cannot be read");
    check(
        &file(
            &format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
            b"",
        ),
        "cannot be read",
    );
    let header =
        |header: Value, problem: &str| check(&file(&header.to_string(), &[0; 96]), problem);
    let tensor = |dtype: &str, shape: Value, offsets: Value| {
        json!({"a": {"dtype": dtype,
        "shape": shape, "data_offsets": offsets}})
    };
    header(json!({}), "no matrix");
    header(json!({"a": 7}), "no matrix");
    header(tensor("F32", json!([24]), json!([0, 96])), "no matrix");
    header(
        tensor("I64", json!([6, 2]), json!([0, 96])),
        "F32, F16 or BF16",
    );
    header(tensor("F32", json!([0, 2]), json!([0, 0])), "rows");
    header(tensor("F32", json!([2, 0]), json!([0, 0])), "columns");
    header(
        tensor("F32", json!([1, 100_000]), json!([0, 400_000])),
        "columns",
    );
    let within = "within the file";
    header(tensor("F32", json!([12, 2]), json!([0, 97])), within);
    header(tensor("F32", json!([12, 2]), json!([1, 97])), within);
    header(tensor("F32", json!([12, 2]), json!([96, 0])), within);
    header(tensor("F32", json!([11, 2]), json!([0, 96])), within);
    header(
        tensor("F32", json!([u64::MAX / 2, 16]), json!([0, 96])),
        within,
    );
    header(
        tensor("F32", json!([u64::MAX, 1]), json!([u64::MAX, u64::MAX])),
        within,
    );
    header(tensor("F32", json!([-1, 2]), json!([0, 96])), "no matrix");
    let two = json!({"a": {"dtype": "F32", "shape": [12, 2], "data_offsets": [0, 96]},
        "b": {"dtype": "F32", "shape": [12, 2], "data_offsets": [0, 96]}});
    header(two, "more than one");
    let mut infinite = table("F16");
    let end = infinite.len();
    infinite[end - 2..].copy_from_slice(&0x7c00_u16.to_le_bytes());
    check(&infinite, "not numbers");
}

#[test]
fn invalid_tokenizer_is_rejected() {
    let good = table("F32");
    let check = |tokens: &Value, problem: &str| {
        check_rejected(&good, tokens.to_string().as_bytes(), problem);
    };
    check_rejected(&good, b"", "cannot be read");
    check_rejected(&good, "[".repeat(1 << 20).as_bytes(), "cannot be read");
    check_rejected(
        &good,
        format!("{{\"normalizer\":{}", "{\"a\":".repeat(1 << 16)).as_bytes(),
        "cannot be read",
    );
    let changed = |pointer: &str, value: Value| {
        let mut tokens = tokens();
        *tokens.pointer_mut(pointer).unwrap() = value;
        tokens
    };
    check(&changed("/model/type", json!("WordPiece")), "byte-pair");
    check(
        &changed("/pre_tokenizer", json!({"type": "ByteLevel"})),
        "byte-pair",
    );
    check(
        &changed("/normalizer", json!({"type": "NFKC"})),
        "unsupported normalization step",
    );
    check(
        &changed(
            "/normalizer",
            json!({"type": "Prepend", "prepend": "x".repeat(99)}),
        ),
        "unsupported normalization step",
    );
    check(
        &changed(
            "/normalizer/normalizers",
            json!(vec![json!({"type": "Prepend", "prepend": "x"}); 99]),
        ),
        "too many",
    );
    check(
        &changed("/model/merges", json!(["t", "e"])),
        "merges tokens",
    );
    check(&changed("/model/merges", json!(["t x"])), "merges tokens");
    check(&changed("/model/vocab/at", json!(12)), "12 rows");
    check(&changed("/model/vocab/at", json!(u32::MAX)), "12 rows");
    check(&changed("/model/vocab/at", json!(-1)), "cannot be read");
}

#[tokio::test]
async fn tokenizer_cannot_expand_text_without_limit() {
    let mut tokens = tokens();
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(16)});
    tokens["normalizer"] = json!({"type": "Sequence", "normalizers": vec![double; 16]});
    let files = Files::new(&table("F32"), tokens.to_string().as_bytes());
    let embedded = files
        .open()
        .unwrap()
        .embed(&["a".to_owned()], Purpose::Query)
        .await
        .unwrap();
    assert_eq!(embedded.usage.input, Some(64 << 10));
}

/// Returns the unpacked folder of the package `wordllama`, or reports why there is none.
fn wordllama() -> Option<PathBuf> {
    let folder = std::env::var_os("LEVITY_TEST_WORDLLAMA").map(PathBuf::from);
    if folder.is_none() {
        // This is visible even if the test runner captures output.
        let said = b"SKIPPED: no real table; LEVITY_TEST_WORDLLAMA names no folder\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), said);
    }
    folder
}

fn real(folder: &Path) -> StaticEmbedder {
    let table = folder.join("weights/l2_supercat_256.safetensors");
    StaticEmbedder::open(
        table,
        folder.join("tokenizers/l2_supercat_tokenizer_config.json"),
    )
    .unwrap()
}

/// The results of the tokenizer's own library and the mean of the table's rows.
const REFERENCE: [(&str, usize, [f32; 4]); 8] = [
    (
        "The harbour is closed in winter.",
        8,
        [-0.14366, -0.08261, -0.02959, 0.01826],
    ),
    (
        "Grüner Tee schmeckt am besten kühl.",
        14,
        [-0.11471, 0.13052, 0.08056, -0.15665],
    ),
    ("東京は雨です。", 10, [-0.0397, 0.09223, -0.04207, -0.00022]),
    (
        "  two  spaces\n\nand\tlines",
        9,
        [-0.08174, -0.12216, -0.00333, 0.06379],
    ),
    ("🦀 crab", 7, [-0.03122, -0.11245, -0.12781, -0.02719]),
    (
        "fn main() { println!(\"{}\", 6 * 7); }",
        15,
        [0.06723, 0.01999, 0.10282, -0.0422],
    ),
    ("a", 1, [0.00909, 0.01155, -0.05027, 0.0374]),
    (
        "antidisestablishmentarianism 1234567890",
        20,
        [0.02374, -0.0695, 0.1005, -0.03496],
    ),
];

#[tokio::test]
async fn real_table_matches_reference_vectors() {
    let Some(folder) = wordllama() else { return };
    let embedder = real(&folder);
    for (text, count, expected) in REFERENCE {
        let embedded = embedder
            .embed(&[text.to_owned()], Purpose::Document)
            .await
            .unwrap();
        assert_eq!(embedded.usage.input, Some(count as u64), "{text}");
        let close = embedded.vectors[0]
            .iter()
            .zip(expected)
            .all(|(a, b)| (a - b).abs() < 2e-5);
        assert!(close, "{text}: {:?}", &embedded.vectors[0][..4]);
    }
    conformance::embedder(|| embedder.clone()).await;
}

/// Notes, and questions that have few words in common with them.
const PAIRS: [(&str, &str); 10] = [
    (
        "Her favourite beverage is green tea.",
        "What does she like to drink?",
    ),
    (
        "He commutes to the office by bicycle.",
        "How does he get to work?",
    ),
    (
        "The meeting was moved to Thursday afternoon.",
        "When is our appointment?",
    ),
    (
        "The database password is kept in the vault.",
        "Where are the credentials stored?",
    ),
    ("She is allergic to peanuts.", "Which food makes her ill?"),
    (
        "The car broke down on the motorway.",
        "What happened to the vehicle?",
    ),
    (
        "They bought a house near the sea.",
        "Where did they purchase a home?",
    ),
    (
        "The physician told him to rest.",
        "What did the doctor say?",
    ),
    (
        "Our server runs out of memory every night.",
        "Why does the machine crash?",
    ),
    (
        "The children are learning to swim.",
        "What are the kids being taught?",
    ),
];

#[tokio::test]
async fn real_table_finds_notes_by_meaning() {
    let Some(folder) = wordllama() else { return };
    let embedder = real(&folder);
    let (notes, questions): (Vec<_>, Vec<_>) = PAIRS
        .iter()
        .map(|(note, question)| ((*note).to_owned(), (*question).to_owned()))
        .unzip();
    let notes = embedder
        .embed(&notes, Purpose::Document)
        .await
        .unwrap()
        .vectors;
    let questions = embedder
        .embed(&questions, Purpose::Query)
        .await
        .unwrap()
        .vectors;
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let right = questions.iter().enumerate().filter(|(n, question)| {
        let best = (0..notes.len())
            .max_by(|a, b| dot(&notes[*a], question).total_cmp(&dot(&notes[*b], question)));
        best == Some(*n)
    });
    let right = right.count();
    assert!(right >= 7, "{right} of {}", PAIRS.len());
    println!("{right} of {} are right", PAIRS.len());
}
