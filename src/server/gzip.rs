//! A body as gzip, compressed while it is sent.

use std::io::Write;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Frame;

use crate::upstream::Body;
use crate::upstream::BoxError;

/// As the API server's: what is sent once is not worth more.
const LEVEL: u32 = 1;
/// Bytes compressed before other tasks get their turn: well under a millisecond.
const TURN: usize = 64 << 10;
/// Compressed bytes sent together.
const OUTPUT: usize = 16 << 10;

/// Compresses another body. Holds no more than one of its parts, and one of its own.
pub(super) struct Gzip {
    body: Body,
    /// What of the body was taken but not compressed.
    part: Bytes,
    /// `None` after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    /// The same as `body`, compressed.
    pub(super) fn new(body: Body) -> Self {
        let output = Vec::with_capacity(OUTPUT);
        Self {
            body,
            part: Bytes::new(),
            encoder: Some(GzEncoder::new(output, Compression::new(LEVEL))),
        }
    }
}

impl http_body::Body for Gzip {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut left = TURN;
        while let Some(encoder) = &mut this.encoder {
            if encoder.get_ref().len() >= OUTPUT {
                let output = std::mem::replace(encoder.get_mut(), Vec::with_capacity(OUTPUT));
                return Poll::Ready(Some(Ok(Frame::data(output.into()))));
            }
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.part.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    Some(Ok(frame)) => this.part = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        let rest = this.encoder.take().map(GzEncoder::finish).transpose();
                        let rest = rest.map(|rest| Frame::data(rest.unwrap_or_default().into()));
                        return Poll::Ready(Some(rest.map_err(BoxError::from)));
                    }
                }
            }
            let now = this.part.split_to(this.part.len().min(left));
            left -= now.len();
            if let Err(error) = encoder.write_all(&now) {
                return Poll::Ready(Some(Err(error.into())));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;

    use flate2::read::GzDecoder;
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;
    use crate::server::chunks::Chunks;
    use crate::upstream;

    fn decoded(gzip: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = GzDecoder::new(gzip).read_to_end(&mut plain);
        read.expect("gzip to the end");
        plain
    }

    #[tokio::test]
    async fn says_the_same_whatever_the_parts() {
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
            let body = Chunks::new(VecDeque::from(parts)).boxed();
            let gzip = Gzip::new(body).collect().await.expect("no failure");
            assert!(decoded(&gzip.to_bytes()) == whole, "{} bytes", whole.len());
        }
    }

    #[test]
    fn gives_others_their_turn() {
        let parts = VecDeque::from([Bytes::from(vec![b'a'; TURN * 10])]);
        let mut gzip = Gzip::new(Chunks::new(parts).boxed());
        // So regular a body gives nothing to send in its first turn.
        assert!(gzip.frame().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_body_that_fails_fails() {
        let failing = http_body_util::StreamBody::new(futures_util::stream::iter([
            Ok(Frame::data(Bytes::from_static(b"x"))),
            Err(std::io::Error::other("broken")),
        ]));
        let gzip = Gzip::new(upstream::boxed(failing)).collect().await;
        assert_eq!(gzip.expect_err("a failure").to_string(), "broken");
    }
}
