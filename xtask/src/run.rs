//! Runs the other tools, one after the other, and names those that are missing.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::tidy;

/// A program that tests use.
pub(crate) struct Need {
    pub(crate) name: &'static str,
    pub(crate) is_there: fn() -> bool,
    /// The Debian package it comes in.
    pub(crate) package: &'static str,
}

const NEEDS: [Need; 19] = [
    Need { name: "cc", is_there: || exists("cc", &["--version"]), package: "gcc" },
    Need { name: "c++", is_there: || exists("c++", &["--version"]), package: "g++" },
    Need { name: "make", is_there: || exists("make", &["--version"]), package: "make" },
    Need { name: "strace", is_there: || exists("strace", &["--version"]), package: "strace" },
    Need { name: "mkfs.ext4", is_there: || exists("mkfs.ext4", &["-V"]), package: "e2fsprogs" },
    Need { name: "openssl", is_there: || exists("openssl", &["version"]), package: "openssl" },
    Need {
        name: "PostgreSQL",
        is_there: || hapax_testkit::installed().is_some(),
        package: "postgresql",
    },
    Need {
        name: "PgBouncer",
        is_there: || hapax_testkit::pgbouncer().is_some(),
        package: "pgbouncer",
    },
    Need {
        name: "psycopg",
        is_there: || exists("/usr/bin/python3", &["-c", "import psycopg"]),
        package: "python3-psycopg",
    },
    Need { name: "ip", is_there: || exists("ip", &["-V"]), package: "iproute2" },
    Need { name: "curl", is_there: || exists("curl", &["--version"]), package: "curl" },
    Need {
        name: "httpx",
        is_there: || exists("/usr/bin/python3", &["-c", "import httpx"]),
        package: "python3-httpx",
    },
    Need {
        name: "Python's venv",
        is_there: || exists("/usr/bin/python3", &["-c", "import venv, ensurepip"]),
        package: "python3-venv",
    },
    Need {
        name: "promtool",
        is_there: || exists("promtool", &["--version"]),
        package: "prometheus",
    },
    Need { name: "NATS", is_there: || hapax_testkit::brokers()[0], package: "nats-server" },
    Need { name: "RabbitMQ", is_there: || hapax_testkit::brokers()[1], package: "rabbitmq-server" },
    Need { name: "Redis", is_there: || hapax_testkit::brokers()[2], package: "redis-server" },
    Need {
        name: "Dovecot",
        is_there: || hapax_testkit::mail_servers()[0],
        package: "dovecot-imapd",
    },
    Need {
        name: "aiosmtpd",
        is_there: || hapax_testkit::mail_servers()[1],
        package: "python3-aiosmtpd",
    },
];

/// Only `prove` needs these: a cluster that fails over takes minutes.
const CLUSTER: [Need; 2] = [
    Need {
        name: "Patroni",
        is_there: || std::path::Path::new("/usr/bin/patroni").exists(),
        package: "patroni",
    },
    Need {
        name: "etcd",
        is_there: || std::path::Path::new("/usr/bin/etcd").exists(),
        package: "etcd-server",
    },
];

/// Installs missing programs. Returns those that could not be installed.
pub(crate) fn provide(needs: &[Need]) -> Vec<String> {
    let mut missing = Vec::new();
    for Need { name, is_there, package } in needs {
        if !is_there() {
            install(package);
        }
        if !is_there() {
            missing.push(format!("{name} could not be installed; what needs it fails"));
        }
    }
    missing
}

