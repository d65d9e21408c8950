use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::mcp::{Page, Prompt, PromptArgument, PromptAsk, PromptReply, Prompts, RequestError};

/// Prompts that are texts with gaps: `{{name}}` is filled in with what a person chose for `name`.
///
/// ```
/// use levity_serve::TextPrompts;
/// let prompts = TextPrompts::new().prompt("explain", "Explains a file.", "Explain `{{path}}` to a new colleague.");
/// assert_eq!(prompts.names().collect::<Vec<_>>(), ["explain"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextPrompts(BTreeMap<String, Text>);

#[derive(Clone, Debug)]
struct Text {
    description: String,
    template: String,
}

impl TextPrompts {
    /// How long a prompt in a file may be: 64 KiB.
    pub const LONGEST: u64 = 64 << 10;

    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one, or puts it in the place of another of that name.
    #[must_use]
    pub fn prompt(
        mut self,
        name: impl Into<String>,
        description: impl Into<String>,
        template: impl Into<String>,
    ) -> Self {
        let text = Text {
            description: description.into(),
            template: template.into(),
        };
        self.0.insert(name.into(), text);
        self
    }

    /// Adds the prompts of a folder: each file `NAME.md` is one. A first line that begins with `#`
    /// says what it is for.
    ///
    /// # Errors
    /// When the folder or a file in it cannot be read, or one is too long.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let failed = |path: &Path| {
            let what = format!("`{}` cannot be read", path.display());
            move |source| Error::Io { what, source }
        };
        for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
            let path = entry.map_err(failed(folder))?.path();
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
                continue;
            };
            if path.extension().is_none_or(|extension| extension != "md") || !path.is_file() {
                continue;
            }
            // A folder from elsewhere must not offer files of the user's to every client.
            let inside = (path.canonicalize().ok()).zip(folder.canonicalize().ok());
            if !inside.is_some_and(|(path, folder)| path.starts_with(folder)) {
                return Err(Error::setting(
                    "prompts",
                    format!("has `{name}.md`, which is a link out of the folder; copy the file"),
                ));
            }
            if path.metadata().map_err(failed(&path))?.len() > Self::LONGEST {
                return Err(Error::setting(
                    "prompts",
                    format!("has `{name}.md`, which is too long; 64 KiB is the most"),
                ));
            }
            let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
            let (description, template) = split(&text);
            self = self.prompt(name, description, template);
        }
        Ok(self)
    }

    /// These and others; of two of one name, the other's.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// What they are called.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Those that every agent has.
pub(super) fn ready() -> TextPrompts {
    TextPrompts::new().prompt(
        "delegate",
        "Hands a task to the agent.",
        "Call the tool `query` with this task, word for word, and tell me what came of it, with \
            what it took:\n\n{{task}}",
    )
}

fn split(text: &str) -> (String, String) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    match first.strip_prefix('#') {
        Some(title) => (
            title.trim_start_matches('#').trim().to_owned(),
            rest.trim().to_owned(),
        ),
        None => (String::new(), text.trim().to_owned()),
    }
}

/// The pieces of a template: what stands as it is, and names of gaps.
fn pieces(template: &str) -> Vec<(&str, Option<&str>)> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        let Some(end) = rest[start..].find("}}").map(|end| start + end) else {
            break;
        };
        let name = rest[start + 2..end].trim();
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match is_name {
            true => pieces.push((&rest[..start], Some(name))),
            false => pieces.push((&rest[..end + 2], None)),
        }
        rest = &rest[end + 2..];
    }
    pieces.push((rest, None));
    pieces
}

impl Text {
    fn shown(&self, name: &str) -> Prompt {
        let mut prompt = Prompt::new(name).with_description(self.description.as_str());
        for gap in pieces(&self.template)
            .into_iter()
            .filter_map(|(_, gap)| gap)
        {
            if prompt.arguments.iter().all(|known| known.name != gap) {
                prompt = prompt.with_argument(PromptArgument::required(gap));
            }
        }
        prompt
    }

    fn filled(&self, args: &BTreeMap<String, String>) -> Result<String, RequestError> {
        let mut text = String::new();
        for (before, gap) in pieces(&self.template) {
            text.push_str(before);
            if let Some(gap) = gap {
                let value = args
                    .get(gap)
                    .ok_or_else(|| RequestError::invalid(format!("the prompt needs `{gap}`")))?;
                text.push_str(value);
            }
        }
        Ok(text)
    }
}

#[async_trait]
impl Prompts for TextPrompts {
    async fn list(&self, _: Option<&str>) -> Result<Page<Prompt>, RequestError> {
        Ok(Page::all(
            self.0.iter().map(|(name, text)| text.shown(name)),
        ))
    }

    async fn get(&self, ask: PromptAsk) -> Result<PromptReply, RequestError> {
        let Some(text) = self.0.get(&ask.name) else {
            return Err(RequestError::not_found(format!(
                "there is no prompt `{}`",
                ask.name
            )));
        };
        Ok(PromptReply::user(text.filled(&ask.args)?).with_description(text.description.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_and_filled_in() {
        let text = Text {
            description: String::new(),
            template: "{{a}} and {{ b }}, {{a}}; {{}} {{not this}} {{open".to_owned(),
        };
        let names: Vec<_> = text
            .shown("x")
            .arguments
            .into_iter()
            .map(|argument| argument.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
        let args = [
            ("a".to_owned(), "{{b}}".to_owned()),
            ("b".to_owned(), "2".to_owned()),
        ]
        .into();
        assert_eq!(
            text.filled(&args).unwrap(),
            "{{b}} and 2, {{b}}; {{}} {{not this}} {{open"
        );
        assert!(text.filled(&BTreeMap::new()).is_err());
    }

    #[test]
    fn prompts_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("greet.md"),
            "# Says hello\nHello, {{name}}.\n",
        )
        .unwrap();
        std::fs::write(folder.path().join("notes.txt"), "nothing").unwrap();
        let prompts = TextPrompts::new().folder(folder.path()).unwrap();
        assert_eq!(prompts.names().collect::<Vec<_>>(), ["greet"]);
        assert_eq!(prompts.0["greet"].description, "Says hello");
        assert_eq!(prompts.0["greet"].template, "Hello, {{name}}.");
    }
}
