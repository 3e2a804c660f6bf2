//! The classic controller: a reflector, a DeltaFIFO, and a function that processes changes.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kubefan_core::api::{EventType, Object, ObjectKey, Selection};
use kubefan_core::cache;
use kubefan_core::cache::{Reader, WatchFrom, WatchItem, WatchStream, Writer};
use kubefan_core::informer::{Reflector, ReflectorConfig, ReflectorEnd, Signals, relist_channel};
use kubefan_core::upstream::ListerWatcher;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::delta::Deltas;
use super::fifo::{DeltaFifo, Popped};
use crate::work_queue::{ItemExponentialFailure, RateLimiter};

/// The wait of an object before its first retry. It doubles with each further failure.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// The longest wait of an object before a retry.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1_000);

/// The queue of a [`Controller`]: the changes of the objects of one resource.
pub type ObjectFifo = DeltaFifo<ObjectKey, Arc<Object>>;

/// Settings of a [`Controller`].
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// True to process changes again after an error: first after 5 ms, then after twice as long
    /// each time, up to 1,000 s. Other objects do not wait for a retry. Later changes of the object
    /// are added to those that failed. Default is false: an error is only logged.
    pub retry_on_error: bool,
    /// The interval for processing all objects as [`Delta::Sync`](super::Delta::Sync). Zero and
    /// `None` mean never. Default is `None`.
    pub full_resync_period: Option<Duration>,
    /// How the API server is listed and watched.
    pub reflector: ReflectorConfig,
    /// The cache of the controller, which [`Controller::reader`] reads.
    pub cache: cache::Config,
}

/// Processes the changes of objects.
///
/// A closure `FnMut(&Deltas<Arc<Object>>, bool) -> Result<(), E>` is a `Process` too.
pub trait Process: Send {
    /// The error of a failed processing.
    type Error: fmt::Display + Send;

