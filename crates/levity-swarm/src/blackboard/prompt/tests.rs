use super::*;
use crate::board::Board;

fn shown(board: &Board) -> String {
    let (shown, taken) = newest(board.iter().collect());
    let each = share(
        shown.iter().map(|(_, entry)| entry.content.len()),
        MAX_SHOWN_BYTES - taken,
    );
    let parts = shown
        .iter()
        .map(|(head, entry)| format!("\n{head}\n{}\n", fenced(&clipped(&entry.content, each))));
    parts.collect()
}

#[test]
fn full_board_is_shown_within_limit() {
    let mut board = Board::default();
    for at in 0..Board::MAX_ENTRIES {
        let key = format!("{at} {}", "k".repeat(90));
        board
            .write(&key, &"c".repeat(4_000), &"w".repeat(200).into(), 1)
            .unwrap();
    }
    board
        .write("0 kk", "written last", &"pilot".into(), 2)
        .unwrap_err();
    let first = board.iter().next().unwrap().key.clone();
    board
        .write(&first, "written last", &"pilot".into(), 2)
        .unwrap();
    let text = shown(&board);
    assert!(text.len() <= MAX_SHOWN_BYTES, "{}", text.len());
    assert!(
        text.contains("written last") && text.contains("`999 "),
        "the newest are shown"
    );
    assert!(!text.contains("`1 k"), "the oldest are not");
}

#[test]
fn heading_names_other_writers() {
    let mut board = Board::default();
    for by in ["pilot", "watch", "cook"] {
        board.write("tide", by, &by.into(), 3).unwrap();
    }
    let heading = heading(board.get("tide").unwrap());
    let expected =
        "## `tide` by cook, round 3, version 3; also written by pilot, watch, which does not stand";
    assert_eq!(heading, expected);
}
