//! The hydrology flow of the document, run as the example that anyone can start.

#[path = "../../../examples/hydrology/main.rs"]
mod hydrology;

/// Proves O-13.
#[test]
fn the_hydrology_flow_runs_end_to_end() {
    hydrology::main().expect("the example runs to its end");
}
