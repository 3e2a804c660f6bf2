mod hooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kubefan_core::api::{ObjectKey, ResourceVersion, Selection, Status, WatchEvent};
use kubefan_core::informer::{Hooks, Reflector, ReflectorConfig, Signals, relist_channel};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{ListCall, ListerWatcher, ResumePoint, WatchCall};
use kubefan_core::{cache, shutdown, upstream};
use serde_json::{Value, json};

use super::*;
use crate::shared_informer;

fn object(name: &str) -> Value {
    json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"namespace": "default", "name": name, "labels": {"app": name}},
        "data": {"key": "value"},
    })
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("default"), name)
}

async fn watch(source: &FakeSource, start: ResumePoint) -> FakeWatch {
    let timeout = Duration::from_secs(300);
    source.watch(WatchCall { start, timeout }).await.unwrap()
}

fn after(version: u64) -> ResumePoint {
    ResumePoint::After(ResourceVersion(version))
}

/// Returns the next event as text, such as `ADDED a@2`; `None` if there is none now.
fn event(watch: &mut FakeWatch) -> Option<String> {
    let item = watch.next().now_or_never()?;
    Some(match item {
        None => "end".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(WatchEvent::Error(status))) => status.code.to_string(),
        Some(Ok(WatchEvent::Bookmark(bookmark))) => {
            let end = if bookmark.initial_events_end {
                " end"
            } else {
                ""
            };
            format!("BOOKMARK {}{end}", bookmark.resource_version)
        }
        Some(Ok(WatchEvent::Change {
            event_type,
            object,
            frame,
        })) => {
            let frame: Value = serde_json::from_slice(&frame).unwrap();
            assert_eq!(frame["type"], event_type.as_str());
            let in_frame = frame["object"]["metadata"]["resourceVersion"].as_str();
            assert_eq!(in_frame, Some(&*object.resource_version.to_string()));
            let name = object.key.name();
            format!("{} {name}@{}", event_type.as_str(), object.resource_version)
        }
    })
}

fn events(watch: &mut FakeWatch) -> Vec<String> {
    std::iter::from_fn(|| event(watch)).collect()
}

fn code(error: &upstream::Error) -> Option<u16> {
    error.status().map(|status| status.code)
}

#[tokio::test]
async fn changes_have_consecutive_versions_and_keep_the_uid() {
    let source = FakeSource::new();
    assert_eq!(source.resource_version(), ResourceVersion(1));
    assert_eq!(source.add(&object("a")).unwrap(), ResourceVersion(2));
    let first = source.objects().remove(0);
    assert_eq!(first.label("app"), Some("a"));
    assert!(!first.uid().is_empty());
    assert_eq!(source.modify(&object("a")).unwrap(), ResourceVersion(3));
    let second = source.objects().remove(0);
    assert_eq!(second.resource_version, ResourceVersion(3));
    assert_eq!(second.uid(), first.uid());
    assert_eq!(
        second.decode_json::<Value>().unwrap()["data"]["key"],
        "value"
    );
    assert_eq!(source.delete(&key("a")).unwrap(), ResourceVersion(4));
    assert!(source.objects().is_empty());
    source.add(&object("a")).unwrap();
    assert_ne!(source.objects()[0].uid(), first.uid(), "another object");
}

#[tokio::test]
async fn impossible_changes_are_errors_and_change_nothing() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    let is = |result: Result<ResourceVersion, Error>, text: &str| {
        assert_eq!(result.unwrap_err().to_string(), text);
    };
    is(
        source.add(&object("a")),
        "the object default/a exists already",
    );
    is(
        source.modify(&object("b")),
        "the object default/b does not exist",
    );
    is(
        source.delete(&key("b")),
        "the object default/b does not exist",
    );
    for nameless in [json!(1), json!({}), json!({"metadata": {"name": ""}})] {
        is(
            source.add(&nameless),
            "the object is not an object with metadata.name",
        );
    }
    assert_eq!(source.resource_version(), ResourceVersion(2));
}

