//! A server on loopback that keeps its requests, and gives prepared answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A receiver that gives one prepared answer after the other, each a status and a body; the last
/// one answers all later requests.
#[derive(Clone)]
pub(crate) struct Receiver {
    address: String,
    got: Arc<Mutex<Vec<Request>>>,
}

type Answers = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

impl Receiver {
    pub(crate) fn start(answers: &[(&'static str, &'static str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let receiver = Self { address, got: Arc::default() };
        let answers: Answers = Arc::new(Mutex::new(answers.iter().rev().copied().collect()));
        let kept = receiver.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (kept, answers) = (kept.clone(), answers.clone());
                std::thread::spawn(move || kept.converse(&client, &answers));
            }
        });
        receiver
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Request> {
        self.got.lock().expect("no panic").clone()
    }

    fn converse(&self, client: &TcpStream, answers: &Answers) {
        let mut reader = BufReader::new(client.try_clone().expect("a copy"));
        while let Some(request) = read(&mut reader) {
            self.got.lock().expect("no panic").push(request);
            let mut answers = answers.lock().expect("no panic");
            let last = *answers.first().expect("an answer");
            let (status, body) = match answers.len() {
                1 => last,
                _ => answers.pop().unwrap_or(last),
            };
            drop(answers);
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let mut client = client;
            if client.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let (mut first, mut head) = (String::new(), String::new());
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let path = first.split_whitespace().nth(1)?.to_owned();
    let mut request = Request { path, head, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |text| text.parse().expect("a length"));
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}
