//! Breaks hapax on purpose and reports what became of it.

pub mod history;
pub mod model;
pub mod report;
pub mod simulation;
