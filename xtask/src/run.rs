//! Running the other tools, one after the other, and saying which were not there.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::tidy;

/// Programs that tests use, and the Debian packages they come in.
const PROGRAMS: [(&str, &str); 2] = [("cc", "gcc"), ("strace", "strace")];

pub(crate) fn test() -> Result<(), String> {
    let mut skipped = Vec::new();
    for (program, package) in PROGRAMS {
        if !exists(program, "--version") && !install(package) {
            skipped.push(format!(
                "{program} is not installed, so tests that need it say that they were skipped"
            ));
        }
    }
    step("cargo", &["fmt", "--all", "--check"])?;
    step("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    tidy::tidy(tidy::Mode::Check)?;
    if exists("cargo", "deny --version") {
        step(
            "cargo",
            &["deny", "--locked", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"],
        )?;
    } else {
        skipped.push("licences and duplicate versions: cargo-deny is not installed".into());
    }
    if exists("cargo", "nextest --version") {
        step("cargo", &["nextest", "run", "--workspace", "--locked", "--no-fail-fast"])?;
    } else {
        skipped.push("cargo-nextest is not installed; cargo test was used instead".into());
        step("cargo", &["test", "--workspace", "--locked", "--lib", "--bins", "--tests"])?;
    }
    step("cargo", &["test", "--workspace", "--locked", "--doc"])?;
    for reason in &skipped {
        println!("xtask: skipped: {reason}");
    }
    println!("xtask: everything passed");
    Ok(())
}

pub(crate) fn bench(options: &[&str]) -> Result<(), String> {
    let start =
        ["run", "--release", "--quiet", "--locked", "--package", "hapax-cli", "--", "bench"];
    step("cargo", &[&start, options].concat())
}

fn step(program: &str, words: &[&str]) -> Result<(), String> {
    let line = format!("{program} {}", words.join(" "));
    eprintln!("xtask: {line}");
    let start = Instant::now();
    let status =
        Command::new(program).args(words).status().map_err(|error| format!("{line}: {error}"))?;
    if !status.success() {
        return Err(format!("{line}: {status}"));
    }
    eprintln!("xtask: {line}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn exists(program: &str, words: &str) -> bool {
    let mut command = Command::new(program);
    command.args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs a Debian package, where that can be done without asking anybody.
fn install(package: &str) -> bool {
    let apt = |words: &str| {
        let direct = Command::new("apt-get").args(words.split(' ')).stdin(Stdio::null()).status();
        direct.is_ok_and(|status| status.success())
            || exists("sudo", &format!("-n apt-get {words}"))
    };
    eprintln!("xtask: installing {package}");
    apt(&format!("install -y -q {package}"))
        || (apt("update -q") && apt(&format!("install -y -q {package}")))
}
