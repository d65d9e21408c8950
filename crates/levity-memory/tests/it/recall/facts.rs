use std::sync::Arc;
use std::time::Duration;

use levity_core::{ConversationId, MemoryErrorKind, World};
use levity_memory::{FactId, Recall, Scope};
use levity_test::ManualWorld;

use super::{in_memory, texts, user};

const FACTS: [&str; 8] = [
    "The user prefers green tea to coffee.",
    "The deployment of the shop runs every Tuesday at noon.",
    "The user is allergic to peanuts.",
    "The database password rotates each quarter; ask the operations team for it.",
    "The café near the station closes at six.",
    "Die Brücke über den Fluss ist gesperrt.",
    "会議は毎週月曜日に東京で行われます。",
    "The user is the one who is in charge of what is on the list of the things to do.",
];

#[tokio::test]
async fn question_finds_matching_fact() {
    let recall = in_memory();
    for fact in FACTS {
        recall.remember(&user(), fact, "test").await.unwrap();
    }
    for (question, fact) in [
        ("What tea does the user like?", 0),
        ("When do we deploy the shop?", 1),
        ("Is there something that the user is allergic to?", 2),
        ("where do I get the PASSWORDS of the databases", 3),
        ("cafe station", 4),
        ("CAFE\u{301}", 4),
        ("brucke", 5),
        ("東京", 6),
        ("月曜日", 6),
        ("who is on the list", 7),
    ] {
        let found = recall.recall(&[user()], question, 3).await.unwrap();
        assert_eq!(
            found.facts.first().map(|fact| fact.text.as_str()),
            Some(FACTS[fact]),
            "{question}"
        );
    }
}

#[tokio::test]
async fn question_is_never_interpreted_as_syntax() {
    let recall = in_memory();
    recall
        .remember(&user(), "The harbour is closed in winter.", "test")
        .await
        .unwrap();
    for question in [
        "\"",
        "\"\"",
        "'",
        "*",
        "harbour*",
        "text:harbour",
        "scope:s1",
        "NEAR(harbour winter)",
        "^harbour",
        "-harbour",
        "harbour AND",
        "NOT harbour",
        "{text} : harbour",
        "harbour + ",
        "(",
        "a OR OR b",
        "\0harbour\0",
        "harbour\"; DROP TABLE facts; --",
        "words MATCH 'harbour'",
        "\u{202e}harbour",
        "🦀",
        "",
    ] {
        let found = recall.recall(&[user()], question, 3).await.unwrap();
        assert_eq!(
            found.facts.len(),
            usize::from(question.contains("harbour")),
            "{question:?}"
        );
    }
}

#[tokio::test]
async fn recall_finds_facts_of_given_scopes_only() {
    let recall = in_memory();
    let scopes = [
        user(),
        Scope::user("u-18"),
        Scope::project("u-17"),
        Scope::session("u-17"),
        Scope::user("u-1"),
    ];
    for scope in &scopes {
        recall
            .remember(scope, &format!("The secret of {scope} is blue."), "test")
            .await
            .unwrap();
        recall
            .remember(scope, "The same in all.", "test")
            .await
            .unwrap();
    }
    for scope in &scopes {
        let found = recall
            .recall(
                std::slice::from_ref(scope),
                "secret same s1 s2 s3 scope user",
                100,
            )
            .await
            .unwrap();
        assert_eq!(found.facts.len(), 2);
        assert!(
            found.facts.iter().all(|fact| fact.scope == *scope),
            "{found:?}"
        );
        assert_eq!(recall.list(scope, None, 100).await.unwrap().len(), 2);
    }
    let two = recall.recall(&scopes[1..3], "secret", 100).await.unwrap();
    assert_eq!(two.facts.len(), 2);
    assert_eq!(recall.recall(&[], "secret", 100).await.unwrap().facts, []);
    let alien = recall.list(&scopes[0], None, 1).await.unwrap()[0].id;
    assert!(!recall.forget(&scopes[1..], alien).await.unwrap());
    assert_eq!(recall.list(&scopes[0], None, 100).await.unwrap().len(), 2);
}

/// The order must not reveal how rare a word is in other scopes.
#[tokio::test]
async fn words_of_other_scopes_do_not_change_order() {
    let recall = in_memory();
    for fact in ["The budget is blue.", "The merger is red."] {
        recall.remember(&user(), fact, "test").await.unwrap();
    }
    let order = || async {
        let found = recall.recall(&[user()], "budget merger", 9).await.unwrap();
        texts(&found).join(" ")
    };
    let alone = order().await;
    for word in ["budget", "merger"] {
        let other = Scope::user(word);
        for n in 0..20 {
            recall
                .remember(&other, &format!("Something {n} about the {word}."), "test")
                .await
                .unwrap();
        }
        assert_eq!(order().await, alone, "with the {word} of others");
        recall.forget_scope(&other).await.unwrap();
    }
}

