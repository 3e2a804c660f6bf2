use std::io;
use std::time::Duration;

use super::scope::of_namespace;
use super::*;
use crate::api::{
    FieldSelector, GroupVersionResource, LabelSelector, RawFieldSelector, Resource,
    SelectableFields, WireFormat,
};
use crate::informer::{Failure, ResourceRule};
use crate::shutdown;
use crate::shutdown::Phase;
use crate::telemetry::Registry;
use crate::upstream::Dial;

fn slices(fields: SelectableFields) -> InformerSpec {
    let resource = Resource {
        gvr: GroupVersionResource::new("resource.k8s.io", "v1", "resourceslices"),
        kind: "ResourceSlice".to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: false,
        verbs: Vec::new(),
    };
    InformerSpec {
        resource: Arc::new(resource),
        format: WireFormat::Json,
        fields: Arc::new(fields),
        custom: false,
        list_kind: None,
        settings: Arc::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn only_other_fields_stop_an_informer_and_not_a_newer_server() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::in_memory(&dial);
    let informers = InformerSet::new(client, Config::default(), shutdown);
    let resource = slices(SelectableFields::default()).resource;
    let at = |minor| slices(SelectableFields::for_resource(&resource, minor));
    let (unknown, newer) = (at(None), at(Some(37)));
    assert_ne!(unknown.fields, newer.fields);
    let started = informers.get_or_start(&unknown, None).expect("it starts");
    let found = informers.get_or_start(&newer, None).expect("it runs");
    assert!(Arc::ptr_eq(&started, &found));
    assert!(started.fits(&newer));
    // Its objects have the values of other fields.
    let other = slices(SelectableFields::default());
    assert!(!started.fits(&other));
    let refused = informers.get_or_start(&other, None).err();
    assert_eq!(refused, Some(StartError::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_peek_starts_and_stops_nothing() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::in_memory(&dial);
    let informers = InformerSet::new(client, Config::default(), shutdown);
    let spec = slices(SelectableFields::default());
    let everything = Selection::default();
    let peek = |spec: &InformerSpec| informers.peek_or_start_in(spec, &everything, None);
    assert!(peek(&spec).is_ok_and(|found| found.is_none()));
    assert!(informers.all().is_empty());
    let started = informers.get_or_start(&spec, None).expect("it starts");
    let found = peek(&spec).expect("it runs").expect("it runs");
    assert!(Arc::ptr_eq(&started, &found));
    assert!(
        informers.peek_in(&spec, &everything, None).is_none(),
        "it is not ready"
    );
    let other = slices(SelectableFields::for_resource(&spec.resource, Some(37)));
    assert_eq!(peek(&other).err(), Some(StartError::Gone));
    assert!(
        peek(&spec).is_ok_and(|found| found.is_some()),
        "it was not stopped"
    );
}

/// An informer of all objects with these hooks.
fn start_with(informers: &InformerSet, spec: &InformerSpec, hooks: &Hooks) -> Arc<Informer> {
    let everything = Selection::default();
    let started = informers.get_or_start_with(spec, &everything, ObjectContent::Whole, hooks);
    started.expect("it starts")
}

#[test]
fn a_rule_may_select_by_a_field_of_newer_servers_before_the_version_is_known() {
    let resource = slices(SelectableFields::default()).resource;
    let unknown = SelectableFields::for_resource(&resource, None);
    for (field, is_valid) in [("spec.pool.name", true), ("spec.nosuch", false)] {
        let selector = RawFieldSelector::parse(&format!("{field}=x"));
        let rule = ResourceRule {
            fields: selector.expect("a selector"),
            ..ResourceRule::default()
        };
        assert_eq!(rule.settings(&resource, &unknown).is_ok(), is_valid);
    }
}

#[tokio::test(start_paused = true)]
async fn informers_start_until_connections_accept_no_further_requests() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config {
        not_ready_delay: Duration::from_secs(5),
        ..shutdown::Config::default()
    });
    let client = Client::in_memory(&dial);
    let informers = InformerSet::new(client, Config::default(), shutdown.clone());
    let start = |format| {
        let spec = slices(SelectableFields::default());
        informers
            .get_or_start(&InformerSpec { format, ..spec }, None)
            .err()
    };
    let requests = async {
        shutdown.reached(Phase::NotReady).await;
        let first = start(WireFormat::Json);
        shutdown.reached(Phase::StopAccepting).await;
        (first, start(WireFormat::Protobuf))
    };
    let (_, refused) = tokio::join!(shutdown.drain(), requests);
    assert_eq!(refused, (None, Some(StartError::ShuttingDown)));
}

/// Calls `body` on a thread of its own, and fails if it hangs.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    // Disconnected: `body` has panicked.
    let is_stuck = is_done.recv_timeout(Duration::from_secs(60))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(!is_stuck, "an informer that starts hangs");
    thread.join().expect("the body did not panic");
}

