//! Since when the API server cannot be reached.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Error;

/// Whether the last requests reached the API server.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// The time of the first request that did not reach it, if none was answered since.
    since: Mutex<Option<Instant>>,
}

impl Outage {
    /// Records the result of a request.
    pub(super) fn record<T>(&self, sent: &Result<T, Error>) {
        match sent {
            Ok(_) => *self.since.lock() = None,
            Err(Error::Unreachable(_)) => {
                self.since.lock().get_or_insert_with(Instant::now);
            }
            // The server was reached, or the error says nothing about the server.
            Err(_) => {}
        }
    }

    /// Returns for how long no request has reached the API server, or `None` if
    /// the last request did.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.since.lock().map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_from_the_first_unreached_request_to_the_first_answer() {
        let outage = Outage::default();
        let second = Duration::from_secs(1);
        let unreachable = || Err(Error::Unreachable("refused".into()));
        assert_eq!(outage.duration(), None);
        for (sent, expected) in [
            (Ok(()), None),
            // A request that broke shows nothing about the next ones.
            (Err(Error::Transport("reset".into())), None),
            (unreachable(), Some(0)),
            (unreachable(), Some(1)),
            (Err(Error::Timeout(second)), Some(2)),
            (Err(Error::Request("a bad path".into())), Some(3)),
            (Ok(()), None),
            (unreachable(), Some(0)),
        ] {
            outage.record(&sent);
            let expected = expected.map(Duration::from_secs);
            assert_eq!(outage.duration(), expected, "{sent:?}");
            tokio::time::advance(second).await;
        }
    }
}
