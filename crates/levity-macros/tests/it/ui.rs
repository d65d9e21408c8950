#[test]
fn misuse_is_an_error_at_the_right_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
