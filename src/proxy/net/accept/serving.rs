//! The threads that serve connections.
//!
//! Each thread runs a current-thread runtime. So all work of a connection stays on one core, and its
//! streams are woken on the thread that runs them.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tracing::error;

/// Threads that serve connections. Dropping this value ends them, and all tasks that still run on
/// them.
#[derive(Debug)]
pub struct ServingThreads {
    threads: Vec<ServingThread>,
    next: AtomicUsize,
    _alive: watch::Sender<()>,
}

#[derive(Debug)]
struct ServingThread {
    runtime: Handle,
    /// False once the thread runs no tasks any more.
    is_running: Arc<AtomicBool>,
}

/// Notes the end of a serving thread, also if it panics.
struct Running(Arc<AtomicBool>);

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
            let is_running = Arc::new(AtomicBool::new(true));
            let serving = ServingThread {
                runtime: runtime.handle().clone(),
                is_running: Arc::clone(&is_running),
            };
            let running = Running(is_running);
            let mut is_alive = is_alive.clone();
            let end = async move {
                // `changed` fails when the sender has been dropped. This ends the thread.
                while is_alive.changed().await.is_ok() {}
            };
            let run = move || {
                // In a panic, this is dropped before the runtime, which may drop many connections.
                let _running = running;
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
            Ok(serving)
        };
        let threads: io::Result<Vec<_>> = (0..count.get()).map(start).collect();
        Ok(ServingThreads {
            threads: threads?,
            next: AtomicUsize::new(0),
            _alive: alive,
        })
    }

    /// Returns the runtime for the next connection: one with the fewest tasks, which are mostly
    /// connections. Threads with equally many take turns. Returns `None` if all threads have
    /// panicked.
    pub(in crate::net) fn next_runtime(&self) -> Option<&Handle> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let (before, from) = self.threads.split_at(next);
        let running = from
            .iter()
            .chain(before)
            .filter(|thread| thread.is_running());
        let runtimes = running.map(|thread| &thread.runtime);
        runtimes.min_by_key(|runtime| runtime.metrics().num_alive_tasks())
    }
}

impl ServingThread {
    /// Returns false if the runtime would drop a new task at once.
    fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        if thread::panicking() {
            let current = thread::current();
            error!(
                thread = current.name(),
                "a serving thread has panicked: its connections are closed, and it gets no others"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// Returns the next runtime, and the place of its thread.
    fn next_of(threads: &ServingThreads) -> Option<(usize, &Handle)> {
        let runtime = threads.next_runtime()?;
        let mut all = threads.threads.iter();
        let place = all.position(|thread| thread.runtime.id() == runtime.id());
        Some((place.expect("a thread of these"), runtime))
    }

    async fn panic_on_the_first() {
        assert_ne!(thread::current().name(), Some("serve-0"));
        pending().await
    }

    async fn panic_at_once() {
        panic!("as a test");
    }

    #[test]
    fn the_next_connection_is_for_a_thread_with_the_fewest() {
        let count = NonZeroUsize::new(3).expect("not zero");
        let threads = ServingThreads::start(count, pending::<()>).expect("threads");
        let next = || {
            let (place, runtime) = next_of(&threads).expect("a thread that runs");
            (place, runtime.spawn(pending::<()>()))
        };
        let mut tasks = Vec::new();
        for expected in [0, 1, 2] {
            let (place, task) = next();
            assert_eq!(place, expected);
            tasks.push(task);
        }
        tasks[1].abort();
        while threads.threads[1].runtime.metrics().num_alive_tasks() > 0 {
            thread::yield_now();
        }
        let (place, _) = next();
        assert_eq!(place, 1);
    }

    #[test]
    fn a_thread_that_has_panicked_gets_no_connection() {
        let count = NonZeroUsize::new(2).expect("not zero");
        let threads = ServingThreads::start(count, panic_on_the_first).expect("threads");
        while threads.threads[0].is_running() {
            thread::yield_now();
        }
        for _ in 0..4 {
            let (place, runtime) = next_of(&threads).expect("a thread that runs");
            assert_eq!(place, 1);
            runtime.spawn(pending::<()>());
        }

        let threads = ServingThreads::start(count, panic_at_once).expect("threads");
        while threads.threads.iter().any(ServingThread::is_running) {
            thread::yield_now();
        }
        assert!(threads.next_runtime().is_none());
    }
}
