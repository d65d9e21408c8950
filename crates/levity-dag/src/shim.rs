#![allow(missing_docs)]

use crate::*;
impl Diff {
    pub fn parse(text: &str, _: &Plan) -> Result<Diff, Faults> {
        serde_json::from_str(text).map_err(|e| bad(e.to_string()))
    }
    pub fn apply(&self, plan: &Plan, _: &dyn Fn(&StepId) -> bool) -> Result<Plan, Faults> {
        let mut plan = plan.clone();
        plan.steps.retain(|s| !self.remove.contains(&s.id));
        plan.steps.extend(self.add.iter().cloned());
        Ok(plan)
    }
    pub fn redo(_: &Graph, _: &StepId, _: &[StepId], _: &[String]) -> Diff {
        Diff::default()
    }
}

fn bad(m: String) -> Faults {
    Faults { faults: vec![Fault::new(FaultKind::Malformed, m)], more: 0 }
}
