//! Restores a view from a session file.

use std::sync::Arc;

use super::{PlanView, StepView};
use crate::session::{Session, SessionStep};

impl PlanView {
    /// Creates a view from a session file. It has no log, because the file stores none.
    pub(crate) fn of_session(session: &Session) -> Self {
        let mut view = Self::of_run(session.id.clone()).with_goal(session.query.clone());
        view.set_plan(session.plan().clone(), session.edges.clone());
        for (step, known) in view.steps.iter_mut().zip(&session.steps) {
            step.restore(known);
        }
        view.stage = session.stage;
        view.files.clone_from(&session.files);
        view.replans = session.replans;
        view.gave_up.clone_from(&session.gave_up);
        view.ending = session.ending.clone().map(Arc::new);
        view.started = session.created;
        view.last = session.last.or(session.created);
        view.profiling = session.profiling;
        view.planning = session.planning;
        view
    }
}

impl StepView {
    fn restore(&mut self, known: &SessionStep) {
        self.status = known.status;
        self.attempt = known.attempt;
        self.round = known.round;
        self.items = known.items;
        self.started = known.started;
        self.ended = known.ended;
        self.spent = known.spent;
        self.error.clone_from(&known.error);
        self.artifacts.clone_from(&known.artifacts);
    }
}
