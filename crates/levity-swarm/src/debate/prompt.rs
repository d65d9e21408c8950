//! Builds the prompts for the workers of a debate and its judge.

use std::fmt::Write as _;

use levity_core::text::fenced;

use super::machine::DebateMachine;
use crate::judge::{self, SHAPE};
use crate::round_work::{goal, others, write_identity};
use crate::shared_state::SharedState;

/// The factor by which the judge sees more text than a worker.
const JUDGE_FACTOR: u64 = 4;

impl DebateMachine {
    /// Returns the task of a turn.
    pub(super) fn turn_task(&self, slot: usize, shared: &SharedState) -> String {
        let mut text = goal("The question", shared);
        let Some(worker) = self.round_work.worker(slot) else {
            return text;
        };
        let (round, of) = (self.round, self.debate.rounds);
        text.push_str("\n# The debate\n");
        write_identity(&mut text, worker, shared);
        let with = others(worker, shared);
        let _ = writeln!(
            text,
            "With you debate: {with}. This is round {round} of {of}."
        );
        self.write_transcript(
            &mut text,
            self.round_work.known(slot),
            worker,
            self.debate.tokens as u64,
            shared,
        );
        self.round_work
            .notes
            .write_to(&mut text, worker, shared.rules.context);
        if let Some(error) = self.round_work.failed(slot) {
            let _ = write!(
                text,
                "\n# The attempt before failed\n{}\nTake another way.\n",
                fenced(error)
            );
        }
        text.push_str(match (self.round_work.known(slot), round) {
            (0, _) => {
                "\n# What is wanted\nYour position on the question, with your reasons. Say \
                it to the others, in short.\n"
            }
            (_, round) if round == of => {
                "\n# What is wanted\nYour last turn: where you stand now and why, and what you \
                    take from the others.\n"
            }
            _ => {
                "\n# What is wanted\nYour turn: answer what the others have said, give up what \
                    does not hold, and say where you \
                 stand now and why. Repeat nothing.\n"
            }
        });
        text
    }

    /// Returns the task of the judge.
    pub(super) fn judge_task(&self, last: bool, shared: &SharedState) -> String {
        let mut text = goal("The question", shared);
        let tokens = (self.debate.tokens as u64).saturating_mul(JUDGE_FACTOR);
        self.write_transcript(&mut text, shared.reports.len(), "", tokens, shared);
        if shared.reports.is_empty() {
            text.push_str("\n# What was said before\nNothing.\n");
        }
        let (round, of) = (self.round, self.debate.rounds);
        let _ = match last {
            true => write!(
                text,
                "\n# What is wanted\nThe debate is over. Decide: `answer` is the answer to the \
                    question, for the user, by the best of \
                 what was said, and names what stayed open; `reason` says in short what decided; \
                 `done` is true."
            ),
            false => write!(
                text,
                "\n# What is wanted\nThis was round {round} of at most {of}. Is it enough to \
                    answer the question well? Then `done` is \
                 true, and `answer` is the answer, for the user. If another round would better it, \
                 `done` is false, and `reason` \
                 tells those who debate what is open."
            ),
        };
        let _ = write!(text, "\n\n{SHAPE}");
        judge::write_complaint(&self.asking, &mut text);
        text
    }
}
