//! Helpers shared by the tests.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use levity_core::ToolError;
use levity_dag::{StepInput, Team, TeamBuilder};
use serde_json::{Value, json};

/// A log of actions, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    pub(crate) fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Creates functions that return their input, fail, and add up their inputs.
pub(crate) fn simple(log: &Log) -> TeamBuilder {
    let (give, fail, sum) = (log.clone(), log.clone(), log.clone());
    Team::builder()
        .function("give", move |input: StepInput| {
            give.add("give");
            async move { Ok(input.get("give").clone()) }
        })
        .function("fail", move |_: StepInput| {
            fail.add("fail");
            async { Err(ToolError::failed("it broke")) }
        })
        .function("sum", move |input: StepInput| {
            sum.add("sum");
            async move {
                Ok(json!(
                    input.values.values().filter_map(Value::as_i64).sum::<i64>()
                ))
            }
        })
}

/// Awaits a future with a timeout, so that a test fails instead of hanging.
pub(crate) async fn within<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future.into_future())
        .await
        .expect("it hangs")
}
