//! Gzip: decides whether a client gets gzip, and compresses a body while it is sent.

use std::io;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body::Frame;
use kubefan_core::body::{Body, BoxError};
use kubefan_core::concurrency::CoopBudget;

use crate::server::deliver::PolledFrame;

/// Bytes of a compressor's window, hash tables and buffers.
pub(crate) const COMPRESSOR_BYTES: u64 = 320 << 10;
/// Units of a task's budget that compressing one byte costs.
pub(super) const BYTE_UNITS: usize = 8;
/// Compression level, as at the API server; a higher level is not worth its cost.
pub(super) const LEVEL: u32 = 1;
/// Bytes that are compressed between two checks of the budget.
const BUDGET_CHECK_BYTES: usize = CoopBudget::UNITS / BYTE_UNITS;
/// Size, in bytes, of the compressed chunks that are sent.
const OUTPUT_CHUNK: usize = 16 << 10;
/// The gzip header: deflate, no name, no time, fastest compression, unknown operating system.
pub(super) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// Returns true if the first `Accept-Encoding` header lists the bare word `gzip`. The word with a
/// quality, such as `gzip;q=1.0`, does not count. The answer to a HEAD is never compressed.
pub(crate) fn client_accepts_gzip<B>(request: &Request<B>) -> bool {
    *request.method() != Method::HEAD && accepts_gzip(request.headers())
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING);
    let accepted = accepted.map_or(&b""[..], HeaderValue::as_bytes);
    let mut codings = accepted.split(|byte| *byte == b',');
    codings.any(|coding| coding.trim_ascii() == b"gzip")
}

/// Sets the headers of `response`. Its body is gzip already.
pub(crate) fn with_gzip_headers(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// Compresses the bytes that are pushed into it, as gzip.
pub(crate) struct GzipWriter {
    deflate: DeflateEncoder<Vec<u8>>,
    /// Checksum and length of all bytes up to now, including those before a cut.
    crc: Crc,
    /// Number of compressed bytes that are returned together.
    output: usize,
}

/// Compresses another body while it is sent. Holds at most one part and one compressed chunk.
pub(crate) struct GzipBody {
    body: Body,
    /// Bytes that were taken from the body but not compressed yet.
    part: Bytes,
    /// The compressor; `None` after the end of the body.
    writer: Option<GzipWriter>,
    budget: CoopBudget,
}

impl GzipWriter {
    /// Creates a writer at the start of a text. It returns `output` or more compressed bytes
    /// together.
    pub(crate) fn new(output: usize) -> Self {
        let mut buffer = Vec::with_capacity(output);
        buffer.extend_from_slice(&HEADER);
        Self::with(buffer, Crc::new(), output)
    }

    /// Creates a writer that continues a text. `crc` is the checksum of the part before.
    pub(crate) fn resume(crc: &Crc) -> Self {
        Self::with(
            Vec::with_capacity(OUTPUT_CHUNK),
            clone_crc(crc),
            OUTPUT_CHUNK,
        )
    }

    fn with(buffer: Vec<u8>, crc: Crc, output: usize) -> Self {
        Self {
            deflate: DeflateEncoder::new(buffer, Compression::new(LEVEL)),
            crc,
            output,
        }
    }

    /// Compresses `bytes`.
    ///
    /// # Errors
    ///
    /// If the compressor reports an internal error.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.deflate.write_all(bytes)
    }

    /// Returns the compressed bytes if there are enough of them, and `None` otherwise.
    pub(crate) fn output(&mut self) -> Option<Bytes> {
        let buffer = self.deflate.get_mut();
        if buffer.len() < self.output {
            return None;
        }
        // The copy has no spare capacity, because a cache may store it.
        let output = Bytes::copy_from_slice(buffer);
        buffer.clear();
        Some(output)
    }

    /// Stops in the middle of the text. Returns the last compressed bytes, and the checksum for
    /// [`GzipWriter::resume`].
    pub(crate) fn cut(mut self) -> io::Result<(Bytes, Crc)> {
        // The flush makes the output end at a byte boundary.
        self.deflate.flush()?;
        let rest = std::mem::take(self.deflate.get_mut());
        Ok((rest.into(), self.crc))
    }

    /// Ends the text. Returns the last compressed bytes, with the checksum and length that end
    /// gzip.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        let mut rest = self.deflate.finish()?;
        rest.extend_from_slice(&self.crc.sum().to_le_bytes());
        rest.extend_from_slice(&self.crc.amount().to_le_bytes());
        Ok(rest.into())
    }
}

