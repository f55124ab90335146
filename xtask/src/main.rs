//! `cargo xtask`: the tasks of this repository.
//!
//! - `test`: installs what is missing, runs everything, and lists what it skipped
//! - `bench`: the benchmarks of the command line, in a release build
//! - `contract`: sends the server requests that its description allows, and others
//! - `mutants`: changes the kernel's decisions in small ways, each of which a test has to notice
//! - `package`: a Debian package
//! - `prove`: breaks hapax on purpose for an hour and a half, and writes `docs/proof.md`
//! - `tidy`: house rules, paths that documents name, and `docs/requirements.md` from the tests;
//!   `--check` only looks, `--words` lists prose and names that have to be decoded

mod contract;
mod mutants;
mod package;
mod paths;
mod run;
mod tidy;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test" | "ci"] => run::test(),
        ["bench", rest @ ..] => run::bench(rest),
        ["package"] => package::package(),
        ["contract"] => contract::contract(),
        ["mutants", rest @ ..] => mutants::mutants(rest),
        ["prove", rest @ ..] => run::prove(rest),
        ["tidy"] => tidy::tidy(tidy::Mode::Write),
        ["tidy", "--words"] => words::words(),
        ["tidy", "--check"] => tidy::tidy(tidy::Mode::Check),
        _ => Err("usage: cargo xtask test | bench [OPTIONS] | prove | mutants | contract | package | tidy [--check | --words]"
            .to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
