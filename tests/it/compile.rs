//! What must not compile does not, and what a user writes does.

/// Mistakes that the types exclude, each in a program of its own, with what the compiler says to them; and programs that
/// must compile. Run with `TRYBUILD=overwrite` to take down what a newer compiler says.
#[test]
fn mistakes_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile/pass/*.rs");
    cases.compile_fail("tests/compile/fail/*.rs");
}
