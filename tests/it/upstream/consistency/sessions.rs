//! The freshness policy `session`: reads contain the writes of their own user, never go back, and
//! cost the API server nothing while the session is current.

use std::time::Duration;

use serde_json::{Value, json};

use super::own_writes::{Tally, Writer, cached};
use crate::support::clients::client::{Answer, Client};
use crate::support::faulty::FaultyUpstream;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;
use crate::support::proxies::fault_proxy::RequestKind;
use crate::support::settings::dice;

const PROOF: &str = "x-kubefan-proof";
const FLAGS: [&str; 2] = ["--freshness", "session"];
const DEADLINE: Duration = Duration::from_secs(60);

async fn start() -> FaultyUpstream {
    let faulty = FaultyUpstream::start_with(shared(), &FLAGS).await;
    faulty.create("object-0").await;
    faulty.create("object-1").await;
    cached(&faulty.kubefan.client(), &faulty.path).await;
    faulty
}

/// Returns the number of GETs and LISTs of ConfigMaps that the API server got from kubefan.
fn reads(faulty: &FaultyUpstream) -> u32 {
    let count = |kind| faulty.proxy.count(kind, "/configmaps");
    count(RequestKind::Get) + count(RequestKind::List)
}

fn version(answer: &Answer) -> u64 {
    let version = &answer.json()["metadata"]["resourceVersion"];
    version
        .as_str()
        .expect("a version")
        .parse()
        .expect("a number")
}

async fn value(client: &Client, path: &str) -> Value {
    client.get(path).await.ok().json()["data"]["n"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_session_shows_its_own_writes_although_watches_are_late() {
    let faulty = start().await;
    let client = faulty.kubefan.client();
    let mut dice = dice();
    let (mut writer, mut tally) = (Writer::new(&faulty.path), Tally::default());
    // The objects of the writer have the same names.
    for name in ["object-0", "object-1"] {
        client.delete(&format!("{}/{name}", faulty.path)).await.ok();
    }
    for _ in 0..18 {
        let delay = rand::Rng::random_range(&mut dice, 0..=200);
        faulty.proxy.delay_watches(Duration::from_millis(delay));
        let written = writer.write(&client).await;
        tally.add(written.is_seen(&client, &faulty.path).await);
    }
    assert!(tally.proven > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_current_session_costs_the_api_server_no_read() {
    let faulty = start().await;
    let client = faulty.kubefan.client();
    let object = format!("{}/object-0", faulty.path);
    // Proofs of single objects come first. Then one of all objects serves every session.
    eventually("a current session", DEADLINE, async || {
        let before = reads(&faulty);
        for name in ["object-0", "object-1"].repeat(5) {
            let path = format!("{}/{name}", faulty.path);
            client.get(&path).await.ok();
        }
        let sent = reads(&faulty) - before;
        (sent == 0).then_some(()).ok_or(sent)
    })
    .await;
    let before = reads(&faulty);
    let mut recent = 0;
    for number in 0..40_u64 {
        let change = json!({ "data": { "n": number.to_string() } });
        let written = version(&client.merge(&object, &change).await.ok());
        let read = client.get(&object).await.ok();
        assert_eq!(version(&read), written);
        let list = client.get(&faulty.path).await.ok();
        assert!(version(&list) >= written, "{list}");
        let answers = [read, list].into_iter();
        recent += answers
            .filter(|answer| answer.header(PROOF) == Some("recent"))
            .count();
    }
    // A watch that is a second late costs a proof.
    let sent = reads(&faulty) - before;
    assert!(
        recent >= 70 && sent <= 10,
        "{recent} of 80 by an earlier proof, {sent} sent"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_conflict_shows_in_the_next_read() {
    let faulty = start().await;
    let client = faulty.kubefan.client();
    let object = format!("{}/object-0", faulty.path);
    for number in 0..10_u64 {
        let mut read = client.get(&object).await.ok().json();
        // kubefan does not hear of the foreign write.
        faulty.proxy.silence(true);
        let foreign = json!({ "data": { "n": format!("foreign-{number}") } });
        faulty.direct.merge(&object, &foreign).await.ok();
        read["data"] = json!({ "n": "own" });
        let conflict = client.replace(&object, &read).await;
        assert_eq!(conflict.status, 409, "{conflict}");
        let seen = value(&client, &object).await;
        assert_eq!(seen, format!("foreign-{number}"));
        faulty.proxy.silence(false);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn what_exists_already_or_is_gone_shows_in_the_next_read() {
    let faulty = start().await;
    let client = faulty.kubefan.client();
    let absent = format!("{}/late", faulty.path);
    assert_eq!(client.get(&absent).await.status, 404);
    faulty.proxy.silence(true);
    faulty.create("late").await;
    let again = json!({ "metadata": { "name": "late" } });
    assert_eq!(client.create(&faulty.path, &again).await.status, 409);
    client.get(&absent).await.ok();
    // The last finalizer goes, and with it the object.
    let keep = json!({ "metadata": { "finalizers": ["kubefan.test/keep"] } });
    client.merge(&absent, &keep).await.ok();
    client.delete(&absent).await.ok();
    assert_eq!(
        client.get(&absent).await.status,
        200,
        "the finalizer keeps it"
    );
    let release = json!({ "metadata": { "finalizers": null } });
    client.merge(&absent, &release).await.ok();
    assert_eq!(client.get(&absent).await.status, 404);
    assert_eq!(client.delete(&absent).await.status, 404);
    faulty.proxy.silence(false);
}
