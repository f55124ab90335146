//! Breaks hapax on purpose and reports what became of it.

pub mod model;
pub mod report;
