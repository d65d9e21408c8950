//! Uses `#[tool]` in a program that depends only on the facade, under another crate name.

use lev::prelude::*;

/// Doubles a number.
#[tool(read_only)]
pub async fn double(
    /** the number */
    n: f64,
) -> f64 {
    n * 2.0
}

/// Tools that share a stored number.
#[derive(Debug)]
pub struct Memory(pub f64);

#[tool]
impl Memory {
    /// Adds the stored number.
    #[tool(read_only)]
    pub async fn add(
        &self,
        /** the number */
        n: f64,
    ) -> f64 {
        self.0 + n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lev::core::Toolbox;
    use lev::serde_json::json;

    #[tokio::test]
    async fn tool_macro_works_with_renamed_facade() {
        let output = double
            .call(json!({"n": 4}), &ToolCx::detached())
            .await
            .unwrap();
        assert_eq!(output.value, Some(json!(8.0)));
        let tools = Memory(1.0).into_tools();
        let output = tools[0]
            .call(json!({"n": 4}), &ToolCx::detached())
            .await
            .unwrap();
        assert_eq!(output.value, Some(json!(5.0)));
        let linked = lev::tools::Registry::linked().unwrap();
        assert!(linked.get("double").is_some());
    }
}
