//! Reads of Events, which a cache can only prove when a later change comes: which side answers
//! them, and that all answers are the API server's.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::printed_tables::{answered_from, forwarded, is_cached};
use crate::support::clients::client::Client;
use crate::support::clients::frames::{Format, decode_list};
use crate::support::events::{
    PAGE, assert_existed, collections, continue_token, create_event, fill_caches, list, names,
};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private, shared};
use crate::support::programs::kubefan::Kubefan;
use crate::upstream::differential::comparable_body;

const LIMIT: Duration = Duration::from_secs(60);
/// After changes that came late, kubefan forwards for ten seconds.
const PROVEN: Duration = Duration::from_secs(240);
const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
const PROOF: &str = "x-kubefan-proof";
/// So many write without a pause that a change comes soon after each barrier.
const WRITERS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn lists_of_a_quiet_cluster_equal_the_api_servers() {
    let server = private().await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let namespace = server.namespace("quiet").await;
    fill_caches(&through, &namespace).await;
    for at in 0..=2 * PAGE {
        create_event(&direct, &namespace, &format!("e-{at}"), "x").await;
    }
    close(&server).await;
    for path in collections(&namespace) {
        for format in FORMATS {
            let wanted = direct.list(&path, format).await.items;
            eventually(&path, LIMIT, async || {
                let state = list(&through, &path, format).await;
                match state.items == wanted {
                    true => Ok(()),
                    false => Err(format!("{:?}", names(&state))),
                }
            })
            .await;
            assert_eq!(
                pages(&direct, &through, &path, format).await,
                [PAGE, PAGE, 1]
            );
            // Nothing changes, so nothing proves that the cache has all changes.
            let read = async || through.get_as(&path, format).await.ok();
            let got = answered_from(false, read).await;
            assert!(!is_cached(&got) && got.header(PROOF).is_none(), "{path}");
            let wanted = direct.get_as(&path, format).await.ok();
            assert_eq!(
                comparable_body(&path, &got),
                comparable_body(&path, &wanted),
                "{path} {format:?}"
            );
        }
    }
    assert!(forwarded(&kubefan, "consistent").await >= 4.0);
}

/// Creates an Event in another namespace. It shows kubefan that all earlier versions are complete.
async fn close(server: &ApiServer) {
    let elsewhere = server.namespace("elsewhere").await;
    create_event(&server.client(), &elsewhere, "later", "x").await;
}

/// Compares the pages of the list at version 0, all from kubefan's cache, with those of the API
/// server. Returns the numbers of their items.
async fn pages(direct: &Client, through: &Client, path: &str, format: Format) -> Vec<usize> {
    let mut target = format!("{path}?resourceVersion=0&limit={PAGE}");
    let mut counts = Vec::new();
    loop {
        let got = through.get_as(&target, format).await.ok();
        let wanted = direct.get_as(&target, format).await.ok();
        assert!(is_cached(&got), "{target}");
        assert_eq!(
            comparable_body(&target, &got),
            comparable_body(&target, &wanted),
            "{target}"
        );
        counts.push(decode_list(format, &got.body).items.len());
        // The API server continues the list of kubefan's version.
        let token = continue_token(&got.body, format);
        if token.is_empty() {
            return counts;
        }
        target = format!("{path}?limit={PAGE}&continue={token}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn changes_prove_the_cache_and_lists_show_what_was_acknowledged() {
    let server = private().await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let namespace = server.namespace("busy").await;
    fill_caches(&through, &namespace).await;
    let acknowledged = Arc::new(Mutex::new(None));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let acknowledged = Arc::clone(&acknowledged);
        writers.spawn(write(
            writer,
            direct.clone(),
            namespace.clone(),
            acknowledged,
        ));
    }
    for path in collections(&namespace) {
        for format in FORMATS {
            let answer = eventually(&path, PROVEN, async || {
                let written = acknowledged
                    .lock()
                    .clone()
                    .ok_or("nothing is written yet")?;
                let answer = through.get_as(&path, format).await.ok();
                let state = decode_list(format, &answer.body);
                assert!(names(&state).contains(&&*written), "{written} is missing");
                match answer.header(PROOF) {
                    Some("barrier") => Ok(answer),
                    _ => Err("forwarded"),
                }
            })
            .await;
            assert!(is_cached(&answer), "{path}");
            let state = decode_list(format, &answer.body);
            assert_existed(&direct, &path, &state, format).await;
        }
    }
    writers.shutdown().await;
}

/// Creates Events until the task is aborted. `acknowledged` is the name of the last one.
async fn write(
    writer: usize,
    client: Client,
    namespace: String,
    acknowledged: Arc<Mutex<Option<String>>>,
) {
    for number in 0_u64.. {
        let name = format!("e-{writer}-{number}");
        create_event(&client, &namespace, &name, "x").await;
        *acknowledged.lock() = Some(name);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn with_any_freshness_the_cache_answers_without_a_proof() {
    let server = shared();
    let kubefan = Kubefan::start(server, &["--freshness", "any"]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let namespace = server.namespace("any").await;
    fill_caches(&through, &namespace).await;
    create_event(&direct, &namespace, "one", "x").await;
    close(server).await;
    for path in collections(&namespace) {
        for format in FORMATS {
            for target in [format!("{path}/one"), path.clone()] {
                let read = async |client: &Client| client.get_as(&target, format).await;
                let wanted = read(&direct).await.ok();
                let wanted = comparable_body(&target, &wanted);
                eventually(&target, LIMIT, async || {
                    let got = read(&through).await;
                    match is_cached(&got) && comparable_body(&target, &got) == wanted {
                        true => Ok(()),
                        false => Err(got.to_string()),
                    }
                })
                .await;
            }
        }
    }
}
