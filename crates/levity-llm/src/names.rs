//! Names and ids as providers take them. What another provider gave out, or a model made up, may be
//! none.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use levity_core::{Request, ToolChoice};

/// The longest name of a tool, and the longest id of a call.
const LONGEST: usize = 64;

/// The name of a tool that was called: letters, digits, `_`, `-` and what else is in `more`. Models
/// call tools that nobody has, by names that no tool can have; a provider would refuse the
/// conversation from then on.
pub(crate) fn tool<'a>(name: &'a str, more: &str) -> Cow<'a, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || more.contains(c);
    match name {
        "" => Cow::Borrowed("unnamed"),
        name if name.len() <= LONGEST && name.chars().all(fits) => Cow::Borrowed(name),
        name => name
            .chars()
            .take(LONGEST)
            .map(|c| if fits(c) { c } else { '_' })
            .collect(),
    }
}

/// The id of a call. One that is too long is cut, and told from others that begin alike by a hash
/// (FNV-1a).
pub(crate) fn id(id: Cow<'_, str>) -> Cow<'_, str> {
    if id.len() <= LONGEST {
        return id;
    }
    let hash = hash(&id);
    let mut end = LONGEST - 17;
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}-{hash:016x}", id.get(..end).unwrap_or_default()))
}

/// What tools are called in truth, by the names they are offered under.
pub(crate) type Offered = HashMap<String, String>;

/// A request whose tools have names that the provider takes, where some had others.
pub(crate) fn offered<'a>(
    request: &'a Request,
    fit: impl for<'n> Fn(&'n str) -> Cow<'n, str>,
) -> (Cow<'a, Request>, Option<Arc<Offered>>) {
    if request
        .tools
        .iter()
        .all(|tool| fit(&tool.name) == tool.name)
    {
        return (Cow::Borrowed(request), None);
    }
    let mut offered = Offered::new();
    let taken = |name: &str, offered: &Offered| {
        offered.contains_key(name) || request.tools.iter().any(|tool| tool.name == name)
    };
    let mut tools = Vec::with_capacity(request.tools.len());
    let mut request_of = request.clone();
    for tool in request.tools.iter() {
        let mut name = fit(&tool.name).into_owned();
        if name == tool.name {
            tools.push(tool.clone());
            continue;
        }
        if taken(&name, &offered) {
            name = format!(
                "{}_{:08x}",
                name.get(..name.len().min(LONGEST - 9)).unwrap_or("tool"),
                hash(&tool.name) as u32
            );
        }
        if request.tool_choice == ToolChoice::Tool(tool.name.clone()) {
            request_of.tool_choice = ToolChoice::Tool(name.clone());
        }
        let mut clean = (**tool).clone();
        clean.name.clone_from(&name);
        offered.insert(name, tool.name.clone());
        tools.push(Arc::new(clean));
    }
    (
        Cow::Owned(request_of.with_tools(tools)),
        Some(Arc::new(offered)),
    )
}

/// A short number for a text (FNV-1a).
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_stays() {
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
    fn a_long_id_is_cut_and_stays_itself() {
        let long = |end: &str| id(Cow::Owned(format!("{}{end}", "x".repeat(100)))).into_owned();
        assert_eq!(
            (id("call_1".into()), long("a").len()),
            ("call_1".into(), 64)
        );
        assert!(long("a") == long("a") && long("a") != long("b"));
    }
}
