//! A proxy that cuts a connection when the server has answered and the client does not know it yet.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stands between a client and a PostgreSQL server. It swallows one answer in every so many, and
/// cuts the connection: the statement has been carried out and committed.
pub struct CuttingProxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    server: u16,
    every: AtomicU64,
    answers: AtomicU64,
    cuts: AtomicU64,
}

impl CuttingProxy {
    /// A proxy before the server on this port. It does not cut yet.
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            server,
            every: AtomicU64::new(u64::MAX),
            answers: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || state.serve(client));
            }
        });
        Self { port, state }
    }

    /// The address of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// From now on, one answer in `every` is swallowed.
    pub fn cut_one_in(&self, every: u64) {
        self.state.every.store(every, Ordering::Relaxed);
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::Relaxed)
    }
}

impl State {
    fn serve(&self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
        std::thread::spawn(move || pass_on(from, to));
        self.answer(server, client);
    }

    /// Passes on the server's data, message by message, up to an answer that is swallowed.
    fn answer(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut held = Vec::new();
        loop {
            let mut head = [0; 5];
            if server.read_exact(&mut head).is_err() {
                break;
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let mut body = vec![0; length.saturating_sub(4)];
            if server.read_exact(&mut body).is_err() {
                break;
            }
            held.extend(head);
            held.extend(&body);
            // Ready for the next statement, and in no transaction: the last statement is committed.
            if head[0] == b'Z' {
                let nth = self.answers.fetch_add(1, Ordering::Relaxed) + 1;
                // Scattered, so that a regular sequence of statements is not always cut at the same
                // place.
                let dice = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                if body == b"I" && dice.is_multiple_of(self.every.load(Ordering::Relaxed)) {
                    self.cuts.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
            if matches!(head[0], b'Z' | b'R' | b'E') {
                if client.write_all(&held).is_err() {
                    break;
                }
                held.clear();
            }
        }
        let _ = (server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
