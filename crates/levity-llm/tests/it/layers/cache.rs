use std::fs;

use levity_core::{
    Delta, Finish, Model, ModelCard, ModelError, ModelErrorKind, Money, Options, Request,
};
use levity_llm::ModelExt;
use levity_llm::layers::Cache;
use levity_test::{ScriptedModel, Turn};
use serde_json::{Value, json};

use super::support::{Folder, ask, pieces};

/// Creates a model that counts its calls.
fn counting() -> ScriptedModel {
    (1..10).fold(ScriptedModel::new(), |model, n| {
        model.turn(Turn::new().text(n.to_string()).usage(10, 1).pieces(1))
    })
}

async fn text(model: &dyn Model, request: Request) -> String {
    model
        .complete(request)
        .await
        .unwrap()
        .message
        .text()
        .into_owned()
}

async fn streamed(model: &dyn Model, request: Request) -> String {
    model
        .stream(request)
        .await
        .unwrap()
        .fold()
        .await
        .unwrap()
        .message
        .text()
        .into_owned()
}

fn extra(value: Value) -> Request {
    let mut options = Options::new();
    options.extra.insert("more".into(), value);
    ask("a").with_options(options)
}

#[tokio::test]
async fn same_request_is_answered_from_cache() {
    let model = counting().cached(Cache::new());
    assert_eq!(text(&model, ask("a")).await, "1");
    assert_eq!(text(&model, ask("a")).await, "1");
    assert_eq!(streamed(&model, ask("a")).await, "1");
    assert_eq!(streamed(&model, ask("b")).await, "2");
    assert_eq!(text(&model, ask("b")).await, "2");
    assert_eq!(text(&model, ask("a").with_system("x")).await, "3");
    assert_eq!(
        text(&model, extra(json!({"x": 1, "y": [{"b": 1, "a": 2}]}))).await,
        "4"
    );
    assert_eq!(
        text(&model, extra(json!({"y": [{"a": 2, "b": 1}], "x": 1}))).await,
        "4",
        "keys have no order"
    );
}

#[tokio::test]
async fn cache_hit_has_no_cost_and_is_marked() {
    let model = counting().cached(Cache::new());
    assert_eq!(model.complete(ask("a")).await.unwrap().usage.total(), 11);
    let usage = model.complete(ask("a")).await.unwrap().usage;
    assert_eq!(
        (usage.input, usage.output, usage.cost),
        (Some(0), Some(0), Some(Money::ZERO))
    );
    let streamed = model
        .stream(ask("a"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap()
        .usage;
    assert_eq!(streamed, usage);
}

#[tokio::test]
async fn cache_separates_models_and_can_be_shared() {
    let cache = Cache::new();
    let one = counting().cached(cache.clone());
    let same = counting().cached(cache.clone());
    let other = counting().with_card(ModelCard::new("test", "other"));
    let other = {
        other.complete(ask("skip")).await.unwrap();
        other
    }
    .cached(cache);
    assert_eq!(text(&one, ask("a")).await, "1");
    assert_eq!(text(&one, ask("b")).await, "2");
    assert_eq!(
        text(&same, ask("b")).await,
        "2",
        "another layer, the same model"
    );
    assert_eq!(text(&other, ask("a")).await, "2", "another model");
}

#[tokio::test]
async fn only_complete_replies_are_cached() {
    let broken = ModelError::new(ModelErrorKind::Transport, "broke off");
    let model = ScriptedModel::new()
        .fail(ModelErrorKind::Overloaded)
        .turn(Turn::new().text("half").break_off(broken))
        .turn(Turn::new().text("withheld").finish(Finish::ContentFilter))
        .turn(Turn::new().text("dropped").pieces(3))
        .reply("whole")
        .cached(Cache::new());
    assert!(model.complete(ask("a")).await.is_err());
    assert!(pieces(&model, ask("a")).await.1.is_some());
    assert_eq!(text(&model, ask("a")).await, "withheld");
    let mut dropped = model.stream(ask("a")).await.unwrap();
    assert!(matches!(dropped.next().await, Some(Ok(Delta::Text(_)))));
    drop(dropped);
    assert_eq!(text(&model, ask("a")).await, "whole");
    assert_eq!(text(&model, ask("a")).await, "whole");
}

#[tokio::test]
async fn memory_cache_evicts_least_recently_used() {
    let model = counting().cached(Cache::new().entries(2));
    assert_eq!(text(&model, ask("a")).await, "1");
    assert_eq!(text(&model, ask("b")).await, "2");
    assert_eq!(text(&model, ask("a")).await, "1");
    assert_eq!(text(&model, ask("c")).await, "3");
    assert_eq!(text(&model, ask("a")).await, "1", "used last");
    assert_eq!(text(&model, ask("b")).await, "4", "not used for longest");
    let small = counting().cached(Cache::new().bytes(1_000));
    assert_eq!(text(&small, ask("a")).await, "1");
    assert_eq!(text(&small, ask("b")).await, "2");
    assert_eq!(text(&small, ask("a")).await, "3", "there is room for one");
}

#[tokio::test]
async fn folder_cache_survives_restart_and_damage() {
    let folder = Folder::new();
    let fresh = || counting().cached(Cache::new().folder(folder.path().join("deep/er")));
    assert_eq!(text(&fresh(), ask("a")).await, "1");
    let later = fresh();
    assert_eq!(streamed(&later, ask("a")).await, "1");
    assert_eq!(text(&later, ask("b")).await, "1", "its first call");
    let path = folder.path().join("deep/er");
    let files: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 2);
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        fs::write(file, &text[..text.len() / 2]).unwrap();
    }
    let mended = fresh();
    assert_eq!(text(&mended, ask("b")).await, "1");
    assert_eq!(
        text(&mended, ask("a")).await,
        "2",
        "damaged, so asked again"
    );
    assert_eq!(text(&fresh(), ask("a")).await, "2", "and written anew");
}

