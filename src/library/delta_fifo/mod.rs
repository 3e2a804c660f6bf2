//! The DeltaFIFO, a queue of the changes of objects, and the classic controller that uses it.
//!
//! A [`DeltaFifo`] groups changes by object. A consumer pops all changes of one object at once, as
//! [`Deltas`]: what happened to the object since it was last processed. Use it if deletions must be
//! processed, or if each change of an object matters. To work on the newest state only, a
//! [`WorkQueue`](crate::work_queue::WorkQueue) of keys is simpler.
//!
//! - The changes of one object are processed in order, and never by two consumers at once.
//! - A deletion is processed once, even if a watch and a list both show it.
//! - [`DeltaFifo::replace`] finds the objects that no longer exist. The queue remembers which
//!   objects were processed, so it needs no other store for this.
//! - If the processing fails, or is cancelled, the changes are queued again, before later
//!   changes of the object.
//!
//! The queue holds each state of an object until it is processed, without a limit. If objects
//! change often and their processing is slow, use a work queue.
//!
//! A [`Controller`] feeds a DeltaFIFO from a lister-watcher and processes its changes:
//!
//! ```
//! use std::sync::Arc;
//!
//! use kubefan::delta_fifo::{Config, Controller, Delta, Deltas, ObjectFifo};
//! use kubefan::fake_source::FakeSource;
//! # use kubefan::api::Object;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let source = FakeSource::new(); // or a `ResourceClient`
//! source.add(&serde_json::json!({"metadata": {"name": "a"}}))?;
//!
//! let queue = Arc::new(ObjectFifo::of_objects());
//! let process = |deltas: &Deltas<Arc<Object>>, _is_in_initial_list: bool| {
//!     match deltas.newest() {
//!         Delta::Deleted(object) | Delta::DeletedFinalStateUnknown(object) => {
//!             println!("{} was deleted", object.key)
//!         }
//!         delta => println!("{} exists", delta.object().key),
//!     }
//!     Ok::<(), std::convert::Infallible>(())
//! };
//! let controller = Controller::new(source, Arc::clone(&queue), process, Config::default());
//! controller.run(async move { queue.synced().await }).await;
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
//! #     .block_on(run()).unwrap();
//! ```

mod controller;
mod delta;
mod fifo;
mod state;
#[cfg(test)]
mod tests;

pub use controller::{Config, Controller, ObjectFifo, Process};
pub use delta::{Delta, Deltas};
pub use fifo::{DeltaFifo, Popped};
