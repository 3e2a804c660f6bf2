//! Reads whole answers into memory, within limits, and turns failures into [`Error::Answer`].

use std::time::Duration;

use bytes::Bytes;
use bytes::BytesMut;
use http::HeaderMap;
use http::Response;
use http::header::CONTENT_TYPE;
use http::header::RETRY_AFTER;
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::codec::decode_status;

use super::Error;
use crate::body::Body;

/// Bytes of a failure's body that are read.
const FAILURE_LIMIT: usize = 1 << 20;
/// Time between two pieces of a body.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes reserved on a body's announced length.
const RESERVE_LIMIT: usize = 64 << 20;

/// The response, if it is a success.
pub(super) async fn success(response: Response<Body>) -> Result<Response<Body>, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = collect(body, FAILURE_LIMIT).await?;
    let status = decode_status(content_type(&parts.headers), parts.status.as_u16(), &body);
    Err(Error::Answer {
        status: Box::new(status),
        retry_after: retry_after(&parts.headers),
    })
}

/// All of `body`, which may have `limit` bytes. Not cancel safe: what came is lost.
///
/// # Errors
///
/// [`Error::TooLarge`]; and what [`Error`] says of a body that breaks off or stalls.
pub async fn collect(body: Body, limit: usize) -> Result<Bytes, Error> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut collected = BytesMut::with_capacity(announced.min(limit).min(RESERVE_LIMIT));
    each_chunk(body, limit, |chunk| {
        collected.extend_from_slice(&chunk);
        Ok(())
    })
    .await?;
    Ok(collected.freeze())
}

/// Gives all of `body`, which may have `limit` bytes, to `consume` while it comes.
///
/// # Errors
///
/// As [`collect`]; and what `consume` says.
pub(super) async fn each_chunk(
    mut body: Body,
    limit: usize,
    mut consume: impl FnMut(Bytes) -> Result<(), Error>,
) -> Result<(), Error> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(Error::TooLarge { limit });
    }
    let mut left = limit;
    loop {
        let frame = tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await;
        let Some(frame) = frame.map_err(|_| Error::Timeout(IDLE_TIMEOUT))? else {
            return Ok(());
        };
        if let Ok(data) = frame.map_err(Error::Transport)?.into_data() {
            left = left
                .checked_sub(data.len())
                .ok_or(Error::TooLarge { limit })?;
            consume(data)?;
        }
    }
}

/// The `Content-Type`; empty when there is none.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
