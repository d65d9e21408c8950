//! The command that creates a folder for agents, or a Rust program with an agent.
//!
//! The files come from templates in this program, so the command needs no network. All templates
//! for folders contain the same files, because each command uses the parts that it needs; they
//! differ in the command that their README shows, and `mcp-server` adds prompts.
//!
//! Nothing is overwritten. Files that control what levity does (settings, tools, agents, servers)
//! must not exist yet, because the command also trusts the settings that it creates, and must not
//! trust files of somebody else with them. For the same reason it compares the new folder with the
//! templates before. Other files, such as a README, are kept if they exist.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use levity::agents::Catalogue;

use crate::settings;
use crate::terminal::{chain, counted, note, print_text, report_error, shell_quote};

/// The arguments of `levity init`.
#[derive(Args)]
pub(crate) struct InitArgs {
    /// Folder to create, or an existing one.
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// Kind of files to create.
    #[arg(long, value_enum, default_value_t = Template::Agent)]
    template: Template,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Template {
    /// A folder for one agent, with tools and a memory.
    Agent,
    /// The same, with the first steps for a team that makes and carries out plans.
    Team,
    /// The same, with the first steps for a swarm.
    Swarm,
    /// The same, with prompts and the first steps for serving the agent to MCP clients.
    McpServer,
    /// A Rust program with an agent, a tool, a test and a CI workflow.
    Rust,
}

/// A file of a template: its path, its content, and whether it is an executable.
struct TemplateFile(&'static str, &'static str, bool);

/// Returns a file of the templates.
macro_rules! template {
    ($path:literal, $source:literal) => {
        TemplateFile(
            $path,
            include_str!(concat!("../templates/", $source)),
            false,
        )
    };
}

/// The files of a folder for agents, except those of the built-in agents.
const FOLDER: [TemplateFile; 13] = [
    template!("levity.toml", "folder/levity.toml"),
    template!("mcp.json", "folder/mcp.json"),
    template!(
        "tools/text_statistics.py",
        "folder/tools/text_statistics.py"
    ),
    template!(
        "tools/reverse_words.tool.json",
        "folder/tools/reverse_words.tool.json"
    ),
    TemplateFile(
        "tools/reverse_words",
        include_str!("../templates/folder/tools/reverse_words"),
        true,
    ),
    template!(".context/project.md", "folder/context/project.md"),
    template!("AGENTS.md", "folder/AGENTS.md"),
    template!(".env.example", "folder/env.example"),
    template!(".gitignore", "folder/gitignore"),
    // Without it, the image would contain the keys in `.env`.
    template!(".dockerignore", "folder/dockerignore"),
    template!("Dockerfile", "folder/Dockerfile"),
    template!("compose.yaml", "folder/compose.yaml"),
    template!("README.md", "folder/README.md"),
];

/// The additional file of the template `mcp-server`.
const PROMPT: TemplateFile = template!("prompts/summary.md", "folder/summary.md");

/// The files of a Rust program.
const RUST: [TemplateFile; 7] = [
    // With its usual name, Cargo would take the folder for another package and leave it out.
    template!("Cargo.toml", "rust/manifest.toml"),
    template!("src/lib.rs", "rust/src/lib.rs"),
    template!("src/main.rs", "rust/src/main.rs"),
    template!("tests/agent.rs", "rust/tests/agent.rs"),
    template!(".github/workflows/ci.yml", "rust/ci.yml"),
    template!(".gitignore", "rust/gitignore"),
    template!("README.md", "rust/README.md"),
];

/// Files and folders that must not exist before: they control what levity does, or hold its data.
const CONTROL: [&str; 7] = [
    "levity.toml",
    "mcp.json",
    "tools",
    "agents",
    "prompts",
    "memory",
    "artifacts",
];

/// Creates the files: 0, or 2 if one of them exists or cannot be written.
pub(crate) fn init(args: &InitArgs, root: &Command) -> ExitCode {
    match create(args, root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => report_error(&problem, 2),
    }
}

/// Checks that nothing would be overwritten, writes the template, and prints the next commands.
fn create(args: &InitArgs, root: &Command) -> Result<(), String> {
    let folder = &args.folder;
    let is_rust = args.template == Template::Rust;
    let must_be_new = match is_rust {
        true => &["Cargo.toml", "src", "tests"][..],
        false => &CONTROL,
    };
    let exists = |name: &&&str| folder.join(name).symlink_metadata().is_ok();
    // A folder of somebody else may contain links that lead elsewhere.
    let is_link = |name: &&&str| folder.join(name).is_symlink();
    if let Some(name) = [".context", ".github", ".github/workflows"]
        .iter()
        .find(is_link)
    {
        return Err(format!(
            "`{}` is a link, and levity writes through none; remove it",
            folder.join(name).display()
        ));
    }
    if let Some(name) = must_be_new.iter().find(exists) {
        return Err(format!(
            "`{}` already exists; choose a folder without it",
            folder.join(name).display()
        ));
    }
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let name = name_of(folder);
    let created = args.template.write(folder, &name)?;
    let next = next_step(folder, args.template);
    note(&format!(
        "created {} in `{}`",
        counted(created as u64, "file"),
        folder.display()
    ));
    if !is_rust {
        trust(folder, args.template, &name, root);
    }
    print_text(&next);
    Ok(())
}

/// Trusts the settings of the new folder, as far as its files are those of the template. levity can
/// also be used without: the next command then asks for `levity trust`.
fn trust(folder: &Path, template: Template, name: &str, root: &Command) {
    let trusted = settings::new_folder().and_then(|reference| {
        template.write(&reference, name)?;
        settings::trust_new(folder, &reference, root)
    });
    if let Err(problem) = trusted {
        note(&format!(
            "the folder is not trusted: {problem}; run `levity trust` in it"
        ));
    }
}

/// Writes a new file, and returns `false` if there is one already.
fn write(path: &Path, text: &str, is_executable: bool) -> Result<bool, String> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(|error| failed(above, &error))?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if is_executable {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o755);
    }
    #[cfg(not(unix))]
    let _ = is_executable;
    match options.open(path) {
        Ok(mut file) => file
            .write_all(text.as_bytes())
            .map(|()| true)
            .map_err(|error| failed(path, &error)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Describes a file or folder that cannot be written.
fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot write `{}`: {error}", path.display())
}

/// Returns the name of the project: the last part of the folder's path.
fn name_of(folder: &Path) -> String {
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "agents".to_owned())
}