fn clone_crc(crc: &Crc) -> Crc {
    let mut copy = Crc::new();
    copy.combine(crc);
    copy
}

impl GzipBody {
    /// Creates a body that compresses `body`.
    pub(crate) fn new(body: Body) -> Self {
        Self::with(body, GzipWriter::new(OUTPUT_CHUNK))
    }

    /// Creates a body that compresses `body` with `writer`.
    pub(crate) fn with(body: Body, writer: GzipWriter) -> Self {
        Self {
            body,
            part: Bytes::new(),
            writer: Some(writer),
            budget: CoopBudget::new(),
        }
    }
}

impl http_body::Body for GzipBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        while let Some(writer) = &mut this.writer {
            if let Some(output) = writer.output() {
                return Poll::Ready(Some(Ok(Frame::data(output))));
            }
            ready!(this.budget.poll_proceed(cx));
            if this.part.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    Some(Ok(frame)) => this.part = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        let rest = this.writer.take().map(GzipWriter::finish).transpose();
                        let rest = rest.map(|rest| Frame::data(rest.unwrap_or_default()));
                        return Poll::Ready(Some(rest.map_err(BoxError::from)));
                    }
                }
            }
            let now = this.part.split_to(this.part.len().min(BUDGET_CHECK_BYTES));
            this.budget.charge(now.len() * BYTE_UNITS);
            if let Err(error) = writer.push(&now) {
                return Poll::Ready(Some(Err(error.into())));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.writer.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use kubefan_core::body;

    use super::*;
    use crate::server::deliver::Chunks;

    fn decoded(gzip: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = GzDecoder::new(gzip).read_to_end(&mut plain);
        read.expect("gzip to the end");
        plain
    }

    #[test]
    fn only_the_bare_word_gzip_is_accepted() {
        for (accepted, expected) in [
            ("", false),
            ("gzip", true),
            ("deflate, gzip", true),
            ("deflate , gzip ,br", true),
            ("gzip;q=0.5", false),
            ("gzip;q=1.0, identity", false),
            ("GZIP", false),
            ("x-gzip", false),
            ("*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(accepts_gzip(&headers), expected, "{accepted}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
        let mut two = HeaderMap::new();
        two.append(header::ACCEPT_ENCODING, HeaderValue::from_static("br"));
        two.append(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(!accepts_gzip(&two));
    }

    #[tokio::test]
    async fn decompresses_to_the_same_bytes_for_any_parts() {
        let noise = |length: usize| -> Bytes {
            let mut state = 7_u32;
            let bytes = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            });
            bytes.take(length).collect::<Vec<_>>().into()
        };
        for parts in [
            vec![],
            vec![Bytes::from_static(b"x")],
            vec![Bytes::from(vec![b'a'; 1 << 20])],
            vec![noise(300_000)],
            (0..5_000_usize).map(|length| noise(length % 97)).collect(),
        ] {
            let whole = parts.concat();
            let body = Chunks::new(parts.into_iter(), whole.len() as u64).boxed();
            let gzip = GzipBody::new(body).collect().await.expect("no failure");
            assert!(decoded(&gzip.to_bytes()) == whole, "{} bytes", whole.len());
        }
    }

    #[test]
    fn can_be_resumed_after_a_cut_anywhere() {
        let text: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
        for at in [0, 1, 77_777, text.len()] {
            let (first, second) = text.split_at(at);
            let mut writer = GzipWriter::new(OUTPUT_CHUNK);
            writer.push(first).expect("no failure");
            let (gzip, crc) = writer.cut().expect("a cut");
            for _ in 0..2 {
                let mut resumed = GzipWriter::resume(&crc);
                resumed.push(second).expect("no failure");
                let whole = [&gzip[..], &resumed.finish().expect("an end")].concat();
                assert!(decoded(&whole) == text, "cut at {at}");
            }
        }
    }

    #[test]
    fn yields_to_other_tasks() {
        let parts = body::full(vec![b'a'; BUDGET_CHECK_BYTES * 10]);
        let mut gzip = GzipBody::new(parts);
        // This body is so regular that its first turn yields no complete chunk.
        assert!(gzip.frame().now_or_never().is_none());
    }

    #[tokio::test]
    async fn an_error_of_the_inner_body_is_passed_on() {
        let failing = http_body_util::StreamBody::new(futures_util::stream::iter([
            Ok(Frame::data(Bytes::from_static(b"x"))),
            Err(std::io::Error::other("broken")),
        ]));
        let gzip = GzipBody::new(body::boxed(failing)).collect().await;
        assert_eq!(gzip.expect_err("a failure").to_string(), "broken");
    }
}
