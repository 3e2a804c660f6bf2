//! Clients that repeatedly list all objects during the writing phase.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use kubefan_core::body::empty;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::Error;
use serde::Serialize;
use tokio::time::sleep;

use super::slot::Slot;
use crate::load::clock::nanoseconds;
use crate::load::histogram::{Histogram, Latency};
use crate::load::run_state::{RunState, STREAM_WINDOW};
use crate::load::target::request;
use crate::load::workers::Worker;

/// The pause after a failed list, unless the server sent `Retry-After`.
const PAUSE: Duration = Duration::from_millis(100);

/// The latencies and counts of the lists of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lists {
    /// Latencies in milliseconds, from the request to the last byte of the response.
    pub latency_ms: Latency,
    /// The total bytes of all responses.
    pub bytes: u64,
    /// The number of lists that failed.
    pub failed: u64,
}

#[derive(Default)]
struct ListStats {
    latency: Histogram,
    bytes: u64,
    failed: u64,
}

/// The running listing clients. They have separate threads, so that decrypting and reading lists
/// delays neither writers nor watchers.
pub(crate) struct ListStorm(Vec<Worker<ListStats>>);

impl ListStorm {
    /// Starts the clients on as many threads as there are receiving threads, but not more than
    /// there are clients.
    pub(crate) fn start(run_state: &Arc<RunState>, shutdown: &Shutdown) -> io::Result<Self> {
        let clients = run_state.config.list_storm;
        let threads = run_state.config.threads.min(clients);
        let started = (0..threads).map(|thread| {
            let (run_state, shutdown) = (Arc::clone(run_state), shutdown.clone());
            // The cast is safe, because `threads` is small.
            let clients = (thread..clients).step_by(threads as usize).len();
            let list = move || list_concurrently(run_state, shutdown, clients);
            Worker::start(format!("load-lists-{thread}"), list)
        });
        Ok(Self(started.collect::<io::Result<_>>()?))
    }

    /// Collects the results; call it after [`RunState::stop`]. `None` if there were no listing
    /// clients.
    pub(crate) async fn finish(self) -> io::Result<Option<Lists>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut all = ListStats::default();
        for thread in self.0 {
            all.add(&thread.finish().await?);
        }
        Ok(Some(Lists {
            latency_ms: all.latency.latency(),
            bytes: all.bytes,
            failed: all.failed,
        }))
    }
}

impl ListStats {
    fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency);
        self.bytes += other.bytes;
        self.failed += other.failed;
    }
}

async fn list_concurrently(
    run_state: Arc<RunState>,
    shutdown: Shutdown,
    clients: usize,
) -> ListStats {
    let clients: Vec<_> = (0..clients)
        .map(|_| shutdown.spawn(list_on(Arc::clone(&run_state))))
        .collect();
    let mut all = ListStats::default();
    for client in clients {
        match client.await {
            Ok(listed) => all.add(&listed),
            Err(error) => run_state.fail(format!("a list ended early: {error}")),
        }
    }
    all
}

/// Runs one listing client until the run stops. Each has a separate connection, as independent
/// clients would.
async fn list_on(run_state: Arc<RunState>) -> ListStats {
    let mut listed = ListStats::default();
    let slot = Slot::new(run_state.http_version(STREAM_WINDOW));
    let stopped = run_state.stopped();
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let list = tokio::select! {
            biased;
            () = &mut stopped => return listed,
            list = list(&run_state, &slot) => list,
        };
        match list {
            Ok((took, bytes)) => {
                listed.latency.record(took);
                listed.bytes += bytes;
            }
            Err(error) => {
                listed.failed += 1;
                let pause = error.retry_after().unwrap_or(PAUSE);
                tracing::debug!(%error, wait = nanoseconds(pause), "a list failed");
                tokio::select! {
                    () = &mut stopped => return listed,
                    () = sleep(pause) => {}
                }
            }
        }
    }
}

/// Reads a list to its end and discards it. Returns the duration in
/// nanoseconds and the bytes of the body.
async fn list(run_state: &RunState, slot: &Slot) -> Result<(u64, u64), Error> {
    let path = format!("{}?resourceVersion=0", run_state.collection);
    let accept = run_state.config.format.media_type();
    let request = request(Method::GET, &path, accept, empty())?;
    let connection = slot.connection(&run_state.client).await?;
    let started = run_state.clock.now();
    let answer = run_state.client.request_over(&connection, request).await?;
    let mut body = answer.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Error::Transport)?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok((run_state.clock.now() - started, bytes))
}

#[cfg(test)]
mod tests {
    use kubefan_core::shutdown;
    use kubefan_core::upstream::{Client, Dial};
    use parking_lot::Mutex;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::load::config::Config;

    /// Lists must not run on the thread of the writers, because decrypting and reading them would
    /// delay the acknowledgements of writes.
    #[tokio::test]
    async fn no_list_is_read_on_the_callers_thread() {
        let (dialled, mut threads) = unbounded_channel();
        let dialled = Mutex::new(dialled);
        let dial: Dial = Arc::new(move || {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default().to_owned();
            // At the end of the test, the receiver is gone.
            let _ = dialled.lock().send(name);
            Err(io::Error::from(io::ErrorKind::ConnectionReset))
        });
        let config = Config {
            list_storm: 5,
            threads: 2,
            ..Config::for_tests()
        };
        let client = Client::in_memory(&dial);
        let run_state = Arc::new(RunState::new(&config, client, "/x".to_owned(), "r"));
        let shutdown = Shutdown::new(shutdown::Config {
            not_ready_delay: Duration::ZERO,
            grace: Duration::ZERO,
        });
        let list_storm = ListStorm::start(&run_state, &shutdown).expect("threads");
        let mut seen = std::collections::BTreeMap::<_, u32>::new();
        // A client that dials again has counted a failure.
        for _ in 0..2 * config.list_storm {
            let thread = threads.recv().await.expect("a dial");
            *seen.entry(thread).or_default() += 1;
        }
        let names: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["load-lists-0", "load-lists-1"]);
        run_state.stop();
        let lists = list_storm
            .finish()
            .await
            .expect("threads")
            .expect("a list storm");
        assert!(lists.failed >= 5, "{lists:?}");
        assert_eq!(lists.latency_ms.count, 0);
    }
}
