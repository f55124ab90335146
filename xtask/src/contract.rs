//! `contract`: a hostile program that has read the server's description sends it requests; and
//! another project's program decodes what the server sends to a collector.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::run::{Need, exists, provide, step, target};

/// The programs that ask and decode, in the versions that they were tried with.
const PROGRAMS: [&str; 2] = ["schemathesis==4.32.5", "opentelemetry-proto==1.45.2"];

/// How many requests are made for each operation in the phase of generated requests.
const EXAMPLES: &str = "450";

/// How many requests must be made.
const LEAST: u64 = 20_000;

const PYTHON: [Need; 1] = [Need {
    name: "Python's venv",
    is_there: || exists("python3", &["-c", "import venv, ensurepip"]),
    package: "python3-venv",
}];

pub(crate) fn contract() -> Result<(), String> {
    if let Some(missing) = provide(&PYTHON).pop() {
        return Err(missing);
    }
    let build = ["build", "--release", "--quiet", "--locked", "--package", "hapax-cli"];
    step("cargo", &[&build[..], &["--features", "otlp"]].concat())?;
    let target = target();
    let hapax = target.join("release/hapax").canonicalize().map_err(|error| error.to_string())?;
    let room = std::path::absolute(target.join("contract")).map_err(|error| error.to_string())?;
    install(&room)?;
    let collector = ["xtask/collector.py", &hapax.to_string_lossy()];
    step(&room.join("bin/python").to_string_lossy(), &collector)?;
    let place = std::env::temp_dir().join(format!("hapax-contract-{}", std::process::id()));
    std::fs::create_dir(&place).map_err(|error| error.to_string())?;
    let outcome = ask(&hapax, &room.join("bin/schemathesis"), &place);
    let _ = std::fs::remove_dir_all(&place);
    outcome
}

/// Installs the programs in an environment of their own, which is kept.
fn install(room: &Path) -> Result<(), String> {
    let pip = room.join("bin/pip").to_string_lossy().into_owned();
    if !exists(&pip, &["show", "--quiet", "schemathesis", "opentelemetry-proto"]) {
        step("python3", &["-m", "venv", &room.to_string_lossy()])?;
        step(&pip, &[&["install", "--quiet"], &PROGRAMS[..]].concat())?;
    }
    Ok(())
}

/// A server that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(hapax: &Path, asker: &Path, place: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    // No request waits long here, and one namespace may ask as much as it can.
    let config = "[server]\nrate = 1000000\nburst = 1000000\nlongest_wait = \"1s\"\n";
    std::fs::write(place.join("hapax.toml"), config).map_err(text)?;
    // A request that is too large has an answer of its own, which the program does not expect by
    // itself.
    let expected = "[checks.negative_data_rejection]\nexpected-statuses = [\"4xx\", \"5xx\"]\n";
    std::fs::write(place.join("schemathesis.toml"), expected).map_err(text)?;
    let mut server = Command::new(hapax);
    server.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(place).env("HAPAX_LOG", "error");
    let mut server = Server(server.stderr(Stdio::piped()).spawn().map_err(text)?);
    let errors = server.0.stderr.take().ok_or("no standard error")?;
    let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
    let url = lines.find_map(|line| {
        line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned)
    });
    let url = url.ok_or("the server did not say where it is")?;
    std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
    let token = Command::new(hapax)
        .args(["token", "create", "--role", "steward", "--every-namespace"])
        .current_dir(place)
        .output()
        .map_err(text)?;
    let token = String::from_utf8_lossy(&token.stdout).trim().to_owned();
    eprintln!("xtask: asking {url} for some minutes");
    let checked = Command::new(asker)
        .args(["run", &format!("{url}/v1/openapi.json")])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--max-examples", EXAMPLES, "--seed", "1", "--request-timeout", "30"])
        // A stream has no end. The description cannot say which fields go together, so the server
        // refuses some requests that the description allows, with a reason.
        .args(["--exclude-path", "/v1/journal/stream"])
        .args(["--exclude-checks", "positive_data_acceptance"])
        .current_dir(place)
        .stderr(Stdio::inherit())
        .output()
        .map_err(text)?;
    let output = String::from_utf8_lossy(&checked.stdout);
    let made = output.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse().ok());
    let made: u64 = made.unwrap_or(0);
    if !checked.status.success() {
        return Err(format!("{output}\nthe server does not follow its description"));
    }
    if server.0.try_wait().map_err(text)?.is_some() {
        return Err("the server is gone".into());
    }
    if made < LEAST {
        return Err(format!("{made} requests were made; {LEAST} are required"));
    }
    eprintln!("xtask: {made} requests, no 5xx, nothing that the description does not allow");
    Ok(())
}