/// Somebody who can write to the folder sees the names of its files, but not their keys.
#[tokio::test]
async fn changed_reply_in_folder_is_not_used() {
    let folder = Folder::new();
    let reply = |text: &str| {
        let model = ScriptedModel::looping(Turn::new().text(text));
        model.cached(Cache::new().folder(folder.path()).namespace("a secret"))
    };
    assert_eq!(text(&reply("honest"), ask("a")).await, "honest");
    assert_eq!(text(&reply("other"), ask("a")).await, "honest");
    let file = folder.path().join(&folder.names()[0]);
    let stored = fs::read_to_string(&file).unwrap();
    fs::write(&file, stored.replace("honest", "forged")).unwrap();
    assert_eq!(text(&reply("other"), ask("a")).await, "other");
}

#[tokio::test]
async fn folder_cache_is_bounded_and_failures_are_ignored() {
    let folder = Folder::new();
    fs::write(folder.path().join("mine.json"), "not of the cache").unwrap();
    let model = ScriptedModel::looping(Turn::new().text("yes"))
        .cached(Cache::new().folder_with_limit(folder.path(), 5));
    for n in 0..65 {
        text(&model, ask(&n.to_string())).await;
    }
    let names = folder.names();
    assert_eq!(
        (names.len(), names.contains(&"mine.json".into())),
        (6, true),
        "{names:?}"
    );
    let file = folder.path().join("mine.json");
    let nowhere = counting().cached(Cache::new().folder(file.join("below a file")));
    assert_eq!(text(&nowhere, ask("a")).await, "1");
    assert_eq!(text(&nowhere, ask("a")).await, "1", "memory is still there");
}

#[cfg(unix)]
#[tokio::test]
async fn cache_files_are_private_to_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let cached = counting().cached(Cache::new().folder(folder.path().join("cache")));
    let model = cached
        .debug_log(folder.path().join("log"))
        .record(folder.path().join("calls.jsonl"))
        .unwrap();
    model.complete(ask("a")).await.unwrap();
    for inner in ["cache", "log", ""] {
        for entry in fs::read_dir(folder.path().join(inner)).unwrap() {
            let meta = entry.unwrap().metadata().unwrap();
            assert_eq!(meta.permissions().mode() & 0o077, 0, "{inner}");
        }
    }
}
