pub(crate) fn tool_name(prefix: &str, server: &str, tool: &str) -> String {
    format!("{prefix}{server}_{tool}")
}
