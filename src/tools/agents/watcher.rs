//! A watch that an agent holds open.

use std::time::Duration;

use kubefan_core::api::WireFormat;
use kubefan_core::upstream::Error;
use memchr::memmem;

use super::connection::Connection;
use super::view::{Objects, View};
use super::{Counters, OpenWatch};
use crate::load::{FrameCutter, FrameType, VersionFinder};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The text before the uid of an object. The uids of the object's owners come later in a frame.
const UID: &[u8] = b"\"uid\":\"";
/// The length of a uid, in bytes.
const UID_LENGTH: usize = 36;

/// The state of a watch that outlives its requests.
struct Watcher<'a> {
    view: &'a View,
    objects: Objects,
    versions: VersionFinder,
    /// The version to watch from in the next request; `None` to begin with the existing objects.
    reached: Option<u64>,
}

/// Watches without end, like an informer. The watch begins with the existing objects, resumes where
/// it ended, and begins anew if it cannot resume. Never returns.
pub(super) async fn watch(connection: &Connection, view: &View) {
    let mut watcher = Watcher {
        view,
        objects: Objects::default(),
        versions: VersionFinder::new(WireFormat::Json),
        reached: None,
    };
    let mut pause = FIRST_PAUSE;
    loop {
        match watcher.follow(connection).await {
            Ok(()) => pause = FIRST_PAUSE,
            Err(error) => {
                tracing::debug!(%error, "the watch of an agent failed");
                if error.is_expired() {
                    watcher.reached = None;
                }
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

impl Watcher<'_> {
    /// Opens a watch and follows the watch to its end. Fails if the watch could not be opened.
    async fn follow(&mut self, connection: &Connection) -> Result<(), Error> {
        let path = self.path();
        let answer = connection.get(&path, WireFormat::Json.media_type()).await?;
        let _open = OpenWatch::new(&connection.totals);
        if self.reached.is_none() {
            self.view.clear(&mut self.objects);
        }
        let mut frames = FrameCutter::new(WireFormat::Json);
        let mut body = answer.into_body();
        loop {
            let bytes = match connection.chunk(&mut body).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::debug!(%error, "the watch of an agent broke");
                    return Ok(());
                }
            };
            let mut events = 0;
            let cut = frames.cut(&bytes, |frame| {
                events += 1;
                self.take(frame);
            });
            Counters::add(&connection.totals.events, events);
            if let Err(error) = cut {
                tracing::debug!(%error, "the watch of an agent ended");
                return Ok(());
            }
        }
    }

    fn take(&mut self, frame: &[u8]) {
        let version = self.versions.find(frame);
        match FrameType::of(WireFormat::Json, frame) {
            FrameType::Bookmark => self.reached = version,
            FrameType::Error | FrameType::Unknown => self.reached = None,
            change @ (FrameType::Added | FrameType::Modified | FrameType::Deleted) => {
                let (Some(uid), Some(version)) = (uid(frame), version) else {
                    return;
                };
                let state = (change != FrameType::Deleted).then_some(version);
                self.view.apply(&mut self.objects, uid, state);
                // The versions of the initial objects are in no order.
                self.reached = self.reached.map(|_| version);
            }
        }
    }

    fn path(&self) -> String {
        let watched = &self.view.watched;
        let path = watched.gvr.path(None);
        let start = match self.reached {
            Some(version) => format!("resourceVersion={version}"),
            // Begin with any state, like an informer that lists.
            None => "resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
                .to_owned(),
        };
        // The names of nodes need no percent-encoding, and neither does the operator.
        let selector = match watched.field_selector.as_str() {
            "" => String::new(),
            selector => format!("&fieldSelector={selector}"),
        };
        format!("{path}?watch=true&allowWatchBookmarks=true&{start}{selector}")
    }
}

/// Returns the uid of the object in a frame.
fn uid(frame: &[u8]) -> Option<&[u8]> {
    let from = memmem::find(frame, UID)? + UID.len();
    frame.get(from..from + UID_LENGTH)
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::GroupVersionResource;

    use super::*;
    use crate::agents::{Fingerprint, Watched};

    fn frame(event: &str, uid: u32, version: u64) -> Vec<u8> {
        let uid = format!("00000000-0000-0000-0000-{uid:012}");
        format!(
            "{{\"type\":\"{event}\",\"object\":{{\"metadata\":{{\"name\":\"a\",\"uid\":\"{uid}\",\
             \"resourceVersion\":\"{version}\",\"ownerReferences\":[{{\"uid\":\"x\"}}]}}}}}}\n"
        )
        .into_bytes()
    }

    #[test]
    fn a_watch_shows_its_objects_and_resumes_after_the_last_event() {
        let view = View::new(Watched {
            gvr: GroupVersionResource::new("", "v1", "pods"),
            field_selector: "spec.nodeName=a".to_owned(),
        });
        let mut watcher = Watcher {
            view: &view,
            objects: Objects::default(),
            versions: VersionFinder::new(WireFormat::Json),
            reached: None,
        };
        watcher.take(&frame("ADDED", 1, 30));
        watcher.take(&frame("ADDED", 2, 20));
        assert!(watcher.path().contains("sendInitialEvents=true"));
        watcher.take(
            b"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"40\"}}}\n",
        );
        assert_eq!(view.fingerprint(), Fingerprint::of([20, 30]));
        watcher.take(&frame("MODIFIED", 2, 50));
        watcher.take(&frame("DELETED", 1, 60));
        assert_eq!(view.fingerprint(), Fingerprint::of([50]));
        assert_eq!(
            watcher.path(),
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=60\
             &fieldSelector=spec.nodeName=a"
        );
        watcher.take(b"{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n");
        assert!(watcher.path().contains("sendInitialEvents=true"));
    }
}
