//! Ids as names of files: each id has one name, whatever is in it, and no two have the same on any
//! file system.

/// A name with its ending has to fit into 255 bytes, together with what stands around it for a
/// moment.
const LONGEST: usize = 200;

/// Names that Windows takes for devices, whatever the ending.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// The name for an id, without its ending; `None` when the id is too long. Small letters, digits,
/// `-`, `_` and `.` stand for themselves; all else, such as capitals, is written as the `%xx` of
/// its bytes.
pub(crate) fn escape(id: &str) -> Option<String> {
    let mut name = String::with_capacity(id.len());
    if id.is_empty() {
        return Some("%".to_owned());
    }
    let device = is_device(id);
    for (at, byte) in id.bytes().enumerate() {
        let plain = byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'-' | b'_' | b'.');
        if plain && !(at == 0 && (byte == b'.' || device)) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
        if name.len() > LONGEST {
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

/// The id that a name stands for, if there is one that has just this name.
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
    fn each_id_has_one_name() {
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
    fn other_names_are_nobodys() {
        for name in [
            "", ".", "..", "A", "%6", "%zz", "%61", "%C3%BC", "a b", "%ff", "con", ".a", "%2f%",
        ] {
            assert_eq!(unescape(name), None, "{name:?}");
        }
    }

    #[test]
    fn long_ids_have_none() {
        assert!(escape(&"a".repeat(200)).is_some());
        assert!(escape(&"a".repeat(201)).is_none());
        assert!(escape(&"A".repeat(67)).is_none());
    }
}
