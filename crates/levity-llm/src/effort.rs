//! Infers from model names how models think, for OpenAI's protocols.
//!
//! The protocols have a field for the effort but no way to ask a model which words it accepts. A
//! wrong word is a rejected request, so the module decides by the name, and leaves the field out in
//! doubt. New models need new rules here; the tests list the names that the rules were made for.

use levity_core::ThinkingMode;

/// Returns the bare model name, without the server and the fine-tuning suffix.
///
/// `ft:gpt-4o:me` becomes `gpt-4o:me`, and `openai/gpt-5` becomes `gpt-5`.
fn bare_name(id: &str) -> &str {
    let name = id.rsplit('/').next().unwrap_or(id);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    name.strip_prefix("openai.").unwrap_or(name)
}

/// Returns `true` if a model thinks before it answers, as far as is known. OpenAI's models do
/// unless they are old or made for chat; of others, only the known ones do.
///
/// `own` is true for OpenAI's own server, where an unknown name is a new model that thinks.
pub(crate) fn thinks(id: &str, own: bool) -> bool {
    let name = bare_name(id);
    if name.contains("-chat") {
        return false;
    }
    if own {
        let silent = ["gpt-3", "gpt-4", "chatgpt", "davinci", "babbage"];
        return !silent.iter().any(|start| name.starts_with(start));
    }
    let numbered = |start: &str, minimum: u32| {
        let rest = name.strip_prefix(start).unwrap_or_default();
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest.get(..digits)
            .and_then(|digits| digits.parse::<u32>().ok())
            .is_some_and(|number| number >= minimum)
    };
    numbered("gpt-", 5) || numbered("o", 1) || numbered("grok-", 4)
}

/// Returns the protocol's word for a thinking mode. Each generation has a different word for the
/// lowest effort and rejects those of the others. `none` is valid from GPT-5.1 on, `minimal` only
/// for the first GPT-5, and `pro` models have no low effort. The result is `None` for a model
/// without a known word for "no thinking".
///
/// A budget in tokens becomes a word: below 4,096 low, below 16,384 medium, otherwise high. `base`
/// is the address of the server.
pub(crate) fn effort(
    base: &str,
    id: &str,
    thinks: bool,
    mode: ThinkingMode,
) -> Option<&'static str> {
    let wanted = match mode {
        ThinkingMode::Off | ThinkingMode::Budget(0) => {
            let lowest_effort = if takes_none(base, id) {
                Some("none")
            } else {
                lowest_effort(id)
            };
            return lowest_effort.filter(|_| thinks);
        }
        ThinkingMode::Low | ThinkingMode::Budget(1..4_096) => "low",
        ThinkingMode::Medium | ThinkingMode::Budget(4_096..16_384) => "medium",
        ThinkingMode::High | ThinkingMode::Budget(_) => "high",
        _ => return None,
    };
    match pro_version(bare_name(id)) {
        // The model has a single effort and needs no word for it.
        Some(0) => None,
        Some(_) if wanted == "low" => Some("medium"),
        _ => Some(wanted),
    }
}

/// Returns `true` if a server accepts `none` regardless of the model's own words. OpenRouter
/// translates efforts for each model, and Qwen on Groq knows no other words.
fn takes_none(base: &str, id: &str) -> bool {
    base.contains("openrouter.ai/") || (base.contains("groq.com/") && id.contains("qwen3"))
}

/// Returns the number after `gpt-5.` in the name of a `pro` model; 0 for the first one.
fn pro_version(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("gpt-5")?;
    let (version, _) = rest.split_once("-pro")?;
    if version.is_empty() {
        Some(0)
    } else {
        version.strip_prefix('.')?.parse().ok()
    }
}

