//! Commands for stored sessions.
//!
//! A session is the file that a plan leaves behind for people and tools: the steps, their results,
//! cost and time. `list`, `show` and `export` only read the folder of sessions, so they are safe
//! while runs write to it.
//!
//! Contents are untrusted text of models. Lists print each field on one line and cut it; JSON is
//! parsed and printed again with unsafe characters escaped. Exit codes: 0, or 1 if the folder or
//! the session cannot be read; clap returns 2 for a wrong call.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use levity::observe::SessionFolder as Folder;
use levity::observe::{SessionFilter, SessionInfo, TreeOptions, one_line};

use crate::plan::{Drawing, export};
use crate::terminal::{chain, print_json, print_text, report_error};

/// The arguments of `levity sessions`.
#[derive(Args)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List sessions, newest first.
    List(List),
    /// Show a session: its tree, and the cost and time of each step.
    Show(Show),
    /// Print the graph of a session.
    Export(Export),
}

#[derive(Args)]
struct SessionsArg {
    /// Folder of the stored sessions.
    #[arg(long, value_name = "DIR", default_value = "sessions")]
    sessions: PathBuf,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    place: SessionsArg,
    /// List only sessions with this status, such as `completed`.
    #[arg(long)]
    status: Option<String>,
    /// List only sessions with this text in their goal.
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Maximum number of sessions to list.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Show {
    /// Id of the session, or its first characters.
    id: String,
    #[command(flatten)]
    place: SessionsArg,
}

#[derive(Args)]
struct Export {
    /// Id of the session, or its first characters.
    id: String,
    #[command(flatten)]
    place: SessionsArg,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A flowchart in the Mermaid language.
    Mermaid,
    /// A graph in the DOT language of Graphviz.
    Dot,
    /// An image in the format SVG.
    Svg,
    /// A tree of indented text lines.
    Tree,
    /// The session itself: node-link JSON, as NetworkX reads it.
    Json,
}

/// Runs the subcommand and returns 0 if it succeeds, else 1.
pub(crate) async fn sessions(args: Sessions) -> ExitCode {
    let result = match args.action {
        Action::List(list) => list.list().await,
        Action::Show(show) => show.show().await,
        Action::Export(export) => export.export().await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => report_error(&problem, 1),
    }
}

impl List {
    /// Prints one line or one JSON object for each session. A file that is not a valid session is
    /// listed with its problem, so one damaged file does not hide the others.
    async fn list(self) -> Result<(), String> {
        let mut filter = SessionFilter::new().limit(self.limit);
        (filter.status, filter.query) = (self.status, self.query);
        let found = Folder::open(&self.place.sessions)
            .list(&filter)
            .await
            .map_err(|error| chain(&error))?;
        for info in found {
            match self.json {
                true => print_json(&serde_json::json!({
                    "id": info.id, "path": info.path, "bytes": info.bytes, "status": info.status,
                    "created": info.created.map(|at| at.to_string()), "query": info.query,
                    "problem": info.problem,
                })),
                false => print_text(&line(&info)),
            }
        }
        Ok(())
    }
}

/// Formats time, id, status, and the goal or the problem, for a line of about 200 characters at
/// most.
fn line(info: &SessionInfo) -> String {
    let created = info.created.map(|at| at.to_string()).unwrap_or_default();
    let about = info.problem.as_deref().unwrap_or(&info.query);
    format!(
        "{created}  {}  {}  {}\n",
        one_line(&info.id, 60),
        one_line(&info.status, 20),
        one_line(about, 100)
    )
}

impl Show {
    /// Prints the tree of steps, then a summary with totals. The id may be shortened to any unique
    /// beginning.
    async fn show(self) -> Result<(), String> {
        let session = Folder::open(&self.place.sessions)
            .load(&self.id)
            .await
            .map_err(|error| chain(&error))?;
        let view = session.to_view();
        print_text(&format!(
            "{}\n{}",
            view.tree(TreeOptions::new()),
            view.summary()
        ));
        Ok(())
    }
}

impl Export {
    /// Drawings are computed from the loaded session; JSON is the stored value itself.
    async fn export(self) -> Result<(), String> {
        let folder = Folder::open(&self.place.sessions);
        let drawing = match self.format {
            Format::Mermaid => Drawing::Mermaid,
            Format::Dot => Drawing::Dot,
            Format::Svg => Drawing::Svg,
            Format::Tree => Drawing::Tree,
            Format::Json => return print_file(&folder, &self.id).await,
        };
        let session = folder.load(&self.id).await.map_err(|error| chain(&error))?;
        export(&session.to_view(), drawing);
        Ok(())
    }
}

/// Prints a session as it is stored.
///
/// The value is parsed and printed on one line. That makes it valid JSON on a terminal too, where
/// unsafe characters must be escaped; the order of keys and the spacing of the file are not kept.
async fn print_file(folder: &Folder, id: &str) -> Result<(), String> {
    let path = folder.find(id).await.map_err(|error| chain(&error))?;
    // Loading the session first makes sure that the file exists, is a session and is not too large.
    folder.load(id).await.map_err(|error| chain(&error))?;
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| format!("`{}` is not valid JSON: {error}", path.display()))?;
    print_json(&value);
    Ok(())
}
