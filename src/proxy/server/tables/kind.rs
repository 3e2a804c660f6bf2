//! One kind of objects, and the state of printing its Tables.

use std::sync::{Arc, Weak};

use kubefan_core::api::ResourceVersion;
use kubefan_core::codec::{KeptRows, Printer, RowMemory};
use kubefan_core::informer::{Informer, LiveRestMapper};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::state::{CheckResult, State};

/// The minor versions of the API server, such as 37 for 1.37, on which the tests compare every
/// cell.
pub(super) const TESTED_MINORS: [u32; 4] = [34, 35, 36, 37];

/// A kind at one version of the API server. For a custom resource, also at one definition.
pub(super) struct TableKind {
    /// The version of the API server, such as `v1.37.1`.
    pub(super) server_version: Arc<String>,
    /// `None` if kubefan does not print the kind.
    pub(super) printer: Option<Printer>,
    pub(super) is_custom: bool,
    /// The version of the CustomResourceDefinition from which the printer was made.
    pub(super) definition: Mutex<Option<ResourceVersion>>,
    pub(super) state: Mutex<State>,
    /// Changes when the open watches must end.
    watch_end: watch::Sender<()>,
    caches: Mutex<Vec<PrintedCache>>,
}

/// The rows of one cache in one epoch.
#[derive(Clone)]
struct PrintedCache {
    informer: Weak<Informer>,
    epoch: u64,
    kept: Arc<KeptRows>,
}

impl TableKind {
    pub(super) fn new(
        server_version: Arc<String>,
        printer: Option<Printer>,
        is_custom: bool,
        definition: Option<ResourceVersion>,
    ) -> Self {
        Self {
            server_version,
            printer,
            is_custom,
            definition: Mutex::new(definition),
            state: Mutex::default(),
            watch_end: watch::Sender::new(()),
            caches: Mutex::default(),
        }
    }

