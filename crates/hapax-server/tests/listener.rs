//! Slow clients.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hapax_server::listener::{ConnectionLimits, ListeningSocket, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A server with room for two connections, and short time limits.
async fn narrow() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new()
        .route("/large", get(|| async { vec![b'x'; 32 * 1024 * 1024] }))
        .route("/", get(|| async { "served" }));
    let brief = Duration::from_millis(300);
    let limits = ConnectionLimits {
        connections: 2,
        head: brief,
        read: brief,
        ..ConnectionLimits::default()
    };
    let socket = ListeningSocket { listener, tls: None, limits };
    tokio::spawn(serve(socket, app, std::future::pending()));
    address
}

async fn served(address: SocketAddr) -> String {
    let asking = async {
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    tokio::time::timeout(Duration::from_secs(30), asking).await.expect("served in time")
}

/// Proves S-6 for time: a client that sends no head is disconnected, and makes room for others.
#[tokio::test]
async fn clients_that_send_nothing_make_room() {
    let address = narrow().await;
    let one = TcpStream::connect(address).await.expect("a connection");
    let two = TcpStream::connect(address).await.expect("a connection");
    assert!(served(address).await.ends_with("served"));
    drop((one, two));
}

/// Proves S-6 for time: a client that reads no answer is disconnected, and makes room for others.
#[tokio::test]
async fn clients_that_read_nothing_make_room() {
    let address = narrow().await;
    let mut greedy = Vec::new();
    for _ in 0..2 {
        let mut client = TcpStream::connect(address).await.expect("a connection");
        client.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        // The client reads the beginning of its answer, and no more.
        client.read_exact(&mut [0; 16]).await.expect("the beginning");
        greedy.push(client);
    }
    assert!(served(address).await.ends_with("served"));
    drop(greedy);
}
