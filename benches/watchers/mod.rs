//! Support code of the watch benches: a cache of pods of about 2 KiB, and watchers that are polled
//! only when they were woken.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use kubefan::api::{EventType, Object, ObjectKey, ObjectValues, ResourceVersion, Selection};
use kubefan::cache;
use kubefan::cache::{Reader, WatchFrom, WatchItem, WatchStream, Writer};
use parking_lot::Mutex;

/// A cache of pods. Each pod has a different node name and a different `shard` label.
pub(crate) struct Pods {
    writer: Writer,
    pub(crate) reader: Reader,
    count: usize,
    version: u64,
    body: Bytes,
}

/// Watch streams, and the indexes of the woken streams.
pub(crate) struct Watchers {
    streams: Vec<(WatchStream, Waker)>,
    woken: Arc<Mutex<Vec<usize>>>,
    round: Vec<usize>,
}

struct IndexWaker {
    index: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

// === impl Pods ===

impl Pods {
    pub(crate) fn new(count: usize) -> Self {
        let (mut writer, reader) = cache::cache(cache::Config {
            field_count: 1,
            ..cache::Config::default()
        });
        writer.replace(writer.relist(), ResourceVersion(1));
        let body = Bytes::from(vec![b'x'; 2_000]);
        let mut pods = Self {
            writer,
            reader,
            count,
            version: 1,
            body,
        };
        (0..count).for_each(|index| pods.change(index));
        pods
    }

    /// Applies a change with a new version to the pod with this index.
    pub(crate) fn change(&mut self, index: usize) {
        self.version += 1;
        let index = index % self.count;
        let values = ObjectValues {
            uid: format!("uid-{index}").into(),
            labels: vec![
                ("app".into(), "web".into()),
                ("shard".into(), format!("shard-{index}").into()),
            ],
            fields: vec![format!("node-{index}").into()],
        };
        let key = ObjectKey::new(Some("shop"), &format!("pod-{index:05}"));
        let version = ResourceVersion(self.version);
        let object = Object::new(key, version, &values, self.body.clone());
        let applied = self.writer.apply(EventType::Modified, object, None);
        applied.expect("versions only grow");
    }
}

// === impl Watchers ===

impl Watchers {
    /// Opens one watch for each selection, and polls each until it waits for a wake.
    pub(crate) fn open(reader: &Reader, selections: impl Iterator<Item = Selection>) -> Self {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let open = |(index, selection)| {
            let stream = reader.watch(WatchFrom::Tip, Arc::new(selection));
            let woken = Arc::clone(&woken);
            let waker = Waker::from(Arc::new(IndexWaker { index, woken }));
            (stream.expect("the cache is ready"), waker)
        };
        let streams: Vec<_> = selections.enumerate().map(open).collect();
        let round = (0..streams.len()).collect();
        let mut watchers = Self {
            streams,
            woken,
            round,
        };
        watchers.poll_round();
        watchers
    }

    /// Polls the woken streams until all of them wait, and returns the number of received changes.
    pub(crate) fn take_changes(&mut self) -> usize {
        std::mem::swap(&mut self.round, &mut self.woken.lock());
        self.poll_round()
    }

    fn poll_round(&mut self) -> usize {
        let mut changes = 0;
        for index in self.round.drain(..) {
            let (stream, waker) = &mut self.streams[index];
            let mut context = Context::from_waker(waker);
            while let Poll::Ready(item) = stream.poll_next(&mut context) {
                assert!(matches!(item, Some(WatchItem::Change { .. })), "{item:?}");
                changes += 1;
            }
        }
        changes
    }
}

impl Wake for IndexWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push(self.index);
    }
}