/// Returns a name that Cargo accepts for a package.
fn crate_name(name: &str) -> String {
    let plain = |char: char| match char.is_ascii_alphanumeric() {
        true => char.to_ascii_lowercase(),
        false => '-',
    };
    let name: String = name.chars().map(plain).collect();
    match name.trim_matches('-') {
        "" => "agent".to_owned(),
        name if name.starts_with(|first: char| first.is_ascii_digit()) => format!("agent-{name}"),
        name => name.to_owned(),
    }
}

impl Template {
    /// Writes the files of the template into a folder, and returns their number.
    fn write(self, folder: &Path, name: &str) -> Result<usize, String> {
        let mut files: Vec<&TemplateFile> = match self {
            Self::Rust => RUST.iter().collect(),
            _ => FOLDER.iter().collect(),
        };
        if self == Self::McpServer {
            files.push(&PROMPT);
        }
        let mut created = 0;
        for TemplateFile(path, text, is_executable) in files {
            if write(&folder.join(path), &self.fill(text, name), *is_executable)? {
                created += 1;
            } else {
                note(&format!("kept `{path}`, which already exists"));
            }
        }
        if self != Self::Rust {
            let agents = Catalogue::write_defaults(folder.join("agents"));
            created += agents.map_err(|error| chain(&error))?.len();
            for name in ["memory", "artifacts"] {
                let path = folder.join(name);
                levity_system::files::make_dir(&path).map_err(|error| failed(&path, &error))?;
            }
        }
        Ok(created)
    }

    /// Replaces the placeholders of a template.
    fn fill(self, text: &str, name: &str) -> String {
        let template = self.to_possible_value();
        let template = template.as_ref().map_or("", |value| value.get_name());
        text.replace("{{name}}", name)
            .replace("{{template}}", template)
            .replace("{{command}}", self.command())
            .replace("{{start}}", self.start())
            .replace("{{prompts}}", self.prompts())
            .replace("{{version}}", env!("CARGO_PKG_VERSION"))
            .replace("{{crate}}", &crate_name(name))
    }

    /// The session that `levity` opens.
    fn start(self) -> &'static str {
        match self {
            Self::Team => "team",
            _ => "chat",
        }
    }

    /// The setting for the prompts, in the template that has some.
    fn prompts(self) -> &'static str {
        match self {
            Self::McpServer => {
                "\n# Prompts for clients of `levity serve mcp`.\nprompts = \"prompts\"\n"
            }
            _ => "",
        }
    }

    /// The command that uses the folder as the template intends.
    fn command(self) -> &'static str {
        match self {
            Self::Agent => "levity run \"Describe the files of this folder\"",
            Self::Team => "levity plan \"Compare the tools in this folder and write a report\"",
            Self::Swarm => "levity swarm \"Write a script that counts words, and review it\"",
            Self::McpServer => "levity serve mcp",
            Self::Rust => "cargo test",
        }
    }
}

/// Returns the commands with which the user continues.
fn next_step(folder: &Path, template: Template) -> String {
    let folder = folder.display().to_string();
    let change = match &*folder {
        "." => String::new(),
        folder => format!("cd {}\n", shell_quote(folder)),
    };
    format!("{change}{}\n", template.command())
}
