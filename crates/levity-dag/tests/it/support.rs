//! What the tests share.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use levity_core::{Event, ToolError};
use levity_dag::{Function, PlanNotice, StepInput, Team, TeamBuilder};
use serde_json::{Value, json};

/// What was done, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A function that writes down that it ran and gives what `f` makes of its inputs.
pub(crate) fn noting<F>(log: &Log, name: &str, f: F) -> Function
where
    F: Fn(&StepInput) -> Result<Value, ToolError> + Send + Sync + 'static,
{
    let (log, name) = (log.clone(), name.to_owned());
    Function::new(move |input: StepInput| {
        log.add(name.clone());
        let result = f(&input);
        async move { result }
    })
}

/// Functions that give their name, fail, and add up what they are given.
pub(crate) fn simple(log: &Log) -> TeamBuilder {
    Team::builder()
        .function(
            "give",
            noting(log, "give", |input| Ok(input.get("give").clone())),
        )
        .function(
            "fail",
            noting(log, "fail", |_| Err(ToolError::failed("it broke"))),
        )
        .function(
            "sum",
            noting(log, "sum", |input| {
                let numbers = input.values.values().filter_map(Value::as_i64);
                Ok(json!(numbers.sum::<i64>()))
            }),
        )
}

/// The notices among the events of a run.
pub(crate) fn collect(
    into: &Arc<Mutex<Vec<PlanNotice>>>,
) -> impl Fn(&Event) + Send + Sync + 'static + use<> {
    let into = into.clone();
    move |event| into.lock().unwrap().extend(PlanNotice::of(&event.kind))
}

/// Waits for a future without an end, in case of a hang.
pub(crate) async fn within<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future.into_future())
        .await
        .expect("it hangs")
}
