//! The judge: a process of its own that executes requests, records each execution, and syncs it.
//!
//! Three rules, as real targets have them: `plain` carries out every request, `keyed` does
//! nothing twice, `fenced` refuses fences below the highest it was shown. Each execution is one
//! line in the judge's own file; no other process writes there.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// The rule by which a target treats requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Carries out every request.
    Plain,
    /// Does nothing twice.
    Keyed,
    /// Refuses a fence below the highest it was shown.
    Fenced,
}

impl Rule {
    fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Keyed => "keyed",
            Self::Fenced => "fenced",
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Plain, Self::Keyed, Self::Fenced]
            .into_iter()
            .find(|rule| rule.as_str() == text)
            .ok_or_else(|| format!("no rule is called {text:?}"))
    }
}

#[derive(Default)]
struct Execution {
    by: Option<u64>,
    bar: u64,
}

struct Ledger {
    file: File,
    known: HashMap<String, Execution>,
}

impl Ledger {
    /// Carries out one request: `do|look KEY BY FENCE RULE`.
    fn answer(&mut self, request: &str) -> Option<String> {
        let words: Vec<&str> = request.split(' ').collect();
        let [verb, key, by, fence, rule] = words[..] else { return None };
        let (by, fence) = (by.parse().ok()?, fence.parse().ok()?);
        let rule: Rule = rule.parse().ok()?;
        let known = self.known.entry(key.to_owned()).or_default();
        if verb == "look" {
            known.bar = known.bar.max(fence);
            return Some(known.by.map_or("none".into(), |by| format!("found {by}")));
        }
        match (rule, known.by) {
            (Rule::Keyed, Some(by)) => return Some(format!("found {by}")),
            (Rule::Fenced, _) if fence < known.bar => return Some("refused".into()),
            _ => {}
        }
        (known.by, known.bar) = (Some(by), known.bar.max(fence));
        self.file.write_all(format!("{key} {by}\n").as_bytes()).ok()?;
        self.file.sync_data().ok()?;
        Some(format!("found {by}"))
    }
}

/// Serves until it is killed. Prints its port first.
pub fn serve(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let ledger = Arc::new(Mutex::new(Ledger { file, known: HashMap::new() }));
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?.port());
    for client in listener.incoming() {
        let (client, ledger) = (client?, ledger.clone());
        std::thread::spawn(move || converse(client, &ledger));
    }
    Ok(())
}

fn converse(client: TcpStream, ledger: &Mutex<Ledger>) {
    let Ok(mut answers) = client.try_clone() else { return };
    let _ = client.set_nodelay(true);
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        let answer = ledger.lock().ok().and_then(|mut ledger| ledger.answer(&line));
        let answer = answer.unwrap_or_else(|| "what?".into());
        if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// A judge that lives as long as this value.
pub struct Sink {
    child: Child,
    /// Where it listens.
    pub port: u16,
    path: PathBuf,
}

impl Sink {
    /// Starts one that writes to this file.
    pub fn start(path: &Path) -> Self {
        let mut child = Command::new(crate::own_program())
            .arg("sink")
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the judge starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("its port");
        let port = line.trim().parse().expect("a port");
        Self { child, port, path: path.to_owned() }
    }

    /// The calls that executed each key, in order.
    pub fn executed(&self) -> BTreeMap<String, Vec<u64>> {
        let mut executed: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for line in std::fs::read_to_string(&self.path).unwrap_or_default().lines() {
            if let Some((key, by)) = line.split_once(' ') {
                executed.entry(key.to_owned()).or_default().push(by.parse().expect("a number"));
            }
        }
        executed
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the judge.
pub struct Client {
    requests: TcpStream,
    answers: BufReader<TcpStream>,
}

/// The judge's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was executed, by this call.
    Found(u64),
    /// It was not executed.
    None,
    /// It was refused.
    Refused,
}

impl Client {
    /// Connects.
    pub fn connect(port: u16) -> std::io::Result<Self> {
        let requests = TcpStream::connect(("127.0.0.1", port))?;
        requests.set_nodelay(true)?;
        let answers = BufReader::new(requests.try_clone()?);
        Ok(Self { requests, answers })
    }

    /// Executes an effect.
    pub fn execute(
        &mut self,
        key: &str,
        by: u64,
        fence: u64,
        rule: Rule,
    ) -> std::io::Result<Answer> {
        self.ask(&format!("do {key} {by} {fence} {}\n", rule.as_str()))
    }

    /// Looks whether an effect was executed; shows this fence.
    pub fn look(&mut self, key: &str, fence: u64, rule: Rule) -> std::io::Result<Answer> {
        self.ask(&format!("look {key} 0 {fence} {}\n", rule.as_str()))
    }

    fn ask(&mut self, request: &str) -> std::io::Result<Answer> {
        self.requests.write_all(request.as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let found = answer.trim().strip_prefix("found ").and_then(|by| by.parse().ok());
        match (found, answer.trim()) {
            (Some(by), _) => Ok(Answer::Found(by)),
            (None, "none") => Ok(Answer::None),
            (None, "refused") => Ok(Answer::Refused),
            _ => Err(std::io::Error::other(format!("unexpected answer of the judge: {answer:?}"))),
        }
    }
}
