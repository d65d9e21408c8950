use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let secrets = Secrets::new();
    assert_eq!(secrets.redact(text), expected);
    assert_eq!(
        secrets.redact(expected),
        expected,
        "a clean text stays unchanged"
    );
}

#[track_caller]
fn clean(text: &str) {
    let found = Secrets::new().find(text);
    assert!(
        found.is_empty(),
        "{found:?} in {text}: {}",
        Secrets::new().redact(text)
    );
    assert!(matches!(Secrets::new().redact(text), Cow::Borrowed(_)));
}

const JWT: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.\
                   dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";

#[test]
fn find_detects_keys_of_services() {
    for key in [
        "sk-0123456789abcdef",
        "sk-ant-api03-AbCdEf0123456789-AbCdEf_0123456789",
        "sk-proj-abcDEF123456_abcDEF123456",
        "sk-or-v1-0123456789abcdef0123456789abcdef",
        "sk_live_0123456789abcdefABCDEF",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "ya29.a0AfH6SMBx0123456789",
        "gsk_0123456789abcdefghij",
        "hf_abcdefghijklmnopqrstuvwxyz0123456789",
        "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "github_pat_11ABCDEFG0123456789_abcdefghijklmnop",
        "xoxb-123456789012-123456789012-AbCdEfGhIjKl",
        "AKIAIOSFODNN7EXAMPLE",
        "glpat-0123456789abcdefghij",
    ] {
        let mark = "[secret: api key]";
        check(key, mark);
        check(
            &format!("It is {key}. Keep it."),
            &format!("It is {mark}. Keep it."),
        );
        check(
            &format!("({key},`{key}`)é{key}"),
            &format!("({mark},`{mark}`)é{mark}"),
        );
        check(
            &format!("https://host/{key}/rest"),
            &format!("https://host/{mark}/rest"),
        );
        check(
            &format!(r#"{{"text":"a\n{key}\u0022"}}"#),
            &format!(r#"{{"text":"a\n{mark}\u0022"}}"#),
        );
        check(&format!("q%3D{key}&x"), &format!("q%3D{mark}&x"));
    }
}

#[test]
fn find_detects_tokens_keys_and_passwords() {
    check(
        "Authorization: Bearer 0123456789abcdef",
        "Authorization: Bearer [secret: token]",
    );
    check(
        "authorization: Basic dXNlcjpwYXNz",
        "authorization: Basic [secret: token]",
    );
    check(&format!("got {JWT}."), "got [secret: jwt].");
    check(
        &format!("https://host/{JWT}?x"),
        "https://host/[secret: jwt]?x",
    );
    check(
        "postgres://me:hunter2@host/db",
        "postgres://me:[secret: password]@host/db",
    );
    check("PASSWORD=hunter2 next", "PASSWORD=[secret: password] next");
    check(
        "db.password = 'hunter2'",
        "db.password = '[secret: password]'",
    );
    check(
        r#"{"client_secret": "abc123xyz"}"#,
        r#"{"client_secret": "[secret: password]"}"#,
    );
    check(
        r#"{\"password\":\"hunter2\"}"#,
        r#"{\"password\":\"[secret: password]\"}"#,
    );
    check(
        "?token=0123456789abcdef01&a=b",
        "?token=[secret: token]&a=b",
    );
    check(
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPx",
        "AWS_SECRET_ACCESS_KEY=[secret: api key]",
    );
    let body = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF";
    for title in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ] {
        let key = format!("-----BEGIN {title}-----\n{body}\n-----END {title}-----");
        check(&format!("a {key} b"), "a [secret: private key] b");
        check(&key.replace('\n', "\\n"), "[secret: private key]");
        check(&key[..key.len() - 40], "[secret: private key]");
    }
}

#[test]
fn find_ignores_ordinary_texts() {
    for text in [
        "",
        "Ask for a token, and keep the password secret: it is yours.",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "id 123e4567-e89b-12d3-a456-426614174000, v1.2.3-beta.4+build.567",
        "task-0123456789abcdef0123 and risk-0123456789abcdef",
        "sk-tooshort, class=\"sk-fading-circle-animation sk-cube-grid-1-of-9\"",
        "max_tokens: 4096, tokens=1234567890123456789, next_page_token=CAUQAA0123456789abcd",
        "let password = read_password()?; let token: Option<String> = None;",
        "password: String, api_key: &'static str, secret: sha256(x)",
        "api_key=settings.api_key_v2_name, token = request.headers[\"x-token-1\"]",
        "password=$DB_PASSWORD1 password=${PASS1} password={{pass1}} password=<your password1>",
        "the bearer authentication-was-refused, basic information, Bearer token required",
        "http://localhost:8080/@scope/name ssh://git@host:22/x https://{user}:{pass}@host",
        "-----BEGIN PUBLIC KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmi\n-----END \
            PUBLIC KEY-----",
        "what does `-----BEGIN PRIVATE KEY-----` mean?",
        "levity_core::Secrets::redact, eyJhbGciOiJIUzI1NiJ9 alone, a.b.c, www.example.com.index",
        "AKIAIOSFODNN7EXAMPLEX is too long; akiaiosfodnn7example is small",
        "[secret: password] password=[secret: password] Bearer [secret: token]",
    ] {
        clean(text);
    }
    clean(include_str!("../text.rs"));
    clean(include_str!("../history.rs"));
}

#[test]
fn find_ignores_encoded_image() {
    // Random bytes, like those of a compressed image.
    let (mut state, mut bytes) = (7u64, Vec::new());
    for _ in 0..400_000 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        bytes.push((state >> 56) as u8);
    }
    clean(&base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        bytes,
    ));
}

