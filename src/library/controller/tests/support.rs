//! Resources on fake sources, and a reconciler that records its calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::controller::{Action, Controller, Error, Reconciler, Request};
use crate::fake_source::FakeSource;
use crate::shared_informer;
use crate::shared_informer::SharedInformer;

/// One resource of a fake API server, and its informer.
pub(crate) struct Fake<K> {
    pub(crate) source: FakeSource,
    pub(crate) informer: SharedInformer<K>,
    shutdown: Shutdown,
}

/// Calls of a reconciler, and the results that it returns.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<State>);

#[derive(Default)]
struct State {
    calls: Mutex<Vec<Call>>,
    /// The next results per name; `Ok(Done)` when none are left.
    results: Mutex<BTreeMap<String, Vec<Outcome>>>,
    changed: Notify,
    duration: Mutex<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) began: Instant,
    pub(crate) has_ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Is(Action),
    Error,
    Panic,
}

impl<K> Fake<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    /// Creates an informer of a source without objects.
    pub(crate) fn new() -> Self {
        let (source, shutdown) = (FakeSource::new(), shutdown());
        let config = shared_informer::Config::default();
        Self {
            informer: source.informer(config, &shutdown),
            source,
            shutdown,
        }
    }

    /// Ends the informer.
    pub(crate) fn end(&self) {
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move { shutdown.drain().await });
    }
}

impl Calls {
    /// Makes the next reconciles of `name` end with `results`.
    pub(crate) fn script(&self, name: &str, results: &[Outcome]) {
        let mut scripts = self.0.results.lock();
        let script = scripts.entry(name.to_owned()).or_default();
        script.extend(results);
    }

    /// Makes each reconcile take `duration` from now on.
    pub(crate) fn take(&self, duration: Duration) {
        *self.0.duration.lock() = duration;
    }

    pub(crate) fn all(&self) -> Vec<Call> {
        self.0.calls.lock().clone()
    }

    /// Returns the names of the reconciled objects, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let calls = self.0.calls.lock();
        calls.iter().map(|call| call.request.to_string()).collect()
    }

    /// Counts the reconciles that run now.
    pub(crate) fn running(&self) -> usize {
        let calls = self.0.calls.lock();
        calls.iter().filter(|call| !call.has_ended).count()
    }

    /// Waits until `count` reconciles have begun.
    pub(crate) async fn until(&self, count: usize) {
        let begun = async {
            loop {
                let changed = self.0.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.0.calls.lock().len() >= count {
                    return;
                }
                changed.await;
            }
        };
        let begun = timeout(Duration::from_secs(86_400), begun).await;
        begun.unwrap_or_else(|_| panic!("no {count} reconciles within a day: {:?}", self.names()));
    }
}

impl Reconciler for Calls {
    type Error = &'static str;

    async fn reconcile(&self, request: Request) -> Result<Action, &'static str> {
        let name = request.name.clone();
        let number = {
            let mut calls = self.0.calls.lock();
            let began = Instant::now();
            calls.push(Call {
                request,
                began,
                has_ended: false,
            });
            calls.len() - 1
        };
        self.0.changed.notify_waiters();
        let duration = *self.0.duration.lock();
        tokio::time::sleep(duration).await;
        self.0.calls.lock()[number].has_ended = true;
        let next = {
            let mut results = self.0.results.lock();
            let script = results.get_mut(&name);
            let script = script.filter(|script| !script.is_empty());
            script.map(|script| script.remove(0))
        };
        match next.unwrap_or(Outcome::Is(Action::Done)) {
            Outcome::Is(action) => Ok(action),
            Outcome::Error => Err("a scripted error"),
            Outcome::Panic => panic!("a scripted panic"),
        }
    }
}

pub(crate) fn shutdown() -> Shutdown {
    Shutdown::new(shutdown::Config::default())
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns a controller of config maps with the name `test`.
pub(crate) fn controller(fake: &Fake<ConfigMap>) -> Controller<ConfigMap> {
    Controller::new("test", &fake.informer, shutdown())
}

/// Runs `controller` until it is aborted.
pub(crate) fn start(
    controller: Controller<ConfigMap>,
    calls: &Calls,
) -> JoinHandle<Result<(), Error>> {
    start_until(controller, calls, std::future::pending())
}

pub(crate) fn start_until(
    controller: Controller<ConfigMap>,
    calls: &Calls,
    stop: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(controller.run(calls.clone(), stop))
}

/// Returns a config map in the namespace `n`, with a generation.
pub(crate) fn map(name: &str, generation: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": "n", "name": name, "generation": generation },
    })
}
