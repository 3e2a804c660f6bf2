//! A WATCH over a WebSocket: the usual stream of events, with each event in a separate message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt};
use http::{HeaderMap, Response, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kubefan_core::api::WireFormat;
use kubefan_core::body::Body;
use kubefan_core::shutdown::{Phase, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, tungstenite};

use crate::ledger::{Account, Charge, GrowingCharge, MemoryKind, Short, WatchMeter, closed};
use crate::net::{ClientHandle, ServedSocket, Transport};
use crate::server::answers::ending::sending;
use crate::server::request::{Exchange, Handshake};

/// Size, in bytes, of the buffer for reading from the client, which usually sends nothing.
const READ_BUFFER: usize = 1 << 10;
/// Size, in bytes, of the buffer in which messages are written together.
const WRITE_BUFFER: usize = 16 << 10;
/// Bytes that a watch over a WebSocket holds: both buffers, a message of up to `WRITE_BUFFER` and
/// the task.
const WEBSOCKET_BYTES: u64 = 48 << 10;
/// Longest message, in bytes, that a client may send. All its messages are ignored.
const MAX_RECEIVED: usize = 1 << 20;
/// How long the server waits for the client's close message after the end of the watch.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How long after its deadline a watch may last if its client reads nothing.
const STUCK_WAIT: Duration = Duration::from_secs(5);
/// Upper limit of a watch's timeout: a year, because clocks can't represent arbitrarily late times.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// How the frame of an event becomes a WebSocket message.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// JSON: the line is sent unchanged, as text.
    Text,
    /// Protobuf: the frame without its length prefix is sent as binary.
    Binary,
}

/// Charges the memory of one WebSocket to the connection of `client`.
///
/// # Errors
/// If memory is short.
pub(in crate::server) fn charge_websocket(client: &ClientHandle) -> Result<Option<Charge>, Short> {
    client.charge(MemoryKind::WebSocket, WEBSOCKET_BYTES)
}

/// Upgrades the connection of `exchange`, and sends the body of `watch` over it in a task, which
/// holds `charge`. `meter` gets the bytes that are sent. `timeout` is that of the watch. The task
/// ends if the client takes no byte for `write_timeout`. Returns the response that grants the
/// upgrade, or `watch` itself if the connection can't be upgraded.
pub(in crate::server) fn over_websocket(
    (handshake, charge): (Handshake, Option<Charge>),
    exchange: &mut Exchange,
    (watch, meter): (Response<Body>, Option<Arc<WatchMeter>>),
    (timeout, write_timeout): (Option<Duration>, Duration),
    shutdown: &Shutdown,
) -> Response<Body> {
    let Some(upgrade) = exchange.request.extensions_mut().remove::<OnUpgrade>() else {
        return watch;
    };
    let account = exchange.client.account.clone();
    let payer = account.clone();
    let until_stuck = until_stuck(timeout, shutdown);
    let framing = Framing::of(watch.headers());
    let events = sending(watch, None, exchange.ending.clone(), meter).into_body();
    shutdown.spawn(async move {
        match upgrade.await {
            Ok(connection) => tokio::select! {
                () = send(TokioIo::new(connection), events, framing, write_timeout, payer) => {}
                () = until_stuck => tracing::debug!("the client of a WebSocket watch reads nothing"),
                () = closed(account.as_deref()) => {
                    tracing::debug!("memory is short, and this WebSocket watch holds the most");
                }
            },
            Err(error) => tracing::debug!(%error, "connection could not be upgraded"),
        }
        drop(charge);
    });
    handshake.into_response()
}

impl Framing {
    /// Returns the framing of a watch. `headers` are those of its answer.
    fn of(headers: &HeaderMap) -> Self {
        let binary = WireFormat::Protobuf.watch_media_type();
        match headers.get(header::CONTENT_TYPE) {
            Some(media_type) if media_type == binary => Self::Binary,
            _ => Self::Text,
        }
    }

