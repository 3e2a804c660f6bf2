//! The threads that serve connections.
//!
//! Each thread runs a current-thread runtime. So all work of a connection stays on one core, and its
//! streams are woken on the thread that runs them.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// Threads that serve connections. Dropping this value ends them, and all tasks that still run on
/// them.
#[derive(Debug)]
pub struct ServingThreads {
    runtimes: Vec<Handle>,
    next: AtomicUsize,
    _alive: watch::Sender<()>,
}

impl ServingThreads {
    /// The beginning of the threads' names.
    pub const NAME: &'static str = "serve-";

    /// Starts `count` threads. Each thread also runs the future that `companion` returns on this
    /// thread.
    ///
    /// # Errors
    /// If the system can't create a thread or a runtime.
    pub fn start<F: Future<Output = ()> + 'static>(
        count: NonZeroUsize,
        companion: fn() -> F,
    ) -> io::Result<ServingThreads> {
        let (alive, is_alive) = watch::channel(());
        let start = |index| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let mut is_alive = is_alive.clone();
            let end = async move {
                // `changed` fails when the sender has been dropped. This ends the thread.
                while is_alive.changed().await.is_ok() {}
            };
            let run = move || {
                let companion = companion();
                runtime.block_on(async {
                    let mut end = pin!(end);
                    tokio::select! {
                        () = &mut end => {}
                        () = companion => end.await,
                    }
                });
                // This does not wait for connections that are still open after the grace period.
                runtime.shutdown_background();
            };
            thread::Builder::new()
                .name(format!("{}{index}", Self::NAME))
                .spawn(run)?;
            Ok(handle)
        };
        let runtimes: io::Result<Vec<_>> = (0..count.get()).map(start).collect();
        Ok(ServingThreads {
            runtimes: runtimes?,
            next: AtomicUsize::new(0),
            _alive: alive,
        })
    }

    /// Returns the runtime for the next connection: one with the fewest tasks, which are mostly
    /// connections. Threads with equally many take turns.
    pub(in crate::net) fn next_runtime(&self) -> &Handle {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.runtimes.len();
        let (before, from) = self.runtimes.split_at(next);
        let tasks = |runtime: &&Handle| runtime.metrics().num_alive_tasks();
        let fewest = from.iter().chain(before).min_by_key(tasks);
        fewest.expect("there is a thread")
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn the_next_connection_is_for_a_thread_with_the_fewest() {
        let count = NonZeroUsize::new(3).expect("not zero");
        let threads = ServingThreads::start(count, pending::<()>).expect("threads");
        let next = || {
            let runtime = threads.next_runtime();
            let place = threads
                .runtimes
                .iter()
                .position(|of| of.id() == runtime.id());
            let task = runtime.spawn(pending::<()>());
            (place.expect("a runtime of these"), task)
        };
        let mut tasks = Vec::new();
        for expected in [0, 1, 2] {
            let (place, task) = next();
            assert_eq!(place, expected);
            tasks.push(task);
        }
        tasks[1].abort();
        while threads.runtimes[1].metrics().num_alive_tasks() > 0 {
            thread::yield_now();
        }
        let (place, _) = next();
        assert_eq!(place, 1);
    }
}
