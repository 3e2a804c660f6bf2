//! An accepted socket: its options, and the bytes that are read to detect the protocol.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// The first bytes of a client that uses HTTP/2 (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often the kernel repeats a keepalive probe.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The first bytes of a connection. They were read to detect its protocol.
#[derive(Debug, Default)]
pub(in crate::net) struct FirstBytes {
    bytes: [u8; HTTP2_PREFACE.len()],
    length: usize,
    /// How many of these bytes were read again.
    replayed: usize,
}

/// Sets the options of an accepted socket. After `keepalive` without traffic, the kernel asks the
/// peer's kernel whether the connection is still open. The kernel closes the connection if the peer
/// acknowledges nothing, or accepts no more bytes, for `write_timeout`.
///
/// # Errors
/// If the system does not accept an option.
pub(in crate::net) fn set_options(
    stream: &TcpStream,
    keepalive: Duration,
    write_timeout: Duration,
) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(keepalive)
        .with_interval(KEEPALIVE_INTERVAL);
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(write_timeout))
}

/// Waits for the first byte of a connection that must begin with TLS. If the connection begins with
/// HTTP, sends the answer that kube-apiserver sends, because clients show it.
///
/// # Errors
/// If the peer speaks HTTP without TLS, or the connection fails.
pub(in crate::net) async fn refuse_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    const ANSWER: &[u8] =
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    // An HTTP method begins with a letter, and TLS with a byte that is not a letter.
    if count == 0 || !first[0].is_ascii_uppercase() {
        return Ok(());
    }
    stream.write_all(ANSWER).await?;
    // The peer would lose the answer if there were unread bytes when the connection is closed.
    let mut request = [0; 4 << 10];
    stream.try_read(&mut request).ok();
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "the client speaks HTTP without TLS",
    ))
}

/// Reads until it is clear whether a connection begins with the preface of HTTP/2. Returns the
/// bytes, and whether they are the preface.
///
/// # Errors
/// If the peer closes the connection before, or reading fails.
pub(in crate::net) async fn read_first_bytes(
    io: &mut (impl AsyncRead + Unpin),
) -> io::Result<(FirstBytes, bool)> {
    let mut first = FirstBytes::default();
    while first.length < first.bytes.len() {
        let read = io.read(&mut first.bytes[first.length..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        first.length += read;
        if !HTTP2_PREFACE.starts_with(first.unread()) {
            return Ok((first, false));
        }
    }
    Ok((first, true))
}

// === impl FirstBytes ===

impl FirstBytes {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.replayed..self.length]
    }

    /// Puts bytes that were not read again yet into `buffer`. Returns false if there are none.
    pub(in crate::net) fn replay(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let unread = self.unread();
        if unread.is_empty() {
            return false;
        }
        let length = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..length]);
        self.replayed += length;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn first_bytes_show_the_protocol() {
        for (sent, is_http2) in [
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest", Some(true)),
            ("G", Some(false)),
            ("PRI * HTTP/1.1\r\n", Some(false)),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            ("", None),
        ] {
            let (near, mut far) = duplex(64);
            far.write_all(sent.as_bytes()).await.expect("room");
            drop(far);
            let mut near = near;
            let found = read_first_bytes(&mut near).await;
            assert_eq!(found.as_ref().ok().map(|found| found.1), is_http2, "{sent}");
            let Ok((first, _)) = found else { continue };
            let mut rest = first.unread().to_vec();
            near.read_to_end(&mut rest).await.expect("the rest");
            assert_eq!(rest, sent.as_bytes());
        }
    }

    /// A peer that never sends the rest of its preface; counts how often it is read from.
    struct HalfPreface {
        polls: usize,
    }

    impl AsyncRead for HalfPreface {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.polls += 1;
            if self.polls > 1 {
                return Poll::Pending;
            }
            buffer.put_slice(&HTTP2_PREFACE[..14]);
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_preface_is_waited_for_without_polling() {
        let mut io = HalfPreface { polls: 0 };
        let limit = Duration::from_secs(90);
        timeout(limit, read_first_bytes(&mut io)).await.unwrap_err();
        // The timeout polls once more when it expires.
        assert!(io.polls <= 3, "{}", io.polls);
    }
}
