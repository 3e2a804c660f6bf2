//! The most memory that the server is seen to have: looked at by a thread of its own, as to read and parse an
//! API server's metrics takes milliseconds, in which a writer's acknowledgement would lie there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::tools::load::error::Error;
use crate::tools::load::error::with_causes;
use crate::tools::load::shared::Shared;
use crate::tools::load::usage::Source;
use crate::upstream::Client;

/// How often it is looked at.
const SAMPLE: Duration = Duration::from_secs(1);

/// The thread at work.
pub(super) struct Peak(oneshot::Receiver<u64>);

impl Peak {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (told, seen) = oneshot::channel();
        let shared = Arc::clone(shared);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("load-usage".to_owned())
            .spawn(move || {
                let peak = runtime.block_on(look(&shared));
                // Nobody is there when the run was aborted.
                let _ = told.send(peak);
            })?;
        Ok(Self(seen))
    }

    /// Bytes, after [`Shared::stop`]; 0 when nothing was seen.
    pub(super) async fn finish(self) -> io::Result<u64> {
        self.0.await.map_err(io::Error::other)
    }
}

async fn look(shared: &Shared) -> u64 {
    let mut peak = 0;
    let looking = async {
        let source = match source(shared).await {
            Ok(source) => source,
            Err(error) => {
                let problem = with_causes(&error);
                return tracing::debug!(problem, "no figures of the server");
            }
        };
        loop {
            sleep(SAMPLE).await;
            match source.sample().await {
                Ok(sample) => peak = peak.max(sample.resident_bytes),
                Err(problem) => tracing::debug!(problem, "no figures of the server"),
            }
        }
    };
    tokio::select! {
        () = looking => shared.stopped().await,
        () = shared.stopped() => {}
    }
    peak
}

/// Over connections that live here.
async fn source(shared: &Shared) -> Result<Source, Error> {
    let watched = &shared.config.watched;
    let client = Client::connect(watched.client.clone()).await?;
    Source::of(watched, &client, &shared.collection).await
}

#[cfg(test)]
mod tests {
    use crate::tools::load::config::Config;
    use crate::upstream::ClientConfig;
    use crate::upstream::Dial;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_is_looked_at_until_the_end() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        for (pid, is_seen) in [(std::process::id(), true), (u32::MAX, false)] {
            let mut config = Config::of_tests();
            config.watched.server_pid = Some(pid);
            config.watched.client = ClientConfig {
                server: Some("http://127.0.0.1:1".to_owned()),
                ..ClientConfig::default()
            };
            let client = Client::in_memory(&dial);
            let shared = Shared::new(&config, client, "/x".to_owned(), "r");
            let stopped = async {
                sleep(2 * SAMPLE).await;
                shared.stop();
            };
            let (seen, ()) = tokio::join!(look(&shared), stopped);
            assert_eq!(seen > 1 << 20, is_seen, "{pid}: {seen}");
        }
    }
}
