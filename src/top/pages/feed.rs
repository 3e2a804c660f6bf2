//! Feed: reads the pages of a kubefan again and again.

use std::error::Error as _;
use std::time::Duration;

use kubefan_proxy::admin_client::{AdminClient, Error, Events};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::reading::{Page, Reading};

const BILL: &str = "/admin/v1/bill";
const ADVICE: &str = "/admin/v1/advice";
const USERS: &str = "/admin/v1/users";
/// How old the pages that are not in the stream may become.
const REFRESH: Duration = Duration::from_secs(2);
/// The wait between two streams, which kubefan asks for.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Reads a kubefan's stream of snapshots, and further pages beside it.
pub(crate) struct Feed {
    client: AdminClient,
    stream: Option<Events>,
    /// The further pages, and when they were read.
    further: Option<(Instant, Further)>,
}

#[derive(Clone)]
struct Further {
    bill: Page<Value>,
    advice: Page<Value>,
    users: Page<Value>,
}

/// News of a kubefan.
pub(crate) enum Update {
    Reading(Box<Reading>),
    /// There is no reading; the text says why in one line.
    Failed(String),
}

// === impl Feed ===

impl Feed {
    pub(crate) fn new(client: AdminClient) -> Self {
        Self {
            client,
            stream: None,
            further: None,
        }
    }

    /// Returns the next reading: the first at once, and then one per second.
    ///
    /// # Errors
    /// If there is no connection, or kubefan refuses the stream. The next call opens a new stream.
    pub(crate) async fn next(&mut self) -> Result<Reading, Error> {
        let snapshot = match self.next_snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.stream = None;
                return Err(error);
            }
        };
        let Further {
            bill,
            advice,
            users,
        } = self.further().await;
        Ok(Reading {
            snapshot,
            bill,
            advice,
            users,
        })
    }

    async fn next_snapshot(&mut self) -> Result<Value, Error> {
        let is_new = self.stream.is_none();
        if let Some(data) = self.next_event().await? {
            return serde_json::from_str(&data).map_err(Error::Malformed);
        }
        // Each stream ends after some time, and the next one begins with a snapshot.
        self.stream = None;
        if !is_new {
            sleep(RETRY).await;
            if let Some(data) = self.next_event().await? {
                return serde_json::from_str(&data).map_err(Error::Malformed);
            }
        }
        Err(Error::Broken("the stream has ended".into()))
    }

    async fn next_event(&mut self) -> Result<Option<String>, Error> {
        if self.stream.is_none() {
            self.stream = Some(self.client.events().await?);
        }
        match &mut self.stream {
            Some(stream) => stream.next().await,
            None => Ok(None),
        }
    }

    /// Returns the pages that are not in the stream.
    async fn further(&mut self) -> Further {
        if let Some((at, further)) = &self.further
            && at.elapsed() < REFRESH
        {
            return further.clone();
        }
        let (bill, advice, users) =
            tokio::join!(self.page(BILL), self.page(ADVICE), self.page(USERS));
        let further = Further {
            bill,
            advice,
            users,
        };
        self.further = Some((Instant::now(), further.clone()));
        further
    }

    async fn page(&self, path: &str) -> Page<Value> {
        match self.client.get(path).await {
            Ok(page) => Page::Shown(page),
            Err(error) if error.is_not_found() => Page::Absent,
            Err(error) => Page::Failed(one_line(&error)),
        }
    }

    /// Sends what kubefan shows, until there is no receiver. After a failure it waits, longer each
    /// time, and tries again.
    pub(crate) async fn run(mut self, updates: mpsc::Sender<Update>) {
        let mut failures = 0;
        loop {
            let update = match self.next().await {
                Ok(reading) => {
                    failures = 0;
                    Update::Reading(Box::new(reading))
                }
                Err(error) => {
                    failures += 1;
                    Update::Failed(one_line(&error))
                }
            };
            if updates.send(update).await.is_err() {
                return;
            }
            if failures > 0 {
                sleep(pause_after(failures)).await;
            }
        }
    }
}

/// Returns the wait after this number of failures in sequence.
fn pause_after(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
    RETRY.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// Returns the messages of an error and of its causes; a message that is already there is skipped.
pub(crate) fn one_line(error: &Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_become_longer_up_to_a_limit() {
        let waits: Vec<_> = (1..=5).map(|n| pause_after(n).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10]);
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn an_error_is_one_line_with_each_cause_once() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = Error::Unreachable(Box::new(refused));
        assert_eq!(one_line(&error), "cannot reach kubefan: connection refused");
        let error = Error::Credentials("the plugin failed".to_owned());
        assert_eq!(
            one_line(&error),
            "cannot get the credentials for kubefan: the plugin failed"
        );
    }
}
