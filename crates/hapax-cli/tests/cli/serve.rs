//! `hapax dev`, `hapax serve` and `hapax token`: real processes, called with curl.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{LedgerDir, wait_until};

/// A server that ends with the test.
pub(super) struct Server {
    pub(super) child: Child,
    pub(super) errors: BufReader<ChildStderr>,
    /// Its output up to its address.
    log: String,
    pub(super) address: String,
}

impl Server {
    pub(super) fn start(dir: &LedgerDir, words: &[&str]) -> Self {
        Self::started(dir.start(words))
    }

    pub(super) fn started(mut child: Child) -> Self {
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut log = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).expect("a line") > 0, "no address in {log:?}");
            log.push_str(&line);
            let word = line.split_whitespace().find(|word| word.contains("://127."));
            if let Some((_, address)) = word.and_then(|word| word.split_once("://")) {
                break address.to_owned();
            }
        };
        Self { child, errors, log, address }
    }

    /// Asks it to stop, and returns the exit code and the rest of its output.
    pub(super) fn stop(mut self) -> (Option<i32>, String) {
        signal(&self.child, "TERM");
        let mut log = String::new();
        self.errors.read_to_string(&mut log).expect("text");
        (self.child.wait().expect("it ends").code(), log)
    }

    /// Ends it as a power cut would.
    pub(super) fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }

    /// The most memory that it has ever had, in MB.
    pub(super) fn peak_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it is alive");
        let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("a peak");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("kB") / 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

pub(super) fn curl(words: &[&str]) -> String {
    let output = Command::new("curl").args(["-sS", "--max-time", "20"]).args(words).output();
    String::from_utf8_lossy(&output.expect("curl; `cargo xtask test` installs it").stdout).into()
}

pub(super) fn status(words: &[&str]) -> String {
    curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], words].concat())
}

/// Proves S-1: with nothing configured, the line that is printed works as it is.
#[test]
fn dev_needs_nothing() {
    let dir = LedgerDir::new();
    let mut server = Server::start(&dir, &["dev", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    server.errors.read_line(&mut line).expect("a line to try");
    let tried = Command::new("sh").args(["-c", &format!("{} -sS", line.trim())]).output();
    let verdict: Value = serde_json::from_slice(&tried.expect("sh").stdout).expect("JSON");
    assert_eq!(verdict["verdict"], "granted", "{verdict}");
    // The command line sees the same ledger.
    dir.hapax(&["effects", "show", "hello"]).exits(0);
    let doctor = dir.hapax(&["--json", "doctor"]);
    assert!(doctor.out.contains("\"running\":1"), "{doctor:?}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(log.contains("finishing"), "{log}");
    dir.hapax(&["dev", "--listen", "0.0.0.0:0"]).exits(64).says("hapax serve");
}

/// Events are printed if there is no configuration.
#[test]
fn dev_prints_events() {
    let dir = LedgerDir::new();
    let mut server = Server::start(&dir, &["dev", "--listen", "127.0.0.1:0"]);
    let url = format!("http://{}/v1/effects/publish", server.address);
    let json = ["-H", "Content-Type: application/json"];
    let granted = curl(&[&json[..], &["-d", "{}", &format!("{url}/claim")]].concat());
    let granted: Value = serde_json::from_str(&granted).expect("JSON");
    let attempt = granted["attempt"].as_str().expect("an attempt");
    let fence = &granted["fence"];
    let settle = format!(
        r#"{{"attempt":"{attempt}","fence":{fence},"report":"succeeded","events":[{{"event_name":"artifact_published",
            "dataset_id":"flow","payload":{{"rows":7}}}}]}}"#
    );
    let settled = curl(&[&json[..], &["-d", &settle, &format!("{url}/settle")]].concat());
    assert_eq!(settled, r#"{"repeated":false}"#);
    let mut line = String::new();
    let out = server.child.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("an event");
    assert!(line.contains("artifact_published"), "{line}");
}

