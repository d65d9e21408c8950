//! Prompts made of text templates, from code or from a folder of files.
//!
//! Arguments are inserted as they are and are not scanned for placeholders again, so a value that
//! contains `{{x}}` stays text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::mcp::{Page, Prompt, PromptArgument, PromptReply, PromptRequest, Prompts, RequestError};

/// Prompts from text templates: `{{name}}` is replaced by the value that a user chose for `name`.
///
/// ```
/// use levity_serve::TextPrompts;
/// let prompts = TextPrompts::new().prompt(
///     "explain",
///     "Explains a file.",
///     "Explain `{{path}}` to a new colleague.",
/// );
/// assert_eq!(prompts.names().collect::<Vec<_>>(), ["explain"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextPrompts(BTreeMap<String, Template>);

/// A prompt with its placeholders. All placeholders are required arguments.
#[derive(Clone, Debug)]
struct Template {
    description: String,
    template: String,
}

impl TextPrompts {
    /// The maximum length of a prompt in a file: 64 KiB.
    pub const LONGEST: u64 = 64 << 10;

    /// Creates an empty set of prompts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a prompt, or replaces the one with that name.
    ///
    /// ```
    /// use levity_serve::TextPrompts;
    /// let prompts = TextPrompts::new()
    ///     .prompt("review", "Reviews a change.", "Review {{branch}}.")
    ///     .prompt("plan", "Plans a task.", "Plan {{task}} in {{steps}} steps.");
    /// assert_eq!(prompts.names().collect::<Vec<_>>(), ["plan", "review"]); // sorted by name
    /// ```
    #[must_use]
    pub fn prompt(
        mut self,
        name: impl Into<String>,
        description: impl Into<String>,
        template: impl Into<String>,
    ) -> Self {
        let text = Template {
            description: description.into(),
            template: template.into(),
        };
        self.0.insert(name.into(), text);
        self
    }

    /// Adds the prompts of a folder: each file `NAME.md` is one. A first line that begins with `#`
    /// is its description.
    ///
    /// Links that lead out of the folder are errors, because a folder of others must not expose
    /// your files.
    ///
    /// ```
    /// use levity_serve::TextPrompts;
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// std::fs::write(folder.join("explain.md"), "# Explains a file.\nExplain {{path}}.")?;
    /// std::fs::write(folder.join("notes.txt"), "not a prompt")?;
    /// let prompts = TextPrompts::new().folder(folder)?;
    /// assert_eq!(prompts.names().collect::<Vec<_>>(), ["explain"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the folder or a file in it cannot be read, or if a file is too long.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let failed = |path: &Path| {
            let what = format!("cannot read `{}`", path.display());
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
            // A folder from an untrusted source must not expose other files of the user to every
            // client.
            let resolved = (path.canonicalize().ok()).zip(folder.canonicalize().ok());
            if !resolved.is_some_and(|(path, folder)| path.starts_with(folder)) {
                return Err(Error::setting(
                    "prompts",
                    format!(
                        "contains `{name}.md`, which links to a file outside the folder; copy \
                        the file instead"
                    ),
                ));
            }
            if path.metadata().map_err(failed(&path))?.len() > Self::LONGEST {
                return Err(Error::setting(
                    "prompts",
                    format!("contains `{name}.md`, which is too long; the limit is 64 KiB"),
                ));
            }
            let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
            let (description, template) = split(&text);
            self = self.prompt(name, description, template);
        }
        Ok(self)
    }

    /// Adds other prompts. If both sets have a prompt with the same name, the other one is used.
    ///
    /// ```
    /// use levity_serve::TextPrompts;
    /// let one = TextPrompts::new().prompt("greet", "Old.", "Hello.");
    /// let both = one.and(TextPrompts::new().prompt("greet", "New.", "Good morning."));
    /// assert_eq!(both.names().count(), 1);
    /// ```
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Returns the names of the prompts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Returns the prompts that every agent offers.
pub(super) fn default_prompts() -> TextPrompts {
    TextPrompts::new().prompt(
        "delegate",
        "Delegates a task to the agent.",
        "Call the tool `query` with this task, word for word, and report the result, with what it \
            took:\n\n{{task}}",
    )
}

/// Splits a file into its description and its template. Without a heading, the description is
/// empty.
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

/// Splits a template into pieces of literal text, each followed by a placeholder name if there is
/// one.
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

impl Template {
    /// Returns the prompt as clients list it, with each placeholder once, in order of appearance.
    fn describe(&self, name: &str) -> Prompt {
        let mut prompt = Prompt::new(name).with_description(self.description.as_str());
        let mut known = BTreeSet::new();
        for placeholder in pieces(&self.template)
            .into_iter()
            .filter_map(|(_, placeholder)| placeholder)
        {
            if known.insert(placeholder) {
                prompt = prompt.with_argument(PromptArgument::required(placeholder));
            }
        }
        prompt
    }

    /// Fails if an argument is missing, or if the text would be longer than `max_bytes`. Arguments
    /// without a placeholder are ignored.
    fn fill(
        &self,
        args: &BTreeMap<String, String>,
        max_bytes: usize,
    ) -> Result<String, RequestError> {
        let mut parts = Vec::new();
        for (before, placeholder) in pieces(&self.template) {
            parts.push(before);
            if let Some(placeholder) = placeholder {
                let value = args.get(placeholder).ok_or_else(|| {
                    RequestError::invalid(format!(
                        "the prompt requires the argument \
                        `{placeholder}`"
                    ))
                })?;
                parts.push(value);
            }
        }
        // A template can repeat an argument often, so the length is known before any text is
        // copied.
        let bytes = parts
            .iter()
            .fold(0, |sum: usize, part| sum.saturating_add(part.len()));
        if bytes > max_bytes {
            return Err(RequestError::prompt_too_long(max_bytes));
        }
        Ok(parts.concat())
    }
}

#[async_trait]
impl Prompts for TextPrompts {
    async fn list(&self, _: Option<&str>) -> Result<Page<Prompt>, RequestError> {
        Ok(Page::all(
            self.0.iter().map(|(name, text)| text.describe(name)),
        ))
    }

    async fn get(&self, ask: PromptRequest) -> Result<PromptReply, RequestError> {
        let Some(text) = self.0.get(&ask.name) else {
            return Err(RequestError::not_found(format!(
                "no prompt has the name `{}`",
                ask.name
            )));
        };
        let filled = text.fill(&ask.args, ask.max_bytes)?;
        Ok(PromptReply::user(filled).with_description(text.description.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_listed_and_replaced() {
        let text = Template {
            description: String::new(),
            template: "{{a}} and {{ b }}, {{a}}; {{}} {{not this}} {{open".to_owned(),
        };
        let names: Vec<_> = text
            .describe("x")
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
            text.fill(&args, 44).unwrap(),
            "{{b}} and 2, {{b}}; {{}} {{not this}} {{open"
        );
        assert!(text.fill(&args, 43).is_err());
        assert!(text.fill(&BTreeMap::new(), 44).is_err());
    }

    #[test]
    fn template_beyond_the_limit_is_rejected_before_it_is_filled() {
        let text = Template {
            description: String::new(),
            template: "{{a}}".repeat(1_000),
        };
        let args = [("a".to_owned(), "x".repeat(10_000))].into();
        let error = text.fill(&args, 9_999_999).unwrap_err().to_string();
        assert!(error.contains("more than 9999999 bytes"), "{error}");
        assert_eq!(text.fill(&args, 10_000_000).unwrap().len(), 10_000_000);
    }

    #[test]
    fn folder_adds_its_markdown_files_as_prompts() {
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
