//! `levity serve token`: tokens with names and scopes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::serve::{TokenScope, Tokens};

use crate::state;
use crate::terminal::{chain, complain, note, say};

/// How `levity serve token` is called.
#[derive(Args)]
pub(super) struct TokenCommand {
    #[command(subcommand)]
    what: What,
    /// The file with the tokens. By default `levity/tokens` in the user's state folder.
    #[arg(long, value_name = "FILE", global = true)]
    named_tokens: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// Make a token, print it once, and keep its hash.
    Add {
        /// Its name: lower-case letters and digits, 32 at most. Ids of its runs begin with it.
        /// `TENANT.USER` shares the runs of `TENANT`.
        name: String,
        /// What it allows: `read`, `run`, `approve` or `admin`; may be given more than once.
        #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',')]
        scope: Vec<String>,
    },
    /// List the names and scopes of all tokens.
    List,
    /// Remove a token. Servers that run let it in until they are started again.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Does what was asked for: 0 when it was done, 2 for a wrong call.
pub(super) fn tokens(args: &TokenCommand) -> ExitCode {
    match done(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => complain(&problem, 2),
    }
}

fn done(args: &TokenCommand) -> Result<(), String> {
    let path = match &args.named_tokens {
        Some(path) => path.clone(),
        None => {
            let folder = state::folder()
                .map_err(|problem| format!("{problem}; name a file with `--named-tokens`"))?;
            state::make(&folder)?;
            folder.join("tokens")
        }
    };
    let mut tokens = read(&path)?;
    let shown = path.display();
    match &args.what {
        What::Add { name, scope } => {
            let scopes: Vec<TokenScope> = scope
                .iter()
                .map(|scope| scope.parse::<TokenScope>())
                .collect::<Result<_, _>>()
                .map_err(|error| chain(&error))?;
            let token = tokens.add(name, scopes).map_err(|error| chain(&error))?;
            tokens.save(&path).map_err(|error| chain(&error))?;
            note(&format!(
                "this is the token `{name}`; it is not printed again, and its hash is kept in \
                    `{shown}`"
            ));
            say(&format!("{}\n", token.reveal()));
        }
        What::List => {
            for token in tokens.list() {
                let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.name()).collect();
                say(&format!("{} {}\n", token.name, scopes.join(",")));
            }
        }
        What::Remove { name } => {
            if !tokens.remove(name) {
                return Err(format!(
                    "there is no token `{name}` in `{shown}`; `levity serve token list` lists them"
                ));
            }
            tokens.save(&path).map_err(|error| chain(&error))?;
        }
    }
    Ok(())
}

/// The tokens that there are; none where there is no file yet.
fn read(path: &Path) -> Result<Tokens, String> {
    match path.try_exists() {
        Ok(false) => Ok(Tokens::new()),
        _ => Tokens::from_file(path).map_err(|error| chain(&error)),
    }
}
