use std::fs::{self, OpenOptions};
use std::io::Write as _;

use levity_eval::{CommandSubject, Error, Header, Results, Subject as _, Transcript, Trial};
use serde_json::json;

use crate::add_case;

fn header() -> Header {
    Header::new("own", "levity").with_setting("model", "scripted")
}

fn trial(id: &str) -> Trial {
    Trial::new(
        &add_case(id),
        "levity",
        0,
        Transcript::new().with_call("add", json!({"a": 2, "b": 5})),
    )
}

#[test]
fn results_drop_incomplete_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [add_case("1"), add_case("2")];
    let mut results = Results::create(folder.path(), &header(), &cases).unwrap();
    results.append(trial("1")).unwrap();
    drop(results);
    let path = folder.path().join("trials.jsonl");
    OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"{\"case\": \"2\", \"subj")
        .unwrap();
    assert_eq!(Results::open(folder.path()).unwrap().trials().len(), 1);
    let mut results = Results::create(folder.path(), &header(), &cases).unwrap();
    results.append(trial("2")).unwrap();
    drop(results);
    let results = Results::open(folder.path()).unwrap();
    assert_eq!(
        results
            .trials()
            .iter()
            .map(|trial| &*trial.case)
            .collect::<Vec<_>>(),
        ["1", "2"]
    );
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 2);
}

#[test]
fn damaged_line_in_results_returns_error() {
    let folder = tempfile::tempdir().unwrap();
    drop(Results::create(folder.path(), &header(), &[add_case("1")]).unwrap());
    fs::write(folder.path().join("trials.jsonl"), "oops\n").unwrap();
    let error = Results::open(folder.path()).unwrap_err();
    assert!(matches!(&error, Error::Line { line: 1, .. }), "{error}");
}

#[test]
fn results_of_other_evaluation_return_error() {
    let folder = tempfile::tempdir().unwrap();
    drop(Results::create(folder.path(), &header(), &[add_case("1")]).unwrap());
    let refused = |header: &Header, id: &str, prompt: &str| {
        let mut case = add_case(id);
        case.messages[0].content = prompt.to_owned();
        Results::create(folder.path(), header, &[case])
            .unwrap_err()
            .to_string()
    };
    let other = Header::new("own", "levity").with_setting("model", "another");
    let error = refused(&other, "1", "What is 2 + 5?");
    assert!(
        error.contains("`model` is \"scripted\" in the folder and \"another\" now"),
        "{error}"
    );
    assert!(
        refused(&Header::new("own", "rig"), "1", "What is 2 + 5?").contains("another evaluation")
    );
    assert!(refused(&header(), "1", "What is 3 + 4?").contains("case `1`"));
    let twice =
        Results::create(folder.path(), &header(), &[add_case("2"), add_case("2")]).unwrap_err();
    assert!(twice.to_string().contains("two cases"), "{twice}");
    // More cases of the same suite are accepted.
    let results = Results::create(folder.path(), &header(), &[add_case("2")]).unwrap();
    assert_eq!(results.cases().len(), 2);
}

#[test]
fn results_reject_second_writer() {
    let folder = tempfile::tempdir().unwrap();
    let first = Results::create(folder.path(), &header(), &[add_case("1")]).unwrap();
    let error = Results::create(folder.path(), &header(), &[]).unwrap_err();
    assert!(matches!(error, Error::InUse(_)), "{error}");
    drop(first);
    assert!(Results::create(folder.path(), &header(), &[]).is_ok());
    let mut looked_at = Results::open(folder.path()).unwrap();
    assert!(looked_at.append(trial("1")).is_err());
}

#[test]
fn scores_are_outdated_after_new_trial() {
    let folder = tempfile::tempdir().unwrap();
    let mut results =
        Results::create(folder.path(), &header(), &[add_case("1"), add_case("2")]).unwrap();
    results.append(trial("1")).unwrap();
    assert_eq!(results.scores().unwrap(), None);
    let scores = results.check_all();
    results.write_scores(&scores).unwrap();
    assert_eq!(results.scores().unwrap(), Some(scores));
    results.append(trial("2")).unwrap();
    assert_eq!(results.scores().unwrap(), None);
}

/// An untrusted folder may contain links in place of the files that are written.
#[cfg(unix)]
#[tokio::test]
async fn links_in_results_folder_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    let names = [
        "trials.jsonl",
        "evaluation.part",
        "evaluation.json",
        "cases.part",
        "cases.jsonl",
        "scores.part",
        "scores.jsonl",
        "report.part",
        "report.json",
        "subject.log",
    ];
    for exists in [true, false] {
        for name in names {
            let folder = tempfile::tempdir().unwrap();
            let _ = fs::remove_file(&victim);
            if exists {
                fs::write(&victim, "mine").unwrap();
            }
            std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
            let case = add_case("1");
            let header = Header::new("own", "x");
            let cases = std::slice::from_ref(&case);
            let results = Results::create(folder.path(), &header, cases);
            if name == "trials.jsonl" {
                let error = results.unwrap_err().to_string();
                assert!(
                    error.contains("is a symbolic link, which levity does not write through"),
                    "{error}"
                );
            } else if let Ok(results) = results {
                results.write_scores(&results.check_all()).unwrap();
                results.write_file("report.json", "{}").unwrap();
            }
            let log = folder.path().join("subject.log");
            let subject = CommandSubject::new("x", "sh")
                .args(["-c", "echo hello >&2"])
                .log(log);
            subject.answer(&case).await;
            let now = fs::read_to_string(&victim).ok();
            assert_eq!(now.as_deref(), exists.then_some("mine"), "{name}");
        }
    }
}
