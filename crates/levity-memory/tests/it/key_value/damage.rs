//! Damaged values and stores that break the contract.

use super::*;

#[tokio::test]
async fn damaged_value_is_rejected_with_key_and_unchanged() {
    let base = Arc::new(Map::default());
    for step in [Step::SaveMuch, Step::Save, Step::Trim(3)] {
        step.take(&memory_over(base.clone())).await.unwrap();
    }
    let id = ConversationId::new("a");
    let junk: &[&[u8]] = &[
        b"",
        b"\0",
        b"{}",
        b"[]",
        b"null",
        b"1\n",
        b"1\n[]",
        b"1\n[null]",
        b"0\n[]",
        b"99\n[",
        b"4294967295\n[",
        b"\xff\n[]",
        b"-1\n[]",
        b"{\"levity_memory\":1}",
        b"1\n[{\"role\":\"nobody\",\"content\":\"hunter2\"}]",
    ];
    for key in base.keys() {
        let whole = base.value(&key);
        let cut = &whole[..whole.len() - 1];
        for junk in junk.iter().copied().chain([cut]).map(Some).chain([None]) {
            if junk.is_none() && key.starts_with("conversations/") {
                continue;
            }
            let map = Arc::new(base.copy());
            map.set(&key, junk);
            let before = map.keys();
            let store = memory_over(map.clone());
            let error = store.read(&id, 0, usize::MAX).await.unwrap_err();
            assert_eq!(
                error.kind(),
                MemoryErrorKind::Damaged,
                "{key} {junk:?}: {error}"
            );
            let named = error.to_string();
            assert!(
                named.contains("key `") && named.contains("/a") && !named.contains("hunter2"),
                "{named}"
            );
            // None of these calls panics, and none does further damage.
            let _ = store.load(&id, 5).await;
            let _ = store.search(&id, "word1", 5).await;
            let _ = store
                .save(&id, &ConversationChange::at(1).with_messages([text(1)]))
                .await;
            let _ = store.list(&ConversationQuery::new()).await.unwrap();
            assert_eq!(map.keys(), before);
            if let Some(junk) = junk {
                assert_eq!(map.value(&key), junk);
            }
        }
    }
}

#[tokio::test]
async fn head_with_contradictory_positions_is_rejected() {
    let base = Arc::new(Map::default());
    Step::Save.take(&memory_over(base.clone())).await.unwrap();
    let (id, key) = (ConversationId::new("a"), "conversations/a");
    let head = String::from_utf8(base.value(key)).unwrap();
    let max = u64::MAX.to_string();
    for (field, value) in [
        ("end", &*max),
        ("first", &max),
        ("start", "1"),
        ("save", &max),
        ("revision", &max),
        ("end", "1"),
        ("end", "-1"),
    ] {
        let mut fields: serde_json::Value = serde_json::from_str(&head).unwrap();
        fields[field] = serde_json::from_str(value).unwrap();
        if field == "end" && value == "1" {
            fields["first"] = 2.into();
        }
        base.set(key, Some(fields.to_string().as_bytes()));
        let store = memory_over(base.clone());
        for error in [
            store.load(&id, 5).await.unwrap_err(),
            store
                .save(
                    &id,
                    &ConversationChange::at(u64::MAX).with_messages([text(1)]),
                )
                .await
                .unwrap_err(),
            store.trim(&id, u64::MAX).await.unwrap_err(),
            store.forget(&id).await.unwrap_err(),
            store.hold(&id).await.unwrap_err(),
        ] {
            assert_eq!(
                error.kind(),
                MemoryErrorKind::Damaged,
                "{field} {value}: {error}"
            );
            assert!(error.to_string().contains("`conversations/a`"), "{error}");
        }
    }
    base.set(
        key,
        Some(
            head.replace("\"levity_memory\":1", "\"levity_memory\":2")
                .as_bytes(),
        ),
    );
    let error = memory_over(base.clone()).load(&id, 5).await.unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Version, "{error}");
}

/// A store whose scans never end, because they ignore `after`.
struct Stuck(Map);

#[async_trait]
impl KeyValueStore for Stuck {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
        self.0.get(key).await
    }
    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        self.0.put(key, value, expected).await
    }
    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
        self.0.delete(key, expected).await
    }
    async fn scan(
        &self,
        prefix: &str,
        _: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        self.0.scan(prefix, "", limit).await
    }
}

#[tokio::test]
async fn endless_scan_returns_error() {
    let store = memory_over(Stuck(Map::default()));
    Step::Save.take(&store).await.unwrap();
    let error = store.list(&ConversationQuery::new()).await.unwrap_err();
    assert!(
        error.kind() == MemoryErrorKind::Io && error.to_string().contains("conversations/a"),
        "{error}"
    );
}