pub(crate) fn test() -> Result<(), String> {
    let mut skipped = provide(&NEEDS);
    if !exists("sh", &["-c", "test $(id -u) = 0 && test -e /dev/loop-control"]) {
        skipped.push("power cuts and full disks: they need root and loop devices".into());
    }
    step("cargo", &["fmt", "--all", "--check"])?;
    let features = "hapax/sqlx,hapax-pipeline/sqlx,hapax-control/axum,hapax-sinks/axum,hapax-cli/brokers,hapax-cli/kafka,hapax-cli/otlp";
    let everything = ["--workspace", "--locked", "--features", features];
    step(
        "cargo",
        &[&["clippy", "--all-targets"], &everything[..], &["--", "-D", "warnings"]].concat(),
    )?;
    // README's first command builds fewer features.
    step("cargo", &["clippy", "--locked", "--package", "hapax-cli", "--", "-D", "warnings"])?;
    tidy::tidy(tidy::Mode::Check)?;
    if exists("cargo", &["deny", "--version"]) {
        step(
            "cargo",
            &["deny", "--locked", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"],
        )?;
    } else {
        skipped.push("licences and duplicate versions: cargo-deny is not installed".into());
    }
    // The harness plants bugs, so it is built and tested by itself.
    let product = [&everything[..], &["--exclude", "hapax-proof"]].concat();
    let harness = ["--package", "hapax-proof", "--locked"];
    let nextest = exists("cargo", &["nextest", "--version"]);
    if !nextest {
        skipped.push("cargo-nextest is not installed; cargo test was used instead".into());
    }
    for packages in [&product[..], &harness[..]] {
        match nextest {
            true => step("cargo", &[&["nextest", "run", "--no-fail-fast"], packages].concat())?,
            false => step("cargo", &[&["test", "--lib", "--bins", "--tests"], packages].concat())?,
        }
    }
    step("cargo", &[&["test", "--doc"], &product[..]].concat())?;
    for story in [
        &["--package", "hapax-control", "--features", "axum", "--example", "control_plane"][..],
        &["--package", "hapax-pipeline", "--example", "hydrology"],
    ] {
        step("cargo", &[&["run", "--quiet", "--locked"], story].concat())?;
    }
    for reason in &skipped {
        println!("xtask: skipped: {reason}");
    }
    println!("xtask: everything passed");
    Ok(())
}

pub(crate) fn bench(options: &[&str]) -> Result<(), String> {
    let start =
        ["run", "--release", "--quiet", "--locked", "--package", "hapax-cli", "--", "bench"];
    // The outbox is measured on a server.
    let options = match options.contains(&"--outbox") && !options.contains(&"--postgres") {
        true => [options, &["--postgres"]].concat(),
        false => options.to_vec(),
    };
    let at = options.iter().position(|option| *option == "--postgres");
    match at.filter(|at| options.get(at + 1).is_none_or(|next| next.starts_with('-'))) {
        // A server of its own, as Debian sets one up, except for room for the baseline's clients.
        Some(at) => {
            let server = hapax_testkit::Postgres::on_disk(&["max_connections=400"]);
            let url = server.url("postgres");
            let (before, after) = options.split_at(at + 1);
            step("cargo", &[&start, before, &[url.as_str()], after].concat())
        }
        None => step("cargo", &[&start[..], &options].concat()),
    }
}

/// Runs all experiments of the harness, in a release build. The attack is on the shipped binary, which
/// is built by itself: a build together with the harness has its bugs and failpoints in it.
pub(crate) fn prove(options: &[&str]) -> Result<(), String> {
    for missing in [provide(&NEEDS), provide(&CLUSTER)].concat() {
        println!("xtask: {missing}");
    }
    let build = ["build", "--release", "--locked", "--package"];
    step("cargo", &[&build[..], &["hapax-cli"]].concat())?;
    step("cargo", &[&build[..], &["hapax-proof"]].concat())?;
    let built = |name: &str| {
        let path = target().join("release").join(name).canonicalize();
        path.map(|path| path.to_string_lossy().into_owned()).map_err(|error| error.to_string())
    };
    step(&built("hapax-proof")?, &[&["prove", "--hapax", &built("hapax")?], options].concat())
}

/// The directory of cargo's builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from)
}

pub(crate) fn step(program: &str, words: &[&str]) -> Result<(), String> {
    let line = format!("{program} {}", words.join(" "));
    eprintln!("xtask: {line}");
    let start = Instant::now();
    let mut command = Command::new(program);
    // Cargo's variables for xtask are not for the builds that xtask starts: some would begin anew each
    // time they are started from elsewhere.
    for (name, _) in std::env::vars_os() {
        let cargos = name.to_string_lossy();
        if cargos.starts_with("CARGO_PKG_") || cargos.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let status = command.args(words).status().map_err(|error| format!("{line}: {error}"))?;
    if !status.success() {
        return Err(format!("{line}: {status}"));
    }
    eprintln!("xtask: {line}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) fn exists(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs a Debian package, if that needs no input.
fn install(package: &str) -> bool {
    let apt = |words: &str| {
        let direct = Command::new("apt-get").args(words.split(' ')).stdin(Stdio::null()).status();
        direct.is_ok_and(|status| status.success())
            || exists(
                "sudo",
                &[&["-n", "apt-get"], &*words.split(' ').collect::<Vec<_>>()].concat(),
            )
    };
    eprintln!("xtask: installing {package}");
    apt(&format!("install -y -q {package}"))
        || (apt("update -q") && apt(&format!("install -y -q {package}")))
}
