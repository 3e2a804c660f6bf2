//! The wait for the API server: kubefan starts without the API server, and serves once the API
//! server has answered.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use kubefan_core::informer::{Backoff, BackoffConfig, LiveRestMapper};
use kubefan_core::upstream::{Client, ClientConfig, Error};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

use crate::config::ServeConfig;
use crate::server::{Startup, with_causes};

/// The names of what kubefan waits for, for clients and operators.
const API_SERVER: &str = "the API server";
const CREDENTIALS: &str = "the credentials that the kubeconfig names";
/// How long discovery may take in one attempt.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The pauses between attempts. All kubefans of a cluster may wait for the same API server.
const BACKOFF: BackoffConfig = BackoffConfig {
    base: Duration::from_millis(250),
    cap: Duration::from_secs(4),
    reset_after: Duration::MAX,
};
/// The longest pause that an API server can request by `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long an attempt waits for the API server to report whether it is ready. A connection that
/// cannot be opened is reported before.
const READINESS_TIMEOUT: Duration = Duration::from_secs(15);
/// How long kubefan waits for an API server that does not report that it is ready. It may never do
/// so because of something that kubefan does not need.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often kubefan logs that it still waits for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A wait for the API server that has lasted for more than one attempt.
struct Wait {
    since: Instant,
    backoff: Backoff,
    /// The time since which the API server has not reported that it is ready.
    unready_since: Option<Instant>,
    logged: Option<(Instant, String)>,
}

/// Why an attempt failed.
#[derive(Debug)]
enum Failure {
    Unready(Error),
    /// The API server does not report in time whether it is ready.
    NoReadiness,
    Discovery(Error),
    Timeout,
}

/// Reads the kubeconfig, and gets the credentials that the kubeconfig names.
pub(super) async fn connect(config: &ServeConfig, startup: &Startup) -> anyhow::Result<Client> {
    startup.wait_for(CREDENTIALS, String::new());
    let client = Client::connect(ClientConfig {
        kubeconfig: config.kubeconfig.clone(),
        context: config.context.clone(),
        ping_interval: config.ping_interval,
        ping_timeout: config.ping_timeout,
        ..ClientConfig::default()
    });
    Ok(client.await?)
}

/// Waits until the API server has answered with its resources. Cancel safe.
///
/// # Errors
/// Only if waiting does not help, because the API server's certificate can't be verified.
pub(super) async fn discover(client: &Client, startup: &Startup) -> anyhow::Result<LiveRestMapper> {
    startup.wait_for(API_SERVER, client.server().to_owned());
    let mut wait = Wait::new();
    loop {
        let failure = match wait.attempt(client).await {
            Ok(mapper) => {
                wait.end(client);
                return Ok(mapper);
            }
            // A further attempt would fail for this reason again.
            Err(Failure::Unready(error) | Failure::Discovery(error))
                if error.is_untrusted_server() =>
            {
                return Err(error)
                    .with_context(|| format!("cannot connect to {}", client.server()));
            }
            Err(failure) => failure,
        };
        let pause = wait.next_pause(&failure);
        wait.report(client, &failure.to_string(), startup);
        sleep(pause).await;
    }
}

// === impl Wait ===

impl Wait {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            backoff: Backoff::new(BACKOFF, StdRng::from_os_rng()),
            unready_since: None,
            logged: None,
        }
    }

    fn must_be_ready(&self) -> bool {
        let unready_since = self.unready_since;
        unready_since.is_none_or(|since| since.elapsed() < READY_TIMEOUT)
    }

    async fn attempt(&self, client: &Client) -> Result<LiveRestMapper, Failure> {
        if self.must_be_ready() {
            let ready = timeout(READINESS_TIMEOUT, client.check_ready()).await;
            let ready = ready.map_err(|_| Failure::NoReadiness)?;
            ready.map_err(Failure::Unready)?;
        }
        let discovery = LiveRestMapper::discover(client.clone());
        let discovered = timeout(DISCOVERY_TIMEOUT, discovery).await;
        let discovered = discovered.map_err(|_| Failure::Timeout)?;
        discovered.map_err(Failure::Discovery)
    }

    fn next_pause(&mut self, failure: &Failure) -> Duration {
        match failure {
            Failure::Unready(Error::Answer { .. }) | Failure::NoReadiness => {
                self.unready_since.get_or_insert_with(Instant::now);
            }
            // The API server is away. When it is back, it must report again that it is ready.
            Failure::Unready(_) | Failure::Discovery(_) | Failure::Timeout => {
                self.unready_since = None;
            }
        }
        let requested = match failure {
            Failure::Unready(error) | Failure::Discovery(error) => error.retry_after(),
            Failure::NoReadiness | Failure::Timeout => None,
        };
        let requested = requested.unwrap_or_default().min(LONGEST_PAUSE);
        self.backoff.next_delay().max(requested)
    }

    /// Reports to operators why kubefan waits: at first, when the reason changes, and once a
    /// minute.
    fn report(&mut self, client: &Client, reason: &str, startup: &Startup) {
        let server = client.server();
        let seconds = self.since.elapsed().as_secs();
        let details = format!("{server}, for {seconds} s: {reason}");
        startup.wait_for(API_SERVER, details);
        let is_known =
            |(at, logged): &(Instant, String)| logged == reason && at.elapsed() < LOG_INTERVAL;
        if self.logged.as_ref().is_some_and(is_known) {
            return;
        }
        self.logged = Some((Instant::now(), reason.to_owned()));
        tracing::warn!(server, reason, seconds, "waiting for the API server");
    }

    fn end(&self, client: &Client) {
        if self.logged.is_some() {
            let (server, seconds) = (client.server(), self.since.elapsed().as_secs());
            tracing::info!(server, seconds, "the API server has answered");
        }
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unready(Error::Answer { status, .. }) => {
                // The status's message lists all checks, each on a line.
                write!(f, "it answers that it is not ready ({})", status.code)
            }
            Self::Unready(error) | Self::Discovery(error) => {
                let text = with_causes(error);
                f.write_str(&text.split_whitespace().collect::<Vec<_>>().join(" "))
            }
            Self::NoReadiness => write!(f, "no answer of /readyz within {READINESS_TIMEOUT:?}"),
            Self::Timeout => write!(f, "no answer within {DISCOVERY_TIMEOUT:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_says_it_is_ready_is_used_after_a_minute() {
        let mut wait = Wait::new();
        let began = Instant::now();
        while wait.must_be_ready() {
            let pause = wait.next_pause(&Failure::NoReadiness);
            tokio::time::advance(READINESS_TIMEOUT + pause).await;
        }
        let longest = READY_TIMEOUT + 2 * READINESS_TIMEOUT + BACKOFF.cap;
        assert!((READY_TIMEOUT..longest).contains(&began.elapsed()));
        // The API server may have restarted since.
        wait.next_pause(&Failure::Timeout);
        assert!(wait.must_be_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_was_away_must_say_that_it_is_ready() {
        let mut wait = Wait::new();
        let began = Instant::now();
        while began.elapsed() < 2 * READY_TIMEOUT {
            let pause = wait.next_pause(&Failure::Unready(Error::Unreachable("refused".into())));
            tokio::time::advance(pause).await;
            assert!(wait.must_be_ready());
        }
    }
}
