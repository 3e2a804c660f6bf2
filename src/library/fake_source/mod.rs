//! A programmable API server for tests: one resource that a test changes and breaks.
//!
//! A [`FakeSource`] is a [`ListerWatcher`](kubefan_core::upstream::ListerWatcher), as a
//! [`ResourceClient`](kubefan_core::upstream::ResourceClient) is, but without an API server. Give
//! one clone to the code under test, such as a [`Reflector`](kubefan_core::informer::Reflector),
//! and script with another clone what happens. Controllers and handlers get a
//! [`FakeSource::informer`].
//!
//! A fake source behaves as an API server does: versions grow with each change, watches deliver the
//! events after their start, lists have pages, and watch-lists end with a bookmark.
//!
//! ```
//! use futures_util::StreamExt;
//! use kubefan::api::WatchEvent;
//! use kubefan::fake_source::FakeSource;
//! use kubefan::upstream::{ListCall, ListerWatcher, ResumePoint, WatchCall};
//! use serde_json::json;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let source = FakeSource::new();
//! source.add(&json!({"metadata": {"namespace": "default", "name": "web"}}))?;
//! let page = source.list(ListCall::default()).await?;
//! assert_eq!(page.items[0].key.as_str(), "default/web");
//!
//! let start = ResumePoint::After(page.resource_version);
//! let timeout = std::time::Duration::from_secs(300);
//! let mut watch = source.watch(WatchCall { start, timeout }).await?;
//! source.delete(&page.items[0].key)?;
//! let event = watch.next().await.ok_or("the watch ended")??;
//! assert!(matches!(event, WatchEvent::Change { .. }));
//!
//! source.expire(); // ends the watch with 410, as after a compaction
//! let event = watch.next().await.ok_or("the watch ended")??;
//! assert!(matches!(event, WatchEvent::Error(status) if status.code == 410));
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
//! ```

mod error;
mod informer;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod watch;

pub use error::Error;
pub use source::FakeSource;
pub use state::Request;
pub use watch::FakeWatch;
