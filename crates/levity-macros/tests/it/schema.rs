use levity_core::Tool;
use levity_macros::tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How to count.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)]
enum Unit {
    Metric,
    Imperial,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Place {
    /// The city's English name.
    city: String,
    country: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Tree {
    children: Vec<Tree>,
}

/// Takes one of each.
#[tool]
async fn _each(
    /// How far.
    ///
    /// In kilometres.
    far: f64,
    near: Option<u8>,
    /// Where to.
    places: Vec<Place>,
    /// In which unit.
    #[tool(default = Unit::Metric)]
    unit: Unit,
    #[tool(default)] tags: Vec<String>,
) {
    drop((far, near, places, unit, tags));
}

#[test]
fn input_schema_describes_all_parameters() {
    let schema = serde_json::to_string_pretty(&_each.spec().input).unwrap();
    assert_eq!(schema, include_str!("schema/each.json").trim_end());
}

/// Takes what contains itself.
#[tool]
async fn _recursive(_tree: Tree) {}

#[test]
fn recursive_type_keeps_reference_in_schema() {
    let input = &_recursive.spec().input;
    assert!(input.to_string().contains("$ref"), "{input:#}");
    assert!(input["$defs"].is_object(), "{input:#}");
}

/// One of several.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(dead_code)]
enum Shape {
    Circle { radius: f64 },
    Square { side: f64 },
}

/// Takes one of several.
#[tool]
async fn _choice(#[tool(args)] _shape: Shape) {}

#[test]
fn args_option_schema_is_always_object() {
    assert_eq!(_choice.spec().input["type"], json!("object"));
    assert_eq!(
        _choice.spec().input["oneOf"].as_array().map(Vec::len),
        Some(2)
    );
}