/// Of two words, the one in fewer facts counts more.
#[tokio::test]
async fn rare_words_rank_higher() {
    let recall = in_memory();
    recall
        .remember(&user(), "The heron was here.", "test")
        .await
        .unwrap();
    for n in 0..20 {
        recall
            .remember(&user(), &format!("Bird {n} of the lake."), "test")
            .await
            .unwrap();
    }
    let found = recall.recall(&[user()], "bird heron", 3).await.unwrap();
    assert_eq!(texts(&found)[0], "The heron was here.");
}

/// Marks above, below and between letters neither separate words nor count as words.
#[tokio::test]
async fn scripts_without_spaces_match_by_characters() {
    let recall = in_memory();
    for fact in [
        "コーヒーが好き。",
        "スーパーでケーキを買う。",
        "ชอบน้ำชา",
        "ที่บ้านมีแมว",
    ] {
        recall.remember(&user(), fact, "test").await.unwrap();
    }
    for (question, fact) in [
        ("コーヒー", "コーヒーが好き。"),
        ("น้ำชา", "ชอบน้ำชา"),
        ("แมว", "ที่บ้านมีแมว"),
    ] {
        assert_eq!(
            texts(&recall.recall(&[user()], question, 9).await.unwrap()),
            [fact],
            "{question}"
        );
    }
}

#[tokio::test]
async fn repeated_text_updates_existing_fact() {
    let world = ManualWorld::new();
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(world.clone()));
    let first = recall
        .remember(&user(), "Likes tea.", "Monday")
        .await
        .unwrap();
    assert!(first.new);
    world.advance(Duration::from_secs(60));
    let again = recall
        .remember(&user(), "  Likes tea.\n", "Tuesday")
        .await
        .unwrap();
    assert!(!again.new);
    assert_eq!(again.id, first.id);
    let found = recall.recall(&[user()], "tea", 10).await.unwrap();
    assert_eq!(texts(&found), ["Likes tea."]);
    assert_eq!(
        (found.facts[0].source.as_str(), found.facts[0].date),
        ("Tuesday", world.now())
    );
    assert!(
        recall
            .remember(&Scope::project("p"), "Likes tea.", "Monday")
            .await
            .unwrap()
            .new
    );
}

#[tokio::test]
async fn new_session_summary_replaces_old_one() {
    let recall = in_memory();
    let (first, second) = (ConversationId::new("c1"), ConversationId::new("c2"));
    let kept = recall
        .remember_session(&user(), &first, "They chose a bicycle.")
        .await
        .unwrap();
    recall
        .remember_session(&user(), &second, "They spoke of boats.")
        .await
        .unwrap();
    let again = recall
        .remember_session(&user(), &first, "They chose a tandem.")
        .await
        .unwrap();
    assert_eq!((again.id, again.new), (kept.id, false));
    assert_eq!(
        recall.recall(&[user()], "bicycle", 9).await.unwrap().facts,
        []
    );
    let found = recall.recall(&[user()], "tandem", 9).await.unwrap();
    assert_eq!(found.facts[0].conversation, Some(first));
    assert_eq!(found.facts[0].source, "conversation c1");
    assert_eq!(recall.list(&user(), None, 9).await.unwrap().len(), 2);
    // A fact with the same text is a separate fact.
    assert!(
        recall
            .remember(&user(), "They chose a tandem.", "test")
            .await
            .unwrap()
            .new
    );
}