#[tokio::test]
async fn a_list_has_pages_of_one_version() {
    let source = FakeSource::new();
    for name in ["c", "a", "b"] {
        source.add(&object(name)).unwrap();
    }
    let mut call = ListCall {
        limit: 2,
        continue_token: None,
    };
    let first = source.list(call.clone()).await.unwrap();
    source.add(&object("d")).unwrap();
    call.continue_token.clone_from(&first.continue_token);
    let second = source.list(call.clone()).await.unwrap();
    assert_eq!(second.continue_token, None);
    assert_eq!(first.resource_version, second.resource_version);
    let items = first.items.iter().chain(&second.items);
    let names: Vec<_> = items.map(|object| object.key.name()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let again = source.list(call).await.unwrap_err();
    assert_eq!(code(&again), Some(410), "the page was fetched already");
    let all = source.list(ListCall::default()).await.unwrap();
    assert_eq!(all.items.len(), 4);
    assert_eq!(source.barrier().await.unwrap(), all.resource_version);
}

#[tokio::test]
async fn a_watch_delivers_the_changes_after_its_start() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    source.modify(&object("a")).unwrap();
    let mut old = watch(&source, after(2)).await;
    assert_eq!(events(&mut old), ["MODIFIED a@3"]);
    let mut new = watch(&source, after(3)).await;
    assert!(events(&mut new).is_empty());
    source.delete(&key("a")).unwrap();
    source.bookmark();
    for watch in [&mut old, &mut new] {
        assert_eq!(events(watch), ["DELETED a@4", "BOOKMARK 4"]);
    }
    assert_eq!(source.watchers(), 2);
    drop(old);
    assert_eq!(source.watchers(), 1);
}

#[tokio::test]
async fn a_watch_list_begins_with_all_objects() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    source.add(&object("b")).unwrap();
    source.modify(&object("a")).unwrap();
    let mut watch = watch(&source, ResumePoint::InitialEvents).await;
    let expected = ["ADDED a@4", "ADDED b@3", "BOOKMARK 4 end"];
    assert_eq!(events(&mut watch), expected);
    source.delete(&key("b")).unwrap();
    assert_eq!(events(&mut watch), ["DELETED b@5"]);
}

#[tokio::test]
async fn watches_end_break_and_expire() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    type End = fn(&FakeSource);
    let endings: [(End, &[&str]); 3] = [
        (FakeSource::end_watches, &["end"]),
        (
            FakeSource::break_watches,
            &["the connection to the API server broke", "end"],
        ),
        (FakeSource::expire, &["410", "end"]),
    ];
    for (end, expected) in endings {
        let mut open = watch(&source, after(2)).await;
        end(&source);
        let ended: Vec<_> = (0..expected.len())
            .filter_map(|_| event(&mut open))
            .collect();
        assert_eq!(ended, expected);
        let mut next = watch(&source, after(2)).await;
        assert!(events(&mut next).is_empty(), "a new watch is open");
    }
    let mut expired = watch(&source, after(1)).await;
    assert_eq!(event(&mut expired).as_deref(), Some("410"));
    assert_eq!(event(&mut expired).as_deref(), Some("end"));
}

#[tokio::test]
async fn an_expired_history_expires_the_next_pages() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    source.add(&object("b")).unwrap();
    let mut call = ListCall {
        limit: 1,
        continue_token: None,
    };
    call.continue_token = source.list(call.clone()).await.unwrap().continue_token;
    source.expire();
    assert_eq!(code(&source.list(call).await.unwrap_err()), Some(410));
}

