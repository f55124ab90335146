//! A relay before a server: a process of its own, so that it can be stopped. Its connections stay open
//! then, and nothing passes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Passes connections on to this port of this machine until it is killed. Prints its own port first.
pub fn serve(to: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?.port());
    for client in listener.incoming() {
        let client = client?;
        // A server that is down hangs up, and so does the relay.
        let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
        let (Ok(client_reader), Ok(server_reader)) = (client.try_clone(), server.try_clone())
        else {
            continue;
        };
        std::thread::spawn(move || pass_on(client_reader, server));
        std::thread::spawn(move || pass_on(server_reader, client));
    }
    Ok(())
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A relay that lives as long as this value.
pub struct Relay {
    child: Child,
    /// Where it listens.
    pub port: u16,
}

impl Relay {
    /// Starts one before the server on this port.
    pub fn before(port: u16) -> Self {
        let mut child = Command::new(crate::own_program())
            .args(["relay", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("its port");
        Self { child, port: line.trim().parse().expect("a port") }
    }

    /// The address of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Stops it, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
