use levity_core::{Event, EventKind, MachineKind, Timestamp};
use levity_dag::{Step, StepUsage};
use serde_json::json;

use super::*;

fn event(kind: EventKind) -> Event {
    Event::new("r".into(), 0, Timestamp::from_millis(0), kind)
}

fn notice_event(notice: &PlanNotice) -> Event {
    let data = serde_json::to_value(notice).unwrap();
    event(EventKind::Custom {
        name: PlanNotice::NAME.to_owned(),
        data,
    })
}

fn completed(step: &str) -> Event {
    let notice = PlanNotice::StepCompleted {
        step: step.into(),
        writes: Vec::new(),
        output: json!("out"),
        spent: StepUsage::default(),
    };
    notice_event(&notice)
}

#[test]
fn write_serializes_only_changed_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let mut content = SessionContent::new(SessionFolder::open(dir.path()), "r".into());
    content
        .apply(&event(EventKind::RunStarted {
            machine: MachineKind::new("graph", 1),
        }))
        .unwrap();
    let plan = (0..500).fold(Plan::new(), |plan, at| {
        plan.step(Step::new(format!("s{at}"), "A"))
    });
    content
        .apply(&notice_event(&PlanNotice::Planned {
            plan: Arc::new(plan),
            edges: Vec::new(),
        }))
        .unwrap();
    content.write().unwrap();
    assert_eq!(content.serialised, 500);
    for at in 0..3 {
        content.apply(&completed(&format!("s{at}"))).unwrap();
        content.write().unwrap();
    }
    assert_eq!(content.serialised, 503);
    // Nothing has changed, and two events of one step are one change.
    content.write().unwrap();
    content.apply(&completed("s7")).unwrap();
    content.apply(&completed("s7")).unwrap();
    content.write().unwrap();
    assert_eq!(content.serialised, 504);
    let session = Session::load_now(content.path().unwrap(), Session::MAX_BYTES).unwrap();
    assert_eq!(session.finished().count(), 4);
}

#[test]
fn topological_order_puts_cycles_last() {
    assert_eq!(topological_order(&[(2, 0), (0, 1)], 3), [2, 0, 1]);
    assert_eq!(topological_order(&[(0, 1), (1, 0)], 3), [2, 0, 1]);
}
