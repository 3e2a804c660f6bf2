//! One kind of objects whose Tables kubefan may print.

use std::sync::Arc;
use std::sync::Weak;

use parking_lot::Mutex;

use crate::api::ResourceVersion;
use crate::codec::KeptRows;
use crate::codec::Printer;
use crate::codec::RowMemory;
use crate::informer::Informer;

use super::state::State;

/// The minor versions of the API server, on which the tests compare every cell.
pub(super) const TESTED_MINORS: [&str; 1] = ["1.37"];

/// A kind for one version of the API server, and one definition if it is of a custom resource.
pub(super) struct Kind {
    /// The version of the API server, such as `v1.37.1`.
    pub(super) server_version: Arc<String>,
    /// `None` if kubefan does not print the kind.
    pub(super) printer: Option<Printer>,
    pub(super) is_custom: bool,
    /// The version of the CustomResourceDefinition from which the printer was made.
    pub(super) definition: Mutex<Option<ResourceVersion>>,
    pub(super) state: Mutex<State>,
    caches: Mutex<Vec<PrintedCache>>,
}

/// The rows of one cache in one epoch.
struct PrintedCache {
    informer: Weak<Informer>,
    epoch: u64,
    kept: Arc<KeptRows>,
}

impl Kind {
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
            state: Mutex::new(State::new()),
            caches: Mutex::default(),
        }
    }

    /// The rows of the cache of `informer` in `epoch`.
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
    pub(super) fn forget_old_rows(&self) {
        self.caches.lock().retain(|cache| {
            let snapshot = cache
                .informer
                .upgrade()
                .and_then(|informer| informer.reader().snapshot());
            let Some(snapshot) = snapshot.filter(|snapshot| snapshot.epoch() == cache.epoch) else {
                return false;
            };
            cache.kept.retain(|key, version| {
                let current = snapshot.get(key);
                current.is_some_and(|object| object.resource_version == version)
            });
            true
        });
    }
}

/// True if the tests compare every cell with those of an API server of this version, such as
/// `v1.37.1`.
pub(super) fn is_tested(server_version: &str) -> bool {
    let version = server_version.strip_prefix('v').unwrap_or(server_version);
    let mut numbers = version.split(['.', '-', '+']);
    let minor = (numbers.next(), numbers.next());
    TESTED_MINORS
        .iter()
        .any(|tested| tested.split_once('.') == minor.0.zip(minor.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tested_versions_are_printed() {
        for (version, expected) in [
            ("v1.37.0", true),
            ("v1.37.1", true),
            ("v1.37.3-eks-1234", true),
            ("v1.37.0+k3s1", true),
            ("v1.36.2", false),
            ("v1.38.0", false),
            ("v1.3.7", false),
            ("v1.371.0", false),
            ("v1.37", true),
            ("", false),
        ] {
            assert_eq!(is_tested(version), expected, "{version}");
        }
    }

    /// The versions on which `every_table_cell_equals_the_api_servers` and the differential tests
    /// were seen to pass. Add one only after running them.
    #[test]
    fn the_tested_versions_are_those_of_the_upstream_suite() {
        let module = include_str!("../../../tests/upstream/go.mod");
        let tested = TESTED_MINORS.map(|minor| format!("k8s.io/kubernetes v{minor}."));
        let newest = tested.last().expect("a version");
        assert!(module.contains(newest.as_str()), "{newest}");
    }
}
