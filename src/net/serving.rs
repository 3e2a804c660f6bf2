//! The threads that serve connections.
//!
//! Each runs a runtime of its own, so whatever belongs to a connection stays on one core, its tasks
//! run in the order in which they were woken, and all that many streams of a connection have to say
//! gets into one write.

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;

use tokio::runtime::Builder;
use tokio::runtime::Handle;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Threads to serve connections on. They end when this is dropped, with all that still runs there.
#[derive(Debug)]
pub struct ServingThreads {
    runtimes: Vec<Handle>,
    next: AtomicUsize,
    _alive: watch::Sender<()>,
}

impl ServingThreads {
    /// Starts so many threads, each with what `companion` gives there running beside its connections.
    ///
    /// # Errors
    /// When the system gives no thread, or nothing to wait for sockets with.
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
                // An error is what is waited for: the sender is gone.
                while is_alive.changed().await.is_ok() {}
            };
            thread::Builder::new()
                .name(format!("serve-{index}"))
                .spawn(move || run(runtime, companion, end))?;
            Ok(handle)
        };
        let runtimes: io::Result<Vec<_>> = (0..count.get()).map(start).collect();
        Ok(ServingThreads {
            runtimes: runtimes?,
            next: AtomicUsize::new(0),
            _alive: alive,
        })
    }

    /// The runtime that the next connection is for: one after the other.
    pub(super) fn next_runtime(&self) -> &Handle {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        &self.runtimes[next % self.runtimes.len()]
    }
}

/// A serving thread from its begin to its end.
fn run<F: Future<Output = ()>>(
    runtime: Runtime,
    companion: fn() -> F,
    end: impl Future<Output = ()>,
) {
    let companion = companion();
    runtime.block_on(async {
        let mut end = pin!(end);
        tokio::select! {
            () = &mut end => {}
            () = companion => end.await,
        }
    });
    // Connections that outlived the grace are not waited for.
    runtime.shutdown_background();
}
