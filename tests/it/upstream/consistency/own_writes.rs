//! A read of the most recent state shows an earlier write, even if watches are late, if the read
//! goes to another kubefan or another API server, and if the API server is an older version.
//!
//! Tests with names that start with `long_` are run by hand:
//!
//! ```sh
//! cargo test --test it own_writes -- --ignored --nocapture --test-threads=1
//! ```
//!
//! `KUBEFAN_ROUNDS` sets the number of writes, and `KUBEFAN_SEED` repeats a run.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use memchr::memmem;
use rand::Rng;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Event, Format, decode_list};
use crate::support::faulty::next;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ADMIN, ApiServer, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sibling::Sibling;
use crate::support::proxies::balancer::Balancer;
use crate::support::proxies::fault_proxy::FaultProxy;
use crate::support::proxies::lagging_etcd::LaggingEtcd;
use crate::support::proxies::missing_feature::MissingFeature;
use crate::support::settings::{dice, setting};

pub(super) const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
pub(super) const PROOF: &str = "x-kubefan-proof";
pub(super) const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
/// The deadline of a read including its retries.
const READ: Duration = Duration::from_secs(60);
/// A lag of an API server's watch cache, long enough to be observed reliably.
const LAG: Duration = Duration::from_secs(3);
/// The time between two background changes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(50);

/// How the reads of a run were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) proven: u32,
    forwarded: u32,
    /// Reads that had to be retried, after a 429 or after a 504 in a watch's stream.
    refused: u32,
}

impl Tally {
    fn count(&mut self, proof: Option<&str>) {
        match proof {
            Some(_) => self.proven += 1,
            None => self.forwarded += 1,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.proven += other.proven;
        self.forwarded += other.forwarded;
        self.refused += other.refused;
    }
}

/// A writer that creates, changes and deletes one object after another.
pub(super) struct Writer {
    path: String,
    round: u32,
}

/// The last write: the texts that answers must contain, and must not contain, from now on.
#[derive(Debug)]
pub(super) struct LastWrite {
    name: String,
    shows: Option<String>,
    hides: Option<String>,
    version: u64,
}

impl Writer {
    pub(super) fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            round: 0,
        }
    }

    pub(super) async fn write(&mut self, client: &Client) -> LastWrite {
        let (round, before) = (self.round, self.round.wrapping_sub(1));
        self.round += 1;
        let name = format!("object-{}", round / 3);
        let mark = |round: u32| format!("mark-{round:06}");
        let path = format!("{}/{name}", self.path);
        let answer = match round % 3 {
            0 => {
                let object = json!({ "metadata": { "name": name }, "data": { "m": mark(round) } });
                client.create(&self.path, &object).await
            }
            1 => {
                let change = json!({ "data": { "m": mark(round) } });
                client.merge(&path, &change).await
            }
            _ => client.delete(&path).await,
        };
        let answer = answer.ok().json();
        let version = answer["metadata"]["resourceVersion"].as_str();
        LastWrite {
            name,
            shows: (round % 3 < 2).then(|| mark(round)),
            hides: (round % 3 > 0).then(|| mark(before)),
            // The answer to a deletion does not contain its version.
            version: version.map_or(0, |version| version.parse().expect("a number")),
        }
    }
}

impl LastWrite {
    fn check(&self, what: &str, body: &[u8], version: &str) {
        let has = |mark: &str| memmem::find(body, mark.as_bytes()).is_some();
        let shows = self.shows.as_deref().is_none_or(has);
        let hides = !self.hides.as_deref().is_some_and(has);
        assert!(
            shows && hides && version.parse::<u64>().expect("a number") >= self.version,
            "{what} at {version} after {self:?}: {}",
            String::from_utf8_lossy(body)
        );
    }

    /// Checks that LIST, GET and watch list, in both formats and concurrently, show the write.
    pub(super) async fn is_seen(&self, client: &Client, path: &str) -> Tally {
        let reads = FORMATS.map(|format| async move {
            let reads = async {
                tokio::join!(
                    self.listed(client, path, format),
                    self.got(client, path, format),
                    self.watched(client, path, format)
                )
            };
            let (mut tally, got, watched) = within("reads", READ, reads).await;
            tally.add(got);
            tally.add(watched);
            tally
        });
        let mut all = Tally::default();
        for tally in join_all(reads).await {
            all.add(tally);
        }
        all
    }

