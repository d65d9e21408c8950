//! Converts names and ids to the form that a provider accepts. Names from another provider or
//! invented by a model may be invalid.
//!
//! Providers accept 64 characters of `A-Z a-z 0-9 _ -` for the name of a tool. Tools of MCP servers
//! often have dots, slashes or longer names, and models invent names. Requests carry valid names,
//! and replies are mapped back, so programs only see the original ones.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use levity_core::{Request, ToolChoice};

/// The maximum length of a tool's name and of a call's id.
const MAX_LENGTH: usize = 64;

/// Returns a valid form of the name of a called tool: letters, digits, `_`, `-` and the characters
/// in `more`. Models call unknown tools by names that no tool can have, and a provider would reject
/// the conversation from then on.
///
/// `files/read` becomes `files_read`, and an empty name becomes `unnamed`.
pub(crate) fn tool<'a>(name: &'a str, more: &str) -> Cow<'a, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || more.contains(c);
    match name {
        "" => Cow::Borrowed("unnamed"),
        name if name.len() <= MAX_LENGTH && name.chars().all(fits) => Cow::Borrowed(name),
        name => name
            .chars()
            .take(MAX_LENGTH)
            .map(|c| if fits(c) { c } else { '_' })
            .collect(),
    }
}

/// Returns a valid form of a call's id. A long id is truncated, and a hash (FNV-1a) distinguishes
/// it from others with the same start.
///
/// The result has at most 64 bytes: 47 of the id, a `-` and 16 hexadecimal digits.
pub(crate) fn id(id: Cow<'_, str>) -> Cow<'_, str> {
    if id.len() <= MAX_LENGTH {
        return id;
    }
    let hash = hash(&id);
    let mut end = MAX_LENGTH - 17;
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}-{hash:016x}", id.get(..end).unwrap_or_default()))
}

/// The original names of tools, by the names under which they are offered.
pub(crate) type OriginalNames = HashMap<String, String>;

/// Returns the request with tool names that the provider accepts, if some need a change.
///
/// Two tools may get the same name, such as `a.b` and `a/b`. The one whose new name is taken
/// already gets a suffix from the hash of its original name. A tool choice that names a tool
/// follows its new name.
pub(crate) fn with_valid_names<'a>(
    request: &'a Request,
    fit: impl for<'n> Fn(&'n str) -> Cow<'n, str>,
) -> (Cow<'a, Request>, Option<Arc<OriginalNames>>) {
    if request
        .tools
        .iter()
        .all(|tool| fit(&tool.name) == tool.name)
    {
        return (Cow::Borrowed(request), None);
    }
    let mut original_names = OriginalNames::new();
    let is_taken = |name: &str, original_names: &OriginalNames| {
        original_names.contains_key(name) || request.tools.iter().any(|tool| tool.name == name)
    };
    let mut tools = Vec::with_capacity(request.tools.len());
    let mut request_of = request.clone();
    for tool in request.tools.iter() {
        let mut name = fit(&tool.name).into_owned();
        if name == tool.name {
            tools.push(tool.clone());
            continue;
        }
        if is_taken(&name, &original_names) {
            name = format!(
                "{}_{:08x}",
                name.get(..name.len().min(MAX_LENGTH - 9)).unwrap_or("tool"),
                hash(&tool.name) as u32
            );
        }
        if request.tool_choice == ToolChoice::Tool(tool.name.clone()) {
            request_of.tool_choice = ToolChoice::Tool(name.clone());
        }
        let mut renamed = (**tool).clone();
        renamed.name.clone_from(&name);
        original_names.insert(name, tool.name.clone());
        tools.push(Arc::new(renamed));
    }
    (
        Cow::Owned(request_of.with_tools(tools)),
        Some(Arc::new(original_names)),
    )
}

/// Returns the FNV-1a hash of a text.
///
/// The hash is stable across versions and machines, because origins and names in stored histories
/// contain it. It is not cryptographic.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_tool_name_is_unchanged() {
        assert_eq!(
            (tool("read_file-2", ""), tool("a.b:c", ".:")),
            ("read_file-2".into(), "a.b:c".into())
        );
        assert_eq!(
            (tool("functions.read file", ""), tool("", "")),
            ("functions_read_file".into(), "unnamed".into())
        );
        assert_eq!(tool(&"ä".repeat(100), ""), "_".repeat(64));
    }

    #[test]
    fn long_call_id_is_truncated_and_stays_unique() {
        let long = |end: &str| id(Cow::Owned(format!("{}{end}", "x".repeat(100)))).into_owned();
        assert_eq!(
            (id("call_1".into()), long("a").len()),
            ("call_1".into(), 64)
        );
        assert!(long("a") == long("a") && long("a") != long("b"));
    }
}
