use levity_core::LinkedTool;
use levity_macros::tool;

/// Is found.
#[tool]
async fn linked_one() {}

/// Is not found.
#[tool]
async fn _hidden_one() {}

#[test]
fn linked_tools_exclude_names_with_leading_underscore() {
    let names: Vec<_> = LinkedTool::all()
        .iter()
        .map(|tool| tool.spec().name.clone())
        .collect();
    assert!(names.contains(&"linked_one".to_owned()));
    assert!(!names.contains(&"_hidden_one".to_owned()));
    assert!(names.is_sorted());
}