/// Proves S-6: only clients with a token are let in, and none once it is revoked.
#[test]
fn a_team_is_let_in_by_tokens() {
    let dir = LedgerDir::new();
    let server = Server::start(&dir, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        server.log.contains("there is no token, so every request is refused"),
        "{}",
        server.log
    );
    let url = format!("http://{}/v1/effects", server.address);
    assert_eq!(status(&[&url]), "401");
    let made = dir.hapax(&["token", "create", "--role", "viewer", "--holder", "ada"]).exits(0);
    let shown = format!("Authorization: Bearer {}", made.out.trim());
    assert_eq!(status(&["-H", &shown, &url]), "200");
    let claim = format!("{url}/a/claim");
    let json = "Content-Type: application/json";
    assert_eq!(status(&["-H", &shown, "-H", json, "-d", "{}", &claim]), "403");

    let listed = dir.hapax(&["token", "list"]).exits(0);
    assert!(listed.out.contains("viewer") && listed.out.contains("ada"), "{listed:?}");
    assert!(!listed.out.contains(made.out.trim()) && !listed.out.contains("hpx_"), "{listed:?}");
    let id = listed.out.lines().nth(1).and_then(|row| row.split_whitespace().next());
    dir.hapax(&["token", "revoke", id.expect("an id")]).exits(0);
    dir.hapax(&["token", "revoke", id.expect("an id")]).exits(64).says("hapax token list");
    wait_until("the token is refused", || status(&["-H", &shown, &url]) == "401");
    dir.hapax(&["token", "revoke", "x"]).exits(64);
    // There is no certificate to read again, and the server does not end for that.
    signal(&server.child, "HUP");
    assert_eq!(status(&[&format!("http://{}/healthz", server.address)]), "200");
    assert_eq!(server.stop().0, Some(0));
}

/// Proves S-6 for tokens: each is valid in its namespace, for its role, and for its lifetime.
#[test]
fn a_token_does_what_it_says() {
    const JSON: &str = "Content-Type: application/json";
    let dir = LedgerDir::new();
    let server = Server::start(&dir, &["serve", "--listen", "127.0.0.1:0"]);
    let url = format!("http://{}", server.address);
    let made = |words: &[&str]| {
        let made = dir.hapax(&[&["token", "create"], words].concat()).exits(0);
        format!("Authorization: Bearer {}", made.out.trim())
    };
    let operator = made(&["--role", "operator", "--namespace", "billing"]);
    let steward = made(&["--role", "steward", "--namespace", "billing"]);
    let everywhere = made(&["--role", "viewer", "--every-namespace"]);
    let elsewhere = made(&["--role", "steward", "--namespace", "shipping"]);

    // A token of one namespace gives access to that namespace and to no other.
    let effect = format!("{url}/v1/effects/a");
    let status_of =
        |token: &str, more: &[&str]| status(&[&["-H", token, "-H", JSON], more].concat());
    let granted = curl(&["-H", &operator, "-H", JSON, "-d", "{}", &format!("{effect}/claim")]);
    let granted: Value = serde_json::from_str(&granted).expect("JSON");
    let attempt = granted["attempt"].as_str().expect("an attempt");
    let fence = &granted["fence"];
    let settle = format!(r#"{{"attempt":"{attempt}","fence":{fence},"report":"succeeded"}}"#);
    assert_eq!(status_of(&operator, &["-d", &settle, &format!("{effect}/settle")]), "200");
    assert_eq!(status_of(&operator, &[&effect]), "200");
    assert_eq!(status_of(&elsewhere, &[&effect]), "404");
    assert_eq!(status_of(&operator, &["-H", "Hapax-Namespace: shipping", &effect]), "403");
    dir.hapax(&["--namespace", "billing", "effects", "show", "a"]).exits(0);

    // A token of every namespace gives access to the one that is named, and to data about all of them.
    assert_eq!(status_of(&everywhere, &[&effect]), "404", "nothing in the default one");
    assert_eq!(status_of(&everywhere, &["-H", "Hapax-Namespace: billing", &effect]), "200");
    assert_eq!(status_of(&everywhere, &[&format!("{url}/metrics")]), "200");
    assert_eq!(status_of(&steward, &[&format!("{url}/metrics")]), "403");

    // Only a steward of the namespace can clear a record.
    let reset = format!(r#"{{"attempt":"{attempt}","state":"succeeded","note":"a test"}}"#);
    let reset = ["-d", &reset, &format!("{effect}/reset")];
    for (token, may) in [(&operator, "403"), (&everywhere, "403"), (&elsewhere, "404")] {
        assert_eq!(status_of(token, &reset), may);
    }
    assert_eq!(status_of(&steward, &reset), "200");

    // An expired token is refused; the other tokens stay valid.
    let brief = made(&["--role", "viewer", "--namespace", "billing", "--lifetime", "3s"]);
    assert_eq!(status_of(&brief, &[&effect]), "200");
    wait_until("the token is over", || status_of(&brief, &[&effect]) == "401");
    assert_eq!(status_of(&operator, &[&effect]), "200");
    let listed = dir.hapax(&["token", "list"]).exits(0);
    for text in ["billing", "shipping", "every namespace", "steward"] {
        assert!(listed.out.contains(text), "{listed:?}");
    }
}

/// An error in the file is reported with its place, before anything is served.
#[test]
fn a_configuration_is_checked() {
    let dir = LedgerDir::new();
    let check = |text: &str| {
        std::fs::write(dir.path("hapax.toml"), text).expect("written");
        dir.hapax(&["serve", "--check-config"])
    };
    check("[server]\nlisten = \"127.0.0.1:0\"\nrate = 100\nkey_lifetime = \"7d\"\n").exits(0);
    assert!(!dir.path("hapax.db").exists(), "nothing else is done");
    check("[server]\nlisten_on = \"x\"\n").exits(64).says("listen_on");
    check("[server]\nkey_lifetime = \"long\"\n").exits(64).says("hapax.toml");
    check("[server]\ntls_key = \"key.pem\"\n").exits(64).says("go together");
    check("[server]\nrate = 0\n").exits(64).says("at least 1");
    check("[server]\ntls_key = \"k.pem\"\ntls_certificate = \"c.pem\"\n").exits(64).says("c.pem");
    dir.hapax(&["serve", "--config", "none.toml", "--check-config"]).exits(64).says("none.toml");
}

/// Proves S-1: a flag overrules the environment, which overrules the file.
#[test]
fn flags_come_before_the_environment_and_that_before_the_file() {
    let dir = LedgerDir::new();
    let address = || format!("127.0.0.1:{}", hapax_testkit::free_port());
    let [usual, other, variable, flag] = [address(), address(), address(), address()];
    let write = |name: &str, listen: &str, lifetime: &str| {
        let text = format!("[server]\nlisten = \"{listen}\"\nkey_lifetime = \"{lifetime}\"\n");
        std::fs::write(dir.path(name), text).expect("written");
    };
    write("hapax.toml", &usual, "7d");
    write("other.toml", &other, "1h");
    let token = ["token", "create", "--role", "viewer", "--holder", "ada"];
    let token = dir.hapax(&token).exits(0).out;
    let shown = format!("Authorization: Bearer {}", token.trim());
    let serving = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = dir.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).envs(variables.iter().copied());
        let server = Server::started(command.spawn().expect("it starts"));
        let config = curl(&["-H", &shown, &format!("http://{}/v1/config", server.address)]);
        let config: Value = serde_json::from_str(&config).expect("JSON");
        (server.address.clone(), config["idempotency_key_lifetime"].as_u64().expect("seconds"))
    };
    let (week, hour) = (7 * 24 * 3600, 3600);
    let listen = ("HAPAX_LISTEN", variable.as_str());
    let config = ("HAPAX_CONFIG", "other.toml");
    assert_eq!(serving(&["serve"], &[]), (usual.clone(), week));
    assert_eq!(serving(&["serve"], &[config]), (other.clone(), hour));
    assert_eq!(serving(&["serve"], &[config, listen]), (variable.clone(), hour));
    let flags = ["serve", "--config", "hapax.toml", "--listen", &flag];
    assert_eq!(serving(&flags, &[config, listen]), (flag.clone(), week));
    // `dev` serves this machine only, so it takes no address from the file.
    let dev = |words: &[&str]| {
        let mut command = dir.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).envs([listen]);
        Server::started(command.spawn().expect("it starts")).address.clone()
    };
    assert_eq!(dev(&["dev"]), variable);
    assert_eq!(dev(&["dev", "--listen", &flag]), flag);
}

