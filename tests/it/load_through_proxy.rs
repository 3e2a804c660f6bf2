//! Runs `kubefan load` against the simulator through a proxy: each flag changes its requests as
//! documented, and the load test reports the faults that the proxy injects.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Version};
use serde_json::Value;
use tokio::sync::Notify;

use crate::load::{LoadTest, leftover_namespaces};
use crate::support::poll::eventually;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::sim::Sim;
use crate::support::proxies::scripted_proxy::{
    Change, RequestAction, ScriptedProxy, SeenRequest, forward_all,
};

const LIMIT: Duration = Duration::from_secs(60);
const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";

/// Checks the report of a run and the requests that it sent.
type ReportCheck = fn(&Value, &[SeenRequest]) -> bool;

fn watches(seen: &[SeenRequest]) -> impl Iterator<Item = &SeenRequest> {
    seen.iter().filter(|seen| seen.is_watch())
}

fn distinct<T: Ord>(seen: &[SeenRequest], of: impl Fn(&SeenRequest) -> T) -> usize {
    watches(seen).map(of).collect::<BTreeSet<_>>().len()
}

/// Each row fails when its flags are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn every_flag_is_obeyed() {
    let sim = Sim::start(&[]).await;
    let pid = std::process::id().to_string();
    let table: [(&str, ReportCheck); 17] = [
        ("", |run, seen| {
            // The defaults that the flags of the other rows change.
            watches(seen).count() == 4
                && distinct(seen, |seen| seen.connection) == 1
                && watches(seen).all(|seen| seen.version == Version::HTTP_2)
                && watches(seen).all(|seen| seen.query("sendInitialEvents").is_empty())
                && watches(seen).all(|seen| seen.path.ends_with("/configmaps"))
                && watches(seen).all(|seen| seen.path.contains("/namespaces/kubefan-load-"))
                && seen
                    .iter()
                    .all(|seen| seen.header("authorization").is_empty())
                && run["writes"]["acknowledged"] == 10
                && run["object_bytes"] == 2048
                && run["lists"] == Value::Null
                && run["resume"] == Value::Null
        }),
        ("--watchers 7", |run, seen| {
            watches(seen).count() == 7 && run["events"]["delivered"] == 70
        }),
        ("--connections 3", |_, seen| {
            distinct(seen, |seen| seen.connection) == 3
        }),
        ("--http 1", |_, seen| {
            let is_old = |seen: &SeenRequest| seen.version == Version::HTTP_11;
            watches(seen).all(is_old) && distinct(seen, |seen| seen.connection) == 4
        }),
        ("--resource leases", |_, seen| {
            let path = "/apis/coordination.k8s.io/v1/namespaces/";
            let is_it =
                |seen: &SeenRequest| seen.path.starts_with(path) && seen.path.contains("/leases");
            let mut writes = seen.iter().filter(|seen| seen.method == Method::PATCH);
            watches(seen).all(is_it) && writes.all(is_it)
        }),
        ("-n default", |_, seen| {
            let mut writes = seen.iter().filter(|seen| seen.method == Method::PATCH);
            watches(seen).all(|seen| seen.path == OBJECTS)
                && writes.all(|seen| seen.path.starts_with(OBJECTS))
        }),
        ("-A", |_, seen| {
            watches(seen).all(|seen| seen.path == "/api/v1/configmaps")
        }),
        ("--selector-per-watcher app=load-{i}", |run, seen| {
            let selectors = |seen: &SeenRequest| seen.query("labelSelector").to_owned();
            let selected: BTreeSet<_> = watches(seen).map(selectors).collect();
            let expected = (0..4).map(|number| format!("app=load-{number}")).collect();
            selected == expected && run["events"]["delivered"] == 10
        }),
        ("--rate 25 --duration 600ms", |run, _| {
            run["writes"]["acknowledged"] == 15
        }),
        ("--object-size 5Ki", |run, _| run["object_bytes"] == 5120),
        ("--objects 3", |_, seen| {
            let writes = seen.iter().filter(|seen| seen.method == Method::PATCH);
            writes.map(|seen| &seen.path).collect::<BTreeSet<_>>().len() == 3
        }),
        ("--list-storm 3", |run, seen| {
            let is_list = |seen: &&SeenRequest| {
                seen.method == Method::GET
                    && seen.query("resourceVersion") == "0"
                    && !seen.is_watch()
                    && seen.path.ends_with("/configmaps")
            };
            let lists = || seen.iter().filter(is_list);
            let connections: BTreeSet<_> = lists().map(|seen| seen.connection).collect();
            let listed = run["lists"]["latency_ms"]["count"].as_u64();
            connections.len() == 3 && listed > Some(0) && listed <= Some(lists().count() as u64)
        }),
        ("--slow-watchers 2", |run, seen| {
            let slow = watches(seen).count() == 6 && run["watches"]["slow"] == 2;
            slow && run["events"]["delivered"] == 40
        }),
        ("--watch-list", |_, seen| {
            watches(seen).all(|seen| {
                seen.query("sendInitialEvents") == "true"
                    && seen.query("resourceVersionMatch") == "NotOlderThan"
            })
        }),
        ("--resume", |run, seen| {
            let resumed = watches(seen).filter(|seen| seen.query("resourceVersion") != "0");
            run["resume"]["live"] == 4
                && resumed.count() == 4
                && distinct(seen, |seen| seen.connection) == 2
                && run["events"]["delivered"] == 40
                && run["writes"]["acknowledged"] == 10
        }),
        ("--token-file TOKEN", |_, seen| {
            seen.iter()
                .all(|seen| seen.header("authorization") == "Bearer sesame")
        }),
        ("--server-pid PID", |run, _| {
            run["server"]["resident_bytes_peak"].as_u64() > Some(1 << 20)
        }),
    ];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let token = directory.path().join("token");
    fs::write(&token, "sesame").expect("a file");
    for (flags, shows) in table {
        let proxy = ScriptedProxy::start(sim.client(), forward_all).await;
        let mut all = vec!["--server", proxy.url()];
        for (flag, value) in [
            ("--watchers", "4"),
            ("--rate", "20"),
            ("--duration", "500ms"),
        ] {
            if !flags.contains(flag) {
                all.extend([flag, value]);
            }
        }
        let flags = flags.replace("TOKEN", &token.display().to_string());
        let flags = flags.replace("PID", &pid);
        all.extend(flags.split_whitespace());
        let result = LoadTest::start(&all).wait_for_exit();
        let run = result.only_clean_run();
        assert!(
            shows(run, &proxy.seen()),
            "{flags}: {run} {:#?}",
            proxy.seen()
        );
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_names_a_server_on_this_machine() {
    let sim = Sim::start(&[]).await;
    let proxy = ScriptedProxy::start(sim.client(), forward_all).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let config = config.display().to_string();
    let flags = ["--kubeconfig", &config, "--watchers", "3"];
    let result = LoadTest::start(&[&flags[..], &["--duration", "500ms"]].concat()).wait_for_exit();
    assert_eq!(result.only_clean_run()["settings"]["server"], *proxy.url());
    assert_eq!(watches(&proxy.seen()).count(), 3);
}

/// The simulator delays each frame of a watch by 200 ms, so with a window of 2 the third write
/// waits for the first event.
#[tokio::test(flavor = "multi_thread")]
async fn the_window_delays_writes_until_events_arrive() {
    let sim = Sim::start(&[]).await;
    let slow = "/faults/slow?milliseconds=200";
    sim.admin(Method::POST, slow).await.ok();
    let server = sim.client().server().to_owned();
    let common = ["--server", &server, "--watchers", "1", "--objects", "2"];
    let window = ["--rate", "max", "--window", "2", "--duration", "2s"];
    let result = LoadTest::start(&[common, window].concat()).wait_for_exit();
    let run = result.only_clean_run();
    assert_eq!(run["settings"]["window"], 2);
    let written = run["writes"]["acknowledged"].as_u64();
    assert!(Some(2) < written && written <= Some(12), "{run}");
}

/// The proxy forwards the creation of the namespace and drops the answer, so the namespace may
/// exist although the load test got an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_deleted_when_the_answer_to_its_creation_was_lost() {
    let sim = Sim::start(&[]).await;
    const NAMESPACES: &str = "/api/v1/namespaces";
    let is_creation = |seen: &SeenRequest| seen.method == Method::POST && seen.path == NAMESPACES;
    for (flags, stays) in [
        (&[][..], false),
        (&["-n", "shop"], false),
        (&["-n", "default"], true),
    ] {
        let proxy = ScriptedProxy::start(sim.client(), move |seen| match is_creation(seen) {
            true => RequestAction::DropAnswer,
            false => RequestAction::Forward,
        })
        .await;
        let result = LoadTest::start(&[&["--server", proxy.url()], flags].concat()).wait_for_exit();
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(
            result.stderr.contains("cannot create namespace"),
            "{result:?}"
        );
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
        let deleted = proxy
            .seen()
            .iter()
            .any(|seen| seen.method == Method::DELETE);
        assert_eq!(deleted, !stays, "{flags:?}: {:#?}", proxy.seen());
        let shop = sim.client().get("/api/v1/namespaces/shop").await;
        assert_eq!(shop.status, 404);
        sim.client().get("/api/v1/namespaces/default").await.ok();
    }
}

