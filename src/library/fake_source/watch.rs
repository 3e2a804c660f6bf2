//! FakeWatch: an open watch of a fake source.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, stream};
use kubefan_core::api::WatchEvent;
use kubefan_core::upstream;
use kubefan_core::upstream::ResumePoint;

use super::state::{Ending, Shared, State, expired_status};
use crate::work_queue::until_some;

/// The events of one watch of a [`FakeSource`](super::FakeSource). Dropping it ends the watch.
pub struct FakeWatch(Pin<Box<dyn Stream<Item = Result<WatchEvent, upstream::Error>> + Send>>);

/// The position of a watch. Dropping it removes the watch from the count of open watches.
struct Watcher {
    source: Arc<Shared>,
    generation: u64,
    /// The events to deliver before those of the history.
    first: VecDeque<WatchEvent>,
    position: usize,
    has_ended: bool,
}

type Item = Result<WatchEvent, upstream::Error>;

impl FakeWatch {
    pub(super) fn open(source: Arc<Shared>, state: &mut State, start: ResumePoint) -> Self {
        let (first, position) = state.start(start);
        state.watchers += 1;
        let watcher = Watcher {
            source,
            generation: state.generation,
            first,
            position,
            has_ended: false,
        };
        Self(Box::pin(stream::unfold(watcher, Watcher::next)))
    }
}

impl Stream for FakeWatch {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

debug_fields!([] FakeWatch);

// === impl Watcher ===

impl Watcher {
    async fn next(mut self) -> Option<(Item, Self)> {
        let source = Arc::clone(&self.source);
        let step = || match self.step(&source.state.lock()) {
            Poll::Ready(item) => Some(item),
            Poll::Pending => None,
        };
        let item = until_some(&source.changed, step).await?;
        Some((item, self))
    }

    fn step(&mut self, state: &State) -> Poll<Option<Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if state.is_held {
            return Poll::Pending;
        }
        if self.generation < state.generation {
            self.has_ended = true;
            return Poll::Ready(match state.ending {
                Ending::Clean => None,
                Ending::Broken => {
                    let cause = "the fake source broke its watches".into();
                    Some(Err(upstream::Error::Transport(cause)))
                }
                Ending::Expired => Some(Ok(WatchEvent::Error(expired_status()))),
            });
        }
        if let Some(event) = self.first.pop_front() {
            self.has_ended = matches!(event, WatchEvent::Error(_));
            return Poll::Ready(Some(Ok(event)));
        }
        match state.event(self.position) {
            None => Poll::Pending,
            Some(event) => {
                self.position += 1;
                Poll::Ready(Some(Ok(event)))
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.source.state.lock().watchers -= 1;
        self.source.changed.notify_waiters();
    }
}