#[tokio::test]
async fn remember_rejects_facts_beyond_limits() {
    let recall = in_memory().with_max_facts(2);
    let kind = async |scope: &Scope, text: &str, source: &str| {
        recall
            .remember(scope, text, source)
            .await
            .map_err(|error| error.kind())
            .err()
    };
    assert_eq!(kind(&user(), &"ä".repeat(4 << 10), "s").await, None);
    assert_eq!(
        kind(&user(), &"ä".repeat((4 << 10) + 1), "s").await,
        Some(MemoryErrorKind::Refused)
    );
    assert_eq!(
        kind(&user(), " \n", "s").await,
        Some(MemoryErrorKind::Refused)
    );
    assert_eq!(kind(&user(), "a", "").await, Some(MemoryErrorKind::Refused));
    assert_eq!(
        kind(&user(), "a", &"s".repeat(1025)).await,
        Some(MemoryErrorKind::Refused)
    );
    assert_eq!(
        kind(&Scope::user(""), "a", "s").await,
        Some(MemoryErrorKind::Refused)
    );
    assert_eq!(
        kind(&Scope::user("u".repeat(257)), "a", "s").await,
        Some(MemoryErrorKind::Refused)
    );
    assert_eq!(kind(&user(), "b", "s").await, None);
    assert_eq!(kind(&user(), "c", "s").await, Some(MemoryErrorKind::Full));
    assert_eq!(
        kind(&user(), "b", "again").await,
        None,
        "what is there already may be said again"
    );
    assert_eq!(
        kind(&Scope::user("u-18"), "c", "s").await,
        None,
        "another scope has its own room"
    );
    let first = recall.list(&user(), None, 1).await.unwrap()[0].id;
    assert!(recall.forget(&[user()], first).await.unwrap());
    assert_eq!(kind(&user(), "c", "s").await, None, "there is room again");
    let many = vec![user(); 33];
    assert_eq!(
        recall
            .recall(&many, "c", 1)
            .await
            .map_err(|error| error.kind()),
        Err(MemoryErrorKind::Refused)
    );
    assert_eq!(recall.recall(&[user()], "c", 0).await.unwrap().facts, []);
}

#[tokio::test]
async fn list_continues_after_given_fact() {
    let recall = in_memory();
    for n in 0..25 {
        recall
            .remember(&user(), &format!("Fact {n}."), "test")
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    let mut after: Option<FactId> = None;
    loop {
        let some = recall.list(&user(), after, 10).await.unwrap();
        let Some(last) = some.last() else { break };
        after = Some(last.id);
        seen.extend(some.into_iter().map(|fact| fact.text));
    }
    assert_eq!(
        seen,
        (0..25).map(|n| format!("Fact {n}.")).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn hostile_text_is_returned_unchanged() {
    let recall = in_memory();
    for text in [
        "nul \0 inside",
        "🦀\u{202e}\u{feff}x",
        "quote ' \" ; --",
        "line\r\nline\u{2028}line",
    ] {
        let noted = recall.remember(&user(), text, "sour\0ce").await.unwrap();
        let kept = recall.list(&user(), None, 100).await.unwrap();
        let fact = kept.iter().find(|fact| fact.id == noted.id).unwrap();
        assert_eq!(
            (fact.text.as_str(), fact.source.as_str()),
            (text, "sour\0ce")
        );
        assert!(recall.forget(&[user()], noted.id).await.unwrap());
    }
    assert_eq!(recall.list(&user(), None, 100).await.unwrap(), []);
}

#[test]
fn recall_works_without_runtime() {
    let recall = in_memory();
    let user = user();
    let mut remember = std::pin::pin!(recall.remember(&user, "Likes tea.", "test"));
    let waker = std::task::Waker::noop();
    let polled = remember
        .as_mut()
        .poll(&mut std::task::Context::from_waker(waker));
    assert!(matches!(polled, std::task::Poll::Ready(Ok(_))));
}

#[test]
fn concurrent_calls_complete_on_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let recall = in_memory();
        let scopes: Vec<_> = (0..500).map(|n| Scope::user(format!("u-{n}"))).collect();
        let one = async |scope: &Scope| {
            recall
                .remember(scope, &format!("Tea of {scope}."), "test")
                .await
                .unwrap();
            recall
                .recall(std::slice::from_ref(scope), "tea", 9)
                .await
                .unwrap()
                .facts
                .len()
        };
        let found = futures_util::future::join_all(scopes.iter().map(one)).await;
        assert_eq!(found, vec![1; 500]);
    });
}

proptest::proptest! {
    /// For any stored text and any query: nothing fails, and a query finds a fact with letters by
    /// its own text.
    #[test]
    fn any_text_can_be_saved_and_queried(
        text in "\\PC{1,40}|.{1,40}",
        letters in "[a-zäöüα-ωа-я東京ก-ฮ가-나]{1,8}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let recall = in_memory();
            let fact = format!("{text} {letters}");
            let kept = recall.remember(&user(), &fact, "test").await.unwrap();
            recall.recall(&[user()], &text, 5).await.unwrap();
            let found = recall.recall(&[user()], &letters, 5).await.unwrap();
            assert_eq!(texts(&found), [fact.trim()], "{letters}");
            assert!(recall.forget(&[user()], kept.id).await.unwrap());
            assert_eq!(recall.recall(&[user()], &letters, 5).await.unwrap().facts, []);
        });
    }
}