    /// Returns true if the kind and `printer` print equal cells. Both are of the same custom
    /// resource.
    pub(super) fn has_printer_like(&self, printer: Option<&Printer>) -> bool {
        match (&self.printer, printer) {
            (Some(own), Some(other)) => own.is_same_custom(other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Returns a receiver that changes when watches that are opened after this call must end. A
    /// watch calls this before it is admitted.
    pub(super) fn watch_end(&self) -> watch::Receiver<()> {
        self.watch_end.subscribe()
    }

    /// Records what a comparison found. If something differed, the open watches end.
    pub(super) fn checked(&self, outcome: &CheckResult, now: Instant) {
        self.state.lock().checked(outcome, self.is_custom, now);
        match outcome {
            CheckResult::OtherColumns | CheckResult::OtherCells | CheckResult::OtherOrder => {
                self.end_watches()
            }
            CheckResult::Equal { .. } | CheckResult::Failed => {}
        }
    }

    /// Records that an object could not be printed. The kind is forwarded from then on, and the
    /// open watches end.
    pub(super) fn cannot_print(&self) {
        self.state.lock().cannot_print();
        self.end_watches();
    }

    /// Ends the open watches and stops printing, because the kind was replaced.
    pub(super) fn retire(&self) {
        self.state.lock().retire();
        self.end_watches();
    }

    fn end_watches(&self) {
        self.watch_end.send_replace(());
    }

    /// Returns the rows of the cache of `informer` in `epoch`.
    pub(super) fn rows(
        &self,
        informer: &Arc<Informer>,
        epoch: u64,
        memory: &Arc<RowMemory>,
    ) -> Arc<KeptRows> {
        let mut caches = self.caches.lock();
        let found = caches
            .iter()
            .position(|cache| std::ptr::eq(cache.informer.as_ptr(), Arc::as_ptr(informer)));
        if let Some(found) = found {
            if caches[found].epoch == epoch {
                return Arc::clone(&caches[found].kept);
            }
            caches.remove(found);
        }
        let kept = Arc::new(KeptRows::new(Arc::clone(memory)));
        caches.push(PrintedCache {
            informer: Arc::downgrade(informer),
            epoch,
            kept: Arc::clone(&kept),
        });
        kept
    }

    /// Drops the rows of objects that have changed, and of caches that have ended.
    ///
    /// An answer that is printed during this call waits for at most one slice of the rows.
    pub(super) async fn forget_old_rows(&self) {
        let caches = self.caches.lock().clone();
        for cache in caches {
            let snapshot = cache
                .informer
                .upgrade()
                .and_then(|informer| informer.reader().snapshot());
            let Some(snapshot) = snapshot.filter(|snapshot| snapshot.epoch() == cache.epoch) else {
                let is_it = |other: &PrintedCache| Arc::ptr_eq(&other.kept, &cache.kept);
                self.caches.lock().retain(|other| !is_it(other));
                continue;
            };
            for slice in 0..KeptRows::SLICES {
                cache.kept.retain_in(slice, |key, version| {
                    let current = snapshot.get(key);
                    current.is_some_and(|object| object.resource_version == version)
                });
                yield_now().await;
            }
        }
    }
}

/// Returns the minor version in a version of the API server such as `v1.37.1`. Returns `None` if it
/// is not one of [`TESTED_MINORS`].
pub(super) fn tested_minor(server_version: &str) -> Option<u32> {
    let minor = LiveRestMapper::minor_of(server_version);
    minor.filter(|minor| TESTED_MINORS.contains(minor))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use kubefan_core::body::BodyGuard;

    use super::*;
    use crate::server::cached::collection::CollectionEnd;

    type Change<'a> = &'a dyn Fn(&TableKind);

    #[tokio::test]
    async fn a_watch_ends_when_its_kind_differs_or_cannot_be_printed_or_is_replaced() {
        let (compared, objects) = (1, 1);
        let equal = CheckResult::Equal { compared, objects };
        let now = Instant::now();
        let cases: [(Change<'_>, bool); 7] = [
            (&|kind| kind.checked(&equal, now), false),
            (&|kind| kind.checked(&CheckResult::Failed, now), false),
            (&|kind| kind.checked(&CheckResult::OtherCells, now), true),
            (&|kind| kind.checked(&CheckResult::OtherColumns, now), true),
            (&|kind| kind.checked(&CheckResult::OtherOrder, now), true),
            (&TableKind::cannot_print, true),
            (&TableKind::retire, true),
        ];
        for (at, (change, is_over)) in cases.into_iter().enumerate() {
            let printer = Printer::built_in("v1", "Pod");
            let kind = TableKind::new(Arc::default(), printer, false, None);
            let mut end = CollectionEnd::new(kind.watch_end());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(end.poll_end(&mut cx).is_pending());
            change(&kind);
            assert_eq!(end.poll_end(&mut cx).is_ready(), is_over, "{at}");
            // A later watch is admitted or not, but earlier changes do not end it.
            let mut later = CollectionEnd::new(kind.watch_end());
            assert!(later.poll_end(&mut cx).is_pending());
        }
    }

    #[test]
    fn only_tested_versions_are_printed() {
        for (version, expected) in [
            ("v1.37.0", Some(37)),
            ("v1.37.1", Some(37)),
            ("v1.37.3-eks-1234", Some(37)),
            ("v1.37.0+k3s1", Some(37)),
            ("v1.36.3", Some(36)),
            ("v1.34.9", Some(34)),
            ("v1.33.9", None),
            ("v1.38.0", None),
            ("v1.3.7", None),
            ("v1.371.0", None),
            ("v2.37.0", None),
            ("v1.37", Some(37)),
            ("v1", None),
            ("", None),
        ] {
            assert_eq!(tested_minor(version), expected, "{version}");
        }
    }

    /// Compares the tested minors with the modules of the upstream suite. Add a minor only after
    /// `every_table_cell_equals_the_api_servers`, the other tests of Tables and the differential
    /// tests have passed on it.
    #[test]
    fn the_tested_versions_are_those_of_the_upstream_suite() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/upstream");
        let [older @ .., newest] = TESTED_MINORS;
        let modules = older.map(|minor| (minor, format!("minors/1.{minor}.mod")));
        for (minor, module) in modules.into_iter().chain([(newest, "go.mod".to_owned())]) {
            let module = std::fs::read_to_string(format!("{tests}/{module}")).expect("a module");
            assert!(
                module.contains(&format!("k8s.io/kubernetes v1.{minor}.")),
                "{minor}"
            );
        }
    }
}