    /// Processes what happened to one object since it was last processed. `is_in_initial_list` is
    /// true for the first processing of each object of the first list.
    ///
    /// # Errors
    ///
    /// If the changes could not be processed. They are processed again if
    /// [`Config::retry_on_error`] is true.
    fn process(
        &mut self,
        deltas: &Deltas<Arc<Object>>,
        is_in_initial_list: bool,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Follows one resource and processes the changes of its objects, one object after another.
///
/// A reflector fills a cache from the lister-watcher, the changes of the cache go into the queue,
/// and the controller pops them. So the queue recovers from each failure of a watch as an
/// [`Informer`](kubefan_core::informer::Informer) does: if a watch is lost and then resumed or
/// listed again, the queue gets only the deltas of what changed.
pub struct Controller<L, P> {
    lister_watcher: L,
    queue: Arc<ObjectFifo>,
    process: P,
    config: Config,
    writer: Writer,
    reader: Reader,
}

// === impl Controller ===

impl<L: ListerWatcher, P: Process> Controller<L, P> {
    /// Creates a controller that makes no call until [`Controller::run`]. No other code
    /// may add to `queue`.
    pub fn new(lister_watcher: L, queue: Arc<ObjectFifo>, process: P, config: Config) -> Self {
        let (writer, reader) = cache::cache(config.cache.clone());
        Self {
            lister_watcher,
            queue,
            process,
            config,
            writer,
            reader,
        }
    }

    /// Returns a reader of the controller's cache, which may be ahead of what was processed.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Lists, watches and processes until `stop` completes, or until the API server finally
    /// refuses the resource.
    ///
    /// After `stop` the controller finishes the object in process, and leaves the rest in the
    /// queue. After a refusal it processes what is in the queue, but retries nothing.
    ///
    /// Dropping the future stops at once, and queues the changes in process again.
    ///
    /// The reflector and the processing are parts of this one future. While the processing awaits,
    /// the reflector continues. While the processing computes, the reflector waits, and the API
    /// server may end a watch that is not read for long. So run computations of seconds with
    /// `tokio::task::spawn_blocking`, and await them. client-go has a goroutine for each part.
    ///
    /// # Panics
    /// If the processing panics.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> ReflectorEnd {
        let (queue, config, reader) = (self.queue, self.config, self.reader);
        let mut process = self.process;
        let (_, relists) = relist_channel();
        let signals = Signals {
            stop: Box::pin(stop),
            relists,
        };
        let settings = config.reflector.clone();
        let reflector = Reflector::new(self.lister_watcher, self.writer, settings, signals);
        let stopped = Notify::new();
        let reflect = async {
            let end = reflector.run().await;
            if end == ReflectorEnd::Stopped {
                stopped.notify_one();
            }
            end
        };
        let feed = async {
            feed(&reader, &queue).await;
            queue.close();
        };
        let process = process_all(&queue, &mut process, &config, &stopped);
        let (end, (), ()) = tokio::join!(reflect, feed, process);
        end
    }
}

debug_fields!([L, P] Controller<L, P>, |it| queue: it.queue, config: it.config);

impl<F, E> Process for F
where
    F: FnMut(&Deltas<Arc<Object>>, bool) -> Result<(), E> + Send,
    E: fmt::Display + Send,
{
    type Error = E;

    async fn process(
        &mut self,
        deltas: &Deltas<Arc<Object>>,
        is_in_initial_list: bool,
    ) -> Result<(), E> {
        self(deltas, is_in_initial_list)
    }
}

// === the parts of a run ===

/// Adds the changes of the cache to the queue, until the cache is closed.
async fn feed(reader: &Reader, queue: &ObjectFifo) {
    while reader.ready().await {
        // The cache may have lost its content since it was ready. Then the loop waits for it again.
        if let Ok(watch) = reader.watch(WatchFrom::Snapshot, Arc::new(Selection::default())) {
            follow(watch, queue).await;
        }
    }
}

/// Adds the objects and changes of one watch to the queue, until it expires or ends.
async fn follow(mut watch: WatchStream, queue: &ObjectFifo) {
    let mut objects = Vec::new();
    while let Some(item) = watch.next().await {
        match item {
            WatchItem::Initial(object) => objects.push(object),
            WatchItem::InitialEnd(_) => queue.replace(std::mem::take(&mut objects)),
            WatchItem::Change { event, verdict } => {
                let object = Arc::clone(&event.object);
                match verdict {
                    EventType::Added => queue.add(object),
                    EventType::Modified => queue.update(object),
                    EventType::Deleted if event.is_final_state_unknown() => {
                        queue.delete_final_state_unknown(object);
                    }
                    EventType::Deleted => queue.delete(object),
                }
            }
            WatchItem::Expired(_) => return,
        }
    }
}

/// Processes what is in the queue, until it is closed and empty, or until `stopped`.
async fn process_all<P: Process>(
    queue: &ObjectFifo,
    process: &mut P,
    config: &Config,
    stopped: &Notify,
) {
    let mut limiter = ItemExponentialFailure::new(RETRY_DELAY, MAX_RETRY_DELAY);
    let mut retries = FuturesUnordered::new();
    let mut resyncs = config.full_resync_period.and_then(resyncs);
    let stopped = stopped.notified();
    tokio::pin!(stopped);
    loop {
        let popped = tokio::select! {
            biased;
            () = &mut stopped => return,
            Some(popped) = retries.next() => {
                Popped::requeue(popped);
                continue;
            }
            () = tick(&mut resyncs) => {
                queue.resync();
                continue;
            }
            popped = queue.pop() => popped,
        };
        let Some(popped) = popped else { return };
        let is_initial = popped.is_in_initial_list();
        match process.process(popped.deltas(), is_initial).await {
            Ok(()) => {
                limiter.forget(popped.key());
                popped.done();
            }
            Err(error) if config.retry_on_error => {
                let delay = limiter.when(popped.key(), Instant::now());
                tracing::warn!(key = %popped.key(), %error, ?delay, "processing failed, will be retried");
                retries.push(async move {
                    sleep(delay).await;
                    popped
                });
            }
            Err(error) => {
                tracing::warn!(key = %popped.key(), %error, "processing failed");
                popped.done();
            }
        }
    }
}

/// Returns when all objects are processed again. `None` means never: for zero, as in client-go, and
/// for a period that would overflow an `Instant`.
fn resyncs(period: Duration) -> Option<Interval> {
    if period.is_zero() {
        return None;
    }
    let mut resyncs = interval_at(Instant::now().checked_add(period)?, period);
    resyncs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(resyncs)
}

/// Completes at the next tick, or never if there is none. Cancel safe.
async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}
