//! Tools made from executables with a manifest.
//!
//! A program in any language becomes a tool by a manifest beside it. The arguments arrive as JSON
//! on its standard input, the result is JSON on its standard output, and standard error is shown as
//! progress. A problem with one manifest is reported for that file and does not affect other tools.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::text::{head, json_problem};
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use levity_sandbox::{CommandLimit, CommandOutput, Exit, Sandbox, Workspace};
use levity_tools::{FileLoader, LinkedLoader, LoadedFile, ToolFile};
use serde::Deserialize;
use serde_json::{Value, json};

/// The suffix of a manifest's file name.
const MANIFEST_SUFFIX: &str = ".tool.json";

/// The time limit of a call in the default sandbox.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// Loads tools from executables with a manifest (`NAME.tool.json`) in a folder.
///
/// Every [`FolderTools`](levity_tools::FolderTools) in a program that links this crate already has
/// one. By default, executables can read only the tools folder and have no network. They can write
/// only to a private folder, which is removed afterwards. To grant more, add a loader with your own
/// sandbox:
///
/// ```no_run
/// use levity_builtin_tools::ExecutableLoader;
/// use levity_sandbox::{Sandbox, Workspace};
/// use levity_tools::FolderTools;
///
/// let sandbox = Sandbox::builder(Workspace::open("project")?).allow_read("tools").build()?;
/// let tools = FolderTools::builder("tools").loader(ExecutableLoader::new(sandbox)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Manifest
/// `NAME.tool.json` describes the tool `NAME`. Only `description` is required; unknown fields are
/// an error.
///
/// ```json
/// {
///   "description": "Counts the words of a text.",
///   "input": { "type": "object", "properties": { "text": { "type": "string" } } },
///   "run": ["count-words", "--json"],
///   "read_only": true,
///   "timeout_seconds": 20
/// }
/// ```
///
/// `run` names a file in the same folder and its first arguments; by default it is the file `NAME`.
/// A link to a file outside of the folder is an error.
/// The flags `read_only`, `idempotent`, `destructive` and `parallel` become hints of the tool.
/// The default sandbox allows one hour for a call. A call fails if the program writes more than the
/// sandbox captures, or something other than JSON.
#[derive(Debug, Default)]
pub struct ExecutableLoader {
    configured: Option<Sandbox>,
    /// Globs of files that the default sandbox hides.
    denied: Vec<String>,
    /// The folder of the first manifest and its default sandbox. An error here affects only
    /// executables, not the other tools of the folder.
    fallback: OnceLock<(PathBuf, Result<Sandbox, String>)>,
}

impl ExecutableLoader {
    /// Creates a loader that runs executables in `sandbox`.
    ///
    /// The same sandbox serves all executables, whichever folder they are in.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use levity_builtin_tools::ExecutableLoader;
    /// use levity_sandbox::{Level, Sandbox, Workspace};
    /// use levity_tools::FileLoader;
    ///
    /// let sandbox =
    ///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
    /// let loader = ExecutableLoader::new(sandbox);
    /// assert!(loader.takes("count-words.tool.json"));
    /// assert!(!loader.takes("count-words"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(sandbox: Sandbox) -> Self {
        Self {
            configured: Some(sandbox),
            ..Self::default()
        }
    }

    /// Hides the files of the tools folder that this glob matches from its executables, as
    /// [`deny`](levity_sandbox::WorkspaceBuilder::deny) does for a workspace.
    ///
    /// This applies to the default sandbox only; a sandbox of [`new`](Self::new) has its own
    /// workspace. On a system that cannot hide files, executables are then unavailable.
    ///
    /// ```no_run
    /// use levity_builtin_tools::ExecutableLoader;
    /// use levity_tools::FolderTools;
    ///
    /// let loader = ExecutableLoader::default().deny("/servers.json");
    /// let tools = FolderTools::builder("tools").loader(loader).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deny(mut self, glob: impl Into<String>) -> Self {
        self.denied.push(glob.into());
        self
    }

    /// Returns the sandbox for the executables of a folder.
    fn sandbox(&self, folder: &Path) -> Result<Sandbox, String> {
        if let Some(configured) = &self.configured {
            return Ok(configured.clone());
        }
        let (first, fallback) = self
            .fallback
            .get_or_init(|| (folder.to_owned(), default_sandbox(folder, &self.denied)));
        if first == folder {
            fallback.clone()
        } else {
            default_sandbox(folder, &self.denied)
        }
    }
}