#[test]
fn an_informer_may_start_while_its_runtime_is_dropped() {
    ends(|| {
        for _ in 0..100 {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
            let shutdown = Shutdown::new(shutdown::Config::default());
            let handle = runtime.handle().clone();
            let informers = {
                let _entered = runtime.enter();
                InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown)
            };
            let starting = informers.clone();
            let (first, has_first) = std::sync::mpsc::channel();
            let starts = std::thread::spawn(move || {
                let _entered = handle.enter();
                let mut spec = slices(SelectableFields::default());
                Arc::make_mut(&mut spec.resource).namespaced = true;
                // Starts some while the runtime runs, some while it is dropped, and one after that.
                for namespace in 0.. {
                    let scope = of_namespace(Some(&format!("n{namespace}")));
                    let started = starting.get_or_start_scope(&spec, scope);
                    let started = started.expect("it starts");
                    let _ = first.send(());
                    let all = starting.all();
                    if !all.iter().any(|running| Arc::ptr_eq(running, &started)) {
                        break;
                    }
                }
            });
            has_first.recv().expect("one has started");
            drop(runtime);
            starts.join().expect("informers start");
            assert!(informers.all().is_empty(), "one stayed in the set");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn an_informer_is_shared_with_what_its_scope_contains() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informers = InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown);
    let mut spec = slices(SelectableFields::default());
    Arc::make_mut(&mut spec.resource).namespaced = true;
    let selection = |namespace: &str, labels: &str, fields: &str| Selection {
        namespace: Some(namespace)
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        labels: LabelSelector::parse(labels).expect("a selector"),
        fields: FieldSelector::parse(fields, &spec.fields).expect("a selector"),
        ..Selection::default()
    };
    let start = |selection: &Selection| {
        let started = informers.get_or_start_for(&spec, selection, ObjectContent::Whole);
        started.expect("it starts")
    };
    let metadata = |selection: &Selection| {
        let started = informers.get_or_start_for(&spec, selection, ObjectContent::Metadata);
        started.expect("it starts")
    };
    let only_metadata = metadata(&selection("c", "", ""));
    assert!(!Arc::ptr_eq(
        &only_metadata,
        &start(&selection("c", "", ""))
    ));
    let labelled = start(&selection("a", "app in (x,y)", ""));
    assert_eq!(labelled.scope(), &selection("a", "app in (x,y)", ""));
    for contained in ["app=x", "app=y,tier", "app in (y,x)"] {
        let shared = start(&selection("a", contained, "metadata.name=n"));
        assert!(Arc::ptr_eq(&shared, &labelled), "{contained}");
    }
    // None of these is contained.
    let by_name = start(&selection("", "", "metadata.namespace=a,metadata.name=n"));
    assert_eq!(by_name.namespace(), Some("a"));
    let all = start(&selection("", "", ""));
    for other in [&by_name, &all] {
        assert!(!Arc::ptr_eq(other, &labelled));
    }
    assert_eq!(informers.all().len(), 5);
    // Two have these objects, and any of them is shared.
    let shared = metadata(&selection("a", "app=x", ""));
    let sharing = [&labelled, &all];
    assert!(sharing.iter().any(|found| Arc::ptr_eq(found, &shared)));
    let shared = start(&selection("b", "app=x", ""));
    assert!(Arc::ptr_eq(&shared, &all));
    // Reads of a whole namespace never get an informer of a part of it.
    let whole = informers.get_or_start(&spec, Some("a"));
    assert!(Arc::ptr_eq(&whole.expect("it runs"), &all));
}

#[tokio::test(start_paused = true)]
async fn hooks_of_an_informer_do_not_concern_others() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informers = InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown);
    let spec = slices(SelectableFields::default());
    let start = |hooks: &Hooks| start_with(&informers, &spec, hooks);
    let transform = Hooks::default().with_transform(|_, object| drop(object.take()));
    let others = Hooks::default().with_transform(|_, object| drop(object.take()));
    let own = start(&transform);
    let plain = start(&Hooks::default());
    assert!(!Arc::ptr_eq(&own, &plain));
    assert!(!Arc::ptr_eq(&own, &start(&others)));
    assert!(Arc::ptr_eq(&own, &start(&transform.clone())));
    let whole = informers.get_or_start(&spec, None).expect("it starts");
    assert!(Arc::ptr_eq(&plain, &whole));

    // Handlers of failures are called as long as their users exist, and share a cache.
    let (sender, mut failures) = tokio::sync::mpsc::unbounded_channel();
    let handler = |number| {
        let sender = sender.clone();
        let send = move |_: &Failure<'_>| {
            let _ = sender.send(number);
        };
        Hooks::default().with_failure_handler(send)
    };
    let (first, second) = (handler(1), handler(2));
    for hooks in [&first, &second, &first] {
        assert!(Arc::ptr_eq(&plain, &start(hooks)));
    }
    let mut calls = vec![failures.recv().await, failures.recv().await];
    calls.sort_unstable();
    assert_eq!(calls, [Some(1), Some(2)]);
    drop(first);
    for _ in 0..3 {
        assert_eq!(failures.recv().await, Some(2));
    }
    assert_eq!(informers.all().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_transform_keeps_its_number_while_others_come_and_go() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informers = InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown);
    let spec = slices(SelectableFields::default());
    let transform = || Hooks::default().with_transform(|_, object| drop(object.take()));
    let start = |hooks: &Hooks| start_with(&informers, &spec, hooks);
    let registry = Registry::new();
    let sampled = informers.clone();
    registry.on_scrape(move |samples| sampled.sample(samples));
    // The numbers in the series of the informers.
    let series = || {
        let (_, text) = registry.render();
        let ready = text
            .lines()
            .filter(|line| line.starts_with("kubefan_informer_ready{"));
        let number = |line: &str| {
            let (_, number) = line.split_once("transform=\"")?;
            number.split('"').next()?.parse().ok()
        };
        let mut numbers: Vec<Option<usize>> = ready.map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    let plain = start(&Hooks::default());
    let (first, second) = (start(&transform()), start(&transform()));
    let numbers = [&plain, &first, &second].map(|informer| informer.transform_number());
    assert_eq!(numbers, [None, Some(1), Some(2)]);
    assert_eq!(series(), numbers);

    first.stop();
    first.reader().closed().await;
    while informers.all().len() == 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.transform_number(), Some(2));
    assert_eq!(series(), [None, Some(2)]);
    let (third, fourth) = (start(&transform()), start(&transform()));
    let numbers = [&third, &second, &fourth].map(|informer| informer.transform_number());
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    assert_eq!(series(), [None, Some(1), Some(2), Some(3)]);
}

#[tokio::test(start_paused = true)]
async fn hooks_of_the_set_count_as_none_of_an_informer() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let (sender, mut failures) = tokio::sync::mpsc::unbounded_channel();
    let hooks = Hooks::default()
        .with_transform(|_, object| drop(object.take()))
        .with_failure_handler(move |_| {
            let _ = sender.send(Instant::now());
        });
    let config = Config {
        hooks: hooks.clone(),
        ..Config::default()
    };
    let informers = InformerSet::new(Client::in_memory(&dial), config, shutdown);
    let spec = slices(SelectableFields::default());
    let start = |hooks: &Hooks| start_with(&informers, &spec, hooks);
    let informer = start(&hooks);
    assert!(Arc::ptr_eq(&informer, &start(&hooks.clone())));
    assert!(Arc::ptr_eq(&informer, &start(&Hooks::default())));
    let whole = informers.get_or_start(&spec, None).expect("it starts");
    assert!(Arc::ptr_eq(&informer, &whole));
    assert_eq!(informers.own_hooks(&hooks).transform_id(), None);
    // Each attempt fails once, and the next one comes after a backoff.
    let (first, second) = (failures.recv().await, failures.recv().await);
    assert!(first < second, "{first:?}, {second:?}");
}
