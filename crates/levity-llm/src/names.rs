//! Names and ids as providers take them. What another provider gave out, or a model made up, may be none.

use std::borrow::Cow;

/// The longest name of a tool, and the longest id of a call.
const LONGEST: usize = 64;

/// The name of a tool that was called: letters, digits, `_`, `-` and what else is in `more`. Models call tools that
/// nobody has, by names that no tool can have; a provider would refuse the conversation from then on.
pub(crate) fn tool<'a>(name: &'a str, more: &str) -> Cow<'a, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || more.contains(c);
    match name {
        "" => Cow::Borrowed("unnamed"),
        name if name.len() <= LONGEST && name.chars().all(fits) => Cow::Borrowed(name),
        name => name.chars().take(LONGEST).map(|c| if fits(c) { c } else { '_' }).collect(),
    }
}

/// The id of a call. One that is too long is cut, and told from others that begin alike by a hash (FNV-1a).
#[cfg(any(feature = "openai", feature = "anthropic"))]
pub(crate) fn id(id: Cow<'_, str>) -> Cow<'_, str> {
    if id.len() <= LONGEST {
        return id;
    }
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut end = LONGEST - 17;
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}-{hash:016x}", id.get(..end).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_stays() {
        assert_eq!((tool("read_file-2", ""), tool("a.b:c", ".:")), ("read_file-2".into(), "a.b:c".into()));
        assert_eq!(
            (tool("functions.read file", ""), tool("", "")),
            ("functions_read_file".into(), "unnamed".into())
        );
        assert_eq!(tool(&"ä".repeat(100), ""), "_".repeat(64));
    }

    #[cfg(any(feature = "openai", feature = "anthropic"))]
    #[test]
    fn a_long_id_is_cut_and_stays_itself() {
        let long = |end: &str| id(Cow::Owned(format!("{}{end}", "x".repeat(100)))).into_owned();
        assert_eq!((id("call_1".into()), long("a").len()), ("call_1".into(), 64));
        assert!(long("a") == long("a") && long("a") != long("b"));
    }
}