    fn message(self, mut event: Bytes) -> Message {
        let kind = match self {
            Self::Text => Data::Text,
            Self::Binary => {
                // A message has its own length, so the length prefix (4 bytes) is dropped.
                let _length = event.split_to(event.len().min(4));
                Data::Binary
            }
        };
        // `Message::Text` would validate the API server's text as UTF-8 again.
        Message::Frame(Frame::message(event, OpCode::Data(kind), true))
    }
}

/// Completes when a watch must be dropped because its client reads nothing: shortly after
/// its `timeout`, or when the drain is done. The stream of events ends by itself, but such a
/// client would never receive its end.
fn until_stuck(
    timeout: Option<Duration>,
    shutdown: &Shutdown,
) -> impl Future<Output = ()> + Send + 'static {
    let deadline = timeout.map(|timeout| Instant::now() + timeout.min(MAX_TIMEOUT) + STUCK_WAIT);
    let done = shutdown.reached(Phase::Done);
    async move {
        match deadline {
            Some(deadline) => timeout_at(deadline, done).await.unwrap_or_default(),
            None => done.await,
        }
    }
}

/// Sends all `events`, then closes the WebSocket. Ends early if the client closes the WebSocket, if
/// the client reads nothing for `write_timeout`, or if there is no memory for the next event.
async fn send(
    connection: impl Transport + Send,
    mut events: Body,
    framing: Framing,
    write_timeout: Duration,
    payer: Option<Arc<Account>>,
) {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(MAX_RECEIVED))
        .max_frame_size(Some(MAX_RECEIVED));
    let connection = ServedSocket::new(connection, write_timeout);
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config));
    let mut socket = socket.await;
    match send_events(&mut socket, &mut events, framing, payer).await {
        Ok(()) => close(socket).await,
        Err(error) => tracing::debug!(%error, "WebSocket watch was broken off"),
    }
}

async fn send_events(
    socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>,
    events: &mut Body,
    framing: Framing,
    payer: Option<Arc<Account>>,
) -> Result<(), tungstenite::Error> {
    // The library copies each event into a buffer. It writes a large event before it takes the next
    // one, and never makes the buffer smaller.
    let mut buffer = GrowingCharge::new(MemoryKind::WebSocket, payer);
    loop {
        let mut frame = tokio::select! {
            frame = events.frame() => frame,
            received = socket.next() => match received {
                // The library has answered pings; all other messages are ignored.
                Some(Ok(message)) if !message.is_close() => continue,
                Some(Err(error)) => return Err(error),
                _ => return Ok(()),
            },
        };
        loop {
            let Some(Ok(event)) = frame else {
                return Ok(());
            };
            if let Ok(event) = event.into_data() {
                if event.len() > WRITE_BUFFER && !buffer.fits(event.len()) {
                    return Ok(());
                }
                socket.feed(framing.message(event)).await?;
            }
            // Events that are already waiting are written together.
            match events.frame().now_or_never() {
                Some(next) => frame = next,
                None => break,
            }
        }
        socket.flush().await?;
    }
}

