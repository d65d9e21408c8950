use super::*;

fn write(
    board: &mut Board,
    key: &str,
    content: &str,
    by: &str,
    round: u32,
) -> Result<bool, Refusal> {
    board
        .write(key, content, &by.into(), round)
        .map(|entry| entry.is_some())
}

#[test]
fn last_write_wins_and_history_keeps_earlier_versions() {
    let mut board = Board::default();
    assert_eq!(write(&mut board, "b", "one", "pilot", 1), Ok(true));
    assert_eq!(write(&mut board, "a", "x", "watch", 1), Ok(true));
    assert_eq!(
        write(&mut board, "b", "one", "watch", 1),
        Ok(false),
        "the content is already there"
    );
    assert_eq!(write(&mut board, " b\n", "two", "cook", 1), Ok(true));
    let keys: Vec<_> = board
        .iter()
        .map(|entry| (&*entry.key, &*entry.by, entry.version))
        .collect();
    assert_eq!(keys, [("b", "cook", 2), ("a", "watch", 1)]);
    let entry = board.get("b").unwrap();
    assert_eq!(
        (
            &*entry.history[0].content,
            entry.rivals().collect::<Vec<_>>()
        ),
        ("one", vec!["pilot"])
    );
    for round in 2..20 {
        write(
            &mut board,
            "b",
            &"é".repeat(2_000 + round as usize),
            "pilot",
            round,
        )
        .unwrap();
    }
    let entry = board.get("b").unwrap();
    assert_eq!(
        (entry.version, entry.history.len(), entry.rivals().count()),
        (20, Board::MAX_HISTORY, 0)
    );
    assert!(
        entry
            .history
            .iter()
            .all(|earlier| earlier.content.len() < 2_100)
    );
    assert_eq!(board.bytes(), entry.content.len() + 1);
}

#[test]
fn writes_over_limits_are_refused() {
    let mut board = Board::default();
    assert_eq!(
        write(&mut board, " \n\u{0}", "x", "pilot", 1),
        Err(Refusal::NoKey)
    );
    assert_eq!(
        write(&mut board, "k", " \n", "pilot", 1),
        Err(Refusal::Empty)
    );
    let long = "x".repeat(Board::MAX_CONTENT);
    assert_eq!(
        write(&mut board, "k", &format!("{long}x"), "pilot", 1),
        Err(Refusal::TooLong)
    );
    for at in 0..Board::MAX_BYTES / Board::MAX_CONTENT {
        assert_eq!(
            write(&mut board, &format!("k{at}"), &long, "pilot", 1),
            Ok(true)
        );
    }
    assert_eq!(
        write(&mut board, "more", "x", "pilot", 1),
        Err(Refusal::Full)
    );
    assert_eq!(
        write(&mut board, "k1", "short", "pilot", 1),
        Ok(true),
        "the overwritten content makes room"
    );
    let refusal = (0..).find_map(|at| write(&mut board, &format!("s{at}"), "x", "pilot", 1).err());
    assert_eq!(
        (refusal, board.len()),
        (Some(Refusal::TooMany), Board::MAX_ENTRIES)
    );
    assert_eq!(
        write(&mut board, "s1", "y", "pilot", 1),
        Ok(true),
        "the entry exists"
    );
}

#[test]
fn keys_are_normalized_to_one_short_line() {
    assert_eq!(clean_key("  two\r\n words\u{7} "), "two words");
    assert_eq!(clean_key(" `answer` "), "answer");
    assert_eq!(clean_key("k` by user, round 1"), "k by user, round 1");
    for key in [
        "é".repeat(500),
        " ".repeat(500),
        format!("{}x", " \n".repeat(500)),
        "\u{2028}a".into(),
    ] {
        let clean = clean_key(&key);
        assert!(
            clean.len() <= Board::MAX_KEY && !clean.contains(char::is_control),
            "{clean:?}"
        );
        assert_eq!(clean_key(&clean), clean);
    }
}

#[test]
fn board_roundtrips_through_json_and_rejects_invalid_lists() {
    let mut board = Board::default();
    for (key, content) in [("a", "1"), ("b", "2"), ("a", "3")] {
        write(&mut board, key, content, "pilot", 1).unwrap();
    }
    let json = serde_json::to_string(&board).unwrap();
    assert_eq!(serde_json::from_str::<Board>(&json).unwrap(), board);
    let entry = |key: &str| {
        format!(r#"{{"key": "{key}", "content": "x", "by": "p", "version": 1, "round": 1}}"#)
    };
    for bad in [
        format!("[{0}, {0}]", entry("a")),
        format!("[{}]", entry("")),
        format!("[{}]", entry("a\\nb")),
    ] {
        assert!(serde_json::from_str::<Board>(&bad).is_err(), "{bad}");
    }
    let many: Vec<String> = (0..=Board::MAX_ENTRIES)
        .map(|at| entry(&at.to_string()))
        .collect();
    assert!(serde_json::from_str::<Board>(&format!("[{}]", many.join(","))).is_err());
}
