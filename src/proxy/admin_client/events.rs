//! Events: the stream of snapshots of a kubefan, as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt;
use kubefan_core::body::Body;
use tokio::time::timeout;

use super::error::Error;

/// The longest time between two events. kubefan sends one per second.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of an event.
const MOST_BYTES: usize = 64 << 20;

/// A stream of events.
pub struct Events {
    body: Body,
    parser: Parser,
}

/// Reads events from bytes. Lines end with LF or CR LF, as kubefan and proxies send them.
#[derive(Default)]
struct Parser {
    /// The bytes of the line that is not complete.
    line: Vec<u8>,
    /// The data of the event that is not complete.
    data: Vec<u8>,
    complete: VecDeque<String>,
}

// === impl Events ===

impl Events {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            parser: Parser::default(),
        }
    }

    /// Returns the data of the next event, or `None` at the end of the stream: kubefan ends each
    /// after 50 s. Cancel safe.
    ///
    /// # Errors
    /// If the connection breaks, nothing arrives for 10 s, or an event has more than 64 MiB.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            if let Some(data) = self.parser.complete.pop_front() {
                return Ok(Some(data));
            }
            let frame = timeout(IDLE_TIMEOUT, self.body.frame()).await;
            let Some(frame) = frame.map_err(|_| Error::Timeout(IDLE_TIMEOUT))? else {
                return Ok(None);
            };
            if let Ok(bytes) = frame.map_err(Error::Broken)?.into_data() {
                self.parser.push(&bytes)?;
            }
        }
    }
}

// === impl Parser ===

impl Parser {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.line.len() + self.data.len() + bytes.len() > MOST_BYTES {
            return Err(Error::TooLarge(MOST_BYTES));
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // What follows the last LF is not complete.
        let rest = lines.next_back().unwrap_or_default();
        for end in lines {
            self.line.extend_from_slice(end);
            self.end_line();
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            if !data.is_empty() {
                let text = String::from_utf8_lossy(&data).into_owned();
                self.complete.push_back(text);
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            let data = data.strip_prefix(b" ").unwrap_or(data);
            self.data.extend_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kubefan_core::body;
    use kubefan_core::body::BoxError;

    use super::*;

    const STREAM: &str = "retry: 1000\nid: 1\nevent: snapshot\ndata: {\"a\":1}\n\n: comment\n\n\
                          data:one\ndata: two\r\n\r\nevent: empty\n\ndata: \u{e4}\n\ndata: cut off";
    const EVENTS: [&str; 3] = ["{\"a\":1}", "one\ntwo", "\u{e4}"];

    fn stream_of(chunks: Vec<Result<Bytes, BoxError>>) -> Events {
        let chunks = chunks.into_iter().map(|chunk| chunk.map(Frame::data));
        Events::new(body::boxed(StreamBody::new(stream::iter(chunks))))
    }

    #[tokio::test]
    async fn events_do_not_depend_on_how_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let chunks = STREAM.as_bytes().chunks(size);
            let chunks = chunks.map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
            let mut events = stream_of(chunks.collect());
            let mut found = Vec::new();
            while let Some(data) = events.next().await.expect("no error") {
                found.push(data);
            }
            assert_eq!(found, EVENTS, "{size}");
        }
    }

    #[tokio::test]
    async fn events_before_a_broken_connection_are_returned() {
        let chunks = vec![Ok(Bytes::from_static(b"data: 1\n\n")), Err("cut".into())];
        let mut events = stream_of(chunks);
        let first = events.next().await.expect("an event");
        assert_eq!(first.as_deref(), Some("1"));
        let broken = events.next().await;
        assert!(matches!(broken, Err(Error::Broken(_))), "{broken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_an_error() {
        let silent = stream::pending::<Result<Frame<Bytes>, BoxError>>();
        let mut events = Events::new(body::boxed(StreamBody::new(silent)));
        let silent = events.next().await;
        assert!(matches!(silent, Err(Error::Timeout(_))), "{silent:?}");
    }

    #[test]
    fn an_event_has_a_limit() {
        let mut parser = Parser::default();
        let chunk = vec![b'a'; MOST_BYTES / 2 + 1];
        parser.push(&chunk).expect("half of it");
        let refused = parser.push(&chunk);
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");
    }
}
