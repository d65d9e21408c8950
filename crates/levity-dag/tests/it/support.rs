//! Helpers that the tests share.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use levity_core::{Event, ToolError};
use levity_dag::{Function, PlanNotice, StepInput, Team, TeamBuilder};
use serde_json::{Value, json};

/// A log of calls, in order.
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

/// A function that logs its call and returns the result of `f` for its inputs.
pub(crate) fn logging_function<F>(log: &Log, name: &str, f: F) -> Function
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

/// Functions that return an input, fail, or add up their inputs.
pub(crate) fn simple(log: &Log) -> TeamBuilder {
    Team::builder()
        .function(
            "give",
            logging_function(log, "give", |input| Ok(input.get("give").clone())),
        )
        .function(
            "fail",
            logging_function(log, "fail", |_| Err(ToolError::failed("it broke"))),
        )
        .function(
            "sum",
            logging_function(log, "sum", |input| {
                let numbers = input.values.values().filter_map(Value::as_i64);
                Ok(json!(numbers.sum::<i64>()))
            }),
        )
}

/// Collects the notices among the events of a run.
pub(crate) fn collect(
    into: &Arc<Mutex<Vec<PlanNotice>>>,
) -> impl Fn(&Event) + Send + Sync + 'static + use<> {
    let into = into.clone();
    move |event| into.lock().unwrap().extend(PlanNotice::of(&event.kind))
}

/// Awaits a future with a timeout, so that a hang fails the test.
pub(crate) async fn within<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future.into_future())
        .await
        .expect("the future did not finish in time")
}
