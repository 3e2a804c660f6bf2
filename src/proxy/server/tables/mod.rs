//! Tables from the caches: decides which kinds kubefan prints, and compares its Tables with the API
//! server's own before it prints a kind.
//!
//! A kind is printed only if the API server has a version on which the tests compare every cell. At
//! run time, its columns and the rows of some objects are compared before it is printed for the
//! first time, and again after a thousand Tables. If anything differs, the kind is forwarded.

mod check;
mod collection;
mod kind;
mod sample;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use check::Comparison;
use collection::TableCollection;
use kind::{TableKind, tested_minor};
use kubefan_core::api::{GroupVersionResource, Object, ObjectKey, ResourceVersion, WireFormat};
use kubefan_core::cache::Snapshot;
use kubefan_core::codec::{Printer, RowMemory, View};
use kubefan_core::informer::{Informer, InformerSet, InformerSpec, LiveRestMapper};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::{Client, Scope};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use state::CheckResult;
use tokio::time::{Instant, sleep};

use super::cached::collection::Collection;
use super::decide::{Plan, Read, Reason};
use crate::ledger::Budget;

/// How often rows of changed objects are dropped.
const CLEAN_INTERVAL: Duration = Duration::from_secs(60);
/// If two reads of a resource arrive within this time, the second one starts the informer.
const SECOND_READ: Duration = Duration::from_secs(60);

/// The kinds that kubefan prints as Tables. Cheap to clone.
#[derive(Clone)]
pub(super) struct Tables {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
    kinds: Mutex<HashMap<GroupVersionResource, Arc<TableKind>>>,
    /// When a Table was last requested of a resource without a ready informer.
    cold_reads: Mutex<HashMap<GroupVersionResource, Instant>>,
    memory: Arc<RowMemory>,
    /// The limit of `memory`. Its number of used bytes is updated once a minute.
    budget: Budget,
    checks: IntCounterVec,
    shutdown: Shutdown,
}

/// By what the API server prints the objects of a kind now.
struct Current {
    server_version: Arc<String>,
    minor: u32,
    /// The definition of a custom resource.
    definition: Option<Arc<Object>>,
}

impl Current {
    /// Returns the version of the definition.
    fn version(&self) -> Option<ResourceVersion> {
        self.definition
            .as_ref()
            .map(|object| object.resource_version)
    }

    /// Returns true if `kind` is of this API server, whatever its definition.
    fn is_of(&self, kind: &TableKind) -> bool {
        kind.server_version == self.server_version && kind.is_custom == self.definition.is_some()
    }

    fn printer(&self, spec: &InformerSpec) -> Option<Printer> {
        printer(spec, self.minor, self.definition.as_deref())
    }
}

/// Registers the counter of comparisons.
pub(super) fn check_counter(registry: &Registry) -> IntCounterVec {
    registry.counter_vec(
        "kubefan_table_checks_total",
        "Comparisons of kubefan's Tables with those of the API server: equal, different \
         (the resource is then forwarded), or failed (no answer to compare with).",
        &["group", "resource", "result"],
    )
}

impl Tables {
    /// Prints Tables of the objects in `informers`, and compares them with Tables that `client`
    /// gets. Printed rows are stored within the budget.
    pub(super) fn new(
        client: Client,
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        (checks, budget): (IntCounterVec, Budget),
        shutdown: Shutdown,
    ) -> Self {
        let inner = Inner {
            client,
            informers,
            rest_mapper,
            kinds: Mutex::default(),
            cold_reads: Mutex::default(),
            memory: Arc::new(RowMemory::new(budget.limit())),
            budget,
            checks,
            shutdown,
        };
        let inner = Arc::new(inner);
        Self { inner }
    }

    /// Regularly drops old rows, and kinds if their definition or their API server has changed.
    /// Runs until the future is dropped.
    pub(super) async fn clean(self) {
        loop {
            sleep(CLEAN_INTERVAL).await;
            let known: Vec<_> = self.inner.kinds.lock().keys().cloned().collect();
            for gvr in known {
                self.retire_if_outdated(&gvr);
                tokio::task::yield_now().await;
            }
            let kinds: Vec<_> = self.inner.kinds.lock().values().cloned().collect();
            for kind in kinds {
                kind.forget_old_rows().await;
            }
            self.inner.budget.set_used(self.inner.memory.used());
        }
    }

