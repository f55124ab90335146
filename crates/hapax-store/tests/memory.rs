//! The conformance suite on the in-memory store.

hapax_store::conformance!(|clock| hapax_store::MemoryStore::new(clock));

/// A case that is not listed would never be run.
#[test]
fn every_case_is_listed() {
    let listed = include_str!("../src/conformance.rs");
    let files = [
        include_str!("../src/conformance/effect.rs"),
        include_str!("../src/conformance/epoch.rs"),
        include_str!("../src/conformance/journal.rs"),
        include_str!("../src/conformance/lease.rs"),
        include_str!("../src/conformance/limits.rs"),
        include_str!("../src/conformance/lock.rs"),
        include_str!("../src/conformance/outbox.rs"),
        include_str!("../src/conformance/part.rs"),
        include_str!("../src/conformance/result_index.rs"),
        include_str!("../src/conformance/token.rs"),
    ];
    let cases = files.iter().flat_map(|file| file.lines());
    let cases: Vec<&str> = cases.filter_map(|line| line.trim().strip_suffix(": |b| {")).collect();
    assert!(cases.len() > 50, "{cases:?}");
    for case in cases {
        let line = format!("\n            {case}\n");
        assert!(listed.contains(&line), "{case} is not in the list of conformance!");
    }
}
