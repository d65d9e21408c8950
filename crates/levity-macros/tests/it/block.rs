use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use levity_core::{Progress, Tool, ToolCx, Toolbox};
use levity_macros::tool;
use serde_json::json;

use super::text;

struct Weather {
    unit: String,
    asked: AtomicU32,
}

#[tool]
impl Weather {
    const DEFAULT: u8 = 1;

    fn new(unit: &str) -> Self {
        Self {
            unit: unit.to_owned(),
            asked: AtomicU32::new(0),
        }
    }

    /// Returns the weather.
    #[tool(read_only, name = "weather_forecast")]
    pub(super) async fn forecast(
        &self,
        /// The city.
        city: String,
        #[tool(default = Weather::DEFAULT)] days: u8,
        _cx: &ToolCx,
    ) -> Result<String, std::fmt::Error> {
        self.count();
        Ok(format!("{city}: {days} days at 20 {}", self.unit))
    }

    fn count(&self) -> u32 {
        self.asked.fetch_add(1, Ordering::Relaxed)
    }

    /// Is not there.
    #[cfg(any())]
    #[tool]
    async fn gone(&self, x: MissingPart) {}

    /// Returns the number of questions.
    #[tool(inline)]
    fn asked(&self, progress: Progress) -> u32 {
        progress.report("counting");
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the unit, which is borrowed.
    #[tool(inline)]
    fn clone(&self) -> &str {
        &self.unit
    }
}

#[test]
fn methods_become_tools_that_share_one_value() {
    let tools = Weather::new("C").into_tools();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.spec().name).collect();
    assert_eq!(names, ["weather_forecast", "asked", "clone"]);
    assert_eq!(
        text(&tools[0], json!({"city": "Rome"})),
        "Rome: 1 days at 20 C"
    );
    assert_eq!(text(&tools[1], json!({})), "1");
    assert_eq!(text(&tools[2], json!({})), "C");
    assert_eq!(
        tools[0].spec().input["properties"]["city"]["description"],
        "The city."
    );
    assert!(tools[0].spec().hints.runs_in_parallel());
}

#[tokio::test]
async fn tool_methods_remain_callable() {
    let weather = Weather::new("F");
    let text = weather
        .forecast("Oslo".into(), 2, &ToolCx::detached())
        .await
        .unwrap();
    assert_eq!(text, "Oslo: 2 days at 20 F");
    assert_eq!(weather.count(), 1);
}

struct Store<T, const N: usize>([T; N]);

#[tool]
impl<T, const N: usize> Store<T, N>
where
    T: Display,
{
    /// Reads one.
    #[tool(read_only)]
    async fn read(&self, at: usize) -> Option<String> {
        self.0.get(at).map(ToString::to_string)
    }
}

#[test]
fn tool_accepts_generic_impl() {
    let tools: Vec<Arc<dyn Tool>> = Store([1, 2]).into_tools();
    assert_eq!(text(&tools[0], json!({"at": 1})), "\"2\"");
    assert_eq!(
        text(&Store(["a"]).into_tools()[0], json!({"at": 0})),
        "\"a\""
    );
}

/// A type with the name of an item in the generated code.
struct Json;

#[tool]
impl Json {
    /// Has a parameter of the same name, which a function could not have.
    #[tool]
    async fn city(&self, city: String) -> String {
        city
    }
}

#[test]
fn generated_code_does_not_shadow_names_of_user() {
    assert_eq!(text(&Json.into_tools()[0], json!({"city": "Rome"})), "Rome");
}