/// The proxy holds one creation back until the load test has sent its first cleanup, so that the
/// object appears after the cleanup and must be found by a second one.
#[tokio::test(flavor = "multi_thread")]
async fn objects_created_after_a_signal_are_deleted() {
    let sim = Sim::start(&[]).await;
    let (released, created_late) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (created, deleted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let proxy = {
        let (released, created_late) = (Arc::clone(&released), Arc::clone(&created_late));
        ScriptedProxy::start(sim.client(), move |seen| {
            if seen.path != OBJECTS {
                return RequestAction::Forward;
            }
            match seen.method {
                // The fifth creation, after the probe's and the first objects'.
                Method::POST if created.fetch_add(1, Ordering::Relaxed) == 4 => {
                    RequestAction::Hold(Arc::clone(&released), Arc::clone(&created_late))
                }
                // The first deletion is for the probe; the second is the cleanup, which does not
                // find the held object yet.
                Method::DELETE if deleted.fetch_add(1, Ordering::Relaxed) == 1 => {
                    RequestAction::Notify(Arc::clone(&released))
                }
                _ => RequestAction::Forward,
            }
        })
        .await
    };
    let load = LoadTest::start(&["--server", proxy.url(), "-n", "default"]);
    let posts = async || {
        let posts = proxy
            .seen()
            .iter()
            .filter(|seen| seen.method == Method::POST && seen.path == OBJECTS)
            .count();
        if posts > 5 { Ok(()) } else { Err(posts) }
    };
    eventually("creations", LIMIT, posts).await;
    load.signal("INT");
    let result = load.wait_for_exit();
    created_late.notified().await;
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(
        result.stderr.contains("interrupted before the first write"),
        "{result:?}"
    );
    assert!(
        !result.stderr.contains("could not be cleaned up"),
        "{result:?}"
    );
    let left = sim.client().get(OBJECTS).await.ok().json();
    assert_eq!(left["items"], serde_json::json!([]));
}

/// The load test does not wait forever for unanswered writes, and counts them as given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_no_write_is_given_up() {
    let sim = Sim::start(&[]).await;
    for (duration, is_signalled, given_up, code) in [("500ms", false, 5, 1), ("5m", true, 1, 0)] {
        let never = Arc::new(Notify::new());
        let proxy = ScriptedProxy::start(sim.client(), move |seen| match seen.method {
            Method::PATCH => RequestAction::Hold(Arc::clone(&never), Arc::default()),
            _ => RequestAction::Forward,
        })
        .await;
        let common = ["--server", proxy.url(), "--watchers", "2", "--objects", "1"];
        let writes = ["--rate", "10", "--duration", duration];
        let load = LoadTest::start(&[&common[..], &writes].concat());
        if is_signalled {
            let is_written = async || {
                let seen = proxy.seen();
                let is_write = |seen: &SeenRequest| seen.method == Method::PATCH;
                seen.iter().any(is_write).then_some(()).ok_or("no write")
            };
            eventually("a write", LIMIT, is_written).await;
            load.signal("INT");
        }
        let result = load.wait_for_exit();
        assert_eq!(result.code, Some(code), "{result:?}");
        let run = &result.report["runs"][0];
        assert_eq!(run["writes"]["acknowledged"], 0, "{run}");
        assert_eq!(run["writes"]["given_up"], given_up, "{run}");
        assert_eq!(run["interrupted"], is_signalled, "{run}");
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
    }
}

