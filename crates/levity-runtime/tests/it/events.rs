use std::sync::Arc;

use levity_core::EventKind;
use levity_runtime::{Events, MachineRun, Runtime};

use crate::driving::{Answers, Calls};

#[tokio::test]
async fn slow_receiver_blocks_no_run_and_gets_lagged_count() {
    let calls = Events::CAPACITY as u64;
    let limits = levity_core::Limits::new().tool_calls(calls * 2);
    let mut run = Runtime::new()
        .start(MachineRun::new(Calls::at_once(calls), Arc::new(Answers::default())).limits(limits));
    let mut events = run.events();
    let done = (&mut run).await.unwrap();
    assert_eq!(done.run, *run.id());

    let mut kinds = Vec::new();
    while let Some(event) = events.next().await {
        kinds.push(event.kind);
    }
    // There is one event for the start, two for each call, and one for the end.
    let told = 2 + 2 * Events::CAPACITY as u64;
    let EventKind::Lagged { missed } = kinds[0] else {
        panic!("{:?}", kinds[0])
    };
    assert_eq!(missed + (kinds.len() as u64 - 1), told);
    assert!(
        matches!(kinds.last(), Some(EventKind::RunEnded(_))),
        "the newest are kept"
    );
}

#[tokio::test]
async fn receivers_get_same_events_and_late_ones_the_rest() {
    let mut run = Runtime::new().start(MachineRun::new(
        Calls::at_once(2),
        Arc::new(Answers::default()),
    ));
    let (mut first, mut second) = (run.events(), run.events());
    let mut all = Vec::new();
    while let Some(event) = first.next().await {
        all.push(event);
    }
    let mut rest = Vec::new();
    while let Some(event) = second.next().await {
        rest.push(event);
    }
    assert!(all.ends_with(&rest));
    assert_eq!(all.len(), 6);
    assert!(
        run.events().next().await.is_none(),
        "a run that has ended tells nothing more"
    );
}