    /// Replaces the kind of `gvr` if the API server now prints it in another way. Reads do that
    /// too, but a kind may have open watches and no reads.
    fn retire_if_outdated(&self, gvr: &GroupVersionResource) {
        let rest_mapper = &self.inner.rest_mapper;
        let spec = rest_mapper.known_informer_spec(gvr, WireFormat::Json);
        if spec.is_none_or(|spec| self.kind(&spec).is_err()) {
            let removed = self.inner.kinds.lock().remove(gvr);
            if let Some(removed) = removed {
                removed.retire();
            }
        }
    }

    /// Records a Table read that found no ready informer. The second such read within a minute
    /// starts the informer, but does not wait for it, because the API server answers at once. Reads
    /// that may not start an informer do not count.
    pub(super) fn missed(&self, read: &Read) {
        if !read.may_start_informer() {
            return;
        }
        let gvr = &read.spec.resource.gvr;
        let now = Instant::now();
        let before = self.inner.cold_reads.lock().insert(gvr.clone(), now);
        let is_second = before.is_some_and(|before| now - before <= SECOND_READ);
        if !is_second || self.kind(&read.spec).is_err() {
            return;
        }
        let informers = &self.inner.informers;
        if let Err(refused) =
            informers.get_or_start_in(&read.spec, &read.scope, read.namespace.as_deref())
        {
            tracing::debug!(resource = %gvr, %refused, "no informer for a Table");
        }
    }

    /// Returns the version of the definition whose columns a Table of `read` has. Returns `None` if
    /// `read` asks for no Table of a custom resource.
    pub(super) fn definition_version(&self, read: &Read) -> Option<ResourceVersion> {
        let has_columns = read.spec.custom && read.representation.view.is_table();
        let definition = has_columns.then(|| self.definition(&read.spec.resource.gvr));
        Some(definition??.resource_version)
    }

    /// Returns the collection of `informer` that shows the objects of `read` as rows.
    ///
    /// # Errors
    ///
    /// A [`Reason`] if kubefan does not print the kind, or not yet.
    pub(super) fn collection(
        &self,
        read: &Read,
        informer: &Arc<Informer>,
    ) -> Result<Arc<dyn Collection>, Reason> {
        let View::Table(version, include) = read.representation.view else {
            return Ok(Arc::<Informer>::clone(informer));
        };
        let (kind, printer) = self.kind(&read.spec)?;
        let snapshot = informer.reader().snapshot().ok_or(Reason::NotCached)?;
        let epoch = snapshot.epoch();
        let is_watch = matches!(read.plan, Plan::Watch { .. });
        // This precedes the admission, so that the watch sees everything that ends it later.
        let end = is_watch.then(|| kind.watch_end());
        let (admission, must_check) = {
            let mut state = kind.state.lock();
            state.admit(snapshot.len(), Instant::now())
        };
        if must_check {
            let scope = informer.upstream_scope();
            self.check(
                &read.spec,
                Arc::clone(&kind),
                printer.clone(),
                scope,
                snapshot,
            );
        }
        admission?;
        let kept = kind.rows(informer, epoch, &self.inner.memory);
        Ok(Arc::new(TableCollection::new(
            Arc::clone(informer),
            (kind, printer),
            (kept, self.inner.rest_mapper.server_clock()),
            (version, include),
            end,
        )))
    }

    /// Returns whether a Table of `read` is printed now. Compares and notes nothing.
    ///
    /// # Errors
    ///
    /// The [`Reason`] of [`Tables::collection`].
    pub(super) fn admission(&self, read: &Read) -> Result<(), Reason> {
        if !read.representation.view.is_table() {
            return Ok(());
        }
        let current = self.current(&read.spec)?;
        let known = self
            .inner
            .kinds
            .lock()
            .get(&read.spec.resource.gvr)
            .cloned();
        let is_known = |kind: &TableKind| *kind.definition.lock() == current.version();
        let known = known.filter(|kind| current.is_of(kind));
        match known {
            Some(kind) if is_known(&kind) => {
                kind.printer.as_ref().ok_or(Reason::Table)?;
                kind.state.lock().admission()
            }
            known => {
                let printer = current.printer(&read.spec);
                let is_same = |kind: &Arc<TableKind>| kind.has_printer_like(printer.as_ref());
                printer.as_ref().ok_or(Reason::Table)?;
                match known.filter(is_same) {
                    Some(kind) => kind.state.lock().admission(),
                    None => Err(Reason::TableUnchecked),
                }
            }
        }
    }