/// Returns a change of frames that ends the watch after its first MODIFIED event.
fn ends_early() -> Change {
    let mut is_over = false;
    Box::new(move |frame| {
        let is_last = std::mem::replace(&mut is_over, frame.starts_with(b"{\"type\":\"MODIFIED\""));
        (!is_last).then(|| vec![frame])
    })
}

/// An informer would relist after a 410; the load test starts a new watch from version 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_refused_as_expired_begins_anew() {
    let sim = Sim::start(&[]).await;
    let opened = AtomicUsize::new(0);
    let proxy = ScriptedProxy::start(sim.client(), move |seen| {
        match (seen.is_watch(), seen.query("resourceVersion")) {
            (true, "0") => match opened.fetch_add(1, Ordering::Relaxed) {
                0 => RequestAction::ChangeFrames(ends_early()),
                _ => RequestAction::Forward,
            },
            (true, _) => RequestAction::Expire,
            (false, _) => RequestAction::Forward,
        }
    })
    .await;
    // Each object is written only once, so the new watch's initial objects contain every write that
    // was missed.
    let flags = ["--watchers", "1", "--rate", "10", "--duration", "2s"];
    let result =
        LoadTest::start(&[&["--server", proxy.url()], &flags[..]].concat()).wait_for_exit();
    let run = result.only_clean_run();
    assert_eq!(run["watches"]["expired"], 1, "{run}");
    assert_eq!(run["watches"]["reconnects"], 1, "{run}");
    assert_eq!(watches(&proxy.seen()).count(), 3, "{:#?}", proxy.seen());
}