inventory::submit! { LinkedLoader::new(|| Arc::new(ExecutableLoader::default())) }

/// The folder is read-only, so a program cannot change itself or the manifests of others. The
/// message is for the report on the manifest.
fn default_sandbox(folder: &Path, denied: &[String]) -> Result<Sandbox, String> {
    let workspace = denied
        .iter()
        .fold(Workspace::builder(folder), |builder, glob| {
            builder.deny(glob)
        })
        .read_only()
        .build()
        .map_err(|error| error.to_string())?;
    let sandbox = Sandbox::builder(workspace).time_limit(MAX_TIME).build();
    let sandbox = sandbox.map_err(|error| format!("no sandbox is available to run it: {error}"))?;
    if !denied.is_empty() && !sandbox.report().hidden_files.is_enforced {
        return Err(
            "it cannot run, because this system cannot hide the denied files of its \
            folder from it; move those files to another folder"
                .to_owned(),
        );
    }
    Ok(sandbox)
}

/// The contents of a manifest file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    description: String,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    output: Option<Value>,
    /// The executable and its first arguments; by default, the file with the tool's name.
    #[serde(default)]
    run: Vec<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    destructive: bool,
    #[serde(default)]
    parallel: bool,
    #[serde(default)]
    timeout_seconds: Option<u64>,
}

impl Manifest {
    /// Passes the flags of the manifest on. They are claims of the manifest's author; the sandbox
    /// does not enforce them.
    fn hints(&self) -> Hints {
        let mut hints = Hints::new();
        hints = if self.idempotent {
            hints.idempotent()
        } else {
            hints
        };
        hints = if self.read_only {
            hints.read_only()
        } else {
            hints
        };
        hints = if self.destructive {
            hints.destructive()
        } else {
            hints
        };
        hints = if self.parallel {
            hints.parallel()
        } else {
            hints
        };
        match self.timeout_seconds {
            Some(seconds) => hints.timeout(Duration::from_secs(seconds)),
            None => hints,
        }
    }

    /// A manifest without `input` describes a tool without arguments.
    fn spec(&self, name: &str) -> ToolSpec {
        let without_arguments =
            || json!({"type": "object", "properties": {}, "additionalProperties": false});
        let input = self.input.clone().unwrap_or_else(without_arguments);
        let spec = ToolSpec::new(name, &self.description)
            .with_hints(self.hints())
            .with_input(input);
        match &self.output {
            Some(schema) => spec.with_output(schema.clone()),
            None => spec,
        }
    }
}

impl FileLoader for ExecutableLoader {
    fn takes(&self, name: &str) -> bool {
        name.ends_with(MANIFEST_SUFFIX)
    }

    fn load(&self, file: &ToolFile) -> LoadedFile {
        match self.tool(file) {
            Ok(tool) => LoadedFile::tools(vec![Arc::new(tool)]),
            Err(problem) => LoadedFile::problem(problem),
        }
    }
}

impl ExecutableLoader {
    /// # Errors
    /// Returns a message for the person who wrote the manifest: invalid JSON, a missing program, no
    /// sandbox, or a time limit beyond that of the sandbox.
    fn tool(&self, file: &ToolFile) -> Result<Executable, String> {
        let name = file
            .name
            .strip_suffix(MANIFEST_SUFFIX)
            .unwrap_or(&file.name);
        let manifest: Manifest = serde_json::from_str(&file.text)
            .map_err(|error| format!("the manifest is invalid: {}", json_problem(&error)))?;
        let (program, args) = match &*manifest.run {
            [] => (name, &[] as &[String]),
            [program, args @ ..] => (program.as_str(), args),
        };
        let path = file.path.with_file_name(program);
        check_program(program, &path)?;
        let sandbox = self.sandbox(file.path.parent().unwrap_or(Path::new("")))?;
        let max = sandbox.time_limit();
        if manifest
            .timeout_seconds
            .is_some_and(|seconds| Duration::from_secs(seconds) > max)
        {
            return Err(format!(
                "`timeout_seconds` exceeds the sandbox's limit of {max:?}; lower it or raise the \
                    limit"
            ));
        }
        Ok(Executable {
            spec: manifest.spec(name),
            path,
            args: args.to_vec(),
            sandbox,
        })
    }
}

