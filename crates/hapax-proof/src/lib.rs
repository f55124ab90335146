//! Breaks hapax on purpose and reports the results.

pub mod attack;
pub mod constructed;
pub mod crowd;
pub mod cut_off;
pub mod deliveries;
pub mod disk;
pub mod failpoints;
pub mod field;
pub mod fuzz;
pub mod history;
pub mod lineage;
pub mod model;
pub mod network;
pub mod operations;
pub mod outbox;
pub mod overlap;
pub mod processes;
pub mod program;
pub mod programme;
pub mod prove;
pub mod relay;
pub mod report;
pub mod sealing;
pub mod simulation;
pub mod sink;
pub mod worker;

use std::path::PathBuf;
use std::sync::OnceLock;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that workers and judges are started from, if it is not this one.
pub fn set_program(path: impl Into<PathBuf>) {
    let _ = PROGRAM.set(path.into());
}

fn own_program() -> PathBuf {
    match PROGRAM.get() {
        Some(path) => path.clone(),
        None => std::env::current_exe().expect("the path of this program"),
    }
}
