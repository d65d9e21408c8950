use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use levity_eval::{
    Case, Check as _, Evaluation, ExpectationCheck, Header, Results, Score, Subject, Transcript,
};
use serde_json::json;

use crate::add_case;

/// A subject that adds correctly except in some cases, and counts its questions.
#[derive(Default)]
struct Adder {
    asked: AtomicUsize,
    fails: Vec<&'static str>,
    hangs: Vec<&'static str>,
}

#[async_trait]
impl Subject for Adder {
    fn name(&self) -> &str {
        "adder"
    }

    async fn answer(&self, case: &Case) -> Transcript {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.hangs.contains(&&*case.id) {
            std::future::pending::<()>().await;
        }
        match self.fails.contains(&&*case.id) {
            true => Transcript::failed("connection refused"),
            false => Transcript::new().with_call("add", json!({"a": 2, "b": 5})),
        }
    }
}

fn folder() -> (tempfile::TempDir, Results) {
    let folder = tempfile::tempdir().unwrap();
    let results = open(&folder);
    (folder, results)
}

fn open(folder: &tempfile::TempDir) -> Results {
    let cases = ["1", "2", "3"].map(add_case);
    Results::create(folder.path(), &Header::new("own", "adder"), &cases).unwrap()
}

#[tokio::test]
async fn evaluation_resumes_after_drop() {
    let (folder, mut results) = folder();
    let subject = Adder {
        hangs: vec!["3"],
        ..Adder::default()
    };
    let seen = Arc::new(AtomicUsize::new(0));
    let evaluation = Evaluation::new();
    let run = evaluation.run(&subject, &mut results, |progress| {
        seen.store(progress.done, Ordering::Relaxed);
    });
    // Two cases are answered at the first poll, and the third one never is.
    assert!(futures_util::FutureExt::now_or_never(run).is_none());
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    drop(results);

    let subject = Adder::default();
    let mut results = open(&folder);
    let mut last = (0, 0, 0);
    let watch = |progress: &levity_eval::EvalProgress<'_>| {
        last = (progress.done, progress.total, progress.passed);
    };
    Evaluation::new()
        .run(&subject, &mut results, watch)
        .await
        .unwrap();
    assert_eq!(
        (subject.asked.load(Ordering::Relaxed), last),
        (1, (3, 3, 3))
    );
    Evaluation::new()
        .run(&subject, &mut results, |_| panic!("nothing is left"))
        .await
        .unwrap();
    assert_eq!(Results::open(folder.path()).unwrap().trials().len(), 3);
}

#[tokio::test]
async fn evaluation_skips_cases_that_were_not_requested() {
    let (folder, results) = folder();
    drop(results);
    let mut results = Results::create(
        folder.path(),
        &Header::new("own", "adder"),
        &["2", "4"].map(add_case),
    )
    .unwrap();
    let (subject, mut last) = (Adder::default(), (0, 0));
    let watch = |progress: &levity_eval::EvalProgress<'_>| last = (progress.done, progress.total);
    Evaluation::new()
        .run(&subject, &mut results, watch)
        .await
        .unwrap();
    assert_eq!((subject.asked.load(Ordering::Relaxed), last), (2, (2, 2)));
    let answered: Vec<_> = results.trials().iter().map(|trial| &*trial.case).collect();
    assert_eq!((answered, results.cases().len()), (vec!["2", "4"], 4));
}

#[tokio::test]
async fn evaluation_repeats_failed_trials_only_on_request() {
    let (folder, mut results) = folder();
    let subject = Adder {
        fails: vec!["2"],
        ..Adder::default()
    };
    let mut errors = 0;
    Evaluation::new()
        .run(&subject, &mut results, |progress| errors = progress.errors)
        .await
        .unwrap();
    assert_eq!((errors, results.trials().len()), (1, 3));

    let subject = Adder::default();
    Evaluation::new()
        .run(&subject, &mut results, |_| {})
        .await
        .unwrap();
    assert_eq!(subject.asked.load(Ordering::Relaxed), 0);
    let mut last = (0, 0, 0);
    let watch = |progress: &levity_eval::EvalProgress<'_>| {
        last = (progress.done, progress.passed, progress.errors);
    };
    Evaluation::new()
        .retry_errors()
        .run(&subject, &mut results, watch)
        .await
        .unwrap();
    assert_eq!(
        (subject.asked.load(Ordering::Relaxed), last),
        (1, (3, 3, 0))
    );
    let results = Results::open(folder.path()).unwrap();
    assert_eq!(
        (
            results.trials().len(),
            results
                .trials()
                .iter()
                .filter(|trial| trial.error().is_some())
                .count()
        ),
        (3, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn evaluation_times_out_slow_case() {
    let (_folder, mut results) = folder();
    let subject = Adder {
        hangs: vec!["1"],
        ..Adder::default()
    };
    let evaluation = Evaluation::new()
        .timeout(Duration::from_secs(30))
        .jobs(2)
        .repetitions(2);
    evaluation
        .run(&subject, &mut results, |_| {})
        .await
        .unwrap();
    let late: Vec<_> = results
        .trials()
        .iter()
        .filter_map(|trial| trial.error())
        .collect();
    assert_eq!(late, ["no answer within 30 seconds"; 2]);
    assert_eq!(results.trials().len(), 6);
}

#[tokio::test]
async fn trials_can_be_scored_again_without_subject() {
    let (folder, mut results) = folder();
    Evaluation::new()
        .run(&Adder::default(), &mut results, |_| {})
        .await
        .unwrap();
    drop(results);
    let results = Results::open(folder.path()).unwrap();
    assert!(
        results
            .check_all()
            .scores
            .iter()
            .all(|score| score.score.passed)
    );
    let strict = results.check_by(
        "strict",
        &|case: &Case, transcript: &Transcript| match &*case.id {
            "1" => Score::fail("too easy").with_value(0.5),
            _ => ExpectationCheck.check(case, transcript),
        },
    );
    assert_eq!(
        strict
            .scores
            .iter()
            .filter(|score| score.score.passed)
            .count(),
        2
    );
}