/// A name with a folder, and a link out of the folder, are refused, so a manifest cannot turn any
/// program of the system into a tool.
fn check_program(program: &str, path: &Path) -> Result<(), String> {
    let is_name = Path::new(program)
        .file_name()
        .is_some_and(|name| name == program);
    if !is_name {
        return Err(format!(
            "`{program}` must be a file name without a folder, next to the manifest"
        ));
    }
    let Ok(about) = path.metadata() else {
        return Err(format!(
            "no executable `{program}` is next to the manifest; name another one with `run`"
        ));
    };
    if !about.is_file() || !is_executable(&about) {
        return Err(format!(
            "`{program}` is not an executable file; run `chmod +x` on it"
        ));
    }
    if !is_in_own_folder(path) {
        return Err(format!(
            "`{program}` is a link to a file outside of the folder; copy the file instead"
        ));
    }
    Ok(())
}

/// Returns `true` if a file, with its links resolved, is in the folder of its path or below it.
fn is_in_own_folder(path: &Path) -> bool {
    let folder = path.parent().map(Path::canonicalize);
    match (path.canonicalize(), folder) {
        (Ok(target), Some(Ok(folder))) => target.starts_with(folder),
        _ => false,
    }
}

#[cfg(unix)]
fn is_executable(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    about.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}

/// A tool that runs a program for each call.
struct Executable {
    spec: ToolSpec,
    path: PathBuf,
    args: Vec<String>,
    sandbox: Sandbox,
}

#[async_trait]
impl Tool for Executable {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let program = self.path.to_string_lossy().into_owned();
        let argv = std::iter::once(program).chain(self.args.iter().cloned());
        let progress = cx.progress.clone();
        let command = self
            .sandbox
            .command(argv)
            .stdin(args.to_string().into_bytes())
            // Standard output is the result; standard error is progress for people to read.
            .on_output(move |stream, text| {
                if stream == levity_sandbox::Stream::Stderr {
                    progress.report(text);
                }
            });
        let finished = command.run().await;
        let finished = finished
            .map_err(|error| ToolError::failed("cannot run the program").with_source(error))?;
        output(&finished)
    }
}

/// Parses the result that a program wrote to standard output.
fn output(finished: &CommandOutput) -> Result<ToolOutput, ToolError> {
    let stderr = finished.stderr.to_string();
    let failed = |what: String| match stderr.trim() {
        "" => ToolError::failed(what),
        stderr => ToolError::failed(format!(
            "{what}; its standard error:\n{}",
            short(stderr, 4096)
        )),
    };
    match finished.exit {
        Exit::Code(0) => {}
        Exit::Limit(limit @ (CommandLimit::Time | CommandLimit::CpuTime)) => {
            return Err(ToolError::new(
                ToolErrorKind::Timeout,
                format!("the program was stopped: {limit}"),
            ));
        }
        exit => return Err(failed(format!("the program failed: {exit}"))),
    }
    let invalid = |text: String| ToolError::new(ToolErrorKind::InvalidOutput, text);
    if finished.stdout.is_truncated() {
        return Err(invalid(
            "the program wrote more output than the limit allows; reduce its output".to_owned(),
        ));
    }
    let text = finished.stdout.to_string();
    serde_json::from_str(&text)
        .map(ToolOutput::value)
        .map_err(|error| {
            invalid(format!(
                "the program did not write JSON to standard output ({error}): {}",
                short(&text, 256)
            ))
        })
}

/// Returns the text, cut to `max` bytes with an ellipsis if it is longer.
fn short(text: &str, max: usize) -> String {
    let shown = head(text, max);
    let dots = if shown.len() < text.len() { "…" } else { "" };
    format!("{shown}{dots}")
}