#[test]
fn find_detects_known_values_in_every_form() {
    let secrets = Secrets::new().known(" a\"b/c d\n").known("abc").known("");
    assert_eq!(secrets.known.len(), 3);
    assert_eq!(format!("{secrets:?}"), "Secrets(***)");
    assert_eq!(secrets.redact("a\"b/c d"), "[secret: known]");
    assert_eq!(
        secrets.redact(r#"{"x":"a\"b/c d"}"#),
        r#"{"x":"[secret: known]"}"#
    );
    assert_eq!(secrets.redact("?q=a%22b%2Fc%20d"), "?q=[secret: known]");
    assert_eq!(secrets.redact("abc"), "abc", "too short");
    let two = Secrets::new()
        .known("abcd1234")
        .known("1234wxyz")
        .known_only();
    assert_eq!(
        two.redact("abcd1234wxyz"),
        "[secret: known]",
        "no part of either remains"
    );
    assert_eq!(two.redact("sk-0123456789abcdef"), "sk-0123456789abcdef");
}

#[test]
fn redact_value_replaces_texts_and_keys() {
    let secrets = Secrets::new().known("hunter2").known("123456");
    let value = json!({
        "list": ["x", "hunter2", {"Authorization": "Basic abc"}], "hunter2": 1, "pin": 123456,
        "password": {"type": "string"}, "token": "short", "apiKey": "", "accessToken": "a",
    });
    let clean = secrets.redact_value(&value).into_owned();
    let expected = json!({
        "list": ["x", "[secret: known]", {"Authorization": "[secret: token]"}],
        "[secret: known]": 1,
        "pin": "[secret: known]", "password": {"type": "string"}, "token": "short", "apiKey": "",
        "accessToken": "[secret: token]",
    });
    assert_eq!(clean, expected);
    assert!(matches!(secrets.redact_value(&clean), Cow::Borrowed(_)));
}

#[test]
fn variables_are_selected_by_name() {
    for name in [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "x-api-key",
        "SetCookie",
    ] {
        assert!(Secrets::is_name(name), "{name}");
    }
    for name in [
        "PATH",
        "HOME",
        "max_tokens",
        "token_count",
        "NEXT_PAGE_TOKEN",
        "key",
        "KEYBOARD",
        "SECRETS_DIR",
    ] {
        assert!(!Secrets::is_name(name), "{name}");
    }
    let secrets = Secrets::new().variables([
        ("A_TOKEN", "0"),
        ("B_TOKEN", "longer than that"),
        ("C", "anything else"),
    ]);
    assert_eq!(secrets.known.len(), 2, "plain and URL-encoded");
}

#[test]
fn known_values_of_any_number_are_looked_up_in_set() {
    // With a scan of all values, each half would take 10,000,000,000 comparisons.
    let variables = || (0..100_000).map(|number| ("A_TOKEN", format!("value{number:08}")));
    let secrets = Secrets::new().variables(variables().chain(variables()));
    assert_eq!(secrets.known.len(), 100_000);
    let secrets = secrets.known("123456");
    let numbers: Value = (100_000..200_000).collect();
    let clean = secrets.redact_value(&numbers).into_owned();
    assert_eq!(clean[23_455], 123_455);
    assert_eq!(clean[23_456], "[secret: known]");
}

#[test]
fn find_takes_linear_time_for_any_text() {
    for piece in [
        "sk-",
        "sk-.",
        "eyJ.",
        "eyJaaaaaaaaaaaaaaaaa.",
        "Bearer ",
        "password=",
        "password=a1",
        "password=\"",
        "://a:b",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
        "a",
        " ",
        "\\",
        "ghp_/",
        "%25sk-",
        "é",
    ] {
        let time = |texts: usize, pieces: usize| {
            let text = piece.repeat(pieces);
            #[expect(clippy::disallowed_methods, reason = "a cost is measured")]
            let began = std::time::Instant::now();
            for _ in 0..texts {
                std::hint::black_box(Secrets::new().known("aaaaaaab").find(&text));
            }
            began.elapsed()
        };
        // The same work at once and in small parts, so that a busy machine slows down both. A
        // search that rescans the rest takes 16 times as long at once, in each attempt.
        let short = std::time::Duration::from_millis(10);
        let linear = (0..10).any(|_| time(1, 16_000) < time(16, 1_000) * 6 + short);
        assert!(linear, "{piece:?}");
    }
}

proptest! {
    #[test]
    fn redact_removes_known_value_in_any_text(
        before in any::<String>(), after in any::<String>(), value in "[a-zA-Z0-9\"\\\\é \
            /+=]{4,40}",
    ) {
        let secrets = Secrets::new().known(&value);
        let value = value.trim();
        prop_assume!(value.len() >= 4 && !"[secret: known] api key token jwt private key \
            password".contains(value));
        let text = format!("{before}{value}{after}");
        for text in [text.clone(), serde_json::to_string(&text).unwrap()] {
            let clean = secrets.redact(&text).into_owned();
            prop_assert!(!clean.contains(value), "{clean}");
            for FoundSecret { range, .. } in secrets.find(&text) {
                prop_assert!(text.get(range).is_some());
            }
        }
    }

    #[test]
    fn find_accepts_any_text(text in "(-----BEGIN |PRIVATE KEY-----|eyJ|sk-|ghp_|Bearer |Basic \
        |password|token|=|:|://|@|\\.|\\\\|\"| |%|é|[a-z0-9]{1,20}){0,40}") {
        let secrets = Secrets::new();
        let clean = secrets.redact(&text).into_owned();
        let mut last = 0;
        for found in secrets.find(&text) {
            prop_assert!(found.range.start >= last && text.get(found.range.clone()).is_some());
            last = found.range.end;
        }
        prop_assert!(clean.len() <= text.len() + 25 * 40);
    }
}
