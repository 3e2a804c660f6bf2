//! Measures the kernel's cost of HTTP/1.1 fan-out, which is a lower bound for every server: one
//! `write` per connection and wake, over loopback. Compare it only with other figures of this run:
//! `cargo bench --bench send_floor`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

const CONNECTIONS: usize = 1_000;
/// The number of writes to each connection.
const ROUNDS: usize = 400;
/// The number of rounds that the writer may be ahead of the reader.
const AHEAD: usize = 2;

fn main() {
    println!("{CONNECTIONS} connections: CPU of the sending thread");
    for (size, events) in [(2 << 10, 1), (2 << 10, 4), (2 << 10, 16), (10 << 10, 1)] {
        let per_event = measure(size * events) / events as f64;
        let kib = size >> 10;
        println!("{kib:>3} KiB events, {events:>2} per write: {per_event:5.2} us/event");
    }
}

/// Measures the CPU time of one write of `length` bytes, in microseconds.
fn measure(length: usize) -> f64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let pairs: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let reads = TcpStream::connect(address).expect("a connection");
            let (writes, _) = listener.accept().expect("the same connection");
            writes.set_nodelay(true).expect("an option");
            (writes, reads)
        })
        .collect();
    let (mut writers, mut readers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let read = Arc::new(AtomicUsize::new(0));
    let counter = read.clone();
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; length];
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
        for stream in &mut writers {
            stream.write_all(&bytes).expect("an open connection");
        }
    }
    let took = thread_cpu() - before;
    reader.join().expect("the reader's end");
    took.as_secs_f64() * 1e6 / (ROUNDS * CONNECTIONS) as f64
}

/// Returns the CPU time that this thread has used so far.
fn thread_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel's account");
    let running = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(running.expect("nanoseconds"))
}