/// Returns the word for the lowest effort of a model.
fn lowest_effort(id: &str) -> Option<&'static str> {
    let name = bare_name(id);
    let o_series = || {
        let rest = name.strip_prefix('o').unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_digit())
    };
    match name {
        // These models have a single effort, or none.
        _ if name.contains("-chat")
            || name.starts_with("o1-mini")
            || name.starts_with("o1-preview") =>
        {
            None
        }
        _ if name.contains("gpt-oss") || name.contains("codex") || o_series() => Some("low"),
        _ if pro_version(name) == Some(0) => None,
        _ if pro_version(name).is_some() => Some("medium"),
        "gpt-5" => Some("minimal"),
        _ if name.starts_with("gpt-5-") => Some("minimal"),
        _ if name.starts_with("gpt-5.") || newer_gpt(name) => Some("none"),
        // Google's own endpoint of this protocol serves these models.
        _ if name.starts_with("gemini-2.5-flash") => Some("none"),
        _ if name.starts_with("gemini-2.5") || name.starts_with("gemini-3") => Some("low"),
        _ if name.starts_with("grok-3-mini") => Some("low"),
        _ => None,
    }
}

/// Returns `true` for `gpt-6` and later.
fn newer_gpt(name: &str) -> bool {
    let rest = name.strip_prefix("gpt-").unwrap_or_default();
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..digits)
        .and_then(|digits| digits.parse::<u32>().ok())
        .is_some_and(|number| number >= 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_determines_thinking() {
        for name in [
            "gpt-5",
            "gpt-5.2",
            "o3-mini",
            "gpt-6-large",
            "codex-mini-latest",
            "ft:o4-mini:me",
        ] {
            assert!(thinks(name, true), "{name}");
        }
        for name in [
            "gpt-4o",
            "gpt-4.1-nano",
            "chatgpt-4o-latest",
            "gpt-5-chat-latest",
            "ft:gpt-4o:me",
        ] {
            assert!(!thinks(name, true), "{name}");
        }
        for name in [
            "openai/gpt-5-mini",
            "openai.gpt-5.6-luna",
            "grok-4.3",
            "o3",
            "gpt-5.4",
        ] {
            assert!(thinks(name, false), "{name}");
        }
        for name in ["gpt-4o", "my-deployment", "olmo-2", "grok-3", "gpt-oss:20b"] {
            assert!(!thinks(name, false), "{name}");
        }
    }

    #[test]
    fn lowest_effort_depends_on_model() {
        let off = |id| effort("", id, true, ThinkingMode::Off);
        assert_eq!(
            (off("gpt-5"), off("gpt-5-mini")),
            (Some("minimal"), Some("minimal"))
        );
        assert_eq!(
            (off("gpt-5.2"), off("o3"), off("gpt-5-codex")),
            (Some("none"), Some("low"), Some("low"))
        );
        for none in [
            "gpt-5.1",
            "openai/gpt-5.4-mini",
            "gpt-6",
            "gemini-2.5-flash-lite",
        ] {
            assert_eq!(off(none), Some("none"), "{none}");
        }
        for low in [
            "gpt-oss:20b",
            "openai/gpt-oss-120b",
            "gpt-5.1-codex",
            "o4-mini",
            "gemini-2.5-pro",
            "grok-3-mini",
        ] {
            assert_eq!(off(low), Some("low"), "{low}");
        }
        let untold = [
            "gpt-4o",
            "gpt-5.1-chat-latest",
            "gpt-5-pro",
            "o1-mini",
            "qwen3",
            "grok-4",
            "my-deployment",
            "",
            "o",
        ];
        for silent in untold {
            assert_eq!(off(silent), None, "{silent}");
        }
        assert_eq!(effort("", "gpt-4o", false, ThinkingMode::Off), None);
        assert_eq!(effort("", "gpt-5", true, ThinkingMode::Auto), None);
        assert_eq!(
            effort("", "gpt-5", true, ThinkingMode::Budget(20_000)),
            Some("high")
        );
        let at = |base, id| effort(base, id, true, ThinkingMode::Off);
        assert_eq!(
            at("https://openrouter.ai/api/v1", "qwen/qwen3-32b"),
            Some("none")
        );
        assert_eq!(
            at("https://api.groq.com/openai/v1", "qwen/qwen3-32b"),
            Some("none")
        );
        assert_eq!(
            at("https://api.groq.com/openai/v1", "openai/gpt-oss-20b"),
            Some("low")
        );
        let low = |id| effort("", id, true, ThinkingMode::Low);
        assert_eq!(
            (low("gpt-5-pro"), low("gpt-5.2-pro"), low("gpt-5.2")),
            (None, Some("medium"), Some("low"))
        );
    }
}
