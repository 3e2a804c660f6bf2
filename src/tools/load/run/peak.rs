//! Samples the server's memory to find its peak. A separate thread does this, because reading and
//! parsing an API server's metrics takes milliseconds and would delay the handling of writes'
//! acknowledgements.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kubefan_core::upstream::Client;
use tokio::time::sleep;

use crate::load::error::{Error, with_causes};
use crate::load::run_state::RunState;
use crate::load::usage::UsageSource;
use crate::load::workers::Worker;

/// The time between two samples of the server's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread. Its result is the largest sample in bytes, or 0 if there was no sample. It
/// ends after [`RunState::stop`].
pub(super) fn start(run_state: &Arc<RunState>) -> io::Result<Worker<u64>> {
    let run_state = Arc::clone(run_state);
    let sample = move || async move { sample_peak(&run_state).await };
    Worker::start("load-usage".to_owned(), sample)
}

async fn sample_peak(run_state: &RunState) -> u64 {
    let mut peak = 0;
    let sampling = async {
        let source = match source(run_state).await {
            Ok(source) => source,
            Err(error) => {
                let problem = with_causes(&error);
                return tracing::debug!(problem, "cannot sample the server");
            }
        };
        loop {
            sleep(SAMPLE_INTERVAL).await;
            match source.sample().await {
                Ok(sample) => peak = peak.max(sample.resident_bytes),
                Err(problem) => tracing::debug!(problem, "cannot sample the server"),
            }
        }
    };
    tokio::select! {
        () = sampling => run_state.stopped().await,
        () = run_state.stopped() => {}
    }
    peak
}

/// Finds the source of the server's figures. Uses a new client, so that its
/// connections belong to this thread.
async fn source(run_state: &RunState) -> Result<UsageSource, Error> {
    let watched = &run_state.config.watched;
    let client = Client::connect(watched.client.clone()).await?;
    UsageSource::find(watched, &client, &run_state.collection, "--").await
}

#[cfg(test)]
mod tests {
    use kubefan_core::upstream::{ClientConfig, Dial};

    use super::*;
    use crate::load::config::Config;

    #[tokio::test(start_paused = true)]
    async fn a_process_is_sampled_until_the_end() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        for (pid, is_seen) in [(std::process::id(), true), (u32::MAX, false)] {
            let mut config = Config::for_tests();
            config.watched.server_pid = Some(pid);
            config.watched.client = ClientConfig {
                server: Some("http://127.0.0.1:1".to_owned()),
                ..ClientConfig::default()
            };
            let client = Client::in_memory(&dial);
            let run_state = RunState::new(&config, client, "/x".to_owned(), "r");
            let stopped = async {
                sleep(2 * SAMPLE_INTERVAL).await;
                run_state.stop();
            };
            let (seen, ()) = tokio::join!(sample_peak(&run_state), stopped);
            assert_eq!(seen > 1 << 20, is_seen, "{pid}: {seen}");
        }
    }
}
