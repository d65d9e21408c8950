//! Executables with a manifest.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::text::{head, json_problem};
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use levity_sandbox::{CommandLimit, CommandOutput, Exit, Sandbox, Workspace};
use levity_tools::{FileLoader, LinkedLoader, Loaded, ToolFile};
use serde::Deserialize;
use serde_json::{Value, json};

/// How a manifest's name ends.
const END: &str = ".tool.json";

/// How long a call may take at most in the sandbox that is made when none is given.
const LONGEST: Duration = Duration::from_secs(3600);

/// Makes tools of executables with a manifest (`NAME.tool.json`) in a folder.
///
/// Every [`FolderTools`](levity_tools::FolderTools) of a program that links this crate has one
/// already. By default, executables may read the folder of the tools and nothing else, have no
/// network, and may write only to a folder of their own that is removed afterwards. To give them
/// more, add a loader with a sandbox of your own:
///
/// ```no_run
/// use levity_builtin_tools::ExecutableLoader;
/// use levity_sandbox::{Sandbox, Workspace};
/// use levity_tools::FolderTools;
///
/// let sandbox = Sandbox::builder(Workspace::open("project")?).read("tools").build()?;
/// let tools = FolderTools::builder("tools").loader(ExecutableLoader::new(sandbox)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ExecutableLoader {
    given: Option<Sandbox>,
    /// The folder of the first manifest, and its sandbox: where a system cannot hold commands,
    /// other tools need not suffer.
    made: OnceLock<(PathBuf, Result<Sandbox, String>)>,
}

impl ExecutableLoader {
    /// Executables run in this sandbox.
    pub fn new(sandbox: Sandbox) -> Self {
        Self {
            given: Some(sandbox),
            made: OnceLock::new(),
        }
    }

    /// The sandbox for executables of a folder.
    fn sandbox(&self, folder: &Path) -> Result<Sandbox, String> {
        if let Some(given) = &self.given {
            return Ok(given.clone());
        }
        let (first, made) = self
            .made
            .get_or_init(|| (folder.to_owned(), default_sandbox(folder)));
        if first == folder {
            made.clone()
        } else {
            default_sandbox(folder)
        }
    }
}

inventory::submit! { LinkedLoader::new(|| Arc::new(ExecutableLoader::default())) }

fn default_sandbox(folder: &Path) -> Result<Sandbox, String> {
    let workspace = Workspace::builder(folder)
        .read_only()
        .build()
        .map_err(|error| error.to_string())?;
    let sandbox = Sandbox::builder(workspace).time(LONGEST).build();
    sandbox.map_err(|error| format!("there is no sandbox to run it in: {error}"))
}

/// What a manifest says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    description: String,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    output: Option<Value>,
    /// The executable and arguments that come before nothing else; the file of the tool's name by
    /// default.
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

    fn spec(&self, name: &str) -> ToolSpec {
        let input = self
            .input
            .clone()
            .unwrap_or_else(|| json!({"type": "object", "properties": {}}));
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
        name.ends_with(END)
    }

    fn load(&self, file: &ToolFile) -> Loaded {
        match self.tool(file) {
            Ok(tool) => Loaded::tools(vec![Arc::new(tool)]),
            Err(problem) => Loaded::problem(problem),
        }
    }
}

impl ExecutableLoader {
    fn tool(&self, file: &ToolFile) -> Result<Executable, String> {
        let name = file.name.strip_suffix(END).unwrap_or(&file.name);
        let manifest: Manifest = serde_json::from_str(&file.text)
            .map_err(|error| format!("the manifest cannot be used: {}", json_problem(&error)))?;
        let (program, args) = match &*manifest.run {
            [] => (name, &[] as &[String]),
            [program, args @ ..] => (program.as_str(), args),
        };
        let path = file.path.with_file_name(program);
        check_program(program, &path)?;
        let sandbox = self.sandbox(file.path.parent().unwrap_or(Path::new("")))?;
        let most = sandbox.time();
        if manifest
            .timeout_seconds
            .is_some_and(|seconds| Duration::from_secs(seconds) > most)
        {
            return Err(format!(
                "`timeout_seconds` is more than the sandbox allows, which is {most:?}"
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

fn check_program(program: &str, path: &Path) -> Result<(), String> {
    let is_name = Path::new(program)
        .file_name()
        .is_some_and(|name| name == program);
    if !is_name {
        return Err(format!(
            "`{program}` must be a file beside the manifest, without a folder"
        ));
    }
    let Ok(about) = path.metadata() else {
        return Err(format!(
            "there is no executable `{program}` beside it; name another one with `run`"
        ));
    };
    if !about.is_file() || !may_run(&about) {
        return Err(format!(
            "`{program}` is no executable file; `chmod +x` makes it one"
        ));
    }
    Ok(())
}

#[cfg(unix)]
fn may_run(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    about.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn may_run(_: &std::fs::Metadata) -> bool {
    true
}

/// A program that is called as a tool.
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
        let words = std::iter::once(program).chain(self.args.iter().cloned());
        let progress = cx.progress.clone();
        let command = self
            .sandbox
            .command(words)
            .stdin(args.to_string().into_bytes())
            // What it writes to standard output is its result; the rest is for people.
            .on_output(move |stream, text| {
                if stream == levity_sandbox::Stream::Stderr {
                    progress.report(text);
                }
            });
        let finished = command.run().await;
        let finished = finished.map_err(|error| {
            ToolError::failed("the program could not be run").with_source(error)
        })?;
        output(&finished)
    }
}

/// The result that a program wrote.
fn output(finished: &CommandOutput) -> Result<ToolOutput, ToolError> {
    let said = finished.stderr.to_string();
    let failed = |what: String| match said.trim() {
        "" => ToolError::failed(what),
        said => ToolError::failed(format!("{what}; it said:\n{}", short(said, 4096))),
    };
    match finished.exit {
        Exit::Code(0) => {}
        Exit::Limit(limit @ (CommandLimit::Time | CommandLimit::CpuTime)) => {
            return Err(ToolError::new(
                ToolErrorKind::Timeout,
                format!("it was ended: {limit}"),
            ));
        }
        exit => return Err(failed(format!("the program failed: {exit}"))),
    }
    let invalid = |text: String| ToolError::new(ToolErrorKind::InvalidOutput, text);
    if finished.stdout.is_cut() {
        return Err(invalid(
            "the program ran, and wrote more than is kept; it must write less".to_owned(),
        ));
    }
    let text = finished.stdout.to_string();
    serde_json::from_str(&text)
        .map(ToolOutput::value)
        .map_err(|error| {
            invalid(format!(
                "the program ran, and wrote no JSON to standard output ({error}): {}",
                short(&text, 256)
            ))
        })
}

/// A text as it is, or its first bytes and dots.
fn short(text: &str, most: usize) -> String {
    let shown = head(text, most);
    let dots = if shown.len() < text.len() { "…" } else { "" };
    format!("{shown}{dots}")
}
