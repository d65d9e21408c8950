//! JUnit XML for build servers.
//!
//! Texts come from models, so every character that XML cannot express is replaced.

use std::fmt::Write as _;

use levity_core::text::head;

use crate::{EvalReport, Score, Trial};

/// The maximum length of the subject's name in bytes, which each test case repeats.
const MAX_SUBJECT: usize = 200;

pub(crate) fn xml(report: &EvalReport) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let total = &report.total;
    let _ = writeln!(
        xml,
        "<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3}\">",
        escaped(&report.header.suite),
        total.trials,
        total.trials.saturating_sub(total.passed + total.errors),
        total.errors,
        total.millis as f64 / 1000.0
    );
    for (name, tally) in &report.categories {
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3}\">",
            escaped(name),
            tally.trials,
            tally.trials.saturating_sub(tally.passed + tally.errors),
            tally.errors,
            tally.millis as f64 / 1000.0
        );
        for (trial, score) in report.trials().filter(|(trial, _)| trial.category == *name) {
            case(&mut xml, report, trial, score);
        }
        xml += "  </testsuite>\n";
    }
    xml += "</testsuites>\n";
    xml
}

fn case(xml: &mut String, report: &EvalReport, trial: &Trial, score: &Score) {
    let name = match trial.repetition {
        0 => trial.case.clone(),
        repetition => format!("{}#{repetition}", trial.case),
    };
    let _ = write!(
        xml,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
        escaped(head(&report.header.subject, MAX_SUBJECT)),
        escaped(&name),
        trial.millis as f64 / 1000.0
    );
    let _ = match (trial.error(), score.passed) {
        (Some(error), _) => writeln!(xml, "><error message=\"{}\"/></testcase>", escaped(error)),
        (None, false) => writeln!(
            xml,
            "><failure message=\"{}\"/></testcase>",
            escaped(&score.reason)
        ),
        (None, true) => writeln!(xml, "/>"),
    };
}

/// Escapes text for an attribute. XML cannot express most control characters, so they are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\r' | '\t' => {
                let _ = write!(escaped, "&#{};", u32::from(char));
            }
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            char if u32::from(char) < 0x20 => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}
