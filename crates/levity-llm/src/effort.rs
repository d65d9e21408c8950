//! What the names of models tell.

use levity_core::ThinkingMode;

/// The name alone: without who serves it and whether it was tuned.
fn bare(id: &str) -> &str {
    let name = id.rsplit('/').next().unwrap_or(id);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    name.strip_prefix("openai.").unwrap_or(name)
}

/// Whether a model thinks before it speaks, as far as is known. OpenAI's do unless they are old or made for chats; of
/// others, only those that are known to.
pub(super) fn thinks(id: &str, own: bool) -> bool {
    let name = bare(id);
    if name.contains("-chat") {
        return false;
    }
    if own {
        let silent = ["gpt-3", "gpt-4", "chatgpt", "davinci", "babbage"];
        return !silent.iter().any(|start| name.starts_with(start));
    }
    let numbered = |start: &str, least: u32| {
        let rest = name.strip_prefix(start).unwrap_or_default();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..digits).and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|number| number >= least)
    };
    numbered("gpt-", 5) || numbered("o", 1) || numbered("grok-", 4)
}

/// How much a model is to think, in the protocol's words. Each generation has another word for the least.
pub(super) fn effort(id: &str, thinks: bool, mode: ThinkingMode) -> Option<&'static str> {
    let name = bare(id);
    let least = || match name {
        _ if !thinks => None,
        _ if name.contains("codex") || name.starts_with('o') => Some("low"),
        _ if name == "gpt-5" || name.starts_with("gpt-5-") => Some("minimal"),
        _ => Some("none"),
    };
    match mode {
        ThinkingMode::Off | ThinkingMode::Budget(0) => least(),
        ThinkingMode::Low | ThinkingMode::Budget(1..4_096) => Some("low"),
        ThinkingMode::Medium | ThinkingMode::Budget(4_096..16_384) => Some("medium"),
        ThinkingMode::High | ThinkingMode::Budget(_) => Some("high"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_thinks() {
        for name in ["gpt-5", "gpt-5.2", "o3-mini", "gpt-6-large", "codex-mini-latest", "ft:o4-mini:me"] {
            assert!(thinks(name, true), "{name}");
        }
        for name in ["gpt-4o", "gpt-4.1-nano", "chatgpt-4o-latest", "gpt-5-chat-latest", "ft:gpt-4o:me"] {
            assert!(!thinks(name, true), "{name}");
        }
        for name in ["openai/gpt-5-mini", "openai.gpt-5.6-luna", "grok-4.3", "o3", "gpt-5.4"] {
            assert!(thinks(name, false), "{name}");
        }
        for name in ["gpt-4o", "my-deployment", "olmo-2", "grok-3", "gpt-oss:20b"] {
            assert!(!thinks(name, false), "{name}");
        }
    }

    #[test]
    fn the_least_has_many_names() {
        let off = |id| effort(id, true, ThinkingMode::Off);
        assert_eq!((off("gpt-5"), off("gpt-5-mini")), (Some("minimal"), Some("minimal")));
        assert_eq!((off("gpt-5.2"), off("o3"), off("gpt-5-codex")), (Some("none"), Some("low"), Some("low")));
        assert_eq!(effort("gpt-4o", false, ThinkingMode::Off), None);
        assert_eq!(effort("gpt-5", true, ThinkingMode::Auto), None);
        assert_eq!(effort("gpt-5", true, ThinkingMode::Budget(20_000)), Some("high"));
    }
}
