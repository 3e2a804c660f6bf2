//! Polls of the API server's version and clock.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use crate::upstream::{Client, Error, Identity, answer, client};

/// Maximum size in bytes of an answer that is read.
const VERSION_LIMIT: usize = 1 << 20;

/// What the API server's answer to a request for its version shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolledVersion {
    /// The version, such as `v1.36.2`.
    pub version: String,
    /// By how many milliseconds, as a range, the API server's clock is ahead of this machine's.
    /// `None` if the answer has no date.
    pub clock_ahead: Option<RangeInclusive<i64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

impl PolledVersion {
    /// Fetches `/version`.
    ///
    /// # Errors
    /// If `/version` can't be fetched or decoded.
    pub async fn poll(client: &Client) -> Result<Self, Error> {
        let request = client::get("/version", "application/json")?;
        let sent_at = SystemTime::now();
        let response = client.request_success(Identity::Kubefan, request).await?;
        let received_at = SystemTime::now();
        let date = answer::date(response.headers());
        let version: Version = answer::json(response, VERSION_LIMIT).await?;
        Ok(Self {
            version: version.git_version,
            clock_ahead: date.map(|date| clock_ahead(date, sent_at, received_at)),
        })
    }
}

/// Returns by how many milliseconds, as a range, the API server's clock is ahead of this machine's
/// clock. The API server's clock showed `date`, which has no fraction of a second, at some time
/// from `sent_at` to `received_at`.
fn clock_ahead(
    date: SystemTime,
    sent_at: SystemTime,
    received_at: SystemTime,
) -> RangeInclusive<i64> {
    let next_second = date + Duration::from_secs(1);
    difference(date, received_at)..=difference(next_second, sent_at)
}

/// Returns the milliseconds from `earlier` to `later`, which may be negative.
fn difference(later: SystemTime, earlier: SystemTime) -> i64 {
    let milliseconds = |duration: Duration| i64::try_from(duration.as_millis());
    match later.duration_since(earlier) {
        Ok(ahead) => milliseconds(ahead).unwrap_or(i64::MAX),
        Err(error) => milliseconds(error.duration()).map_or(i64::MIN, |behind| -behind),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_date_shows_a_clock_to_within_a_second_and_the_time_of_the_answer() {
        let at = |milliseconds| UNIX_EPOCH + Duration::from_millis(milliseconds);
        // Each row: when the request was sent, when the answer arrived, the date, and between how
        // many milliseconds the other clock is ahead.
        for (sent, received, date, expected) in [
            (10_000, 10_000, 10_000, 0..=1_000),
            (10_300, 10_400, 10_000, -400..=700),
            (10_900, 11_200, 11_000, -200..=1_100),
            (10_900, 14_200, 11_000, -3_200..=1_100),
            (10_300, 10_400, 100_000, 89_600..=90_700),
            (100_300, 100_400, 10_000, -90_400..=-89_300),
        ] {
            let found = clock_ahead(at(date), at(sent), at(received));
            assert_eq!(found, expected, "{sent} {received} {date}");
        }
    }
}
