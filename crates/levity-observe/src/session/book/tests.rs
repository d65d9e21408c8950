use levity_core::{Event, EventKind, MachineKind, Timestamp};
use levity_dag::{Step, StepSpent};
use serde_json::json;

use super::*;

fn event(kind: EventKind) -> Event {
    Event::new("r".into(), 0, Timestamp::from_millis(0), kind)
}

fn told(notice: &PlanNotice) -> Event {
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
        spent: StepSpent::default(),
    };
    told(&notice)
}

#[test]
fn only_what_changed_is_serialised() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(SessionFolder::open(dir.path()), "r".into());
    book.apply(&event(EventKind::RunStarted {
        machine: MachineKind::new("graph", 1),
    }))
    .unwrap();
    let plan = (0..500).fold(Plan::new(), |plan, at| {
        plan.step(Step::new(format!("s{at}"), "A"))
    });
    book.apply(&told(&PlanNotice::Planned {
        plan: Arc::new(plan),
        edges: Vec::new(),
    }))
    .unwrap();
    book.write().unwrap();
    assert_eq!(book.serialised, 500);
    for at in 0..3 {
        book.apply(&completed(&format!("s{at}"))).unwrap();
        book.write().unwrap();
    }
    assert_eq!(book.serialised, 503);
    // Nothing has changed, and two events of one step are one change.
    book.write().unwrap();
    book.apply(&completed("s7")).unwrap();
    book.apply(&completed("s7")).unwrap();
    book.write().unwrap();
    assert_eq!(book.serialised, 504);
    let session = Session::load_now(book.path().unwrap(), Session::MAX_BYTES).unwrap();
    assert_eq!(session.finished().count(), 4);
}

#[test]
fn writers_are_put_in_order() {
    assert_eq!(order(&[(2, 0), (0, 1)], 3), [2, 0, 1]);
    assert_eq!(order(&[(0, 1), (1, 0)], 3), [2, 0, 1]);
}
