//! A connection that is cut when the client has sent a certain text.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stands between a client and a server, and cuts the connection at a place in the client's data.
pub struct Cut {
    port: u16,
    state: Arc<State>,
}

struct State {
    server: u16,
    at: Vec<u8>,
    /// Whether the server still receives the text that the connection is cut at.
    delivered: bool,
    cut: AtomicBool,
}

impl Cut {
    /// Cuts when the client has sent this; the server does not receive it.
    pub fn before(server: u16, marker: &str) -> Self {
        Self::start(server, marker, false)
    }

    /// Cuts when the server has received this and answers; the client does not receive the answer.
    pub fn after(server: u16, marker: &str) -> Self {
        Self::start(server, marker, true)
    }

    fn start(server: u16, marker: &str, delivered: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let at = marker.as_bytes().to_vec();
        let state = Arc::new(State { server, at, delivered, cut: AtomicBool::new(false) });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || state.serve(client));
            }
        });
        Self { port, state }
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether a connection was cut.
    pub fn has_cut(&self) -> bool {
        self.state.cut.load(Ordering::Acquire)
    }
}

impl State {
    fn serve(self: Arc<Self>, mut client: TcpStream) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else { return };
        let state = self.clone();
        let answering = std::thread::spawn(move || state.answer(from, to));
        self.pass_on(&mut client, &mut server);
        if self.has_cut() && self.delivered {
            // The server's answer shows that it has received the text; the connection ends there.
            let _ = answering.join();
        }
        let _ = (server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
    }

    fn has_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Passes on the client's data, up to the place to cut at.
    fn pass_on(&self, client: &mut TcpStream, server: &mut TcpStream) {
        let mut buffer = [0; 16 * 1024];
        let mut last: Vec<u8> = Vec::new();
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let (received, before) = (&buffer[..count], last.len());
            last.extend(received);
            let found = last.windows(self.at.len()).position(|window| window == self.at);
            if let Some(at) = found {
                let end = if self.delivered { at + self.at.len() } else { at };
                self.cut.store(true, Ordering::Release);
                let _ = server.write_all(&received[..end.saturating_sub(before).min(count)]);
                return;
            }
            if server.write_all(received).is_err() {
                return;
            }
            let keep = last.len().min(self.at.len() - 1);
            last.drain(..last.len() - keep);
        }
    }

    fn answer(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            if self.has_cut() || client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }
}
