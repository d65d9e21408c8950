//! Conversation ids as file names: every id has exactly one name, and no two ids share a name on
//! any file system.
//!
//! File systems differ: some ignore case, some reserve names such as `con`, all limit the length.
//! Every byte that could cause a collision is escaped, so two conversations never share a file.

/// The maximum length. A name with its extension and its temporary affixes must fit into 255 bytes.
const MAX_BYTES: usize = 200;

/// Names that Windows reserves for devices, with any extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Returns the file name for an id, without the extension; `None` if the id is too long. Lower-case
/// letters, digits, `-`, `_` and `.` are literal; every other byte becomes `%xx`.
pub(crate) fn escape(id: &str) -> Option<String> {
    let mut name = String::with_capacity(id.len());
    if id.is_empty() {
        return Some("%".to_owned());
    }
    let device = is_device(id);
    for (index, byte) in id.bytes().enumerate() {
        let literal = byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'-' | b'_' | b'.');
        if literal && !(index == 0 && (byte == b'.' || device)) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
        if name.len() > MAX_BYTES {
            return None;
        }
    }
    Some(name)
}

fn is_device(id: &str) -> bool {
    let stem = id.split('.').next().unwrap_or_default();
    let numbered = stem
        .strip_prefix("com")
        .or_else(|| stem.strip_prefix("lpt"));
    DEVICES.contains(&stem) || numbered.is_some_and(|number| number.len() == 1)
}

/// Returns the id that a name encodes, if that id encodes to exactly this name.
pub(crate) fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = if name == "%" { &[] } else { name.as_bytes() };
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = rest.get(2..)?;
    }
    let id = String::from_utf8(bytes).ok()?;
    (escape(&id)? == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(id: &str, name: &str) {
        assert_eq!(escape(id).as_deref(), Some(name));
        assert_eq!(unescape(name).as_deref(), Some(id));
    }

    #[test]
    fn escape_and_unescape_map_each_id_to_one_name() {
        check("monday-2", "monday-2");
        check("Monday", "%4donday");
        check("", "%");
        check("%", "%25");
        check("..", "%2e.");
        check("../up", "%2e.%2fup");
        check(".hidden", "%2ehidden");
        check("a.json", "a.json");
        check("a\0b", "a%00b");
        check("ü", "%c3%bc");
        check("con", "%63on");
        check("nul.txt", "%6eul.txt");
        check("com1", "%63om1");
        check("common", "common");
        check("c:\\x", "c%3a%5cx");
    }

    #[test]
    fn unescape_rejects_names_that_escape_never_returns() {
        for name in [
            "", ".", "..", "A", "%6", "%zz", "%61", "%C3%BC", "a b", "%ff", "con", ".a", "%2f%",
        ] {
            assert_eq!(unescape(name), None, "{name:?}");
        }
    }

    #[test]
    fn escape_rejects_ids_that_are_too_long() {
        assert!(escape(&"a".repeat(200)).is_some());
        assert!(escape(&"a".repeat(201)).is_none());
        assert!(escape(&"A".repeat(67)).is_none());
    }
}
