//! Detection of `await` in a program.

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, ModModule};
use ruff_python_parser::parse_module;

/// Returns `true` if the source contains an `await`. Tool calls then return awaitables; otherwise
/// they return their results directly.
pub(super) fn uses_await(code: &str) -> bool {
    // Most programs contain none, and are not parsed twice.
    if !code.contains("await") {
        return false;
    }
    parse_module(code).is_ok_and(|module| Search::found(module.syntax()))
}

struct Search(bool);

impl Search {
    fn found(module: &ModModule) -> bool {
        let mut search = Self(false);
        search.visit_body(&module.body);
        search.0
    }
}

impl<'a> Visitor<'a> for Search {
    fn visit_expr(&mut self, expr: &'a Expr) {
        self.0 |= expr.is_await_expr();
        if !self.0 {
            walk_expr(self, expr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::uses_await;

    #[test]
    fn await_in_strings_and_comments_is_ignored() {
        assert!(uses_await("await f()"));
        assert!(uses_await(
            "async def g():\n    return 1 + await f()\nawait g()"
        ));
        assert!(!uses_await("x = 'await'"));
        assert!(!uses_await("f()  # await"));
        assert!(!uses_await("await ("));
    }
}