/// A new key and certificate for localhost, under this name.
pub(super) fn certify(dir: &LedgerDir, name: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "1", "-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(dir.path("key.pem"))
        .arg("-out")
        .arg(dir.path("certificate.pem"))
        .output()
        .expect("openssl; `cargo xtask test` installs it");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Proves S-6 for TLS: a renewed certificate is used without a restart, and an unusable one changes nothing.
#[test]
fn a_certificate_is_read_again() {
    let dir = LedgerDir::new();
    certify(&dir, "first");
    let config = "[server]\ntls_certificate = \"certificate.pem\"\ntls_key = \"key.pem\"\n";
    std::fs::write(dir.path("hapax.toml"), config).expect("written");
    let mut server = Server::start(&dir, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(server.log.contains("https://"), "{}", server.log);
    let url = format!("https://{}/healthz", server.address);
    let trusted = || {
        let authority = dir.path("certificate.pem");
        status(&["--cacert", authority.to_str().expect("a path"), &url])
    };
    assert_eq!(trusted(), "200");
    assert_eq!(status(&[&url]), "000", "it is not trusted by everybody");
    certify(&dir, "second");
    assert_eq!(trusted(), "000", "the old one is in use still");
    signal(&server.child, "HUP");
    wait_until("the new certificate is used", || trusted() == "200");
    let kept = std::fs::read(dir.path("certificate.pem")).expect("a certificate");
    std::fs::write(dir.path("certificate.pem"), "nonsense").expect("written");
    signal(&server.child, "HUP");
    let mut line = String::new();
    server.errors.read_line(&mut line).expect("a warning");
    assert!(line.contains("reloading the certificate failed; the old one stays in use"), "{line}");
    std::fs::write(dir.path("certificate.pem"), kept).expect("written");
    assert_eq!(trusted(), "200");
}

/// Requests that are running at the shutdown are finished; no new ones are accepted.
#[test]
fn the_end_is_graceful() {
    let dir = LedgerDir::new();
    let server = Server::start(&dir, &["dev", "--listen", "127.0.0.1:0"]);
    let url = format!("http://{}/v1/effects/a", server.address);
    let json = "Content-Type: application/json";
    assert_eq!(status(&["-H", json, "-d", "{}", &format!("{url}/claim")]), "200");
    let waiting = url.clone();
    let waiting = std::thread::spawn(move || curl(&["-H", "Prefer: wait=15", &waiting]));
    // The request is running once it is counted.
    let metrics = format!("http://{}/metrics", server.address);
    wait_until("a caller waits", || curl(&[&metrics]).contains("requests_under_way 2"));
    signal(&server.child, "TERM");
    wait_until("the listener is closed", || {
        TcpStream::connect_timeout(
            &server.address.parse().expect("an address"),
            Duration::from_secs(1),
        )
        .is_err()
    });
    let answer: Value = serde_json::from_str(&waiting.join().expect("no panic")).expect("JSON");
    assert_eq!(answer["state"], "running", "it was answered all the same: {answer}");
    assert_eq!(server.stop().0, Some(0));
}

/// Logs for machines: one JSON object a line, with a stable name.
#[test]
fn logs_are_json_if_asked_for() {
    let dir = LedgerDir::new();
    certify(&dir, "first");
    let config = "[server]\ntls_certificate = \"certificate.pem\"\ntls_key = \"key.pem\"\n";
    std::fs::write(dir.path("hapax.toml"), config).expect("written");
    let words = ["serve", "--listen", "127.0.0.1:0", "--log-format", "json"];
    let mut command = dir.command(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Server::started(command.env("HAPAX_LOG", "info").spawn().expect("it starts"));
    signal(&server.child, "HUP");
    let mut line = String::new();
    server.errors.read_line(&mut line).expect("a line");
    let record: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    assert_eq!((&record["event"], &record["level"]), (&"tls_reloaded".into(), &"info".into()));
}

/// Proves S-6 for logs: `dev` and `proxy` write all logs for machines too. Confidential data from
/// clients is not in them, at any level.
#[test]
fn no_secret_and_no_body_is_logged() {
    const JSON: &str = "Content-Type: application/json";
    let dir = LedgerDir::new();
    // No server listens there, so a request gets no answer.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = format!("http://{}", gone.local_addr().expect("an address"));
    drop(gone);
    let made = dir.hapax(&["token", "create", "--role", "operator"]).exits(0);
    let token = format!("Authorization: Bearer {}", made.out.trim());
    let forged = format!("{}0", &token[..token.len() - 1]);
    for words in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["dev", "--listen", "127.0.0.1:0"],
        &["proxy", "--listen", "127.0.0.1:0", "--upstream", &upstream],
    ] {
        let mut command = dir.command(&[words, &["--log-format", "json"]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("HAPAX_LOG", "trace");
        let server = Server::started(command.spawn().expect("it starts"));
        let effect = format!("http://{}/v1/effects/pay-{}", server.address, words[0]);
        let send = |token: &str, body: &str, call: &str| {
            let url = format!("{effect}/{call}?also=sesame-query");
            let key = ["-H", "Idempotency-Key: k", "-H", "Cookie: sesame-cookie"];
            curl(&[&key[..], &["-H", token, "-H", JSON, "-d", body, &url]].concat())
        };
        let granted = send(&token, r#"{"label":"pay"}"#, "claim");
        send(&forged, "{}", "claim");
        send(&token, r#"{"sesame-field": 1}"#, "claim");
        send(&token, "sesame-broken {", "undo");
        let granted: Value = serde_json::from_str(&granted).expect("JSON");
        if let Some(attempt) = granted["attempt"].as_str() {
            let fence = &granted["fence"];
            let settle = format!(
                r#"{{"attempt":"{attempt}","fence":{fence},"report":"succeeded","body":"sesame-outcome"}}"#
            );
            assert!(send(&token, &settle, "settle").contains("repeated"));
        } else {
            assert_eq!((&granted["code"], words[0]), (&"HX0305".into(), "proxy"));
        }
        let log = server.log.clone();
        let (code, rest) = server.stop();
        assert_eq!(code, Some(0));
        let log = log + &rest;
        for line in log.lines() {
            let record: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            assert!(record["level"].is_string() && record["message"].is_string(), "{line}");
        }
        for event in ["serving", "stopping"] {
            assert!(log.contains(&format!(r#""event":"{event}""#)), "{log}");
        }
        if words[0] == "proxy" {
            assert!(log.contains(r#""event":"upstream_silent""#), "{log}");
        }
        for secret in [made.out.trim(), "sesame"] {
            assert!(!log.contains(secret), "{}: {log}", words[0]);
        }
    }
}

/// `promtool` accepts the metrics.
#[test]
fn metrics_are_as_prometheus_wants_them() {
    let dir = LedgerDir::new();
    let server = Server::start(&dir, &["dev", "--listen", "127.0.0.1:0"]);
    let json = "Content-Type: application/json";
    let url = format!("http://{}", server.address);
    status(&["-H", json, "-d", "{}", &format!("{url}/v1/effects/a/claim")]);
    let check = format!("curl -sS {url}/metrics | promtool check metrics");
    let checked = Command::new("sh").args(["-c", &check]).output().expect("sh");
    let output = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && output.is_empty(), "{output}");
}

/// A socket that listens as systemd does.
pub(super) struct Systemd(std::os::unix::net::UnixDatagram);

impl Systemd {
    /// Listens where the process that this command starts will notify.
    pub(super) fn listens(dir: &LedgerDir, command: &mut Command) -> Self {
        let path = dir.path("notify");
        let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(super::LONG)).expect("a deadline");
        command.env("NOTIFY_SOCKET", path);
        Self(socket)
    }

    pub(super) fn notification(&self) -> String {
        let mut text = [0; 64];
        let length = self.0.recv(&mut text).expect("a notification in time");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }
}

/// The server tells systemd when it is ready, and when it is about to stop.
#[test]
fn systemd_is_notified() {
    let dir = LedgerDir::new();
    let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let systemd = Systemd::listens(&dir, &mut command);
    let server = Server::started(command.spawn().expect("it starts"));
    assert_eq!(systemd.notification(), "READY=1");
    assert_eq!(status(&[&format!("http://{}/readyz", server.address)]), "200");
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(systemd.notification(), "STOPPING=1");
}

/// The packaged files are right: every panel queries a metric that is counted, and the settings file is valid.
#[test]
fn the_package_has_the_right_files() {
    let dir = LedgerDir::new();
    let packaged = |name: &str| {
        let path = format!("../../packaging/{name}");
        std::fs::read_to_string(path).expect("a file")
    };
    let server = Server::start(&dir, &["dev", "--listen", "127.0.0.1:0"]);
    curl(&[&format!("http://{}/healthz", server.address)]);
    let counted = curl(&[&format!("http://{}/metrics", server.address)]);
    let dashboard: Value = serde_json::from_str(&packaged("grafana.json")).expect("JSON");
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in words.filter(|w| w.starts_with("hapax_") || w.starts_with("kfm_")) {
                assert!(counted.contains(name), "{name} of {:?} is not counted", panel["title"]);
            }
        }
    }
    let check = |text: &str| {
        std::fs::write(dir.path("hapax.toml"), text).expect("written");
        dir.hapax(&["serve", "--check-config"]).exits(0);
    };
    let settings = packaged("hapax.toml");
    check(&settings);
    // The command that systemd starts is valid, and the file that it names is this one.
    let unit = packaged("hapax.service");
    let words = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/hapax "));
    let words = words.expect("a command").replace("/etc/hapax/", "");
    let words: Vec<&str> = words.split(' ').chain(["--check-config"]).collect();
    dir.hapax(&words).exits(0).shows("hapax.toml is right");
    // The commented settings are valid too, but for the certificate, which is not there.
    let (server, rest) = settings.split_once("# Computations").expect("two parts");
    let (computations, _) = rest.split_once("# Where events go").expect("three parts");
    check(
        &computations
            .lines()
            .skip(1)
            .map(|line| line.trim_start_matches("# "))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    let lines = server.lines().map(|line| match line.strip_prefix("# ") {
        Some(setting) if setting.contains(" = ") && !setting.starts_with("tls_") => setting,
        _ => line,
    });
    check(&lines.collect::<Vec<_>>().join("\n"));
}
