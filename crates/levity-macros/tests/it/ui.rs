#[test]
fn misuse_is_compile_error_at_the_right_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
