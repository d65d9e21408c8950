//! Builds the prompts for the workers of a debate and its judge.

use std::fmt::Write as _;

use levity_core::text::fenced;

use super::machine::Debating;
use crate::crew::{goal, others, tell_who};
use crate::desk::Desk;
use crate::judge::{self, SHAPE};

/// The factor by which the judge sees more text than a worker.
const FOR_THE_JUDGE: u64 = 4;

impl Debating {
    /// Returns the task of a turn.
    pub(super) fn turn(&self, seat: usize, desk: &Desk) -> String {
        let mut text = goal("The question", desk);
        let Some(worker) = self.crew.worker(seat) else {
            return text;
        };
        let (round, of) = (self.round, self.debate.rounds);
        text.push_str("\n# The debate\n");
        tell_who(&mut text, worker, desk);
        let with = others(worker, desk);
        let _ = writeln!(
            text,
            "With you debate: {with}. This is round {round} of {of}."
        );
        self.tell_said(
            &mut text,
            self.crew.known(seat),
            worker,
            self.debate.tokens as u64,
            desk,
        );
        self.crew.notes.tell(&mut text, worker, desk.rules.context);
        if let Some(why) = self.crew.failed(seat) {
            let _ = write!(
                text,
                "\n# The attempt before failed\n{}\nTake another way.\n",
                fenced(why)
            );
        }
        text.push_str(match (self.crew.known(seat), round) {
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
    pub(super) fn judging(&self, last: bool, desk: &Desk) -> String {
        let mut text = goal("The question", desk);
        let tokens = (self.debate.tokens as u64).saturating_mul(FOR_THE_JUDGE);
        self.tell_said(&mut text, desk.reports.len(), "", tokens, desk);
        if desk.reports.is_empty() {
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
        judge::complain(&self.asking, &mut text);
        text
    }
}