/// Sends a close frame, and waits a moment for the client's. If the connection were dropped while
/// bytes of the client are unread, the last messages could be lost.
async fn close(mut socket: WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>) {
    let end = CloseFrame {
        code: CloseCode::Normal,
        reason: Default::default(),
    };
    let closed = async {
        // Fails if the client has closed first; buffered messages are sent regardless.
        let _ = socket.close(Some(end)).await;
        while let Some(Ok(_)) = socket.next().await {}
    };
    let _ = timeout(CLOSE_WAIT, closed).await;
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;
    use kubefan_core::{body, shutdown};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::ledger::{Ledger, Limits};

    /// How long the client of a WebSocket may take nothing.
    const LIMIT: Duration = Duration::from_secs(100);

    #[test]
    fn an_event_is_a_message() {
        let line = Bytes::from_static(b"{\"type\":\"ADDED\"}\n");
        let text = Framing::Text.message(line.clone());
        assert_eq!(text.into_data(), line);
        let frame = Bytes::from_static(b"\0\0\0\x03abc");
        let binary = Framing::Binary.message(frame);
        assert_eq!(&binary.into_data()[..], b"abc");
    }

    /// Makes a body with `count` events. Then it ends, or stays open if `ends` is false.
    fn events(count: usize, ends: bool) -> Body {
        let event =
            |_| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(b"{}\n")));
        let events = stream::iter((0..count).map(event));
        if ends {
            body::boxed(StreamBody::new(events))
        } else {
            body::boxed(StreamBody::new(events.chain(stream::pending())))
        }
    }

    async fn read_all(mut client: DuplexStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.expect("a clean end");
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn all_events_are_sent_and_then_the_close() {
        let (client, server) = duplex(64);
        let sent = send(server, events(1_000, true), Framing::Text, LIMIT, None);
        let ((), received) = tokio::join!(sent, read_all(client));
        let expected = [b"\x81\x03{}\n".repeat(1_000), b"\x88\x02\x03\xe8".to_vec()].concat();
        assert!(received == expected, "{}", received.escape_ascii());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_ends_the_watch() {
        let (client, server) = duplex(64);
        drop(client);
        send(server, events(0, false), Framing::Text, LIMIT, None).await;
        let (mut client, server) = duplex(64);
        // A text message and a close message, both masked with zeroes.
        let input = b"\x81\x82\0\0\0\0hi\x88\x82\0\0\0\0\x03\xe8";
        client.write_all(input).await.expect("room");
        let sent = send(server, events(0, false), Framing::Text, LIMIT, None);
        let ((), received) = tokio::join!(sent, read_all(client));
        assert_eq!(received, b"\x88\x02\x03\xe8");
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_event_is_charged_while_the_websocket_is_open() {
        const LENGTH: usize = 100 << 10;
        for (connection_memory, fits) in [(1 << 20, true), (50 << 10, false)] {
            let limits = Limits {
                connection_memory,
                ..Limits::new(Some(1 << 30), None, 0)
            };
            let ledger = Ledger::new(limits);
            let account = ledger.open_account();
            let (mut client, server) = duplex(64);
            let event = http_body::Frame::data(Bytes::from(vec![b'x'; LENGTH]));
            let event = stream::iter([Ok::<_, std::io::Error>(event)]);
            let events = body::boxed(StreamBody::new(event.chain(stream::pending())));
            let mut sent = Box::pin(send(server, events, Framing::Text, LIMIT, Some(account)));
            if !fits {
                sent.await;
                continue;
            }
            assert!((&mut sent).now_or_never().is_none());
            assert!(ledger.leased() > LENGTH as u64, "{}", ledger.leased());
            // Ten bytes of a frame with a 64-bit length come before the event.
            let mut received = vec![0; 10 + LENGTH];
            tokio::select! {
                () = &mut sent => panic!("the watch ended"),
                read = client.read_exact(&mut received) => drop(read.expect("all bytes")),
            }
            assert!((&mut sent).now_or_never().is_none());
            assert!(ledger.leased() > LENGTH as u64, "{}", ledger.leased());
            drop(sent);
            assert!(ledger.leased() < LENGTH as u64, "{}", ledger.leased());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_dropped_after_the_write_timeout() {
        let (_client, server) = duplex(64);
        let started = Instant::now();
        send(server, events(10_000, false), Framing::Text, LIMIT, None).await;
        assert_eq!(started.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_dropped_after_the_deadline() {
        let shutdown = Shutdown::new(shutdown::Config::default());
        let until_stuck = until_stuck(Some(Duration::from_secs(30)), &shutdown);
        let (_client, server) = duplex(64);
        let started = Instant::now();
        tokio::select! {
            () = send(server, events(10_000, true), Framing::Text, LIMIT, None) => panic!("the client read nothing"),
            () = until_stuck => {}
        }
        assert_eq!(started.elapsed().as_secs(), 35);
    }
}
