//! Events: what a controller did for an object, as `kubectl describe` shows it.
//!
//! A [`Recorder`] writes Events of `events.k8s.io/v1`. Recording never waits: if the queue is full,
//! the event is dropped and counted.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! use kubefan::event_recorder::{Note, Recorder, Severity};
//! use kubefan::shutdown::Shutdown;
//!
//! # fn run(client: kube::Client, shutdown: Shutdown, map: &ConfigMap) {
//! let recorder = Recorder::start(client, "example.com/maps", &shutdown);
//! recorder.record(map, Note {
//!     severity: Severity::Warning,
//!     reason: "Invalid".to_owned(),
//!     action: "Reconcile".to_owned(),
//!     text: "the key `size` is not a number".to_owned(),
//! });
//! # }
//! ```
//!
//! # Series
//!
//! Equal events (object, severity, reason and action are equal; the text may differ) are one Event
//! with a *series*, as in client-go. The first event creates the Event, the second one adds the
//! series, and later ones only change the count and the time in the series. A series is written
//! every 30 minutes, when there was no equal event for 6 minutes, and in a drain. If the Event does
//! not exist any more, it is created again with its series.
//!
//! # Limits
//!
//! - 1,000 events wait to be written; further events are dropped.
//! - Each object may have 25 new Events at once, and one more per 5 minutes. Further Events are
//!   dropped, so that an object with many different failures does not fill etcd.
//! - A write is tried three times, with a pause, and each try may take 10 s. Then the event is
//!   dropped.
//! - A drain of the [`Shutdown`](kubefan_core::shutdown::Shutdown) waits until everything is
//!   written. Events that are not written at the end of its grace period are dropped.
//!
//! [`Recorder::dropped`] counts the dropped events.
//!
//! The program needs the verbs `create` and `patch` on `events` in `events.k8s.io`.

mod recorder;
mod series;
#[cfg(test)]
mod tests;

pub use recorder::Recorder;
pub use series::{Note, Severity};