    async fn listed(&self, client: &Client, path: &str, format: Format) -> Tally {
        let mut tally = Tally::default();
        let answer = get_with_retries(client, path, format, &mut tally)
            .await
            .ok();
        tally.count(answer.header(PROOF));
        let version = decode_list(format, &answer.body).resource_version;
        self.check("LIST", &answer.body, &version);
        tally
    }

    async fn got(&self, client: &Client, path: &str, format: Format) -> Tally {
        let mut tally = Tally::default();
        let path = format!("{path}/{}", self.name);
        let answer = get_with_retries(client, &path, format, &mut tally).await;
        match &self.shows {
            None => assert_eq!(answer.status, 404, "{self:?}: {answer}"),
            Some(_) => {
                let answer = answer.ok();
                self.check("GET", &answer.body, &self.version.to_string());
            }
        }
        tally
    }

    async fn watched(&self, client: &Client, path: &str, format: Format) -> Tally {
        let mut tally = Tally::default();
        loop {
            let mut stream = match client.watch(&format!("{path}?{WATCH_LIST}"), format).await {
                Ok(stream) => stream,
                Err(refused) => {
                    assert!(refused.contains("429"), "{refused}");
                    tally.refused += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let mut shown = Vec::new();
            loop {
                match next(&mut stream).await {
                    Event::Added(item) => shown.extend_from_slice(&item.body),
                    Event::Bookmark {
                        resource_version,
                        initial_events_end: true,
                    } => {
                        self.check("a watch-list", &shown, &resource_version);
                        return tally;
                    }
                    Event::Error { code: 504, .. } => break,
                    other => panic!("{other:?}"),
                }
            }
            tally.refused += 1;
        }
    }
}

/// Sends a GET, and retries it after each 429 as its `Retry-After` asks.
async fn get_with_retries(
    client: &Client,
    path: &str,
    format: Format,
    tally: &mut Tally,
) -> Answer {
    loop {
        let answer = client.get_as(path, format).await;
        if answer.status != 429 {
            return answer;
        }
        tally.refused += 1;
        let after = answer.header("retry-after").expect("a Retry-After header");
        let after = after.parse().expect("seconds");
        tokio::time::sleep(Duration::from_secs(after)).await;
    }
}

/// Has kubefan cache the resource in both formats.
pub(super) async fn cached(client: &Client, path: &str) {
    for format in FORMATS {
        let cached = format!("{path}?resourceVersion=0");
        client.get_as(&cached, format).await.ok();
    }
}

/// A task that changes a Secret every 50 ms, until this is dropped.
struct BackgroundChanges(JoinHandle<()>);

impl BackgroundChanges {
    async fn start(client: Client, configmaps: &str) -> Self {
        let path = configmaps.replace("configmaps", "secrets");
        let object = json!({ "metadata": { "name": "changing" } });
        client.create(&path, &object).await.ok();
        Self(tokio::spawn(async move {
            for number in 0_u64.. {
                let change = json!({ "metadata": { "annotations": { "n": number.to_string() } } });
                let object = format!("{path}/changing");
                client.merge(&object, &change).await.ok();
                tokio::time::sleep(CHANGE_INTERVAL).await;
            }
        }))
    }
}

impl Drop for BackgroundChanges {
    fn drop(&mut self) {
        let stopped = self.0.is_finished();
        self.0.abort();
        assert!(
            !stopped || std::thread::panicking(),
            "the background changes stopped early"
        );
    }
}

pub(super) async fn configmaps(server: &ApiServer) -> String {
    let namespace = server.namespace("own").await;
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Sends `rounds` writes, each through one of two kubefans, and reads each through the other one.
/// Both kubefans' watches are delayed by up to `latest` milliseconds. Before the first write, the
/// resource does not change for the time `quiet`.
async fn replicas(server: &ApiServer, rounds: u32, latest: u64, quiet: Duration) -> Tally {
    let mut dice = dice();
    let path = configmaps(server).await;
    let (proxies, kubefans) = (
        [
            FaultProxy::start(server).await,
            FaultProxy::start(server).await,
        ],
        tempfile::tempdir().expect("a temporary directory"),
    );
    let config = |index: usize| kubefans.path().join(index.to_string());
    for (index, proxy) in proxies.iter().enumerate() {
        kubeconfig::write(&config(index), proxy.url(), None, &User::Anonymous);
    }
    let kubefans = [
        Kubefan::start_with(&config(0), &[]).await,
        Kubefan::start_with(&config(1), &[]).await,
    ];
    let clients = [kubefans[0].client(), kubefans[1].client()];
    for client in &clients {
        cached(client, &path).await;
    }
    let _background = BackgroundChanges::start(server.client(), &path).await;
    tokio::time::sleep(quiet).await;
    let (mut writer, mut tally) = (Writer::new(&path), Tally::default());
    for round in 0..rounds {
        for proxy in &proxies {
            proxy.delay_watches(Duration::from_millis(dice.random_range(0..=latest)));
        }
        let writing = dice.random_range(0..2);
        let written = writer.write(&clients[writing]).await;
        tally.add(written.is_seen(&clients[1 - writing], &path).await);
        if (round + 1).is_multiple_of(20) {
            println!("{} rounds: {tally:?}", round + 1);
        }
    }
    tally
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_write_through_one_replica_is_seen_through_the_other() {
    let server = shared();
    let tally = replicas(server, 12, 300, Duration::ZERO).await;
    assert!(tally.proven > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: KUBEFAN_ROUNDS (100) after KUBEFAN_QUIET (120) seconds"]
async fn long_a_write_through_one_replica_is_seen_through_the_other() {
    let server = shared();
    let quiet = Duration::from_secs(setting("KUBEFAN_QUIET", 120));
    let rounds = setting("KUBEFAN_ROUNDS", 100);
    let tally = replicas(server, rounds, 3_000, quiet).await;
    println!("{rounds} rounds over two replicas, watches up to 3 s late: {tally:?}");
}

/// Two API servers, one of them with a lagging watch cache, a balancer in front of both, and a
/// kubefan with the balancer as its upstream.
struct BalancedServers {
    lagging: LaggingEtcd,
    sibling: Sibling,
    balancer: Balancer,
    kubefan: Kubefan,
    path: String,
    /// The number of ConfigMap watches that the lagging API server has without kubefan's.
    own_watches: f64,
}

/// The balancer's index of the API server without lag.
const FRESH: usize = 0;
/// The balancer's index of the API server with the lagging watch cache.
const LATE: usize = 1;

impl BalancedServers {
    async fn start(server: &ApiServer) -> Self {
        let path = configmaps(server).await;
        let lagging = LaggingEtcd::start(server.etcd_port()).await;
        let sibling = Sibling::start(server, &lagging.url(), &[]).await;
        let balancer = Balancer::start(&[server.port(), sibling.port()]).await;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = directory.path().join("config");
        let (authority, user) = (Some(server.authority()), User::Token(ADMIN));
        kubeconfig::write(&config, &balancer.url(), authority, &user);
        balancer.prefer(Some(FRESH));
        let kubefan = Kubefan::start_with(&config, &[]).await;
        cached(&kubefan.client(), &path).await;
        Self {
            own_watches: sibling.open_watches("configmaps").await,
            lagging,
            sibling,
            balancer,
            kubefan,
            path,
        }
    }

    /// Checks that the lagging API server does not show a write yet; without a lag the test would
    /// prove nothing.
    async fn lags(&self, unseen: &LastWrite) {
        let any = format!("{}?resourceVersion=0", self.path);
        let stale = self.sibling.client().get(&any).await.ok().to_string();
        let mark = unseen.shows.as_deref().expect("something that shows");
        assert!(!stale.contains(mark), "no lag: {stale}");
    }

    /// Makes kubefan watch at one API server, and send all further requests to the API server
    /// `requests`, or to both in turn if `requests` is `None`.
    async fn assign(&self, watches: usize, requests: Option<usize>) {
        self.balancer.prefer(Some(watches));
        self.balancer.cut();
        // kubefan has one watch for each of the two formats.
        let wanted = self.own_watches + if watches == LATE { 2.0 } else { 0.0 };
        eventually("watches in their place", READ, async || {
            let open = self.sibling.open_watches("configmaps").await;
            ((open - wanted).abs() < 0.5).then_some(()).ok_or(open)
        })
        .await;
        self.balancer.prefer(requests);
    }
}

/// Sends three times `rounds` writes to one API server. Reads each write through a kubefan
/// that is connected to this API server and to another API server, with a watch cache that
/// lags by up to `latest` milliseconds.
async fn balanced(server: &ApiServer, rounds: u32, latest: u64) -> Tally {
    let mut dice = dice();
    let balanced = BalancedServers::start(server).await;
    let (client, direct) = (balanced.kubefan.client(), server.client());
    let _background = BackgroundChanges::start(server.client(), &balanced.path).await;
    let (mut writer, mut all) = (Writer::new(&balanced.path), Tally::default());
    balanced.lagging.lag(LAG);
    balanced.lags(&writer.write(&direct).await).await;
    for (watches, requests) in [(LATE, Some(FRESH)), (FRESH, Some(LATE)), (LATE, None)] {
        balanced.assign(watches, requests).await;
        let mut tally = Tally::default();
        for _ in 0..rounds {
            let lag = dice.random_range(0..=latest);
            balanced.lagging.lag(Duration::from_millis(lag));
            let written = writer.write(&direct).await;
            tally.add(written.is_seen(&client, &balanced.path).await);
        }
        println!("watches at {watches}, requests at {requests:?}: {tally:?}");
        all.add(tally);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_write_is_seen_whichever_api_server_is_behind() {
    let server = shared();
    let tally = balanced(server, 4, 1_000).await;
    assert!(tally.proven > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: KUBEFAN_ROUNDS (100) in each of three setups"]
async fn long_a_write_is_seen_whichever_api_server_is_behind() {
    let server = shared();
    let rounds = setting("KUBEFAN_ROUNDS", 100);
    let tally = balanced(server, rounds, 1_000).await;
    println!("three times {rounds} rounds over two API servers, one up to 1 s behind: {tally:?}");
}

/// Sends six writes to the API server, and reads each through a kubefan with this kubeconfig: with
/// LIST, GET and watch list if `watched`, otherwise with a LIST only.
async fn six_rounds(server: &ApiServer, config: &Path, watched: bool) -> Tally {
    let path = configmaps(server).await;
    let kubefan = Kubefan::start_with(config, &[]).await;
    let (client, direct) = (kubefan.client(), server.client());
    cached(&client, &path).await;
    let _background = BackgroundChanges::start(server.client(), &path).await;
    let (mut writer, mut tally) = (Writer::new(&path), Tally::default());
    for _ in 0..6 {
        let written = writer.write(&direct).await;
        tally.add(match watched {
            true => written.is_seen(&client, &path).await,
            false => written.listed(&client, &path, Format::Json).await,
        });
    }
    tally
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_write_is_seen_when_the_api_server_is_older() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (unknown, watched) in [
        (
            &[
                MissingFeature::MetadataProtobuf,
                MissingFeature::WatchListRejected,
            ][..],
            true,
        ),
        (&[MissingFeature::WatchListIgnored], true),
        // Without metadata lists, a proof depends on whether the watch reaches the version in time.
        // If it does not, the LIST is forwarded.
        (&[MissingFeature::Metadata], false),
    ] {
        let proxy = FaultProxy::start(server).await;
        proxy.remove_features(unknown);
        let config = directory.path().join("config");
        kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
        let tally = six_rounds(server, &config, watched).await;
        println!("without {unknown:?}: {tally:?}");
        assert!(
            tally.proven > 0 || !watched,
            "without {unknown:?}: {tally:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_write_is_seen_when_the_api_server_has_no_watch_cache() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let flags = [
        "--watch-cache=false",
        "--feature-gates=WatchList=false,ListFromCacheSnapshot=false",
    ];
    let sibling = Sibling::start(server, &server.etcd_url(), &flags).await;
    let config = directory.path().join("config");
    sibling.write_kubeconfig(&config);
    let tally = six_rounds(server, &config, true).await;
    assert!(tally.proven > 0, "{tally:?}");
}
