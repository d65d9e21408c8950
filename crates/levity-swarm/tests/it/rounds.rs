//! Helpers for the tests of work in rounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Deltas, Event, Model, ModelCard, ModelError, Request};
use levity_loop::Agent;
use levity_swarm::{SwarmAnswer, SwarmNotice, Worker};
use levity_test::ScriptedModel;

pub(crate) fn agent(model: impl Model + 'static) -> Agent {
    Agent::builder(model).build().unwrap()
}

pub(crate) fn worker(name: &str, model: impl Model + 'static) -> Worker {
    Worker::new(name, format!("The {name}."), agent(model))
}

/// Returns a model that replies with these texts in turn.
pub(crate) fn replies(texts: &[&str]) -> ScriptedModel {
    texts
        .iter()
        .fold(ScriptedModel::new(), |model, text| model.reply(*text))
}

/// Returns the last message of a request to a model, counted from 0.
pub(crate) fn last_message(model: &ScriptedModel, call: usize) -> String {
    model.requests()[call]
        .history
        .messages()
        .last()
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

/// The notices of a run, in order.
#[derive(Clone, Default)]
pub(crate) struct NoticeLog(Arc<Mutex<Vec<SwarmNotice>>>);

impl NoticeLog {
    pub(crate) fn recorder(&self) -> impl Fn(&Event) + Send + Sync + 'static + use<> {
        let notices = self.0.clone();
        move |event| notices.lock().unwrap().extend(SwarmNotice::of(&event.kind))
    }

    pub(crate) fn count(&self, is_it: impl Fn(&SwarmNotice) -> bool) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|notice| is_it(notice))
            .count()
    }
}

/// Returns the bus in its file format.
pub(crate) fn log(finished: &SwarmAnswer) -> String {
    let mut lines = Vec::new();
    finished.bus().write_json_lines(&mut lines).unwrap();
    String::from_utf8(lines).unwrap()
}

/// Returns the sender and the kind of each message, in order.
pub(crate) fn kinds(finished: &SwarmAnswer) -> Vec<String> {
    finished
        .bus()
        .messages()
        .map(|message| format!("{} {}", message.from, message.kind))
        .collect()
}

/// A model that yields this many times before it answers.
pub(crate) struct Slow(pub(crate) ScriptedModel, pub(crate) usize);

#[async_trait]
impl Model for Slow {
    fn card(&self) -> &ModelCard {
        self.0.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        for _ in 0..self.1 {
            tokio::task::yield_now().await;
        }
        self.0.stream(request).await
    }
}

/// Awaits a future with a timeout, so that a hang fails the test.
pub(crate) async fn within<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future.into_future())
        .await
        .expect("the future did not finish in time")
}
