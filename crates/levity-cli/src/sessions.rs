//! Sessions that were kept.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use levity::observe::SessionFolder as Folder;
use levity::observe::{SessionFilter, SessionInfo, TreeOptions, one_line};

use crate::plan::{Drawing, export};
use crate::terminal::{chain, complain, say, say_json};

/// How `levity sessions` is called.
#[derive(Args)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List sessions, the newest first.
    List(List),
    /// Show how a session went: its tree, and what each step took.
    Show(Show),
    /// Print the graph of a session.
    Export(Export),
}

#[derive(Args)]
struct Where {
    /// The folder that the sessions are kept in.
    #[arg(long, value_name = "DIR", default_value = "sessions")]
    sessions: PathBuf,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    place: Where,
    /// Only those with this status, such as `completed`.
    #[arg(long)]
    status: Option<String>,
    /// Only those in whose goal this stands.
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Show {
    /// The session's id, or how it begins.
    id: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
struct Export {
    /// The session's id, or how it begins.
    id: String,
    #[command(flatten)]
    place: Where,
    /// How it is written.
    #[arg(long, value_enum, default_value_t = Form::Mermaid)]
    format: Form,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// A flowchart for Mermaid.
    Mermaid,
    /// For Graphviz.
    Dot,
    /// A tree of text.
    Tree,
    /// The session itself: node-link JSON, as NetworkX reads it.
    Json,
}

/// Does what was asked for: 0 when it was done, 1 when not.
pub(crate) async fn sessions(args: Sessions) -> ExitCode {
    let done = match args.what {
        What::List(list) => list.list().await,
        What::Show(show) => show.show().await,
        What::Export(export) => export.export().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => complain(&problem, 1),
    }
}

impl List {
    async fn list(self) -> Result<(), String> {
        let mut filter = SessionFilter::new().most(self.limit);
        (filter.status, filter.query) = (self.status, self.query);
        let found = Folder::open(&self.place.sessions)
            .list(&filter)
            .await
            .map_err(|error| chain(&error))?;
        for info in found {
            match self.json {
                true => say_json(&serde_json::json!({
                    "id": info.id, "path": info.path, "bytes": info.bytes, "status": info.status,
                    "created": info.created.map(|at| at.to_string()), "query": info.query, "problem": info.problem,
                })),
                false => say(&line(&info)),
            }
        }
        Ok(())
    }
}

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
    async fn show(self) -> Result<(), String> {
        let session = Folder::open(&self.place.sessions)
            .load(&self.id)
            .await
            .map_err(|error| chain(&error))?;
        let view = session.to_view();
        say(&format!(
            "{}\n{}",
            view.tree(TreeOptions::new()),
            view.summary()
        ));
        Ok(())
    }
}

impl Export {
    async fn export(self) -> Result<(), String> {
        let folder = Folder::open(&self.place.sessions);
        let drawing = match self.format {
            Form::Mermaid => Drawing::Mermaid,
            Form::Dot => Drawing::Dot,
            Form::Tree => Drawing::Tree,
            Form::Json => return print_file(&folder, &self.id).await,
        };
        let session = folder.load(&self.id).await.map_err(|error| chain(&error))?;
        export(&session.to_view(), drawing);
        Ok(())
    }
}

/// Prints a session as it is kept.
async fn print_file(folder: &Folder, id: &str) -> Result<(), String> {
    let path = folder.find(id).await.map_err(|error| chain(&error))?;
    // It is loaded first, so that only a session is printed, and no file that is too large or no
    // file at all.
    folder.load(id).await.map_err(|error| chain(&error))?;
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| format!("`{}` is no JSON: {error}", path.display()))?;
    say_json(&value);
    Ok(())
}