/// The proxy refuses every watch that resumes. Each object is written at most once until the watchers
/// have begun anew, so the initial objects contain every write.
#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_expire_after_the_cut_are_counted() {
    let sim = Sim::start(&[]).await;
    let proxy = ScriptedProxy::start(sim.client(), move |seen| {
        match (seen.is_watch(), seen.query("resourceVersion")) {
            (true, version) if version != "0" => RequestAction::Expire,
            _ => RequestAction::Forward,
        }
    })
    .await;
    let common = ["--server", proxy.url(), "--watchers", "3", "--resume"];
    let writes = ["--objects", "1000", "--rate", "10", "--duration", "500ms"];
    let result = LoadTest::start(&[&common[..], &writes].concat()).wait_for_exit();
    let run = result.only_clean_run();
    assert_eq!(run["resume"]["live"], 3, "{run}");
    assert_eq!(run["resume"]["expired"], 3, "{run}");
    assert_eq!(run["watches"]["expired"], 3, "{run}");
    assert_eq!(run["watches"]["reconnects"], 0, "{run}");
    assert_eq!(watches(&proxy.seen()).count(), 9, "{:#?}", proxy.seen());
}

/// Maps a frame to the frames that are sent instead. The first argument holds frames
/// that were held back for later.
type ChangeFrame = fn(&mut Vec<Vec<u8>>, Vec<u8>) -> Vec<Vec<u8>>;

/// Returns a change of frames that applies `change` to the event of the fifth write in every watch,
/// and to the following events while a frame is held back.
fn change_fifth_write(change: ChangeFrame) -> impl Fn() -> Change {
    move || {
        let mut kept = Vec::new();
        Box::new(move |frame| {
            let text = String::from_utf8_lossy(&frame);
            let is_fifth =
                text.starts_with("{\"type\":\"MODIFIED\"") && text.contains(":000000.00000005.");
            let is_due = is_fifth || !kept.is_empty();
            Some(if is_due {
                change(&mut kept, frame)
            } else {
                vec![frame]
            })
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_lost_repeated_or_swapped_are_reported() {
    let sim = Sim::start(&[]).await;
    let table: [(&str, ChangeFrame, u64); 4] = [
        ("missed", |_, _| Vec::new(), 2),
        ("duplicated", |_, frame| vec![frame.clone(), frame], 2),
        (
            "out_of_order",
            // Sends the fifth event after the sixth.
            |kept, frame| match kept.pop() {
                None => {
                    kept.push(frame);
                    Vec::new()
                }
                Some(before) => vec![frame, before],
            },
            2,
        ),
        (
            "unwanted",
            |_, frame| {
                let text = String::from_utf8_lossy(&frame).replacen("MODIFIED", "DELETED", 1);
                vec![frame, text.into_bytes()]
            },
            2,
        ),
    ];
    for (fault, change, count) in table {
        let change = change_fifth_write(change);
        let proxy = ScriptedProxy::start(sim.client(), move |seen| match seen.is_watch() {
            true => RequestAction::ChangeFrames(change()),
            false => RequestAction::Forward,
        })
        .await;
        let common = ["--server", proxy.url(), "--watchers", "2", "--objects", "1"];
        let writes = ["--rate", "20", "--duration", "500ms"];
        let result = LoadTest::start(&[&common[..], &writes].concat()).wait_for_exit();
        assert_eq!(result.code, Some(1), "{result:?}");
        let events = &result.report["runs"][0]["events"];
        for name in ["missed", "duplicated", "out_of_order", "unwanted"] {
            let expected = if name == fault { count } else { 0 };
            assert_eq!(events[name], expected, "{fault}: {events}");
        }
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
    }
}
