//! `hapax` with a bug in it: the one that `HAPAX_PLANT` names, or none.

use std::process::ExitCode;

use hapax_core::planted::{Bug, plant};

fn main() -> ExitCode {
    if let Ok(name) = std::env::var("HAPAX_PLANT") {
        match Bug::ALL.iter().find(|bug| bug.name() == name) {
            Some(bug) => plant(*bug),
            None => {
                eprintln!("HAPAX_PLANT: no bug is called {name}");
                return ExitCode::FAILURE;
            }
        }
    }
    hapax_cli::main()
}
