use super::*;

fn lines<'a>(texts: &[&'a str]) -> Vec<Line<'a>> {
    // The newest line is first.
    texts
        .iter()
        .rev()
        .map(|text| Line {
            heading: "somebody".to_owned(),
            text,
        })
        .collect()
}

#[track_caller]
fn check(texts: &[&str], tokens: u64, workers: usize, shown: usize, left_out: bool) -> Vec<String> {
    let (found, out) = within(lines(texts).into_iter(), tokens, workers);
    assert_eq!((found.len(), out), (shown, left_out));
    let cost: u64 = found.iter().map(|(_, text)| estimate_tokens(text)).sum();
    // The rest is fences and markers.
    assert!(cost <= tokens + 20 * shown as u64, "{cost} of {tokens}");
    found.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn lines_that_fit_are_shown() {
    check(&[], 1_000, 2, 0, false);
    check(&["a", "b", "c"], 1_000, 2, 3, false);
    let shown = check(&["a", "b", "c"], 0, 2, 1, true);
    assert!(shown[0].contains("cut here: 0 of 1"), "{shown:?}");
}

#[test]
fn older_lines_are_cut_and_omitted_first() {
    let long = "word ".repeat(400);
    let texts = [&*long, "first", &*long, "second"];
    let shown = check(&texts, 540, 2, 2, true);
    assert!(shown[0].contains("second") && !shown[1].contains("cut here"));
    let shown = check(&texts, 800, 2, 4, false);
    assert!(shown[2].contains("first") && shown[3].contains("cut here"));
}

#[test]
fn long_turn_does_not_displace_others() {
    let huge = "東京".repeat(100_000);
    let shown = check(&["a point", "another", &huge], 1_000, 3, 3, false);
    assert!(shown[0].contains("cut here") && shown[2].contains("a point"));
    let many: Vec<&str> = std::iter::repeat_n(&*huge, 1_000).collect();
    check(&many, 8_000, 1_000, 80, true);
}
