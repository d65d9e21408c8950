//! Errors in the arguments of the command, each on one line.
//!
//! clap reports a wrong call in several paragraphs: the problem, tips, the usage and a hint at
//! `--help`. levity's errors are one line that ends with the next step, so this module joins the
//! paragraphs that help and drops the others.
//!
//! Exit codes: 0 for `--help` and `--version`, 2 for every wrong call, also for a missing
//! subcommand. Requested help and the version go to standard output as clap formats them; errors go
//! to standard error with the prefix `levity: `.
//!
//! The rewriting works on clap's rendered text and not on its structured context, because the text
//! of the tips exists only there. A text that clap changes in a later version stays readable: it is
//! then printed as clap wrote it, on one line.

use std::process::ExitCode;

use clap::Error;
use clap::error::ErrorKind;

use crate::terminal::report_error;

/// Prints the help, the version, or an error on one line, and returns the exit code.
///
/// The exit code of help and version is the one that clap chooses, because help that was printed
/// for a missing subcommand is a wrong call, although the kind of the error names help.
pub(crate) fn report(error: &Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => {
            // A closed pipe is not an error.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
        _ => report_error(&one_line(&error.render().to_string()), 2),
    }
}

/// Joins the paragraphs of an error: the problem, the tips, and the usage if nothing else helps.
///
/// For example, clap's text
///
/// ```text
/// error: invalid value 'fast' for '--view <VIEW>'
///   [possible values: auto, tree]
///
/// For more information, try '--help'.
/// ```
///
/// becomes `invalid value 'fast' for '--view <VIEW>'; use auto, tree`. The usage follows only
/// when the line has no other advice and the problem is not an invalid value, because the usage of
/// a command with many options is longer than the problem.
pub(crate) fn one_line(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let problem = paragraphs.first().map_or("", String::as_str);
    let problem = problem.strip_prefix("error: ").unwrap_or(problem);
    let mut line = match problem.split_once(" [possible values: ") {
        Some((problem, values)) => format!("{problem}; use {}", values.trim_end_matches(']')),
        None => plain_number(problem),
    };
    let tips = paragraphs
        .iter()
        .filter_map(|text| text.strip_prefix("tip: "));
    for tip in tips.flat_map(|tips| tips.split(" tip: ")) {
        line.push_str("; ");
        line.push_str(tip);
    }
    if problem.contains(" cannot be used with ") {
        line.push_str("; remove one of them");
    } else if !line.contains("; ") && !problem.starts_with("invalid value ") {
        let usage = paragraphs.iter().find(|text| text.starts_with("Usage: "));
        line.push_str("; ");
        line.push_str(usage.map_or("try `--help`", |usage| usage));
    }
    line
}

/// Replaces the messages of Rust's parser for numbers.
///
/// Rust names types in these messages ("target type"), which says nothing to a user of a command.
/// All five reasons become one, because the remedy is the same. Other problems return unchanged.
fn plain_number(problem: &str) -> String {
    let reasons = [
        "invalid digit found in string",
        "cannot parse integer from empty string",
        "number too large to fit in target type",
        "number too small to fit in target type",
        "number would be zero for non-zero type",
    ];
    let number = reasons
        .iter()
        .find_map(|reason| problem.strip_suffix(reason));
    match number {
        Some(start) => format!("{start}it is not a whole number in range; use one such as 10"),
        None => problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn one_line_keeps_problem_and_next_step() {
        for (text, line) in [
            (
                "error: unexpected argument '--modle' found\n\n  tip: a similar argument exists: \
                 '--model'\n\nUsage: levity run <GOAL>\n\nFor more information, try '--help'.\n",
                "unexpected argument '--modle' found; a similar argument exists: '--model'",
            ),
            (
                "error: the following required arguments were not provided:\n  <GOAL>\n\nUsage: \
                 levity run <GOAL>\n\nFor more information, try '--help'.\n",
                "the following required arguments were not provided: <GOAL>; Usage: levity run \
                 <GOAL>",
            ),
            (
                "error: invalid value 'x' for '--view <VIEW>'\n  [possible values: auto, \
                 tree]\n\nFor more information, try '--help'.\n",
                "invalid value 'x' for '--view <VIEW>'; use auto, tree",
            ),
            (
                "error: invalid value 'x' for '-n <N>': invalid digit found in string\n",
                "invalid value 'x' for '-n <N>': it is not a whole number in range; use one such \
                 as 10",
            ),
            (
                "error: the argument '--json' cannot be used with '--quiet'\n\nUsage: levity\n",
                "the argument '--json' cannot be used with '--quiet'; remove one of them",
            ),
            ("error: odd\n", "odd; try `--help`"),
        ] {
            assert_eq!(one_line(text), line);
        }
    }
}
