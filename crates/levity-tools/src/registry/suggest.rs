//! Suggestions for misspelled tool names.

/// The minimum similarity of two names, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

/// The maximum length of a compared name: no tool has a longer one, and comparing takes the product
/// of both lengths.
const MAX_NAME: usize = 64;

/// Returns the names most similar to `wanted`; at most three, the most similar first.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    if wanted.len() > MAX_NAME {
        return Vec::new();
    }
    let wanted = plain(wanted);
    let mut similar: Vec<_> = names
        .map(|name| (similarity(&wanted, &plain(name)), name))
        .collect();
    similar.retain(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    // The sort is stable: equally similar names keep the order of the tools.
    similar.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    similar
        .into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

fn similarity(wanted: &str, name: &str) -> f64 {
    let shorter = wanted.len().min(name.len());
    // `weather` for `get_weather` is far by edits, and still the likeliest.
    if shorter >= 4 && (name.contains(wanted) || wanted.contains(name)) {
        return 1.0 - 0.3 * (name.len().abs_diff(wanted.len()) as f64 / MAX_NAME as f64);
    }
    strsim::normalized_damerau_levenshtein(wanted, name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[track_caller]
    fn check(wanted: &str, expected: &[&str]) {
        let names = [
            "get_weather",
            "read_file",
            "write_file",
            "read-dir",
            "search",
            "x",
        ];
        assert_eq!(nearest(wanted, names.into_iter()), expected, "{wanted}");
    }

    #[test]
    fn similar_names_are_suggested() {
        check("weather", &["get_weather"]);
        check("GetWeather", &["get_weather"]);
        check("read_dir", &["read-dir", "read_file"]);
        check("raed_file", &["read_file"]);
        check("serch", &["search"]);
        check("functions.search", &["search"]);
    }

    #[test]
    fn dissimilar_names_are_not_suggested() {
        check("", &[]);
        check("delete_everything", &[]);
        check("日本語", &[]);
        check(&"x".repeat(1_000_000), &[]);
    }
}
