//! Notes that the loop adds to the conversation for the model.
//!
//! The texts are part of the behaviour: a replay compares the history, so a changed note makes old
//! runs diverge where the note occurs.

use levity_core::{Limit, text};

/// The maximum bytes of a result in an answer that consists of results.
const MAX_RESULT: usize = 1_000;

pub(crate) fn last_turn(limit: Limit) -> String {
    match limit {
        Limit::Turns => {
            "This is your last turn: no more tools can be called. Give the best answer you can \
                from \
                         what you know now."
                .to_owned()
        }
        limit => format!(
            "The limit on {limit} is near: no more tools can be called. Give the best answer you \
                can from what \
             you know now."
        ),
    }
}

pub(crate) const ANSWER_NOW: &str =
    "Enough has been done: no more tools can be called. Answer now.";

pub(crate) const IN_WORDS: &str = "The tool was not called: no more tools can be called. Answer \
    now, in words, with what \
                                   you know; say what you could not find out.";

/// Formats the result of one tool, for an answer that consists of results.
pub(crate) fn one_result(tool: &str, text: &str) -> String {
    format!("- {tool}: {}", text::clipped(text.trim(), MAX_RESULT))
}

/// Returns an answer for a model that gave none.
pub(crate) fn only_results(results: &[String]) -> String {
    let results = results.join("\n");
    format!(
        "The model gave no answer in words before its last turn was over. The last results of its \
            tools:\n{results}"
    )
}

pub(crate) const ALL_FAILED: &str = "Every tool call of this turn failed. Take another way, or \
    answer from what you \
                                     know and say what you could not find out.";

pub(crate) const EMPTY: &str = "Your reply was empty. Answer the question, or call a tool.";

pub(crate) const CUT: &str =
    "Your reply was cut, since there was no room for it. Reply again, briefly.";

pub(crate) fn cut_call(limit: u64, raised: u64) -> String {
    format!(
        "Your call was cut after {limit} tokens and not made. Write it again as a whole; {raised} \
            tokens are allowed now."
    )
}

pub(crate) fn repeated(tool: &str, times: u32) -> String {
    format!(
        "`{tool}` has now failed {times} times in the same way with the same arguments. Do not \
            repeat the call: \
         change the arguments or take another way."
    )
}

/// Returns the answer to a call whose result the model has seen twice before.
pub(crate) fn same_call(result: &str) -> String {
    format!("{result}\n(The same call was made twice before, and this is its result. Answer now.)")
}

pub(crate) fn plan(steps: &[String]) -> String {
    let lines = (1..)
        .zip(steps)
        .map(|(number, step)| format!("\n{number}. {step}"));
    std::iter::once("The plan:".to_owned())
        .chain(lines)
        .collect()
}

pub(crate) fn reflection(text: &str) -> String {
    format!("Looking back: {}", text.trim())
}

pub(crate) fn wrong_shape(complaint: &str) -> String {
    format!(
        "The answer does not have the wanted shape:\n{complaint}\nAnswer again, with only the JSON \
            and nothing \
         around it."
    )
}

pub(crate) fn shape(schema: &str) -> String {
    format!(
        "Give your final answer as JSON, with nothing around it, that matches this JSON \
            Schema:\n{schema}"
    )
}
