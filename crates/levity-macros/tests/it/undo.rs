use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use levity_core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, Toolbox};
use levity_macros::tool;
use serde_json::{Value, json};

/// Books a number of seats; what is booked twice, or under 0, cannot be undone.
#[tool(undo = give_back, timeout = "5s")]
async fn _book(
    #[tool(rename = "seats")] count: i64,
    #[tool(default = "window")] place: String,
    _cx: &ToolCx,
) -> String {
    format!("{count} by the {place}")
}

async fn give_back(count: i64, place: String, cx: &ToolCx) -> Result<(), std::fmt::Error> {
    assert_eq!((&*place, &*cx.key), ("window", "detached"));
    if count < 0 {
        Err(std::fmt::Error)
    } else {
        Ok(())
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct All {
    name: String,
}

/// Writes a name down.
#[tool(undo = undone::strike)]
fn _write(#[tool(args)] all: All) -> String {
    all.name
}

mod undone {
    use levity_core::{ToolError, ToolErrorKind};

    pub(super) fn strike(all: super::All) -> Result<(), ToolError> {
        let super::All { name } = all;
        match &*name {
            "ink" => Err(ToolError::new(ToolErrorKind::Denied, "ink stays")),
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct Hotel(Mutex<BTreeMap<String, u32>>);

#[tool]
impl Hotel {
    /// Books rooms.
    #[tool(undo = cancel)]
    async fn book(&self, rooms: u32, cx: &ToolCx) {
        self.rooms().insert(cx.key.to_string(), rooms);
    }

    async fn cancel(&self, _: u32, cx: &ToolCx) {
        self.rooms().remove(&*cx.key);
    }

    /// Counts the rooms.
    #[tool(read_only, inline)]
    fn count(&self) -> u32 {
        self.rooms().values().sum()
    }

    fn rooms(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn undo(tool: &dyn Tool, args: Value) -> Result<(), ToolError> {
    tool.undo(args, &ToolCx::detached()).await
}

#[test]
fn undo_option_makes_tool_compensable() {
    let time = std::time::Duration::from_secs(5);
    assert_eq!(_book.spec().hints, Hints::new().compensable().timeout(time));
    assert_eq!(_write.spec().hints, Hints::new().compensable().blocking());
}

#[test]
fn undo_receives_arguments_of_the_call() {
    undo(&_book, json!({"seats": 2})).unwrap();
    let error = undo(&_book, json!({"seats": -1})).unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Failed);
    let error = undo(&_book, json!({"seats": "two"})).unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InvalidArgs);
    undo(&_write, json!({"name": "pencil"})).unwrap();
    assert_eq!(
        undo(&_write, json!({"name": "ink"})).unwrap_err().kind(),
        ToolErrorKind::Denied
    );
}

#[tokio::test]
async fn methods_are_undone_by_methods_of_same_type() {
    let tools = Hotel::default().into_tools();
    let (book, count, cx) = (&tools[0], &tools[1], ToolCx::detached());
    let rooms = async || {
        count
            .call(json!({}), &cx)
            .await
            .unwrap()
            .as_text()
            .into_owned()
    };
    assert_eq!(
        book.call(json!({"rooms": 3}), &cx).await.unwrap().as_text(),
        "done"
    );
    assert_eq!(rooms().await, "3");
    for _ in 0..2 {
        book.undo(json!({"rooms": 3}), &cx).await.unwrap();
        assert_eq!(rooms().await, "0");
    }
    let error = count.undo(json!({}), &cx).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`count` cannot be undone: the tool does not implement `undo`"
    );
}
