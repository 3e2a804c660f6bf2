//! kubefan in front of kubefan: a client of the last one reads its own writes, if all of them prove
//! their answers.

use super::own_writes::{FORMATS, PROOF, Tally, WATCH_LIST, Writer, cached, configmaps};
use crate::support::clients::frames::{Event, Format};
use crate::support::faulty::{FaultyUpstream, next};
use crate::support::outcomes::request_count;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const WRITES: u32 = 30;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn own_writes_are_read_back_through_three() {
    let server = shared();
    let path = configmaps(server).await;
    let first = Kubefan::start(server, &[]).await;
    let second = Kubefan::start_with(&first.kubeconfig(&User::Anonymous), &[]).await;
    let third = Kubefan::start_with(&second.kubeconfig(&User::Anonymous), &[]).await;
    let client = third.client();
    cached(&client, &path).await;
    let (mut writer, mut tally) = (Writer::new(&path), Tally::default());
    for _ in 0..WRITES {
        let written = writer.write(&client).await;
        tally.add(written.is_seen(&client, &path).await);
    }
    // Two lists of each round; a GET of the most recent state is forwarded.
    assert!(tally.proven >= 2 * WRITES, "{tally:?}");
    // The first kubefan alone has watches at the API server.
    for kubefan in [&second, &third] {
        let metrics = kubefan.metrics().await;
        let watched = metrics.lines().any(|line| {
            line.starts_with("kubefan_cache_objects{") && line.contains("resource=\"configmaps\"")
        });
        assert!(watched, "{metrics}");
    }
}

/// The number of LISTs and GETs that a cache of `kubefan` has answered.
async fn answered_by_cache(kubefan: &Kubefan) -> f64 {
    let metrics = kubefan.metrics().await;
    let counts = ["list", "get"].map(|verb| request_count(&metrics, "cache", verb));
    counts.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn answers_with_older_states_prove_nothing_to_the_next_kubefan() {
    let server = shared();
    // The policies of the first kubefan, and what its answers say.
    for (policy, method) in [("any", "any"), ("bounded:1h", "recent")] {
        let first = FaultyUpstream::start_with(server, &["--freshness", policy]).await;
        let (path, upper) = (&first.path, first.kubefan.client());
        first.create("there").await;
        let config = first.kubefan.kubeconfig(&User::Anonymous);
        for policy in ["strict", "session"] {
            let second = Kubefan::start_with(&config, &["--freshness", policy]).await;
            let client = second.client();
            for format in FORMATS {
                upper.get_as(path, format).await.ok();
            }
            cached(&client, path).await;
            // From now on, neither kubefan hears of a write.
            first.proxy.silence(true);
            first.create(&format!("unseen-by-{policy}")).await;
            let before = answered_by_cache(&second).await;
            for read in [path, path, &format!("{path}/there")] {
                let answer = client.get(read).await.ok();
                let case = format!("{policy} behind {method}, {read}: {answer}");
                assert_eq!(answer.header(PROOF), Some(method), "{case}");
            }
            let after = answered_by_cache(&second).await;
            assert!((after - before).abs() < 0.5, "{policy} behind {method}");
            let watch = format!("{path}?{WATCH_LIST}");
            let mut stream = client.watch(&watch, Format::Json).await.expect("a stream");
            loop {
                match next(&mut stream).await {
                    Event::Added(_) => {}
                    Event::Bookmark {
                        initial_events_end: true,
                        ..
                    } => break,
                    other => panic!("{policy} behind {method}: {other:?}"),
                }
            }
            let log = second.log();
            let warnings = log.lines().filter(|line| line.contains("older states"));
            assert_eq!(warnings.count(), 1, "{log}");
            first.proxy.silence(false);
        }
    }
}
