//! Raw connections of hostile clients. They send HTTP/2 frames by hand, because a library would not
//! send most of this.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// The start of an HTTP/2 connection (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_FRAME: usize = 16_384;

/// An HTTP/2 connection without TLS. A task reads what the server sends, confirms its settings and
/// answers its pings, but never opens a window.
#[derive(Debug)]
pub(super) struct Http2 {
    writer: Arc<Mutex<OwnedWriteHalf>>,
    authority: String,
    next_stream: u32,
    reader: JoinHandle<()>,
}

impl Http2 {
    /// Connects and sends the preface. `window` is the number of body bytes that the server may
    /// send on each stream.
    pub(super) async fn connect(server: SocketAddr, window: u32) -> std::io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let mut start = PREFACE.to_vec();
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        put_frame(&mut start, SETTINGS, 0, 0, &settings);
        writer.write_all(&start).await?;
        let writer = Arc::new(Mutex::new(writer));
        let reader = tokio::spawn(read(reader, writer.clone()));
        Ok(Self {
            writer,
            authority: server.to_string(),
            next_stream: 1,
            reader,
        })
    }

    /// Sends a GET for each path, in as few writes as possible, and returns the first stream's id.
    pub(super) async fn get(
        &mut self,
        paths: impl IntoIterator<Item = String>,
    ) -> std::io::Result<u32> {
        let first = self.next_stream;
        let mut frames = Vec::new();
        for path in paths {
            let block = self.header_block(&path);
            put_frame(
                &mut frames,
                HEADERS,
                END_STREAM | END_HEADERS,
                self.next_stream,
                &block,
            );
            self.next_stream += 2;
        }
        self.writer.lock().await.write_all(&frames).await?;
        Ok(first)
    }

    /// Sends GETs and resets each of them at once.
    pub(super) async fn get_and_reset(&mut self, path: &str, count: u32) -> std::io::Result<()> {
        const CANCEL: [u8; 4] = [0, 0, 0, 8];
        let mut frames = Vec::new();
        for _ in 0..count {
            let block = self.header_block(path);
            put_frame(
                &mut frames,
                HEADERS,
                END_STREAM | END_HEADERS,
                self.next_stream,
                &block,
            );
            put_frame(&mut frames, RST_STREAM, 0, self.next_stream, &CANCEL);
            self.next_stream += 2;
        }
        self.writer.lock().await.write_all(&frames).await
    }

    /// Sends GETs with `count` headers of 4,000 bytes each. Only the first request sends the header
    /// in full: it enters HPACK's dynamic table, and a byte repeats it.
    pub(super) async fn get_with_headers(
        &mut self,
        path: &str,
        requests: u32,
        count: usize,
    ) -> std::io::Result<()> {
        const SIZE: usize = 4_000;
        /// The newest entry of the dynamic table (RFC 7541 §2.3.3).
        const NEWEST: u8 = 0x80 | 62;
        let mut frames = Vec::new();
        for number in 0..requests {
            let mut block = self.header_block(path);
            if number == 0 {
                // A literal header that enters the dynamic table (RFC 7541 §6.2.1).
                block.push(0x40);
                put_text(&mut block, "x-filler");
                put_text(&mut block, &"f".repeat(SIZE));
            }
            block.resize(block.len() + count - usize::from(number == 0), NEWEST);
            let mut parts = block.chunks(MAX_FRAME).peekable();
            let mut kind = HEADERS;
            while let Some(part) = parts.next() {
                let end = if parts.peek().is_none() {
                    END_HEADERS
                } else {
                    0
                };
                let flags = if kind == HEADERS {
                    END_STREAM | end
                } else {
                    end
                };
                put_frame(&mut frames, kind, flags, self.next_stream, part);
                kind = CONTINUATION;
            }
            self.next_stream += 2;
        }
        self.writer.lock().await.write_all(&frames).await
    }

    fn header_block(&self, path: &str) -> Vec<u8> {
        // Indexed `:method: GET` and `:scheme: http`, then literals that do not enter the dynamic
        // table, with the names `:path` and `:authority` by index (RFC 7541 §6).
        let mut block = vec![0x82, 0x86, 0x04];
        put_text(&mut block, path);
        block.push(0x01);
        put_text(&mut block, &self.authority);
        block
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Puts a text without Huffman coding (RFC 7541 §5.2).
fn put_text(block: &mut Vec<u8>, text: &str) {
    const PREFIX: usize = 127;
    if text.len() < PREFIX {
        block.push(text.len() as u8);
    } else {
        block.push(PREFIX as u8);
        let mut rest = text.len() - PREFIX;
        while rest >= 128 {
            block.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend(text.as_bytes());
}

fn put_frame(frames: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    frames.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    frames.extend([kind, flags]);
    frames.extend(stream.to_be_bytes());
    frames.extend(payload);
}

async fn read(mut reader: OwnedReadHalf, writer: Arc<Mutex<OwnedWriteHalf>>) {
    let mut head = [0; 9];
    let mut payload = Vec::new();
    while reader.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        payload.resize(length, 0);
        if reader.read_exact(&mut payload).await.is_err() {
            break;
        }
        let (kind, flags) = (head[3], head[4]);
        let mut answer = Vec::new();
        match kind {
            SETTINGS if flags & ACK == 0 => put_frame(&mut answer, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => put_frame(&mut answer, PING, ACK, 0, &payload),
            _ => continue,
        }
        if writer.lock().await.write_all(&answer).await.is_err() {
            break;
        }
    }
}
