//! The documentation lists what the code has.

use pgtrickle::dvm::support::Construct;

#[test]
fn every_unsupported_construct_is_in_the_limits() {
    let limits = include_str!("../../docs/limits.md");
    for construct in Construct::ALL {
        let row = format!("| {} | {} |", construct.word(), construct.why());
        assert!(limits.lines().any(|line| line == row), "docs/limits.md lacks the row\n{row}");
    }
}