    /// Returns by what the API server prints the objects of `spec` now.
    ///
    /// # Errors
    ///
    /// [`Reason::Table`] if kubefan does not print the kind.
    fn current(&self, spec: &InformerSpec) -> Result<Current, Reason> {
        let server_version = self.inner.rest_mapper.server_version();
        let server_version = server_version.ok_or(Reason::Table)?;
        let minor = tested_minor(&server_version).ok_or(Reason::Table)?;
        let definition = if spec.custom {
            let definition = self.definition(&spec.resource.gvr);
            Some(definition.ok_or(Reason::Table)?)
        } else {
            None
        };
        Ok(Current {
            server_version,
            minor,
            definition,
        })
    }

    /// Returns the kind of the objects of `spec`, as the API server prints it now, and its printer.
    ///
    /// # Errors
    ///
    /// [`Reason::Table`] if kubefan does not print the kind.
    fn kind(&self, spec: &InformerSpec) -> Result<(Arc<TableKind>, Printer), Reason> {
        let current = self.current(spec)?;
        let gvr = &spec.resource.gvr;
        let version = current.version();
        let known = self.inner.kinds.lock().get(gvr).cloned();
        let known = known.filter(|kind| current.is_of(kind) && *kind.definition.lock() == version);
        let kind = match known {
            Some(known) => known,
            None => {
                // A definition may be long, so no lock is held while it is parsed.
                let printer = current.printer(spec);
                let mut kinds = self.inner.kinds.lock();
                let is_same = |kind: &&Arc<TableKind>| {
                    let is_known = *kind.definition.lock() == version;
                    current.is_of(kind) && (is_known || kind.has_printer_like(printer.as_ref()))
                };
                match kinds.get(gvr).filter(is_same) {
                    // Another thread was faster, or the definition has changed in parts other than
                    // its columns.
                    Some(known) => {
                        *known.definition.lock() = version;
                        Arc::clone(known)
                    }
                    None => {
                        let server_version = current.server_version;
                        let kind = TableKind::new(server_version, printer, spec.custom, version);
                        let kind = Arc::new(kind);
                        let replaced = kinds.insert(gvr.clone(), Arc::clone(&kind));
                        drop(kinds);
                        if let Some(replaced) = replaced {
                            replaced.retire();
                        }
                        kind
                    }
                }
            }
        };
        let printer = kind.printer.clone().ok_or(Reason::Table)?;
        Ok((kind, printer))
    }

    /// Returns the CustomResourceDefinition of `gvr` from the cache. Returns `None` if no ready
    /// cache has it.
    fn definition(&self, gvr: &GroupVersionResource) -> Option<Arc<Object>> {
        let definitions = LiveRestMapper::definitions();
        let rest_mapper = &self.inner.rest_mapper;
        let spec = rest_mapper.known_informer_spec(&definitions, WireFormat::Json)?;
        let informer = self.inner.informers.get_ready(&spec, None)?;
        let name = gvr.group_resource();
        informer
            .reader()
            .snapshot()?
            .get(&ObjectKey::new(None, &name))
    }

    /// Compares the kind's rows with the API server's in the background.
    fn check(
        &self,
        spec: &InformerSpec,
        kind: Arc<TableKind>,
        printer: Printer,
        scope: Scope,
        snapshot: Snapshot,
    ) {
        let (tables, gvr) = (self.clone(), spec.resource.gvr.clone());
        self.inner.shutdown.spawn_background(async move {
            let comparison = Comparison {
                client: &tables.inner.client,
                gvr: &gvr,
                printer: &printer,
                scope: &scope,
                snapshot,
            };
            let outcome = comparison.run().await;
            let result = match outcome {
                CheckResult::Equal { .. } => "equal",
                CheckResult::OtherColumns | CheckResult::OtherCells | CheckResult::OtherOrder => {
                    tracing::warn!(
                        resource = %gvr, version = %kind.server_version, ?outcome,
                        "kubefan's Table differs from the API server's, so Tables are forwarded"
                    );
                    "different"
                }
                CheckResult::Failed => "failed",
            };
            let checks = &tables.inner.checks;
            let labels = [gvr.group.as_str(), gvr.resource.as_str(), result];
            checks.with_label_values(&labels).inc();
            kind.checked(&outcome, Instant::now());
        });
    }
}

/// Returns the printer of the kind of `spec` for API servers of version 1.`minor`. `definition`
/// defines a custom resource. Returns `None` if kubefan does not print the kind.
fn printer(spec: &InformerSpec, minor: u32, definition: Option<&Object>) -> Option<Printer> {
    let gvr = &spec.resource.gvr;
    if !spec.custom {
        return Printer::built_in_at(&gvr.api_version(), &spec.resource.kind, minor);
    }
    let definition = definition?.decode_json().ok()?;
    let printer = Printer::custom(&definition, &gvr.version)?;
    printer.is_complete().then_some(printer)
}
