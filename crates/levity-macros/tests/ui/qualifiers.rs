use levity_macros::tool;

/// Unsafe.
#[tool]
unsafe fn risky() {}

/// Foreign.
#[tool]
extern "C" fn foreign() {}

/// Const.
#[tool]
const fn constant() {}

/// Variadic.
#[tool]
unsafe extern "C" fn printf(text: String, _: ...) {}

fn main() {}
