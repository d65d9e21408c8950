//! The `#[tool]` attribute: a function becomes a tool for language models.
