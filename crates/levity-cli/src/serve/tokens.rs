//! `levity serve token`: tokens with names and scopes.
//!
//! `add`, `list` and `remove` change a file of hashes; a token is shown once, on standard output,
//! when it is added, so a script can capture it while the note stays on standard error. A lost
//! token cannot be shown again, only replaced.
//!
//! Running servers read the file at their start, so a removed token works until they restart. Exit
//! codes: 0, or 2 for an invalid name, an unknown scope, a missing token or an unreadable file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::serve::{TokenScope, Tokens};

use crate::state;
use crate::terminal::{chain, note, print_text, report_error};

/// The arguments of `levity serve token`.
#[derive(Args)]
pub(super) struct TokenCommand {
    #[command(subcommand)]
    action: Action,
    /// File with the tokens. By default `levity/tokens` in the user's state folder.
    #[arg(long, value_name = "FILE", global = true)]
    named_tokens: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Create a token, print it once, and store its hash.
    Add {
        /// Name of the token: lower-case letters and digits, at most 32. The ids of its runs begin
        /// with it. `TENANT.USER` shares the runs of `TENANT`.
        name: String,
        /// Scope of the token: `read`, `run`, `approve` or `admin`; may be given more than once.
        #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',')]
        scope: Vec<String>,
    },
    /// List the names and scopes of all tokens.
    List,
    /// Remove a token. Running servers accept it until they are restarted.
    Remove {
        /// Name of the token.
        name: String,
    },
}

/// Runs the subcommand: 0 if it succeeds, 2 for an invalid call.
pub(super) fn tokens(args: &TokenCommand) -> ExitCode {
    match run_action(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => report_error(&problem, 2),
    }
}

/// Reads the file, applies the action and saves the file if it changed. The state folder is created
/// only for the default path.
fn run_action(args: &TokenCommand) -> Result<(), String> {
    let path = match &args.named_tokens {
        Some(path) => path.clone(),
        None => {
            let folder = state::folder()
                .map_err(|problem| format!("{problem}; or name a file with `--named-tokens`"))?;
            state::create(&folder)?;
            folder.join("tokens")
        }
    };
    let mut tokens = read(&path)?;
    let path_text = path.display();
    match &args.action {
        Action::Add { name, scope } => {
            let scopes: Vec<TokenScope> = scope
                .iter()
                .map(|scope| scope.parse::<TokenScope>())
                .collect::<Result<_, _>>()
                .map_err(|error| chain(&error))?;
            let token = tokens.add(name, scopes).map_err(|error| chain(&error))?;
            tokens.save(&path).map_err(|error| chain(&error))?;
            note(&format!(
                "this is the token `{name}`; it is not printed again, and its hash is stored in \
                    `{path_text}`"
            ));
            print_text(&format!("{}\n", token.reveal()));
        }
        Action::List => {
            for token in tokens.list() {
                let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.name()).collect();
                print_text(&format!("{} {}\n", token.name, scopes.join(",")));
            }
        }
        Action::Remove { name } => {
            if !tokens.remove(name) {
                return Err(format!(
                    "there is no token `{name}` in `{path_text}`; `levity serve token list` shows \
                        all tokens"
                ));
            }
            tokens.save(&path).map_err(|error| chain(&error))?;
        }
    }
    Ok(())
}

/// Reads the tokens; returns none if the file does not exist yet.
///
/// A path that cannot be examined counts as existing, so the read reports the real reason, such as
/// missing permissions. An empty list would be saved over the existing tokens at the next `add`.
fn read(path: &Path) -> Result<Tokens, String> {
    match path.try_exists() {
        Ok(false) => Ok(Tokens::new()),
        _ => Tokens::from_file(path).map_err(|error| chain(&error)),
    }
}
