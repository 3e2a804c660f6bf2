//! Reads the bodies of answers within limits, and converts failures to [`Error::Answer`].

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use jiff::fmt::rfc2822;
use serde::de::DeserializeOwned;

use super::Error;
use crate::body::Body;
use crate::codec::decode_status;

/// Maximum size in bytes of the body of a failure that is read.
const FAILURE_LIMIT: usize = 1 << 20;
/// The longest time to wait for the next chunk of a body.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size in bytes of a buffer that is allocated because of a body's announced length.
const RESERVE_LIMIT: usize = 64 << 20;

/// Returns the response if its status is 2xx, otherwise [`Error::Answer`] with its decoded body.
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

/// Returns the API server's time when it sent `headers`, without the fraction of a second. Its
/// clock may differ from this machine's.
pub fn date(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(DATE)?.to_str().ok()?;
    Some(rfc2822::parse(text).ok()?.timestamp().into())
}

/// Reads the complete body into memory. Not cancel safe: dropping the future
/// loses the received bytes.
///
/// # Errors
/// [`Error::TooLarge`] if the body has more than `limit` bytes, [`Error::Transport`] if it is cut
/// off, and [`Error::Timeout`] if no chunk arrives for 60 s.
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

/// Passes each chunk of a body to `consume` as soon as it arrives.
///
/// # Errors
/// The errors of [`collect`] and of `consume`.
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

/// Decodes the body of `response`, which must be JSON of at most `limit` bytes.
///
/// # Errors
/// [`Error::Decode`], and the errors of [`collect`].
pub(super) async fn json<T: DeserializeOwned>(
    response: Response<Body>,
    limit: usize,
) -> Result<T, Error> {
    let body = collect(response.into_body(), limit).await?;
    serde_json::from_slice(&body).map_err(|error| Error::Decode(error.into()))
}

/// Returns the `Content-Type` header, or an empty text if it is absent.
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

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_servers_time_is_read_from_the_date_header() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        let text = HeaderValue::from_static("Mon, 23 Nov 2026 15:04:05 GMT");
        headers.insert(DATE, text);
        let seconds = Duration::from_secs(1_795_446_245);
        assert_eq!(date(&headers), Some(UNIX_EPOCH + seconds));
    }
}