#[tokio::test]
async fn calls_fail_as_scripted_and_are_recorded() {
    let source = FakeSource::new();
    source.fail_next(upstream::Error::Transport("a planned error".into()));
    source.fail(Status::failure(500, "", "a planned failure"));
    let call = WatchCall {
        start: after(1),
        timeout: Duration::from_secs(1),
    };
    let first = source.list(ListCall::default()).await.unwrap_err();
    assert_eq!(code(&first), None);
    assert_eq!(code(&source.barrier().await.unwrap_err()), Some(500));
    assert_eq!(
        code(&source.watch(call.clone()).await.unwrap_err()),
        Some(500)
    );
    source.recover();
    assert!(source.watch(call.clone()).await.is_ok());
    let expected = [
        Request::List(ListCall::default()),
        Request::Barrier,
        Request::Watch(call.clone()),
        Request::Watch(call),
    ];
    assert_eq!(source.requests(), expected);
}

#[tokio::test]
async fn a_held_source_answers_when_it_is_released() {
    let source = FakeSource::new();
    let mut open = watch(&source, after(1)).await;
    source.hold();
    source.add(&object("a")).unwrap();
    assert!(events(&mut open).is_empty());
    let mut list = Box::pin(source.list(ListCall::default()));
    assert!((&mut list).now_or_never().is_none());
    source.release();
    assert_eq!(events(&mut open), ["ADDED a@2"]);
    assert_eq!(list.await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_test_can_wait_for_what_the_code_under_test_does() {
    let source = FakeSource::new();
    let lister = source.clone();
    let task = tokio::spawn(async move { lister.list(ListCall::default()).await.is_ok() });
    source.until(|source| !source.requests().is_empty()).await;
    assert!(task.await.unwrap());
}

/// The reflector recovers from everything that the source can do.
#[tokio::test(start_paused = true)]
async fn a_reflector_follows_the_source_through_all_faults() {
    for watch_list in [false, true] {
        let source = FakeSource::new();
        source.add(&object("first")).unwrap();
        let (writer, reader) = cache::cache(cache::Config::default());
        let (_, relists) = relist_channel();
        let signals = Signals {
            stop: Box::pin(std::future::pending()),
            relists,
        };
        let config = ReflectorConfig {
            watch_list,
            page_size: 2,
            ..ReflectorConfig::default()
        };
        let run = tokio::spawn(Reflector::new(source.clone(), writer, config, signals).run());
        assert!(reader.ready().await);
        let faults: [fn(&FakeSource); 6] = [
            |_| {},
            FakeSource::end_watches,
            FakeSource::break_watches,
            FakeSource::expire,
            |source| {
                source.hold();
                source.expire();
                source.release();
            },
            |source| {
                source.fail_next(upstream::Error::Transport("a planned error".into()));
                source.break_watches();
            },
        ];
        for (n, fault) in faults.iter().enumerate() {
            source.until(|source| source.watchers() == 1).await;
            fault(&source);
            let version = source.add(&object(&format!("object-{n}"))).unwrap();
            let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
            assert!(reader.wait_for(version, deadline).await, "fault {n}");
        }
        let snapshot = reader.snapshot().unwrap();
        let cached: Vec<_> = snapshot.list(&Selection::default(), None).collect();
        let objects = source.objects();
        assert_eq!(cached.len(), objects.len());
        for (cached, object) in cached.iter().zip(&objects) {
            assert_eq!(**cached, *object);
        }
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_calls_its_hooks() {
    let source = FakeSource::new();
    let map = json!({ "metadata": { "name": "a", "namespace": "n" }, "data": { "key": "x" } });
    source.add(&map).expect("a new object");
    source.fail_next(upstream::Error::Transport("a planned error".into()));
    let failures = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&failures);
    let hooks = Hooks::default()
        .with_transform(|_, object| drop(object["data"].take()))
        .with_failure_handler(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
    let config = shared_informer::Config {
        hooks,
        ..shared_informer::Config::default()
    };
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informer = source.informer::<ConfigMap>(config, &shutdown);
    assert!(informer.synced().await);
    let found = informer.lister().get(Some("n"), "a").expect("a config map");
    assert_eq!(found.expect("is there").data, None);
    assert_eq!(failures.load(Ordering::Relaxed), 1);
}
