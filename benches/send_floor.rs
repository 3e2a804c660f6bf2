//! Measures the cost of the kernel and of encryption in fan-out, which is a lower bound for every
//! server: one `write` per connection and wake, over loopback, with TLS and without. Compare it only
//! with other figures of this run: `cargo bench --bench send_floor`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

const CONNECTIONS: usize = 1_000;
/// The number of writes to each connection.
const ROUNDS: usize = 400;
/// The number of rounds that the writer may be ahead of the reader.
const AHEAD: usize = 2;
/// The content of a TLS record, and what is added to it (RFC 8446, section 5).
const RECORD_BYTES: usize = 1 << 14;
const RECORD_EXTRA: usize = 5 + 1 + 16;

fn main() {
    println!("{CONNECTIONS} connections: CPU of the sending thread");
    for (size, events) in [(2 << 10, 1), (2 << 10, 4), (2 << 10, 16), (10 << 10, 1)] {
        let [clear, tls] = [None, Some(Tls::new())]
            .map(|tls| measure(size * events, tls.as_ref()) / events as f64);
        let kib = size >> 10;
        println!(
            "{kib:>3} KiB events, {events:>2} per write: {clear:5.2} us/event, with TLS {tls:5.2} us/event"
        );
    }
}

/// What both sides of a TLS connection need.
struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let made = made.expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let mut server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a usable certificate");
        // So that the reader gets nothing but the events.
        server.send_tls13_tickets = 0;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let client = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            server: Arc::new(server),
            client: Arc::new(client),
        }
    }

    /// Opens TLS on a pair of connected sockets, and returns the server's side.
    fn open(&self, server: &mut TcpStream, client: &mut TcpStream) -> ServerConnection {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut ours = ServerConnection::new(self.server.clone()).expect("a connection");
        let mut theirs = ClientConnection::new(self.client.clone(), name).expect("a connection");
        while ours.is_handshaking() || theirs.is_handshaking() {
            while theirs.wants_write() {
                theirs.write_tls(client).expect("an open connection");
            }
            ours.read_tls(server).expect("an open connection");
            ours.process_new_packets().expect("a handshake");
            while ours.wants_write() {
                ours.write_tls(server).expect("an open connection");
            }
            if theirs.is_handshaking() {
                theirs.read_tls(client).expect("an open connection");
                theirs.process_new_packets().expect("a handshake");
            }
        }
        ours
    }
}

/// The sending side of a connection.
struct Sender {
    socket: TcpStream,
    tls: Option<ServerConnection>,
}

impl Sender {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes);
        };
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

/// Measures the CPU time of one write of `length` bytes, in microseconds.
fn measure(length: usize, tls: Option<&Tls>) -> f64 {
    let (mut senders, mut readers): (Vec<_>, Vec<_>) =
        (0..CONNECTIONS).map(|_| connection(tls)).unzip();
    let read = Arc::new(AtomicUsize::new(0));
    let counter = read.clone();
    let on_the_wire = match tls {
        Some(_) => length + length.div_ceil(RECORD_BYTES) * RECORD_EXTRA,
        None => length,
    };
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; on_the_wire];
        for _ in 0..ROUNDS {
            for stream in &mut readers {
                stream.read_exact(&mut buffer).expect("what was sent");
            }
            counter.fetch_add(1, Ordering::Release);
        }
    });
    let bytes = vec![b'x'; length];
    let before = thread_cpu();
    for round in 0..ROUNDS {
        while round > read.load(Ordering::Acquire) + AHEAD {
            thread::park_timeout(Duration::from_micros(50));
        }
        for sender in &mut senders {
            sender.send(&bytes).expect("an open connection");
        }
    }
    let took = thread_cpu() - before;
    reader.join().expect("the reader's end");
    took.as_secs_f64() * 1e6 / (ROUNDS * CONNECTIONS) as f64
}

/// Opens a connection over loopback.
fn connection(tls: Option<&Tls>) -> (Sender, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut client = TcpStream::connect(address).expect("a connection");
    let (mut socket, _) = listener.accept().expect("the same connection");
    socket.set_nodelay(true).expect("an option");
    let tls = tls.map(|tls| tls.open(&mut socket, &mut client));
    (Sender { socket, tls }, client)
}

/// Returns the CPU time that this thread has used so far.
fn thread_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel's account");
    let running = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(running.expect("nanoseconds"))
}
