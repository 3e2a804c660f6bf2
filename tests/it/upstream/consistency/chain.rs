//! kubefan in front of kubefan in front of kubefan: a client of the last one reads its own writes.

use super::own_writes::{Tally, Writer, cached, configmaps};
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
