//! Four informers of client-go, each with a shard, see together exactly what one informer sees:
//! through a relist of kubefan and a restart. The API server ignores `shardSelector`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::restart::{metric, write, write_elsewhere};
use crate::support::faulty::FaultyUpstream;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, free_port, shared};
use crate::support::programs::informers::Informers;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::{informers, kubeconfig};
use crate::upstream::reads::shards::quarters;

const LIMIT: Duration = Duration::from_secs(60);
const BRIDGED: &str = "kubefan_bridged_watches_total";
/// The number of objects, large enough that no shard is empty.
const OBJECTS: u32 = 40;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn four_sharded_informers_see_what_one_sees() {
    let server = shared();
    let elsewhere = write_elsewhere(server).await;
    tokio::join!(
        compare(server, "rv0", "configmaps:json"),
        compare(server, "watchlist", "configmaps:typed"),
    );
    elsewhere.abort();
}

async fn compare(server: &'static ApiServer, mode: &str, resource: &str) {
    let listen = format!("127.0.0.1:{}", free_port());
    let flags = ["--listen", listen.as_str(), "--shard-selector=serve"];
    let upstream = FaultyUpstream::start_with(server, &flags).await;
    for number in 0..OBJECTS {
        upstream.create(&format!("first-{number}")).await;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let through = directory.path().join("config");
    kubeconfig::write(&through, upstream.kubefan.url(), None, &User::Anonymous);
    let namespace = upstream
        .path
        .split('/')
        .nth(4)
        .expect("a namespace")
        .to_owned();
    let namespace = namespace.as_str();
    let mut arguments = vec![
        "--namespace",
        namespace,
        "--mode",
        mode,
        "--resources",
        resource,
    ];
    let quarters = quarters();
    let shards = quarters.iter().map(String::as_str);
    arguments.extend(
        [""].into_iter()
            .chain(shards)
            .flat_map(|selection| ["--selection", selection]),
    );
    let informers = Informers::start_plainly(server.assets(), &through, &arguments).await;
    let mut sharded = Sharded {
        informers,
        resource,
    };
    let direct = server.kubeconfig("admin");
    let list = ["list", "--namespace", namespace, "--resources", resource];
    let agree = async |sharded: &mut Sharded<'_>, when: &str| {
        let listed = informers::run(server.assets(), &direct, &list).await;
        sharded.agree(&listed, &format!("{mode} {when}")).await;
    };
    agree(&mut sharded, "at first").await;

    for number in 0..60 {
        upstream.write(number).await;
    }
    agree(&mut sharded, "after changes").await;

    let writes = async {
        for number in 60..160 {
            upstream.write(number).await;
        }
    };
    upstream.through_a_hole(writes).await;
    // A client that has seen only deletions of the relist has the version before it, and gets the
    // deletions again after the restart. Each shard therefore gets a later change.
    for number in 0..OBJECTS {
        upstream.touch(&format!("first-{number}")).await;
    }
    agree(&mut sharded, "after a relist").await;

    let writer = write(server.client(), upstream.path.clone());
    let upstream = upstream.restart(&flags).await;
    writer.abort();
    upstream.touch("very-last").await;
    agree(&mut sharded, "after a restart").await;

    eventually("the end of the bridges", LIMIT, async || {
        let ended = async |how| metric(&upstream.kubefan, BRIDGED, how).await;
        match (ended("joined").await, ended("expired").await) {
            (5.0, 0.0) => Ok(()),
            other => Err(format!("{mode}: {other:?} watches have joined and expired")),
        }
    })
    .await;
    agree(&mut sharded, "after the bridges").await;
    let metrics = upstream.kubefan.metrics().await;
    for verb in ["list", "watch"] {
        let forwarded = request_count(&metrics, "forwarded", verb);
        assert_eq!(forwarded, 0.0, "{mode} {verb}: {metrics}");
    }
}

/// One informer of all objects, and four informers with a shard each.
struct Sharded<'a> {
    informers: Informers,
    resource: &'a str,
}

impl Sharded<'_> {
    /// Waits until the one informer has the `listed` objects, and the four have them without any
    /// twice. Then the four must have seen as many events as the one.
    async fn agree(&mut self, listed: &Value, what: &str) {
        let listed = objects(&listed["resources"][self.resource]);
        eventually(what, LIMIT, async || {
            let dump = self.informers.send_command("dump").await;
            let (one, four) = self.split(&dump["resources"]);
            let one: Vec<_> = one.iter().flat_map(|value| objects(value)).collect();
            let mut union: Vec<_> = four.iter().flat_map(|value| objects(value)).collect();
            union.sort();
            let is_spread = four.iter().all(|shard| !objects(shard).is_empty());
            match one == listed && union == listed && is_spread {
                true => Ok(()),
                false => Err(format!(
                    "{} objects, {} in shards instead of {}",
                    one.len(),
                    union.len(),
                    listed.len()
                )),
            }
        })
        .await;
        // Handlers get events later than the stores.
        eventually(what, LIMIT, async || {
            let report = self.informers.send_command("errors").await;
            let (one, four) = self.split(&report["events"]);
            match counts(&four) == counts(&one) {
                true => Ok(()),
                false => Err(report.to_string()),
            }
        })
        .await;
    }

    /// Splits a report into the values of the informer of all objects, and
    /// those of the informers of shards.
    fn split<'a>(&self, report: &'a Value) -> (Vec<&'a Value>, Vec<&'a Value>) {
        let report = report.as_object().expect("informers");
        let (one, four): (Vec<_>, Vec<_>) = report
            .iter()
            .partition(|(name, _)| name.as_str() == self.resource);
        let values =
            |part: Vec<(&String, &'a Value)>| part.into_iter().map(|(_, value)| value).collect();
        (values(one), values(four))
    }
}

/// Sums up the numbers of events of each type that all informers have seen.
fn counts(events: &[&Value]) -> BTreeMap<String, u64> {
    let events = events.iter().flat_map(|of_one| of_one.as_object());
    let mut sums = BTreeMap::new();
    for (event_type, count) in events.flatten() {
        *sums.entry(event_type.clone()).or_default() += count.as_u64().expect("a count");
    }
    sums
}

/// Returns the objects of a dump with their states, sorted by key.
fn objects(dump: &Value) -> Vec<(String, String)> {
    let objects = dump.as_object().expect("objects").iter();
    let mut objects: Vec<_> = objects
        .map(|(key, state)| (key.clone(), state.to_string()))
        .collect();
    objects.sort();
    objects
}
